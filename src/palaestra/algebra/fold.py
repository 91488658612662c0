"""Folds: rewards with a memory, carried along the turns of an episode; all episodes advance at once.

Few rewards need one: most memories are sums (`cumulative`), and most of the rest are one of the two general folds here,
`recurrence` and `running_max`. `fold` takes any step function, `fold_kernel` makes a signal of one. Left out: memories
that look ahead.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from palaestra.algebra.codes import Segments
from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.keys import joined
from palaestra.algebra.signals import Keys, Signal, SignalLike, as_signal, evaluate, register
from palaestra.algebra.turns import Ragged, Turns
from palaestra.errors import ExpressionError, InputError

State = tuple[np.ndarray, ...]
Step = Callable[..., tuple[State, np.ndarray]]


def fold(
    turns: Turns, step: Step, *inputs: SignalLike, start: tuple[float, ...] = (0.0,), over: Keys = ("episode", "agent")
) -> np.ndarray:
    """Float64[rows]: applies step(state, *inputs) -> (state, value) turn by turn in `Turns` along each key of `over`.

    Args:
        turns: The table.
        step: gets the state and this turn's inputs, each float64[n] for the n episodes that have such a turn, and
            returns both anew. A missing input is NaN.
        *inputs: Signals or columns with one value per turn.
        start: what the state is before the first turn.
        over: Keys whose turns follow each other.

    Raises:
        InputError: the step returns a state or a value of another shape.
        ExpressionError: an input has one value per token.

    >>> turns = Turns({"episode": [0, 0, 0, 1], "agent": ["a"] * 4, "reward": [1.0, 2.0, 0.0, 5.0]})
    >>> fold(turns, lambda state, x: ((state[0] * x + 1,), state[0]), "reward")  # 0, then s·x + 1
    array([0., 1., 3., 0.])
    """
    signals = [as_signal(each) for each in inputs]
    keys = joined(over)
    segments = turns.segments(*keys) if all(isinstance(k, str) for k in keys) else Evaluation(turns).segments(keys)  # type: ignore[arg-type]
    return _walk(step, start, [_flat(v, s) for v, s in zip(evaluate(turns, *signals), signals, strict=True)], segments)


def fold_kernel(op: str, *, start: tuple[float, ...]) -> Callable[[Step], Step]:
    """Decorator that makes a step function the kernel of operator `op`, for nodes `Signal(op, *inputs, over=…)`.

    A registered function builds the node.
    """

    def decorate(step: Step) -> Step:
        def compute(evaluation: Evaluation, node: Signal) -> np.ndarray:
            columns = [_flat(evaluation(child), child) for child in node.inputs]
            return _walk(step, start, columns, evaluation.segments(node.options["over"]))

        compute.__module__ = step.__module__  # where another process finds it
        compute.__qualname__ = step.__qualname__
        kernel(op)(compute)
        return step

    return decorate


def _flat(value: np.ndarray | Ragged, signal: Signal) -> np.ndarray:
    if isinstance(value, Ragged):
        raise ExpressionError(f"{signal} has one value per token; wrap it in per_turn()")
    return np.asarray(value, float)


def _walk(step: Step, start: tuple[float, ...], columns: list[np.ndarray], segments: Segments) -> np.ndarray:
    """The longest segments first, so that those which are not over yet are a prefix."""
    result = np.full(int(segments.lengths.sum()), np.nan)
    by_length = np.argsort(-segments.lengths, kind="stable")
    lengths, starts = segments.lengths[by_length], segments.starts[by_length]
    active = np.searchsorted(-lengths, -np.arange(1, (lengths[0] if len(lengths) else 0) + 1), side="right")
    state: State = tuple(np.full(len(lengths), each, float) for each in start)
    for position, number in enumerate(active):
        at = starts[:number] + position
        rows = at if segments.order is None else segments.order[at]
        state, value = step(tuple(each[:number] for each in state), *(column[rows] for column in columns))
        if any(np.shape(each) != (number,) for each in (*state, value)):
            raise InputError(f"fold: the step must return states and a value of shape ({number},)")
        result[rows] = value
    return result


# -- general folds ----------------------------------------------------------------------------------------------------


@register()
def recurrence(keep: SignalLike, add: SignalLike, *, over: Keys = ("episode", "agent")) -> Signal:
    """Signal y_t = keep_t · y_{t-1} + add_t, from 0. Where either is missing, y is missing there and unchanged later.

    >>> turns = Turns({"episode": [0] * 3, "agent": ["a"] * 3, "reward": [1.0, 1.0, 1.0], "kept": [1, 1, 0]})
    >>> recurrence("kept", "reward").evaluate(turns)
    array([1., 2., 1.])
    """
    return Signal("recurrence", as_signal(keep), as_signal(add), over=joined(over))


@fold_kernel("recurrence", start=(0.0,))
def _recurrence(state: State, keep: np.ndarray, add: np.ndarray) -> tuple[State, np.ndarray]:
    now = keep * state[0] + add
    return (np.where(np.isnan(now), state[0], now),), now


@register()
def running_max(x: SignalLike, *, over: Keys = ("episode", "agent")) -> Signal:
    """Signal: highest x so far among the rows that agree in `over`, this turn included; missing before any x."""
    return Signal("running_max", as_signal(x), over=joined(over))


@fold_kernel("running_max", start=(np.nan,))
def _running_max(state: State, x: np.ndarray) -> tuple[State, np.ndarray]:
    best = np.fmax(state[0], x)
    return (best,), best


# -- named rewards ----------------------------------------------------------------------------------------------------


@register()
def milestone_bonus(
    reached: SignalLike = "milestone",
    value: SignalLike = 0.2,
    horizon: SignalLike = 100.0,
    *,
    over: Keys = ("episode", "agent"),
) -> Signal:
    """Signal: bonus where the next sub-goal's number is `reached`, value · (1 - its turns / horizon), in order ([163]).

    The method is Words as Beacons (arXiv 2410.08632).

    reached: number, from 0, of the sub-goal that this turn completed; missing if none. Sub-goals pay in their order and
    once: one out of turn is neither paid nor counted as done. Not potential-based; an episode earns at most value times
    the number of sub-goals. Checked against the released code, whose experiments use value 0.2.

    Raises:
        InputError: horizon is not above 0.

    >>> turns = Turns({"episode": [0] * 4, "agent": ["a"] * 4, "milestone": [1, 0, 0, 1]})
    >>> milestone_bonus(horizon=10).evaluate(turns)
    array([0.  , 0.16, 0.  , 0.16])
    """
    _refuse_no_time("milestone_bonus", horizon)
    return Signal("milestone_bonus", *map(as_signal, (reached, value, horizon)), over=joined(over))


@fold_kernel("milestone_bonus", start=(0.0, 0.0))
def milestone_step(
    state: State, reached: np.ndarray, value: np.ndarray, horizon: np.ndarray
) -> tuple[State, np.ndarray]:
    """Step of `milestone_bonus` on arrays: (state, reached, value, horizon) -> ((index, turns waited), bonus)."""
    current, waited = state[0], state[1] + 1.0
    done = reached == current
    paid = np.where(done, value * np.maximum(1.0 - waited / horizon, 0.0), 0.0)
    return (current + done, np.where(done, 0.0, waited)), paid


@register()
def pressure(
    share: SignalLike = "pressure",
    inside: SignalLike = "inside",
    release: SignalLike = "release",
    horizon: SignalLike = 90.0,
    power: SignalLike = 0.7,
    *,
    over: Keys = ("episode", "agent"),
) -> Signal:
    """Signal: [21]'s bonus where `release` holds: mean `share` of its t turns `inside` · (1 - t / horizon) ** power.

    share: ½ + ½ · (share of allies in the zone - share of opponents), per turn. It adds up, for t turns, while `inside`
    holds, and is lost when that ends without a release. The discount is the card's; one released version halves the
    reward every so many frames instead.

    Raises:
        InputError: horizon is not above 0.
    """
    _refuse_no_time("pressure", horizon)
    return Signal("pressure", *map(as_signal, (share, inside, release, horizon, power)), over=joined(over))


@fold_kernel("pressure", start=(0.0, 0.0))
def _pressure(
    state: State, share: np.ndarray, inside: np.ndarray, release: np.ndarray, horizon: np.ndarray, power: np.ndarray
) -> tuple[State, np.ndarray]:
    total, frames = state
    fresh = 1.0 - np.minimum(frames, horizon) / horizon
    paid = np.where(release == 1, total / np.maximum(frames, 1.0) * fresh**power, 0.0)
    stays = (inside == 1) & (release != 1)
    return (np.where(stays, total + share, 0.0), np.where(stays, frames + 1.0, 0.0)), paid


def _refuse_no_time(name: str, horizon: SignalLike) -> None:
    if isinstance(horizon, int | float) and not horizon > 0:
        raise InputError(f"{name}: horizon={horizon}, expected more than 0 turns")
