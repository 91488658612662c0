"""Novelty: a bonus for what was seen seldom, in the episode, in the batch, or since training began.

Counts are running sums over a key; what was counted in earlier iterations is a column that `VisitCounts` adds and
remembers, as `RunningScale` does for a deviation; the stages `counts` and `running_scale` keep them for a run.
Elliptical bonuses count in feature space. Left out: networks that learn features or predict; the stages `rnd` and
`embed` fill columns.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import polars as pl

from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.keys import in_last_turn, is_first, joined
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    clip,
    fill_missing,
    ratio,
    register,
    shift,
    std,
    where,
)
from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError, SchemaError, nearest
from palaestra.rewards.match.words import matrix

Scope = Literal["episode", "all"]
Method = Literal["first", "inv_sqrt", "inv_pow"]
METHODS, SCOPES = ("first", "inv_sqrt", "inv_pow"), ("episode", "all")


@register()
def cum_count(key: Keys, *, scope: Scope = "episode", before: SignalLike = 0.0) -> Signal:
    """Signal: how often the row's key occurred so far, this row included; rows of one turn share their mean place.

    It is counted in the episode or in the batch (`scope`).

    Turn by turn; rows that meet it in the same turn (agents that act at once, episodes side by side) share the mean of
    their places. before: what was counted earlier, such as the column that `VisitCounts` adds.

    >>> from palaestra.algebra.turns import Turns
    >>> cum_count("state").evaluate(Turns({"episode": [0, 0, 0, 1], "turn": [0, 1, 2, 0], "state": [1, 2, 1, 1]}))
    array([1., 1., 2., 1.])
    """
    return visits(before, over=_scope("cum_count", key, scope))


def _scope(method: str, key: Keys, scope: str) -> tuple[str | Signal, ...]:
    if scope not in SCOPES:
        raise ExpressionError(f"{method}: scope={scope!r}{nearest(str(scope), SCOPES)}")
    return joined("episode", key) if scope == "episode" else joined(key)


@register()
def visits(before: SignalLike = 0.0, *, over: Keys, method: Method | None = None, beta: float = 1.0) -> Signal:
    """Signal: raw node behind `cum_count` and `count_bonus`: visit counts of a key, or a bonus by `method` of them."""
    return Signal("visits", as_signal(before), over=joined(over), method=method, beta=float(beta))


@kernel("visits")
def _visits(evaluation: Evaluation, node: Signal) -> np.ndarray:
    """1, 2, 3 … for the rows of each key in the order of play, what the method makes of it, and its mean in a turn."""
    ids, frame, method = evaluation.codes(node.options["over"]).ids, evaluation.turns.frame, node.options["method"]
    rows, turn = np.arange(len(ids)), np.arange(len(ids))
    if "turn" in frame.columns:
        number = frame["turn"].cast(pl.Int64)
        low, high = number.min() or 0, number.max() or 0
        turn = (number.fill_null(high + 1) - low).to_numpy()  # type: ignore[operator]
        rows = _sorted_by(turn, rows)
    rows = _sorted_by(ids, rows)
    fresh = np.diff(ids[rows], prepend=-1) != 0
    first = np.flatnonzero(fresh)
    place = np.arange(1.0, len(ids) + 1) - np.repeat(first, np.diff(first, append=len(ids)))
    moment = np.flatnonzero(fresh | (np.diff(turn[rows], prepend=-1) != 0))
    size = np.diff(moment, append=len(ids))
    before = np.asarray(evaluation(node.inputs[0]), float)[rows]
    if len(moment) < len(ids):  # one number for all who meet it at once, whatever their order
        before = np.repeat(np.add.reduceat(before, moment) / size, size)
    n = place + before
    if method is not None:
        known = ~np.isnan(n)
        n[known] = (
            n[known] == 1.0
            if method == "first"
            else n[known] ** (-0.5 if method == "inv_sqrt" else -node.options["beta"])
        )
    if len(moment) < len(ids):
        n = np.repeat(np.add.reduceat(n, moment) / size, size)
    found = np.empty(len(ids))
    found[rows] = n
    return found


def _sorted_by(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The rows in the order of their value (at least 0), otherwise as they were: a radix sort, 16 bits a pass."""
    for shift_by in range(0, int(values.max(initial=0)).bit_length(), 16):
        digits = (values[rows] >> shift_by).astype(np.uint16)
        rows = rows[np.argsort(digits, kind="stable")]
    return rows


