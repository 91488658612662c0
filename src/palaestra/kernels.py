"""How each node of a `Signal` is computed: NumPy over integer key codes, every node once.

Values are float64 (NaN = missing) or bool arrays, per turn, or `Ragged`, per token. Statistics reduce samples to one
number per key with `np.bincount`, whose order of summation is fixed, and gather back to rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from palaestra.errors import ExpressionError, RewardError
from palaestra.signals import Signal, Value, short
from palaestra.turns import Codes, Ragged, Segments, Turns, code_array, combine, order_rows

TIE = 2.5e-7
"""A key whose standard deviation is below this share of its root mean square is constant (two float32 ulps).

Dividing by a deviation below it is dividing by noise as well: `standardise` takes the scale of a signal to be about 1.
"""

_BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "neg": np.negative, "exp": np.exp, "log": np.log, "absolute": np.abs, "sign": np.sign, "is_missing": np.isnan,
}  # fmt: skip
_COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne"}


@dataclass(frozen=True, eq=False)
class Samples:
    """What a statistic counts: values, the key of each, number of keys."""

    values: np.ndarray
    keys: np.ndarray
    size: int

    @cached_property
    def counts(self) -> np.ndarray:
        """Samples of each key."""
        return np.bincount(self.keys, minlength=self.size)

    @cached_property
    def sums(self) -> np.ndarray:
        """Their sum; 0 where there are none."""
        return np.bincount(self.keys, self.values, self.size)

    @cached_property
    def means(self) -> np.ndarray:
        """Their mean; NaN where there are none."""
        means = np.full(self.size, np.nan)
        np.divide(self.sums, self.counts, out=means, where=self.counts > 0)
        return means

    def stds(self, ddof: int) -> np.ndarray:
        """Two-pass; exactly 0 for keys that are constant or have no more than ddof samples."""
        deviations = np.bincount(self.keys, np.square(self.values - self.means[self.keys]), self.size)
        with np.errstate(invalid="ignore", divide="ignore"):
            std = np.sqrt(deviations / (self.counts - ddof))
            constant = deviations <= TIE**2 * (deviations + self.counts * np.square(self.means))
        return np.where(constant | (self.counts <= ddof), 0.0, std)


KERNELS: dict[str, Callable[[Evaluation, Signal], Value]] = {}
"""How nodes of other modules are computed, by `op`: what the algebra has no word for (`credit.ranking`)."""


class Evaluation:
    """One table, and every node evaluated on it so far."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.done: dict[str, Value] = {}

    def __call__(self, node: Signal) -> Value:
        """The value of a node."""
        if node.text not in self.done:
            self.done[node.text] = self._compute(node)
        return self.done[node.text]

    def _compute(self, node: Signal) -> Value:
        op = node.op
        if op == "lit":
            return np.full(len(self.turns), node.options["value"])
        if op in ("col", "is_in"):
            return self._column(node)
        if op == "expr":
            return self._expression(node)
        if op in _BINARY or op in _UNARY or op in ("where", "clip", "fill_missing", "ratio", "and", "or", "not"):
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
        if result.dtype != bool and node.op != "where":
            bad = ~np.isfinite(result)
            for value in inputs if bad.any() else []:  # a missing input gives a missing result
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
        samples = _reduce(value.values.astype(float), Codes(np.repeat(rows.ids, value.lengths), rows.size), None)
        return _SUMMARIES[node.options["how"]](samples)

    # -- keys ---------------------------------------------------------------------------------------------------------

    def codes(self, over: tuple[str | Signal, ...]) -> Codes:
        """Codes of a key of columns and computed values."""
        codes = self.turns.codes(*(key for key in over if isinstance(key, str)))
        for key in over:
            if isinstance(key, Signal):
                value = self(key)
                if isinstance(value, Ragged):
                    raise ExpressionError(f"key {key} has one value per token; a key needs one per turn")
                codes = combine(codes, code_array(value))
        return codes

    def segments(self, over: tuple[str | Signal, ...]) -> Segments:
        """Rows of such a key in the order of play."""
        names = [key for key in over if isinstance(key, str)]
        if len(names) == len(over):
            return self.turns.segments(*names)
        turn = self.turns.frame["turn"].to_numpy() if "turn" in self.turns.columns else None
        return order_rows(self.codes(over), turn)

    # -- statistics ---------------------------------------------------------------------------------------------------

    def _statistic(self, node: Signal) -> Value:
        x, codes, keep, lengths = self._inputs(node)
        if node.op == "rank":
            result = _rank(x, codes, keep, node.options["ties"])
        else:
            samples, own = self._samples(node, x, codes, keep, lengths)
            result = _finish(node, x, own, codes, keep, samples)
        return result if lengths is None else Ragged(result, lengths)

    def samples(self, node: Signal) -> Samples:
        """What a statistic counted, for `explain`."""
        x, codes, keep, lengths = self._inputs(node)
        return self._samples(node, x, codes, keep, lengths)[0]

    def _inputs(self, node: Signal) -> tuple[np.ndarray, Codes, np.ndarray, np.ndarray | None]:
        """Values, key codes and mask of what counts, all of the value's grain; tokens per row if it is per token."""
        value, codes = self(node.inputs[0]), self.codes(node.options["over"])
        mask = None if node.options["where"] is None else self(node.options["where"])
        lengths = None
        if isinstance(value, Ragged):
            lengths = value.lengths
            codes = Codes(np.repeat(codes.ids, lengths), codes.size)
            if isinstance(mask, np.ndarray):
                mask = np.repeat(mask, lengths)
            value = value.values
        if isinstance(mask, Ragged):
            if lengths is None or not np.array_equal(mask.lengths, lengths):
                raise ExpressionError(
                    f"{short(node)}: where= has one value per token, {node.inputs[0]} does not match it"
                )
            mask = mask.values
        x = value.astype(float)
        keep = ~np.isnan(x) if mask is None else ~np.isnan(x) & (np.nan_to_num(mask.astype(float)) != 0)
        return x, codes, keep, lengths

    def _samples(
        self, node: Signal, x: np.ndarray, codes: Codes, keep: np.ndarray, lengths: np.ndarray | None
    ) -> tuple[Samples, np.ndarray]:
        """What the statistic counts, and for each position the sample that it belongs to."""
        unit = node.options["unit"]
        taken = None if keep.all() else keep
        if unit == "row":
            return _reduce(x, codes, taken), x
        if unit == "episode":
            pair = self.codes((*node.options["over"], "episode"))
            if lengths is not None:
                pair = Codes(np.repeat(pair.ids, lengths), pair.size)
        else:  # the same sum in another order must not be another value
            with np.errstate(over="ignore"):
                pair = combine(codes, code_array(x.astype(np.float32)))
        means = _reduce(x, pair, taken).means
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
            segments = _token_segments(segments, lengths)
        else:
            x = value.astype(float)
        order = segments.order
        ordered = x if order is None else x[order]
        if node.op == "shift":
            ordered = _shifted(ordered, segments, node.options["n"], node.options["fill"])
        else:
            how = node.options
            ordered = _scanned(ordered, segments, how["gamma"], how["reverse"], how["exclusive"])
        if order is not None:
            result = np.empty_like(ordered)
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
        result = np.where(_truth(condition) == 1, then, inputs[2] if len(inputs) > 2 else np.nan)
        return _with_missing(result, np.isnan(condition)) if condition.dtype != bool else result
    inputs = [value.astype(float, copy=False) for value in inputs]
    if op in _BINARY:
        result = _BINARY[op](*inputs)
        return _with_missing(result, np.isnan(inputs[0]) | np.isnan(inputs[1])) if op in _COMPARISONS else result
    if op in _UNARY:
        return _UNARY[op](inputs[0])
    if op == "clip":
        clipped: np.ndarray = np.clip(inputs[0], node.options["low"], node.options["high"])
        return clipped
    if op == "ratio":
        empty = inputs[1] == 0
        return np.where(empty, inputs[2], inputs[0] / np.where(empty, 1.0, inputs[1]))
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


