"""How each node of a `Signal` is computed: NumPy over integer key codes, every node once.

Values are float64 (NaN = missing) or bool arrays, per turn, or `Ragged`, per token. Statistics reduce samples to one
number per key with `np.bincount`, whose order of summation is fixed, and gather back to rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from palaestra.errors import ExpressionError, RewardError
from palaestra.signals import Signal, Value
from palaestra.turns import Codes, Ragged, Segments, Turns, code_array, combine, order_rows

TIE = 2.5e-7
"""A key whose standard deviation is below this share of its root mean square is constant (two float32 ulps)."""

_BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip
_UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "neg": np.negative, "not": np.logical_not, "exp": np.exp, "log": np.log, "absolute": np.abs, "sign": np.sign,
    "is_missing": np.isnan,
}  # fmt: skip
_COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne", "and", "or"}


class Samples(NamedTuple):
    """What a statistic counts: values, the key of each, number of keys."""

    values: np.ndarray
    keys: np.ndarray
    size: int

    def counts(self) -> np.ndarray:
        return np.bincount(self.keys, minlength=self.size)

    def sums(self) -> np.ndarray:
        return np.bincount(self.keys, self.values, self.size)

    def means(self) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return self.sums() / self.counts()

    def stds(self, ddof: int) -> np.ndarray:
        """Two-pass; exactly 0 for keys that are constant or have no more than ddof samples."""
        means, counts = self.means(), self.counts()
        deviations = Samples(np.square(self.values - means[self.keys]), self.keys, self.size).sums()
        with np.errstate(invalid="ignore", divide="ignore"):
            std = np.sqrt(deviations / (counts - ddof))
            constant = deviations <= TIE**2 * (deviations + counts * np.square(means))
        return np.where(constant | (counts <= ddof), 0.0, std)


class Evaluation:
    """One table, and every node evaluated on it so far."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.done: dict[str, Value] = {}

    def __call__(self, node: Signal) -> Value:
        if node.text not in self.done:
            self.done[node.text] = self._compute(node)
        return self.done[node.text]

    def _compute(self, node: Signal) -> Value:
        op = node.op
        if op == "lit":
            return np.full(len(self.turns), node.options["value"])
        if op == "col":
            return self._column(node)
        if op == "expr":
            return self._expression(node)
        if op in _BINARY or op in _UNARY or op in ("where", "clip", "fill_missing"):
            return self._elementwise(node)
        if op in ("per_turn", "per_token"):
            return self._change_grain(node)
        if op in ("shift", "cumulative"):
            return self._along(node)
        return self._statistic(node)

    # -- leaves -------------------------------------------------------------------------------------------------------

    def _column(self, node: Signal) -> Value:
        name = node.options["name"]
        self.turns._require(name, f"{node}: ")
        return self._numbers(self.turns.frame[name], node)

    def _expression(self, node: Signal) -> Value:
        for name in node.needs():
            self.turns._require(name, f"{node}: ")
        series = self.turns.frame.select(node.options["expr"].alias("value"))["value"]
        if len(series) != len(self.turns):
            raise ExpressionError(
                f"{node} gives {len(series)} values for {len(self.turns)} rows; aggregate with mean(), total() … over a key"
            )
        return self._numbers(series, node)

    def _numbers(self, series: pl.Series, node: Signal) -> Value:
        lengths = None
        if isinstance(series.dtype, pl.List):
            lengths = series.list.len().fill_null(0).to_numpy().astype(np.int64)
            series = series.filter(pl.Series(lengths > 0)).explode()
        if series.dtype == pl.Boolean and not series.null_count():
            values = series.to_numpy()
        elif series.dtype.is_numeric() or series.dtype == pl.Boolean:
            values = series.cast(pl.Float64).to_numpy()
            missing = series.is_null().sum()
            if np.count_nonzero(~np.isfinite(values)) > missing:
                bad = np.flatnonzero(~np.isfinite(values) & ~series.is_null().to_numpy())
                raise RewardError(f"{node} is not finite in {len(bad)} rows, first rows {bad[:5].tolist()}: fix or null them")
        else:
            raise ExpressionError(f"{node} holds {series.dtype}, a signal needs numbers; compare it first, e.g. pl.col(…) == …")
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
                    f"{node}: per-token values differ in length, first in row {row} ({lengths[row]} and {other.lengths[row]} tokens)"
                )
        flat = [value.values if isinstance(value, Ragged) else np.repeat(value, lengths) for value in values]
        return flat, lengths

    def _elementwise(self, node: Signal) -> Value:
        inputs, lengths = self._align(node)
        with np.errstate(all="ignore"):
            result = _apply(node, inputs)
        if result.dtype != bool:
            bad = ~np.isfinite(result)
            for value in inputs if bad.any() else []:  # a missing input gives a missing result
                bad &= np.isfinite(value)
            if bad.any():
                rows = np.flatnonzero(bad)
                raise ExpressionError(f"{node} is not finite at {len(rows)} positions, first {rows[:5].tolist()}")
        return result if lengths is None else Ragged(result, lengths)

    def _change_grain(self, node: Signal) -> Value:
        value = self(node.inputs[0])
        if node.op == "per_token":
            like = self(node.inputs[1])
            if isinstance(value, Ragged) or not isinstance(like, Ragged):
                raise ExpressionError(f"{node}: needs a per-turn value and a per-token `like`")
            return Ragged(np.repeat(value, like.lengths), like.lengths)
        if not isinstance(value, Ragged):
            raise ExpressionError(f"{node}: {node.inputs[0]} already has one value per turn")
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
            samples, own = self._samples(x, codes, keep, node.options["unit"], lengths)
            result = _finish(node, x, own, codes, keep, samples)
        return result if lengths is None else Ragged(result, lengths)

    def samples(self, node: Signal) -> Samples:
        """What a statistic counted, for `explain`."""
        x, codes, keep, lengths = self._inputs(node)
        return self._samples(x, codes, keep, node.options["unit"], lengths)[0]

    def _inputs(self, node: Signal) -> tuple[np.ndarray, Codes, np.ndarray, np.ndarray | None]:
        """Values, key codes and mask of those that count, all of the value's grain; tokens per row if it is per token."""
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
                raise ExpressionError(f"{node}: where= has one value per token, {node.inputs[0]} does not match it")
            mask = mask.values
        x = value.astype(float)
        keep = ~np.isnan(x) if mask is None else ~np.isnan(x) & (np.nan_to_num(mask.astype(float)) != 0)
        return x, codes, keep, lengths

    def _samples(
        self, x: np.ndarray, codes: Codes, keep: np.ndarray, unit: str, lengths: np.ndarray | None
    ) -> tuple[Samples, np.ndarray]:
        """What the statistic counts, and for each position the sample that it belongs to."""
        taken = None if keep.all() else keep
        if unit == "row":
            return _reduce(x, codes, taken), x
        if unit == "episode":
            inner = self.turns.codes("episode")
            if lengths is not None:
                inner = Codes(np.repeat(inner.ids, lengths), inner.size)
        else:
            inner = code_array(x)
        pair = combine(codes, inner)
        means = _reduce(x, pair, taken).means()
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
        ordered = _shifted(ordered, segments, node) if node.op == "shift" else _scanned(ordered, segments, node)
        if order is not None:
            result = np.empty_like(ordered)
            result[order] = ordered
            ordered = result
        return ordered if lengths is None else Ragged(ordered, lengths)


