"""Arrays in, arrays out: statistics of samples by key, ranks, and walks along segments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from palaestra.algebra.codes import Codes, Segments, code_array, combine
from palaestra.algebra.tree import Signal
from palaestra.errors import RewardError

TIE = 2.5e-7
"""A key whose standard deviation is below this share of its root mean square is constant (two float32 ulps).

Dividing by a deviation below it is dividing by noise as well: `standardise` takes the scale of a signal to be about 1.
"""


@dataclass(frozen=True, eq=False)
class Samples:
    """Data: samples of a statistic: values, the key of each, number of keys."""

    values: np.ndarray
    keys: np.ndarray
    size: int

    @cached_property
    def counts(self) -> np.ndarray:
        """Number of samples of each key."""
        return np.bincount(self.keys, minlength=self.size)

    @cached_property
    def sums(self) -> np.ndarray:
        """Sum of the samples of each key; 0 where there are none.

        Raises:
            RewardError: it is no number any more.
        """
        sums = np.bincount(self.keys, self.values, self.size)
        if np.isinf(sums).any():
            raise RewardError(f"a sum of {self._most()} overflows; divide the rewards by a constant")
        return sums

    def _most(self) -> str:
        return f"{len(self.values)} values up to {np.abs(self.values).max(initial=0.0):.3g}"

    @cached_property
    def means(self) -> np.ndarray:
        """Mean of the samples of each key, never outside them; NaN where there are none."""
        means = np.full(self.size, np.nan)
        np.divide(self.sums, self.counts, out=means, where=self.counts > 0)
        return np.asarray(np.clip(means, self.lowest, self.highest))  # ten times .7 adds up to a little less than 7

    @cached_property
    def lowest(self) -> np.ndarray:
        """Smallest sample of each key; NaN where there are none."""
        return self._extreme(np.minimum, np.inf)

    @cached_property
    def highest(self) -> np.ndarray:
        """Largest sample of each key; NaN where there are none."""
        return self._extreme(np.maximum, -np.inf)

    def _extreme(self, best: np.ufunc, start: float) -> np.ndarray:
        result = np.full(self.size, start)
        best.at(result, self.keys, self.values)
        return np.where(np.isinf(result), np.nan, result)

    def stds(self, ddof: int) -> np.ndarray:
        """Standard deviation of each key, two-pass; exactly 0 for keys that are constant or have ≤ ddof samples."""
        with np.errstate(over="ignore", invalid="ignore"):
            deviations = np.bincount(self.keys, np.square(self.values - self.means[self.keys]), self.size)
        if not np.isfinite(deviations).all():  # the squares overflow, the deviation need not
            unit = float(np.abs(self.values).max())
            return Samples(self.values / unit, self.keys, self.size).stds(ddof) * unit
        with np.errstate(invalid="ignore", divide="ignore"):
            std = np.sqrt(deviations / (self.counts - ddof))
            constant = deviations <= TIE**2 * (deviations + self.counts * np.square(self.means))
        return np.where(constant | (self.counts <= ddof), 0.0, std)


def reduce(x: np.ndarray, codes: Codes, keep: np.ndarray | None) -> Samples:
    """`Samples` of array `x` by `Codes`: values of the rows in mask `keep`; None: all rows where x is not missing."""
    if keep is None:
        keep = ~np.isnan(x)
        if keep.all():
            return Samples(x, codes.ids, codes.size)
    return Samples(x[keep], codes.ids[keep], codes.size)


def distinct(x: np.ndarray, codes: Codes) -> Codes:
    """`Codes` of pairs (key, value of `x`); values of a key that differ by rounding, or are equal as float32, are one.

    The same sum in another order must not be another value: next to the key's largest value 1e-12 is rounding.
    """
    with np.errstate(over="ignore"):
        rough = x.astype(np.float32)
    rough = x if np.isinf(rough).any() else rough
    some = rough[:: len(x) // 1024 + 1]
    if 2 * len(np.unique(some)) > len(some):
        return _clusters(x, x, codes, 2.0**-24)
    pair = combine(codes, code_array(rough))  # few values: they are sorted once each
    low, high, key = np.full(pair.size, np.inf), np.full(pair.size, -np.inf), np.empty(pair.size, np.int64)
    np.fmin.at(low, pair.ids, x)
    np.fmax.at(high, pair.ids, x)
    key[pair.ids] = codes.ids
    missing = np.isinf(low)
    low[missing], high[missing] = np.nan, np.nan
    merged = _clusters(low, high, Codes(key, codes.size), 0.0)
    return Codes(merged.ids[pair.ids], merged.size)


def _clusters(low: np.ndarray, high: np.ndarray, codes: Codes, relative: float) -> Codes:
    """Codes of runs of intervals of a key between which there is no more than rounding."""
    order = np.argsort(low)
    ids = codes.ids.astype(np.uint16) if codes.size < 2**16 else codes.ids  # 16 bits are sorted by counting
    order = order[np.argsort(ids[order], kind="stable")]
    value, key = low[order], codes.ids[order]
    size = np.abs(value)
    first = np.flatnonzero(np.diff(key, prepend=-1))
    largest = np.fmax.reduceat(size, first) if len(first) else size
    rounding = np.repeat(1e-12 * np.nan_to_num(largest), np.diff(first, append=len(key)))
    apart = np.ones(len(key), bool)
    np.greater(value[1:] - high[order[:-1]], np.fmax(relative * size, rounding)[1:], out=apart[1:])
    apart[1:] |= np.isnan(value[1:]) & ~np.isnan(value[:-1])
    apart[first] = True
    numbers = np.empty(len(key), np.int64)
    numbers[order] = np.cumsum(apart) - 1
    return Codes(numbers, int(apart.sum()))


def _total(samples: Samples) -> np.ndarray:
    return np.where(samples.counts > 0, samples.sums, np.nan)


SUMMARIES: dict[str, Callable[[Samples], np.ndarray]] = {
    "mean": lambda samples: samples.means,
    "total": _total,
    "count": lambda samples: samples.counts.astype(float),
    "lowest": lambda samples: samples.lowest,
    "highest": lambda samples: samples.highest,
}


def finish(
    node: Signal, x: np.ndarray, own: np.ndarray, codes: Codes, keep: np.ndarray, samples: Samples
) -> np.ndarray:
    """Array: statistic of a `Signal` node for each of array `x`: its key's of `Samples`, or `x` relative to it."""
    options: dict[str, Any] = node.options
    result: np.ndarray
    if node.op in SUMMARIES:
        result = SUMMARIES[node.op](samples)[codes.ids]
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
        constant = samples.stds(0) == 0
        if constant.any():
            flat = np.flatnonzero(constant[codes.ids] & inside)
            result[flat[np.abs(x[flat] - own[flat]) <= TIE * np.abs(own[flat])]] = 0.0
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
    result = np.full(samples.size, np.nan)
    some = counts > 0
    position = q * (counts[some] - 1)  # in its key: where the key stands must not round it
    below = np.floor(position).astype(np.int64)
    low = starts[some] + below
    high = np.minimum(low + 1, (starts + counts - 1)[some])
    result[some] = ordered[low] + (position - below) * (ordered[high] - ordered[low])
    return result


