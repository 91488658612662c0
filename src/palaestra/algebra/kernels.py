"""How each node of a `Signal` is computed: NumPy over integer key codes, every node once.

Values are float64 (NaN = missing) or bool arrays, per turn, or `Ragged`, per token. Statistics reduce samples to one
number per key with `np.bincount`, whose order of summation is fixed, and gather back to rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import numpy as np
import polars as pl

from palaestra.algebra.binding import bound
from palaestra.algebra.codes import Codes, Segments, code_array, combine
from palaestra.algebra.samples import (
    SUMMARIES,
    Samples,
    by_moment,
    distinct,
    finish,
    rank,
    reduce,
    scanned,
    segments_among,
    shifted,
    token_segments,
)
from palaestra.algebra.text import short
from palaestra.algebra.tree import Signal, Value
from palaestra.algebra.turns import Ragged, Turns
from palaestra.errors import ExpressionError, InputError, MissingColumnError, RewardError

BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "neg": np.negative,
    "exp": np.exp,
    "log": np.log,
    "absolute": np.abs,
    "sign": np.sign,
    "is_missing": np.isnan,
}
_COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne"}


F = TypeVar("F", bound=Callable[..., Any])
Compute = Callable[["Evaluation", Signal], Value]
"""Computes a node; the `Evaluation` of the table gives values of inputs: `evaluation(node.inputs[0])`."""
Range = Literal["row", "key", "batch"]
KERNELS: dict[str, Compute] = {}
"""Computations of operators beyond the built-in ones, by `Signal.op`; filled by `kernel`."""
RANGES: dict[str, Range] = {}
"""Which rows a value of each of these operators may depend on."""


def kernel(*names: str, range: Range = "key") -> Callable[[F], F]:
    """Decorator that registers a function (evaluation, node) -> values as the computation of the operators `names`.

    Args:
        names: Names of the operator, as `op` of its nodes: `Signal("names", input, option=…)`.
        range: Rows on which a value may depend, besides through the operator's inputs. "row": its own row. "key": the
            rows that agree in the node's option `over`, or all rows of an iteration where a node has none. "batch": all
            rows of an iteration, whatever `over` says. `apply` reads folders accordingly.

    Returns:
        The decorator, which gives the function back.

    Raises:
        InputError: another function has the name already.

    Example:
        >>> @kernel("doubled", range="row")
        ... def _doubled(evaluation, node):
        ...     return 2 * evaluation(node.inputs[0])
        >>> from palaestra.algebra.signals import Signal, as_signal
        >>> Signal("doubled", as_signal("reward")).evaluate(Turns({"reward": [1.0, 2.0]}))
        array([2., 4.])
    """

    def decorate(compute: F) -> F:
        for name in names:
            there = KERNELS.get(name)
            if there is not None and _origin(there) != _origin(compute):
                raise InputError(f"kernel {name!r} is taken by {there.__module__}.{there.__qualname__}; choose another")
            KERNELS[name], RANGES[name] = compute, range
        return compute

    return decorate


def _origin(compute: Callable[..., Any]) -> tuple[str, str]:
    return compute.__module__, compute.__qualname__


class Evaluation:
    """Evaluator of signals on one table, which keeps the value of every node evaluated so far."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.done: dict[bytes, Value] = {}
        self.coded: dict[tuple[str | bytes, ...], Codes] = {}

    def __call__(self, node: Signal) -> Value:
        """The value of a node on the table, computed once."""
        if node.digest not in self.done:
            self.done[node.digest] = self._compute(node)
        return self.done[node.digest]

    def _compute(self, node: Signal) -> Value:
        op = node.op
        if op == "lit":
            return np.full(len(self.turns), node.options["value"])
        if op in ("col", "is_in"):
            return self._column(node)
        if op == "expr":
            return self._expression(node)
        if op in BINARY or op in UNARY or op in ("where", "clip", "fill_missing", "ratio", "and", "or", "not"):
            return self._elementwise(node)
        if op in ("per_turn", "per_token"):
            return self._change_grain(node)
        if op in ("shift", "cumulative"):
            return self._along(node)
        if op in KERNELS:
            return KERNELS[op](self, node)
        return self._statistic(node)

    # -- leaves -------------------------------------------------------------------------------------------------------

    def _column(self, node: Signal) -> Value:
        name = node.options["name"]
        series = self.turns[name]
        if node.op == "is_in":
            series = series.cast(pl.String).is_in(list(node.options["values"]))
        return self._numbers(series, node)

    def _expression(self, node: Signal) -> Value:
        for name in node.needs():
            self.turns._require(name)
        try:
            series = self.turns.frame.select(node.options["expr"].alias("value"))["value"]
        except pl.exceptions.PolarsError as error:
            raise ExpressionError(f"{node}: {str(error).splitlines()[0]}") from error
        if len(series) != len(self.turns):
            raise ExpressionError(
                f"{short(node)} gives {len(series)} values for {len(self.turns)} rows; it must give one for each row"
            )
        return self._numbers(series, node)

    def _numbers(self, series: pl.Series, node: Signal) -> Value:
        lengths = None
        if isinstance(series.dtype, pl.List):
            lengths = series.list.len().fill_null(0).to_numpy().astype(np.int64)
            series = series.filter(pl.Series(lengths > 0, dtype=pl.Boolean)).explode()
        if series.dtype == pl.Boolean and not series.null_count():
            values = series.to_numpy()
        elif series.dtype.is_numeric() or series.dtype == pl.Boolean:
            values = series.cast(pl.Float64).to_numpy()
            if np.count_nonzero(~np.isfinite(values)) > series.null_count():
                bad = _rows(~np.isfinite(values) & ~series.is_null().to_numpy(), lengths)
                raise RewardError(f"{short(node)} is not finite in {_first(bad)}: fix the values or make them null")
        else:
            raise ExpressionError(
                f"{short(node)} holds {series.dtype}, not numbers; compare it, e.g. is_in({series.name!r}, 'a')"
            )
        return values if lengths is None else Ragged(values, lengths)

    # -- row by row ---------------------------------------------------------------------------------------------------

    def _align(self, node: Signal) -> tuple[list[np.ndarray], np.ndarray | None]:
        values = [self(child) for child in node.inputs]
        ragged = [value for value in values if isinstance(value, Ragged)]
        if not ragged:
            return [value for value in values if isinstance(value, np.ndarray)], None
        lengths = ragged[0].lengths
        for other in ragged[1:]:
            if not np.array_equal(other.lengths, lengths):
                row = int(np.flatnonzero(other.lengths != lengths)[0])
                raise ExpressionError(
                    f"{short(node)}: per-token values differ in length, first in row {row}: "
                    f"{lengths[row]} and {other.lengths[row]} tokens"
                )
        flat = [value.values if isinstance(value, Ragged) else np.repeat(value, lengths) for value in values]
        return flat, lengths

    def _elementwise(self, node: Signal) -> Value:
        inputs, lengths = self._align(node)
        with np.errstate(all="ignore"):
            result = _apply(node, inputs)
        if result.dtype != bool and node.op != "where" and not np.isfinite(result).all():
            bad = ~np.isfinite(result)
            for value in inputs:  # a missing input gives a missing result
                bad &= np.isfinite(value)
            if bad.any():
                why = "divides by zero" if node.op == "div" else "is not finite"
                raise ExpressionError(
                    f"{short(node)} {why} in {_first(_rows(bad, lengths))}; guard it with where() or clip()"
                )
        return result if lengths is None else Ragged(result, lengths)

    def _change_grain(self, node: Signal) -> Value:
        value = self(node.inputs[0])
        if node.op == "per_token":
            like = self(node.inputs[1])
            if isinstance(value, Ragged) or not isinstance(like, Ragged):
                raise ExpressionError(f"{short(node)}: needs a per-turn value and a per-token `like`")
            return Ragged(np.repeat(value, like.lengths), like.lengths)
        if not isinstance(value, Ragged):
            raise ExpressionError(f"{short(node)}: {node.inputs[0]} already has one value per turn")
        rows = Codes(np.arange(len(value.lengths)), len(value.lengths))
        samples = reduce(value.values.astype(float), Codes(np.repeat(rows.ids, value.lengths), rows.size), None)
        return SUMMARIES[node.options["method"]](samples)

    # -- keys ---------------------------------------------------------------------------------------------------------

    def codes(self, over: tuple[str | Signal, ...]) -> Codes:
        """Codes of a key of columns and computed values; the latter are kept as long as this evaluation."""
        name = tuple(key if isinstance(key, str) else key.digest for key in over)
        if name in self.coded:
            return self.coded[name]
        names = [key for key in over if isinstance(key, str)]
        computed = []
        for key in over:
            if isinstance(key, Signal):
                value = self(key)
                if isinstance(value, Ragged):
                    raise ExpressionError(f"key {key} has one value per token; a key needs one per turn")
                computed.append(code_array(value))
        if not computed:
            return self.turns.codes(*names)
        columns = () if "row" in names else self.turns.key_columns(names)
        parts = [self.turns._codes_of((c,)) for c in columns] or [self.turns.codes(*names)]
        self.coded[name] = combine(*parts, *computed)
        return self.coded[name]

    def segments(self, over: tuple[str | Signal, ...]) -> Segments:
        """Rows of a key of columns and computed values, in the order of play."""
        names = [key for key in over if isinstance(key, str)]
        if len(names) == len(over):
            return self.turns.segments(*names)
        return self.turns.ordered(self.codes(over), within_turn="turn" in names)

    # -- statistics ---------------------------------------------------------------------------------------------------

    def _statistic(self, node: Signal) -> Value:
        x, codes, keep, lengths = self._inputs(node)
        alone = lengths is None and codes.size == len(x) and keep.all()
        if alone and node.op in ("mean", "total") and node.options["unit"] == "row":
            return x  # every row has a key of its own, as in episodes of one turn
        if node.op == "rank":
            result = rank(x, codes, keep, node.options["ties"])
        else:
            samples, own = self._samples(node, x, codes, keep, lengths)
            result = finish(node, x, own, codes, keep, samples)
        return result if lengths is None else Ragged(result, lengths)

    def samples(self, node: Signal) -> Samples:
        """Samples per key that a statistic's node is computed from, for `explain`."""
        x, codes, keep, lengths = self._inputs(node)
        return self._samples(node, x, codes, keep, lengths)[0]

    def _inputs(self, node: Signal) -> tuple[np.ndarray, Codes, np.ndarray, np.ndarray | None]:
        """Values, key codes and mask of what counts, all of the value's grain; tokens per row if it is per token."""
        value, codes = self(node.inputs[0]), self.codes(node.options["over"])
        lengths = None
        if isinstance(value, Ragged):
            lengths = value.lengths
            codes = Codes(np.repeat(codes.ids, lengths), codes.size)
            value = value.values
        x = value.astype(float, copy=False)
        keep = ~np.isnan(x)
        if node.options["where"] is not None:
            keep &= self._mask(node, node.options["where"], lengths)
        return x, codes, keep, lengths

    def _mask(self, node: Signal, where: Signal, lengths: np.ndarray | None) -> np.ndarray:
        """The option `where` of a node as bool[values]; lengths: tokens per row if the node is per token."""
        mask = self(where)
        if isinstance(mask, Ragged):
            if lengths is None or not np.array_equal(mask.lengths, lengths):
                raise ExpressionError(
                    f"{short(node)}: where= has one value per token, {node.inputs[0]} does not match it"
                )
            mask = mask.values
        elif lengths is not None:
            mask = np.repeat(mask, lengths)
        return mask if mask.dtype == bool else ~np.isnan(mask) & (mask != 0)

    def _samples(
        self, node: Signal, x: np.ndarray, codes: Codes, keep: np.ndarray, lengths: np.ndarray | None
    ) -> tuple[Samples, np.ndarray]:
        """Samples of a statistic, and for each position the sample that it belongs to."""
        unit = node.options["unit"]
        taken = None if keep.all() else keep
        if unit == "row":
            return reduce(x, codes, taken), x
        if unit == "episode":
            over = node.options["over"]
            columns = all(isinstance(key, str) for key in over)
            pair = self.codes((*over, "episode")) if columns else combine(self.codes(over), self.turns.codes("episode"))
            if lengths is not None:
                pair = Codes(np.repeat(pair.ids, lengths), pair.size)
        else:
            pair = distinct(x, codes)
        if taken is None and lengths is None and pair.size == len(x):
            return Samples(x, codes.ids, codes.size), x
        means = reduce(x, pair, taken).means
        key = np.zeros(pair.size, np.int64)
        key[pair.ids] = codes.ids
        present = ~np.isnan(means)
        return Samples(means[present], key[present], codes.size), means[pair.ids]

    # -- along an episode ---------------------------------------------------------------------------------------------

    def _along(self, node: Signal) -> Value:
        value, segments = self(node.inputs[0]), self.segments(node.options["over"])
        lengths = None
        if isinstance(value, Ragged):
            lengths, x = value.lengths, value.values.astype(float)
            segments = token_segments(segments, lengths)
        else:
            x = value.astype(float, copy=False)
        how = node.options
        if how.get("where") is not None:
            segments = segments_among(segments, self._mask(node, how["where"], lengths))
        order = segments.order
        ordered = x if order is None else x[order]
        moments = segments.moments
        if moments is not None:  # agents that act at once: one value for all of the turn, on each of its rows
            ordered, segments = by_moment(ordered, segments, mean=node.op == "shift")
        if node.op == "shift":
            ordered = shifted(ordered, segments, how["n"], how["fill"])
        else:
            with np.errstate(over="ignore"):
                ordered = scanned(ordered, segments, how["gamma"], how["reverse"], how["exclusive"])
        ordered = ordered if moments is None else ordered[moments]
        if np.isinf(ordered).any():
            raise RewardError(f"{short(node)} overflows; divide the rewards by a constant")
        if order is not None:
            result = np.full(len(x), np.nan)
            result[order] = ordered
            ordered = result
        return ordered if lengths is None else Ragged(ordered, lengths)