@register()
def count_bonus(
    key: Keys,
    *,
    scope: Scope = "episode",
    method: Method = "first",
    beta: float = 1.0,
    before: SignalLike = 0.0,
) -> Signal:
    """Signal: exploration bonus of the visit count N of the key, 1[N = 1], 1/√N or 1/N^β, by `method`.

    N is that of `cum_count`; `method` is "first", "inv_sqrt" or "inv_pow".

    Rows that meet the key in the same turn share the mean of what they would get one after the other.

    Products are written as such: `count_bonus("state") * count_bonus("room", scope="all")`. A bonus that is paid again
    and again is worth farming unless its sum is small: 1/N sums to a logarithm, 1/N³ to at most 1.21.
    """
    if method not in METHODS:
        raise ExpressionError(f"count_bonus: method={method!r}{nearest(str(method), METHODS)}")
    return visits(before, over=_scope("count_bonus", key, scope), method=method, beta=beta)


@register()
def elliptical(
    features: SignalLike, *, ridge: float = 0.1, skip_first: bool = False, over: Keys = ("episode", "agent")
) -> Signal:
    """Signal: E3B's bonus φᵀC⁻¹φ of column `features`, C = ridge · I + Σ φφᵀ of the agent's earlier turns (2210.05805).

    arXiv 2210.05805.

    features: a list column of φ, as long on every row. C⁻¹ ← C⁻¹ - uuᵀ/(1 + b), u = C⁻¹φ, b the bonus. With one-hot φ
    it is 1/(ridge + N) for N earlier visits. skip_first: an episode's first bonus is 0, as in released code.
    """
    if not (ridge > 0 and math.isfinite(ridge)):
        raise ExpressionError(f"elliptical: ridge={ridge} must be positive")
    bonus = Signal("elliptical", as_signal(features), over=joined(over), ridge=float(ridge))
    return where(is_first(over=over), 0.0, bonus) if skip_first else bonus


BLOCK = 1 << 12


@kernel("elliptical")
def _elliptical(evaluation: Evaluation, node: Signal) -> np.ndarray:
    """All episodes of a block advance at once, a turn at a time; longest first, so that the active are a prefix."""
    phi = matrix(evaluation, node.inputs[0], None, node)
    segments = evaluation.segments(node.options["over"])
    by_length = np.argsort(-segments.lengths, kind="stable")
    bonus, width = np.full(len(phi), np.nan), phi.shape[1]
    for low in range(0, len(by_length), BLOCK):
        block = by_length[low : low + BLOCK]
        starts, lengths = segments.starts[block], segments.lengths[block]
        inverse = np.repeat(np.eye(width)[..., None] / node.options["ridge"], len(block), axis=-1)
        for position in range(lengths[0] if len(lengths) else 0):
            active = int(np.searchsorted(-lengths, -position - 1, side="right"))
            place = starts[:active] + position
            rows = place if segments.order is None else segments.order[place]
            x, c = np.ascontiguousarray(phi[rows].T), inverse[..., :active]
            u = np.einsum("ije,je->ie", c, x)
            bonus[rows] = b = (x * u).sum(axis=0)
            u /= np.sqrt(1.0 + b)
            u[:, np.isnan(b)] = 0.0  # what is not known is not counted
            c -= u[:, None] * u
    return bonus


@register()
def scaled(bonus: SignalLike, scale: SignalLike | None = None, *, coefficient: float = 1.0) -> Signal:
    """Signal: `coefficient` · bonus / scale, by default the batch's standard deviation (0, not NaN, if that is 0)."""
    deviation = std(bonus, over=(), ddof=0) if scale is None else as_signal(scale)
    return coefficient * ratio(bonus, deviation)


@register()
def novelty_difference(error: SignalLike, *, scale: float = 0.5) -> Signal:
    """Signal: NovelD's bonus max(`error` at the next turn - scale · `error`, 0); 0 on the last turn.

    error: of a random-network distillation at the state of each turn, a column.
    """
    gain = clip(shift(error, n=-1) - scale * as_signal(error), low=0.0)
    return where(in_last_turn(over=("episode", "agent")), 0.0 * as_signal(error), gain)


# -- what is remembered between iterations ----------------------------------------------------------------------------


