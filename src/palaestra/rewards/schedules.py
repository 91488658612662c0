"""Schedules: weights that change with the column `iteration`; like everything else, signals.

`phase(before, after, at=…)`, a switch, and `cosine_restarts` are in `credit.weights`. Left out: schedules of what has
been achieved so far; those are signals of the batch, such as `batch_score()`.
"""

from __future__ import annotations

import math

import polars as pl

from palaestra.credit.weights import phase
from palaestra.errors import ExpressionError
from palaestra.signals import Signal, SignalLike, as_signal, clip, col, register


def _progress(name: str, steps: int, begin: int) -> Signal:
    if steps < 1:
        raise ExpressionError(f"{name}: steps={steps} must be at least 1")
    return clip((col("iteration") - float(begin)) / float(steps), 0.0, 1.0)


@register()
def linear(start: float, stop: float, *, steps: int, begin: int = 0) -> Signal:
    """From start at iteration `begin` to stop at `begin + steps`, constant before and after.

    >>> from palaestra.turns import Turns
    >>> linear(2, 1, steps=150).evaluate(Turns({"iteration": [0, 75, 300]}))  # ToolRL's weight of the format
    array([2. , 1.5, 1. ])
    """
    return float(start) + (float(stop) - float(start)) * _progress("linear", steps, begin)


@register()
def cosine(start: float, stop: float, *, steps: int, begin: int = 0) -> Signal:
    """The same along half a cosine: flat at both ends."""
    _progress("cosine", steps, begin)
    share = ((pl.col("iteration").cast(pl.Float64) - begin) / steps).clip(0.0, 1.0)
    return float(stop) + (float(start) - float(stop)) / 2 * (1.0 + as_signal((math.pi * share).cos()))


@register()
def two_phase(early: SignalLike, late: SignalLike, *, share: float, steps: int) -> Signal:
    """`early` until that share of the steps is done, `late` from then on ([206] EARL).

    >>> from palaestra.turns import Turns
    >>> two_phase(0.5, 0.1, share=0.3, steps=10).evaluate(Turns({"iteration": [2, 3]}))
    array([0.5, 0.1])
    """
    if not 0 <= share <= 1 or steps < 1:
        raise ExpressionError(f"two_phase: share={share} must be in [0, 1], steps={steps} at least 1")
    return phase(early, late, at=math.ceil(share * steps - 1e-9))