def _rows(mask: np.ndarray, lengths: np.ndarray | None) -> np.ndarray:
    """Rows of the table that a mask over values points at."""
    marked = np.flatnonzero(mask)
    return marked if lengths is None else np.unique(np.repeat(np.arange(len(lengths)), lengths)[marked])


def _first(rows: np.ndarray) -> str:
    return f"{len(rows)} rows, first {rows[:5].tolist()}" if len(rows) > 1 else f"row {rows[0]}"


def _apply(node: Signal, inputs: list[np.ndarray]) -> np.ndarray:
    op = node.op
    if op in ("and", "or", "not"):
        return _logic(op, *inputs)
    if op == "where":
        condition, then = inputs[:2]
        otherwise = inputs[2] if len(inputs) > 2 else np.nan
        if condition.dtype == bool:
            return np.where(condition, then, otherwise)
        return _with_missing(np.where(_truth(condition) == 1, then, otherwise), np.isnan(condition))
    inputs = [value.astype(float, copy=False) for value in inputs]
    if op in BINARY:
        result = BINARY[op](*inputs)
        return _with_missing(result, np.isnan(inputs[0]) | np.isnan(inputs[1])) if op in _COMPARISONS else result
    if op in UNARY:
        return UNARY[op](inputs[0])
    if op == "clip":
        clipped: np.ndarray = np.clip(inputs[0], node.options["low"], node.options["high"])
        return clipped
    if op == "ratio":
        empty = inputs[1] == 0
        found = np.where(empty, inputs[2], inputs[0] / np.where(empty, 1.0, inputs[1]))
        return _with_missing(found, np.isnan(inputs[0]))
    return np.where(np.isnan(inputs[0]), inputs[1], inputs[0])


