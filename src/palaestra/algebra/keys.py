"""Keys: which rows a statistic ranges over, where a column is not enough.

One row per key, ranks and halves of episodes, strata by a count, teams by name, edges of a group's play. The methods
that use them are in `strata`. Keys from the similarity of texts are columns, which `anchors.similar` fills.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.returns import in_unit
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    Ties,
    absolute,
    as_signal,
    count,
    fill_missing,
    is_missing,
    mean,
    rank,
    register,
    shift,
    short,
    total,
    where,
)
from palaestra.algebra.turns import Ragged
from palaestra.errors import ExpressionError


def turn_values(evaluation: Evaluation, node: Signal, children: Iterable[Signal]) -> list[np.ndarray]:
    """List of the values of `Signal`s `children`, float64[rows] each, in an `Evaluation`; raises if one is per token.

    Raises:
        ExpressionError: one of them has a value per token.
    """
    values = []
    for child in children:
        value = evaluation(child)
        if isinstance(value, Ragged):
            raise ExpressionError(f"{short(node)}: {short(child)} has one value per token; wrap it in per_turn()")
        values.append(np.asarray(value, float))
    return values


@register()
def is_first(*, over: Keys = ("episode", "agent")) -> Signal:
    """Signal: mask of the first row, in the order of play, of the rows that agree in `over`; to count each key once.

    Of agents that act at once the first by name.

    >>> from palaestra.algebra.turns import Turns
    >>> is_first(over="episode").evaluate(Turns({"episode": [0, 0, 1], "turn": [1, 0, 0]}))
    array([False,  True,  True])
    """
    return Signal("is_first", over=joined(over))


@register()
def is_last(*, over: Keys = ("episode", "agent")) -> Signal:
    """Signal: mask of the last row, in the order of play, of the rows that agree in `over`.

    Of agents that act at once the last by name.
    """
    return Signal("is_last", over=joined(over))


@kernel("is_first")
@kernel("is_last")
def _edge_row(evaluation: Evaluation, node: Signal) -> np.ndarray:
    segments = evaluation.segments(node.options["over"])
    some = segments.lengths > 0
    place = segments.starts[some] + (segments.lengths[some] - 1 if node.op == "is_last" else 0)
    mask = np.zeros(len(evaluation.turns), bool)
    mask[place if segments.order is None else segments.order[place]] = True
    return mask


@register()
def on_last(x: SignalLike, *, over: Keys = ("episode", "agent")) -> Signal:
    """Signal: x on the last of the rows that agree in `over`, 0 on the others, an outcome paid once; missing with x.

    An outcome that nobody scored is no 0: if the others were 0, the sum over the episode would be.

    >>> from palaestra.algebra.turns import Turns
    >>> keys = {"episode": [0, 0, 1, 1], "agent": ["a"] * 4, "turn": [0, 1, 0, 1]}
    >>> on_last("success").evaluate(Turns(keys | {"success": [True, True, None, None]}))
    array([ 0.,  1., nan, nan])
    """
    paid = 1.0 * as_signal(x)
    return where(is_last(over=over), paid, 0.0 * paid)


@register()
def is_scored(x: SignalLike) -> Signal:
    """Signal: mask of the turns in which x is not missing; of one per token, in at least one of them."""
    return Signal("is_scored", as_signal(x))


@kernel("is_scored", range="row")
def _scored(evaluation: Evaluation, node: Signal) -> np.ndarray:
    value = evaluation(node.inputs[0])
    if not isinstance(value, Ragged):
        return np.asarray(~np.isnan(np.asarray(value, float)))
    rows = np.repeat(np.arange(len(value.lengths)), value.lengths)
    known = ~np.isnan(value.values.astype(float))
    return np.asarray(np.bincount(rows, known, minlength=len(value.lengths)) > 0)


def in_first_turn(*, over: Keys) -> Signal:
    """Signal: mask of all rows of each key's first turn; several, where agents act at once."""
    return shift(1.0, n=1, over=over, fill=0.0) == 0.0


