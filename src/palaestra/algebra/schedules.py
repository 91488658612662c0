"""Schedules: weights that change with the column `iteration`; like everything else, signals.

Left out: schedules of what has
been achieved so far; those are signals of the batch, such as `batch_score()`.
"""

from __future__ import annotations

import math

import polars as pl

from palaestra.algebra.signals import Signal, SignalLike, as_signal, clip, col, register, where
from palaestra.errors import ExpressionError


def _progress(name: str, steps: int, begin: int) -> Signal:
    if steps < 1:
        raise ExpressionError(f"{name}: steps={steps} must be at least 1")
    return clip((col("iteration") - float(begin)) / float(steps), low=0.0, high=1.0)


@register()
def linear(start: float, stop: float, *, steps: int, begin: int = 0) -> Signal:
    """Signal that moves linearly from start at iteration `begin` to stop at `begin + steps`, constant outside.

    >>> from palaestra.algebra.turns import Turns
    >>> linear(2, 1, steps=150).evaluate(Turns({"iteration": [0, 75, 300]}))  # ToolRL's weight of the format
    array([2. , 1.5, 1. ])
    """
    return float(start) + (float(stop) - float(start)) * _progress("linear", steps, begin)


@register()
def cosine(start: float, stop: float, *, steps: int, begin: int = 0) -> Signal:
    """Signal from start at iteration `begin` to stop at `begin + steps` along half a cosine, constant outside."""
    _progress("cosine", steps, begin)
    share = ((pl.col("iteration").cast(pl.Float64) - begin) / steps).clip(0.0, 1.0)
    return float(stop) + (float(start) - float(stop)) / 2 * (1.0 + as_signal((math.pi * share).cos()))


@register()
def two_phase(early: SignalLike, late: SignalLike, *, share: float, steps: int) -> Signal:
    """Signal that is `early` while `iteration` is below share · steps, then `late` ([206] EARL).

    >>> from palaestra.algebra.turns import Turns
    >>> two_phase(0.5, 0.1, share=0.3, steps=10).evaluate(Turns({"iteration": [2, 3]}))
    array([0.5, 0.1])
    """
    if not 0 <= share <= 1 or steps < 1:
        raise ExpressionError(f"two_phase: share={share} must be in [0, 1], steps={steps} at least 1")
    return phase(early, late, at=math.ceil(share * steps - 1e-9))


@register()
def phase(before: SignalLike, after: SignalLike, *, at: int) -> Signal:
    """Signal that is `before` while `iteration` is below `at`, then `after`."""
    return where(col("iteration") < float(at), before, after)


@register()
def cosine_restarts(
    high: float = 0.6, low: float = 0.0, *, steps: int = 150, warm_up: int = 30, cycles: int = 3
) -> Signal:
    """Signal of t = `iteration`: high·(t + 1)/warm_up, then `cycles` falls from high to low, each half a cosine.

    Defaults are those of CANON's released code.

    Raises:
        ExpressionError: nothing is left of `steps` for the cycles.
    """
    length = (steps - warm_up) // cycles if cycles > 0 else 0
    if length <= 0 or warm_up < 0:
        raise ExpressionError(
            f"cosine_restarts: {steps} steps, {warm_up} to warm up, {cycles} cycles: no cycle has a step"
        )
    angle = ((pl.col("iteration") - warm_up) % length).cast(pl.Float64) * (math.pi / length)
    falling = low + (high - low) / 2 * (1.0 + as_signal(angle.cos()))
    return where(col("iteration") < float(warm_up), high * (col("iteration") + 1.0) / max(warm_up, 1), falling)