def _truth(value: np.ndarray) -> np.ndarray:
    """1, 0 or NaN."""
    return value if value.dtype == bool else np.where(np.isnan(value), np.nan, value != 0)


def _with_missing(result: np.ndarray, missing: np.ndarray) -> np.ndarray:
    return np.where(missing, np.nan, result) if missing.any() else result


def _logic(op: str, *inputs: np.ndarray) -> np.ndarray:
    """and, or, not with missing values: the answer is missing where it depends on one (Kleene)."""
    values = [_truth(value) for value in inputs]
    if op == "not":
        result, missing = values[0] != 1, np.isnan(values[0])
    else:
        decides = op == "or"
        result = np.logical_or(*(v == 1 for v in values)) if decides else np.logical_and(*(v == 1 for v in values))
        missing = np.isnan(values[0] + values[1]) & ~np.logical_or(*(v == decides for v in values))
    return _with_missing(result, missing)


@bound
def evaluate(turns: Turns, *signals: Signal) -> list[Value]:
    """List of the values of several `Signal`s on `Turns`; what they have in common is evaluated once."""
    evaluation = Evaluation(turns)
    values = []
    for signal in signals:
        try:
            values.append(evaluation(signal))
        except MissingColumnError as error:
            raise MissingColumnError(f"{short(signal)}: {error}") from error
        except RecursionError as error:
            raise ExpressionError("expression is nested too deeply; put parts of it into columns first") from error
    return values