def rank(x: np.ndarray, codes: Codes, keep: np.ndarray, ties: str) -> np.ndarray:
    """Array: rank from 1 of each of `x` in its key of `Codes`, as scipy.stats.rankdata; NaN where mask `keep` is False.

    Values that differ by rounding only are equal; see `differ`.
    """
    rows = np.flatnonzero(keep)
    order = rows[np.lexsort((x[rows], codes.ids[rows]))]
    keys, values = codes.ids[order], x[order]
    counts = np.bincount(keys, minlength=codes.size)
    starts = (np.cumsum(counts) - counts)[keys]
    position = np.arange(len(order)) - starts + 1.0
    new = np.ones(len(order), bool)
    new[1:] = (keys[1:] != keys[:-1]) | differ(values[1:], values[:-1])
    run = np.cumsum(new) - 1
    if ties == "ordinal":  # equal ones in the order of the table
        order = order[np.lexsort((order, run))]
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


def differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Mask of where numbers of two arrays differ by more than rounding: .1 + .2 and .3 do not."""
    return np.asarray((a != b) & ~np.isclose(a, b, rtol=1e-9, atol=1e-12))


def exceeds(a: np.ndarray, b: np.ndarray | float) -> np.ndarray:
    """Mask of where numbers of an array are larger than others, by more than rounding."""
    return np.asarray((a > b) & differ(a, np.asarray(b)))


def without_noise(x: np.ndarray) -> np.ndarray:
    """The same array, with numbers that differ by rounding only replaced by the smallest of them."""
    order = np.argsort(x)
    new = np.ones(len(x), bool)
    new[1:] = differ(x[order][1:], x[order][:-1])
    result = np.empty(len(x))
    result[order] = x[order][new][np.cumsum(new) - 1]
    return result


def token_segments(segments: Segments, lengths: np.ndarray) -> Segments:
    """`Segments` of a table's tokens made of the `Segments` of its turns and array `lengths`, tokens of each turn."""
    offsets = np.cumsum(lengths) - lengths
    rows = np.arange(len(lengths)) if segments.order is None else segments.order
    per_row = lengths[rows]
    bounds = np.concatenate([[0], np.cumsum(per_row)])
    sizes = bounds[segments.starts + segments.lengths] - bounds[segments.starts]
    order = None
    if segments.order is not None:
        order = np.repeat(offsets[rows] - bounds[:-1], per_row) + np.arange(bounds[-1])
    return Segments(order, bounds[segments.starts], sizes)