def _apply(node: Signal, inputs: list[np.ndarray]) -> np.ndarray:
    op = node.op
    if op in ("and", "or", "not"):
        inputs = [value if value.dtype == bool else np.nan_to_num(value) != 0 for value in inputs]
    elif op not in ("is_missing", "where"):
        inputs = [value.astype(float, copy=False) for value in inputs]
    if op in _BINARY:
        result = _BINARY[op](inputs[0], inputs[1])
        return result & ~np.isnan(inputs[0]) & ~np.isnan(inputs[1]) if op in _COMPARISONS - {"and", "or"} else result
    if op == "is_missing":
        return np.isnan(inputs[0].astype(float, copy=False))
    if op in _UNARY:
        return _UNARY[op](inputs[0])
    if op == "clip":
        return np.clip(inputs[0], node.options["low"], node.options["high"])
    if op == "fill_missing":
        return np.where(np.isnan(inputs[0]), inputs[1], inputs[0])
    condition, then, otherwise = inputs
    result = np.where(np.nan_to_num(condition) != 0, then, otherwise)
    if condition.dtype != bool and np.isnan(condition).any():
        result = np.where(np.isnan(condition), np.nan, result)
    return result


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
    return np.where(samples.counts() > 0, samples.sums(), np.nan)


_SUMMARIES: dict[str, Callable[[Samples], np.ndarray]] = {
    "mean": Samples.means,
    "total": _total,
    "count": lambda samples: samples.counts().astype(float),
    "lowest": lambda samples: _extreme(samples, np.minimum, np.inf),
    "highest": lambda samples: _extreme(samples, np.maximum, -np.inf),
}