def _reduce(x: np.ndarray, codes: Codes, keep: np.ndarray | None) -> Samples:
    if keep is None:
        keep = ~np.isnan(x)
        if keep.all():
            return Samples(x, codes.ids, codes.size)
    return Samples(x[keep], codes.ids[keep], codes.size)


def _extreme(samples: Samples, best: np.ufunc, start: float) -> np.ndarray:
    result = np.full(samples.size, start)
    best.at(result, samples.keys, samples.values)
    return np.where(np.isinf(result), np.nan, result)


def _total(samples: Samples) -> np.ndarray:
    return np.where(samples.counts > 0, samples.sums, np.nan)


_SUMMARIES: dict[str, Callable[[Samples], np.ndarray]] = {
    "mean": lambda samples: samples.means,
    "total": _total,
    "count": lambda samples: samples.counts.astype(float),
    "lowest": lambda samples: _extreme(samples, np.minimum, np.inf),
    "highest": lambda samples: _extreme(samples, np.maximum, -np.inf),
}


def _finish(
    node: Signal, x: np.ndarray, own: np.ndarray, codes: Codes, keep: np.ndarray, samples: Samples
) -> np.ndarray:
    """From samples to one value per position: what they give, or what `x` is relative to them."""
    options: dict[str, Any] = node.options
    result: np.ndarray
    if node.op in _SUMMARIES:
        result = _SUMMARIES[node.op](samples)[codes.ids]
        return result
    if node.op in ("std", "quantile"):
        per_key = samples.stds(options["ddof"]) if node.op == "std" else _quantile(samples, options["q"])
        result = per_key[codes.ids]
        return result
    result = x - samples.means[codes.ids]
    if node.op == "standardise":
        std = samples.stds(options["ddof"])
        result *= np.divide(1.0, std + options["eps"], out=np.zeros(samples.size), where=std > TIE)[codes.ids]
    else:
        inside = keep & ~np.isnan(own)
        if node.op == "leave_one_out":
            with np.errstate(divide="ignore", invalid="ignore"):
                result += np.where(inside, ((own - samples.means[codes.ids]) / (samples.counts - 1)[codes.ids]), 0.0)
        # rounding must not turn a constant key into noise; rows that differ from their sample, or are none, stay
        flat = (samples.stds(0) == 0)[codes.ids] & inside
        result[flat & (np.abs(x - own) <= TIE * np.abs(own))] = 0.0
    few = samples.counts <= 1
    if few.any():
        alone = few[codes.ids]
        if node.op != "standardise":  # rows outside `where` are compared with a lone sample as well
            alone &= inside | (samples.counts == 0)[codes.ids]
        deviation = 1.0 + options.get("eps", 0.0)  # raw: as if the mean were 0 and the deviation 1
        result[alone] = x[alone] / deviation if options["singleton"] == "raw" else 0.0 * x[alone]
    return result