class VisitCounts:
    """Mutable counts of how often each key (columns) occurred in earlier tables; `add` returns them as a column.

    >>> counts = VisitCounts("state")
    >>> turns = Turns({"state": [7, 7, 8]})
    >>> counts.add(turns)["count_before"].to_list(), counts.add(turns)["count_before"].to_list()
    ([0.0, 0.0, 0.0], [2.0, 2.0, 1.0])
    """

    def __init__(self, key: str | Sequence[str] = "state", *, column: str = "count_before") -> None:
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self.column = column
        self.table: pl.DataFrame | None = None

    def add(self, turns: Turns) -> Turns:
        """The table with a column of how often each row's key was counted before; then its rows are counted too.

        Raises:
            MissingColumnError: the table lacks a column of the key.
            SchemaError: its key has other columns than what was counted, or other types.
        """
        names = [name for name in ("run", *self.key) if name != "run" or name in turns.columns]
        keys = pl.DataFrame([turns[name] for name in names])
        keys = keys.with_columns(pl.col(pl.Categorical).cast(pl.String))
        if self.table is not None:
            keys = self._as_counted(keys)
        known = keys.group_by(names).agg(pl.len().cast(pl.Float64).alias(self.column))
        if self.table is None:
            before = pl.Series(self.column, np.zeros(len(turns)))
        else:
            found = keys.join(self.table, on=names, how="left", nulls_equal=True, maintain_order="left")
            before = found[self.column].fill_null(0.0)
            known = pl.concat([self.table, known]).group_by(names).agg(pl.col(self.column).sum())
        self.table = known
        return turns.with_column(**{self.column: before})

    def _as_counted(self, keys: pl.DataFrame) -> pl.DataFrame:
        assert self.table is not None
        so_far = dict(self.table.schema)
        so_far.pop(self.column)
        try:
            if list(so_far) == keys.columns:
                return keys.cast(so_far)  # type: ignore[arg-type]
        except pl.exceptions.InvalidOperationError:
            pass
        before, now = (", ".join(f"{name} {kind}" for name, kind in each.items()) for each in (so_far, keys.schema))
        raise SchemaError(f"Counts: counted ({before}) so far, now ({now})")

    def state_dict(self) -> dict[str, Any]:
        """The counts as the bytes of a Parquet file, uint8; empty if nothing was counted yet."""
        file = io.BytesIO()
        if self.table is not None:
            self.table.write_parquet(file)
        return {"counts": np.frombuffer(bytearray(file.getvalue()), np.uint8)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        data = np.asarray(state["counts"]).tobytes()
        self.table = pl.read_parquet(io.BytesIO(data)) if data else None


class RunningScale:
    """Running standard deviation of all values added so far: `add(values)` updates and returns it.

    One pass per table (Chan, Golub and LeVeque's merge).

    >>> scale = RunningScale()
    >>> [round(scale.add(np.array(batch)), 4) for batch in ([1.0, 3.0], [5.0])]
    [1.0, 1.633]
    """

    def __init__(self) -> None:
        self.number, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, values: np.ndarray) -> float:
        """Add values (missing ones are left out) and return the deviation of all so far; 0 before there are two."""
        x = np.asarray(values, float)
        x = x[~np.isnan(x)]
        if len(x):
            number, shift_ = self.number + len(x), x.mean() - self.mean
            self.squares += float(np.square(x - x.mean()).sum() + shift_**2 * self.number * len(x) / number)
            self.mean += float(shift_ * len(x) / number)
            self.number = number
        return math.sqrt(self.squares / self.number) if self.number else 0.0

    def state_dict(self) -> dict[str, Any]:
        """Number, mean and sum of squares so far."""
        return {"number": self.number, "mean": self.mean, "squares": self.squares}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.number, self.mean, self.squares = state["number"], state["mean"], state["squares"]


# -- named methods ----------------------------------------------------------------------------------------------------


@register()
def episodic_global_bonus(key: Keys, *, before: SignalLike = "count_before", global_key: Keys | None = None) -> Signal:
    """Signal: [80] 1[first time of `key` in the episode] / √(its times in all of training) (arXiv 2306.03236).

    Episodic bonuses win where episodes share little, global ones where they share much; the product is robust.
    before: how often the key was met in earlier iterations, which the stage `counts(key)` knows; 0 counts in each
    table anew. Checked against the released code's formulas.

    >>> third = Turns({"episode": [0], "turn": [0], "room": [7], "count_before": [2.0]})
    >>> episodic_global_bonus("room").evaluate(third).round(3)
    array([0.577])
    """
    every = count_bonus(key if global_key is None else global_key, scope="all", method="inv_sqrt", before=before)
    return count_bonus(key) * every


@register()
def oni_reward(
    label: SignalLike,
    message: Keys,
    *,
    reward: SignalLike = "reward",
    c_ext: float = 0.1,
    c_llm: float = 0.4,
    beta: float = 3.0,
) -> Signal:
    """Signal: [9] ONI, c_ext · reward + c_llm · label / N^β, N the message's count in the episode so far.

    arXiv 2410.23022.

    label: 1 for messages that an annotator found helpful (`judges.MessageLabels`), missing or 0 otherwise; or a learned
    score. With β = 3 repeating a message is worth at most 1.21 labels; with β = 1 it can still be farmed. Checked
    against the released code, where c_ext is 10 for sparse tasks and the ranked variant sums an unscaled reward.
    """
    bonus = fill_missing(label, 0.0) * count_bonus(message, method="inv_pow", beta=beta)
    return c_ext * as_signal(reward) + c_llm * bonus