def _finish(
    node: Signal, x: np.ndarray, own: np.ndarray, codes: Codes, keep: np.ndarray, samples: Samples
) -> np.ndarray:
    options: dict[str, Any] = node.options
    if node.op in _SUMMARIES:
        return _SUMMARIES[node.op](samples)[codes.ids]
    if node.op == "std":
        return samples.stds(options["ddof"])[codes.ids]
    if node.op == "quantile":
        return _quantile(samples, options["q"])[codes.ids]
    counts = samples.counts()[codes.ids]
    inside = keep & ~np.isnan(own)
    baseline = samples.means()[codes.ids]
    if node.op == "leave_one_out":
        with np.errstate(divide="ignore", invalid="ignore"):
            others = (baseline * counts - own) / (counts - 1)
        baseline = np.where(inside, others, baseline)
    result = x - baseline
    if node.op == "standardise":
        std = samples.stds(options["ddof"])
        with np.errstate(divide="ignore"):
            result *= np.where(std == 0, 0.0, 1.0 / (std + options["eps"]))[codes.ids]
    else:  # rounding must not turn a constant key into noise; rows outside `where` are still compared with it
        result[(samples.stds(0) == 0)[codes.ids] & inside] = 0.0
    alone = (counts == 0) | ((counts == 1) & (inside | (node.op == "standardise")))
    if alone.any():
        result[alone] = x[alone] if options["singleton"] == "raw" else np.where(np.isnan(x[alone]), np.nan, 0.0)
    return result


def _quantile(samples: Samples, q: float) -> np.ndarray:
    ordered = samples.values[np.lexsort((samples.values, samples.keys))]
    counts = samples.counts()
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


def _shifted(x: np.ndarray, segments: Segments, node: Signal) -> np.ndarray:
    n, fill = node.options["n"], node.options["fill"]
    position = np.arange(len(x)) - np.repeat(segments.starts, segments.lengths)
    size = np.repeat(segments.lengths, segments.lengths)
    inside = (position >= n) & (position - n < size)
    source = np.clip(np.arange(len(x)) - n, 0, max(len(x) - 1, 0))
    return np.where(inside, x[source], np.nan if fill is None else fill)


def _scanned(x: np.ndarray, segments: Segments, node: Signal) -> np.ndarray:
    """All segments advance together, one position at a time; the longest come first so that the active ones are a prefix."""
    gamma, reverse = node.options["gamma"], node.options["reverse"]
    x = np.where(np.isnan(x), 0.0, x)
    result = x.copy()
    by_length = np.argsort(-segments.lengths, kind="stable")
    lengths = segments.lengths[by_length]
    starts = segments.starts[by_length] + (lengths - 1 if reverse else 0)
    step = -1 if reverse else 1
    active = np.searchsorted(-lengths, -np.arange(1, (lengths[0] if len(lengths) else 0) + 1), side="right")
    carry = np.zeros(len(lengths))
    exclusive = node.options["exclusive"]
    for position, number in enumerate(active):
        at = starts[:number] + step * position
        before = gamma * carry[:number]
        carry = x[at] + before
        result[at] = before if exclusive else carry
    return result