def _quantile(samples: Samples, q: float) -> np.ndarray:
    ordered = samples.values[np.lexsort((samples.values, samples.keys))]
    counts = samples.counts
    starts = np.cumsum(counts) - counts
    position = starts + q * np.maximum(counts - 1, 0)
    result = np.full(samples.size, np.nan)
    some = counts > 0
    low = np.floor(position[some]).astype(np.int64)
    high = np.minimum(low + 1, (starts + counts - 1)[some])
    result[some] = ordered[low] + (position[some] - low) * (ordered[high] - ordered[low])
    return result


def _rank(x: np.ndarray, codes: Codes, keep: np.ndarray, ties: str) -> np.ndarray:
    rows = np.flatnonzero(keep)
    order = rows[np.lexsort((x[rows], codes.ids[rows]))]
    keys, values = codes.ids[order], x[order]
    counts = np.bincount(keys, minlength=codes.size)
    starts = (np.cumsum(counts) - counts)[keys]
    position = np.arange(len(order)) - starts + 1.0
    new = np.ones(len(order), bool)
    new[1:] = (keys[1:] != keys[:-1]) | (values[1:] != values[:-1])
    run = np.cumsum(new) - 1
    first = position[new][run]
    last = first + np.bincount(run)[run] - 1 if len(run) else first
    if ties == "dense":
        key_start = np.ones(len(order), bool)
        key_start[1:] = keys[1:] != keys[:-1]
        ranks = run - np.repeat(run[key_start], np.diff(np.append(np.flatnonzero(key_start), len(order)))) + 1.0
    else:
        ranks = {"average": (first + last) / 2, "min": first, "max": last, "ordinal": position}[ties]
    result = np.full(len(x), np.nan)
    result[order] = ranks
    return result


def _token_segments(segments: Segments, lengths: np.ndarray) -> Segments:
    """The same segments, counted in tokens."""
    offsets = np.cumsum(lengths) - lengths
    rows = np.arange(len(lengths)) if segments.order is None else segments.order
    per_row = lengths[rows]
    bounds = np.concatenate([[0], np.cumsum(per_row)])
    sizes = bounds[segments.starts + segments.lengths] - bounds[segments.starts]
    order = None
    if segments.order is not None:
        order = np.repeat(offsets[rows] - bounds[:-1], per_row) + np.arange(bounds[-1])
    return Segments(order, bounds[segments.starts], sizes)


def _shifted(x: np.ndarray, segments: Segments, n: int, fill: float | None) -> np.ndarray:
    position = np.arange(len(x)) - np.repeat(segments.starts, segments.lengths)
    size = np.repeat(segments.lengths, segments.lengths)
    inside = (position >= n) & (position - n < size)
    source = np.clip(np.arange(len(x)) - n, 0, max(len(x) - 1, 0))
    return np.where(inside, x[source], np.nan if fill is None else fill)


def _scanned(x: np.ndarray, segments: Segments, gamma: float, reverse: bool, exclusive: bool) -> np.ndarray:
    """Running sums. All segments advance at once, a position at a time; longest first, so the active are a prefix."""
    missing = np.isnan(x)
    if missing.any():  # they add nothing; where there was something to add and all of it missing, so is the sum
        sums = _scanned(np.where(missing, 0.0, x), segments, gamma, reverse, exclusive)
        scored = _scanned((~missing).astype(float), segments, 1.0, reverse, exclusive)
        length = _scanned(np.ones(len(x)), segments, 1.0, reverse, exclusive)
        return np.where((scored == 0) & (length > 0), np.nan, sums)
    result = x.copy()
    by_length = np.argsort(-segments.lengths, kind="stable")
    lengths = segments.lengths[by_length]
    starts = segments.starts[by_length] + (lengths - 1 if reverse else 0)
    step = -1 if reverse else 1
    active = np.searchsorted(-lengths, -np.arange(1, (lengths[0] if len(lengths) else 0) + 1), side="right")
    carry = np.zeros(len(lengths))
    for position, number in enumerate(active):
        at = starts[:number] + step * position
        before = gamma * carry[:number]
        carry = x[at] + before
        result[at] = before if exclusive else carry
    return result