def in_last_turn(*, over: Keys) -> Signal:
    """Signal: mask of all rows of each key's last turn; several, where agents act at once."""
    return shift(1.0, n=-1, over=over, fill=0.0) == 0.0


def joined(*keys: Keys) -> tuple[str | Signal, ...]:
    """Join keys for `over=` into one flat tuple of column names and signals; `col(name)` becomes the column's name."""
    parts = [(key,) if isinstance(key, str | Signal | pl.Expr) else tuple(key) for key in keys]
    signals = [key if isinstance(key, str) else as_signal(key) for part in parts for key in part]
    return tuple(key.options["name"] if isinstance(key, Signal) and key.op == "col" else key for key in signals)


@register()
def rank_among(x: SignalLike, *, over: Keys = "group", unit: Keys = "episode", ties: Ties = "average") -> Signal:
    """Signal: rank, 1 for the smallest, of each unit's mean of x among the units of the key; on every row of the unit.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"group": [0] * 4, "episode": [0, 0, 1, 2], "cost": [1.0, 3.0, 5.0, 1.0]})
    >>> rank_among("cost").evaluate(turns)
    array([2., 2., 3., 1.])
    """
    one = rank(mean(x, over=unit), over=over, ties=ties, where=is_first(over=unit))
    return mean(one, over=unit)


@register()
def upper_half(metric: SignalLike, *, over: Keys = "group", q: float = 0.5) -> Signal:
    """Signal: 1 on episodes in the upper part of the key by their mean metric, 0 on the lower ⌊q·n⌋; else missing.

    Missing without a metric.
    An odd one out goes up. Equal metrics are told apart by the number of the episode.

    Raises:
        ExpressionError: q is outside [0, 1].
    """
    in_unit("upper_half", q=q)
    m = mean(metric, over="episode")
    place = rank_among(m, over=over, ties="min") + rank_among("episode", over=joined(over, m)) - 1.0
    return where(~is_missing(m), place > q * count(m, over=over, unit="episode"))


@register()
def calls(text: str = "action", *, pattern: str) -> Signal:
    """Signal: number of the episode's turns whose text column matches a regular expression, e.g. calls of a tool."""
    column = as_signal(text)
    if column.op != "col":
        raise ExpressionError(f"calls: {column} is not a column of text; give its name")
    name = pl.col(column.options["name"]).cast(pl.String)
    return total(as_signal(name.str.contains(pattern).cast(pl.Float64)), over="episode")


@register()
def team(*members: tuple[str, ...]) -> Signal:
    """Signal used as a key: a number per team of agents, those of each tuple in `members`, the rest by name.

    members: the names of each team's agents. Agents that no team lists, and all of them if none is given, are put
    together by their name without its trailing number: `attacker_0` and `attacker_1` are a team.
    """
    name = pl.col("agent").cast(pl.String)
    key = name.str.replace(r"_?\d+$", "").hash(seed=0).cast(pl.Float64)
    for number, names in enumerate(members):
        key = pl.when(name.is_in(list(names))).then(-1.0 - number).otherwise(key)
    return as_signal(key)


def edge(*, history: int = 0, state: str = "state", action: str = "action") -> tuple[str | Signal, ...]:
    """Key, a tuple for `over=`, of a step in the graph of play: (state, action, next state), `history` states before.

    The table does not hold what is seen after the last turn; there, episodes with the same return end in the same node.

    Raises:
        ExpressionError: the history is negative.
    """
    if history < 0:
        raise ExpressionError(f"edge: history={history} is negative")
    outcome = total("reward", over="episode")
    end = outcome / (1.0 + absolute(outcome)) - 2.0  # a node of its own for each outcome: states are not negative
    after = fill_missing(shift(state, n=-1), end)
    return (state, action, after, *(shift(state, n=back) for back in range(1, history + 1)))