def segments_among(segments: Segments, keep: np.ndarray) -> Segments:
    """`Segments` less places where bool[places] `keep` is False; the rest keep their numbers. One may be empty.

    Moments are numbered without gaps again.
    """
    order = np.arange(len(keep)) if segments.order is None else segments.order
    kept = keep[order]
    bounds = np.concatenate([[0], np.cumsum(kept)])
    starts = bounds[segments.starts]
    moments = segments.moments
    if moments is not None:  # numbered without gaps again
        left = moments[kept]
        moments = np.cumsum(np.diff(left, prepend=left[:1]) > 0)
    return Segments(order[kept], starts, bounds[segments.starts + segments.lengths] - starts, moments)


def by_moment(x: np.ndarray, segments: Segments, *, mean: bool) -> tuple[np.ndarray, Segments]:
    """Pair (sum or mean of array `x` in each moment of `Segments`, NaN left out; the `Segments` counted in moments)."""
    moments = segments.moments
    assert moments is not None
    number = int(moments[-1]) + 1 if len(moments) else 0
    scored = ~np.isnan(x)
    count = np.bincount(moments[scored], minlength=number)
    found = np.bincount(moments[scored], x[scored], number).astype(float)  # whole numbers if there is nothing to add
    found = np.divide(found, count, out=np.full(number, np.nan), where=count > 0) if mean else found
    found[count == 0] = np.nan
    bounds = np.searchsorted(moments, np.arange(number + 1))
    first = np.searchsorted(bounds, segments.starts)
    last = np.searchsorted(bounds, segments.starts + segments.lengths)
    return found, Segments(None, first, last - first)


def shifted(x: np.ndarray, segments: Segments, n: int, fill: float | None) -> np.ndarray:
    """Array: each of `x` n places earlier in its segment of `Segments` (n < 0: later); beyond them `fill` or NaN."""
    result = np.full(len(x), np.nan if fill is None else fill)
    far = min(abs(n), len(x))
    if n >= 0:
        result[far:] = x[: len(x) - far]
        edges = segments.starts
    else:
        result[: len(x) - far] = x[far:]
        edges = segments.starts + segments.lengths - 1
    for k in range(min(far, int(segments.lengths.max(initial=0)))):  # what came from the neighbouring segment
        longer = segments.lengths > k
        result[edges[longer] + (k if n >= 0 else -k)] = np.nan if fill is None else fill
    return result


def scanned(x: np.ndarray, segments: Segments, gamma: float, reverse: bool, exclusive: bool) -> np.ndarray:
    """Float64[rows]: sums of array `x`, discounted, along `Segments`, or reversed; without the own x if `exclusive`."""
    missing = np.isnan(x)
    if missing.any():  # they add nothing; where there was something to add and all of it missing, so is the sum
        sums = scanned(np.where(missing, 0.0, x), segments, gamma, reverse, exclusive)
        scored = scanned((~missing).astype(float), segments, 1.0, reverse, exclusive)
        length = scanned(np.ones(len(x)), segments, 1.0, reverse, exclusive)
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
