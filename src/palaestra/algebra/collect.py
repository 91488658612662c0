"""Statistics that range over more than fits into memory, collected part by part.

Sums go on where the part before left them, value by value, so they have the bits that one sum over the whole table has
if the parts come in the order of its rows. A deviation needs the mean first, and so a pass of its own. Where a key
counts episodes, their order is that of their numbers; then parts in another order give the same up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.codes import Codes
from palaestra.algebra.kernels import Evaluation
from palaestra.algebra.partition import ONE_PASS, iteration_nodes
from palaestra.algebra.samples import TIE, Samples, finish
from palaestra.algebra.text import short
from palaestra.algebra.tree import Signal, Value, children
from palaestra.algebra.turns import Ragged, Turns
from palaestra.errors import ExpressionError, InputError, RewardError


@dataclass(frozen=True, eq=False)
class Known(Samples):
    """Data: `Samples` given by statistics per key instead of values: counts, sums, deviations collected before."""

    known: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def counts(self) -> np.ndarray:
        """Number of samples of each key."""
        return self.known["counts"]

    @property
    def sums(self) -> np.ndarray:
        """Sum of the samples of each key."""
        return self.known["sums"]

    @property
    def lowest(self) -> np.ndarray:
        """Smallest sample of each key."""
        return self.known["lowest"]

    @property
    def highest(self) -> np.ndarray:
        """Largest sample of each key."""
        return self.known["highest"]

    def stds(self, ddof: int) -> np.ndarray:
        """Standard deviation of each key, as `Samples.stds`, from deviations summed in a pass of their own."""
        deviations = self.known["deviations"]
        with np.errstate(invalid="ignore", divide="ignore"):
            std = np.sqrt(deviations / (self.counts - ddof))
            constant = deviations <= TIE**2 * (deviations + self.counts * np.square(self.means))
        return np.where(constant | (self.counts <= ddof), 0.0, std)


class _Keys:
    """Numbers for the values of a key, the same in every part."""

    def __init__(self) -> None:
        self.seen: pl.DataFrame | None = None

    def number(self, evaluation: Evaluation, over: tuple[str | Signal, ...], codes: Codes) -> np.ndarray:
        """int64[codes.size]: the number of each of the part's keys."""
        first = np.zeros(codes.size, np.int64)
        first[codes.ids[::-1]] = np.arange(len(codes.ids))[::-1]
        turns = evaluation.turns
        columns = [turns[name].gather(first) for name in turns.key_columns([k for k in over if isinstance(k, str)])]
        columns = [each.cast(pl.String) if each.dtype in (pl.Categorical, pl.Enum) else each for each in columns]
        for place, key in enumerate(each for each in over if isinstance(each, Signal)):
            value = evaluation(key)
            assert isinstance(value, np.ndarray)  # codes() refuses others
            columns.append(pl.Series(f"key {place}", value[first].astype(float) + 0.0))
        part = pl.DataFrame([pl.Series("batch", np.zeros(codes.size, np.int8)), *columns])
        if self.seen is None:
            self.seen = part.clear().with_columns(number=pl.Series([], dtype=pl.Int64))
        names = part.columns
        if (kinds := self._common(part.schema)) != part.schema:
            part = part.cast(kinds)
        if kinds != self.seen.select(names).schema:
            self.seen = self.seen.cast(kinds)
        found = part.join(self.seen, on=names, how="left", nulls_equal=True, maintain_order="left")["number"]
        new = found.is_null().to_numpy()
        numbers = found.fill_null(0).to_numpy().copy()
        numbers[new] = self.seen.height + np.arange(new.sum())
        fresh = part.filter(pl.Series(new)).with_columns(number=pl.Series(numbers[new]))
        self.seen = pl.concat([self.seen, fresh])
        return np.asarray(numbers)

    def _common(self, kinds: pl.Schema) -> pl.Schema:
        """Types that hold the keys of all parts, as in one table of them."""
        assert self.seen is not None  # number() made it
        before = pl.Schema({name: self.seen.schema[name] for name in kinds})
        try:
            return pl.concat([before.to_frame(), kinds.to_frame()], how="vertical_relaxed").schema
        except pl.exceptions.PolarsError as error:
            name = next(name for name in kinds if kinds[name] != before[name])
            raise InputError(
                f"key {name!r} has type {kinds[name]} here and {before[name]} in files before; write one type"
            ) from error


class _Statistic:
    """Running statistic of one node: an array per quantity, with an entry for each key met so far."""

    def __init__(self, node: Signal) -> None:
        self.node, self.keys = node, _Keys()
        sums = ("sums", "deviations", "lowest", "highest")
        self.arrays = {"counts": np.zeros(0, np.int64), **{name: np.zeros(0) for name in sums}}
        self.stage = 0

    @property
    def done(self) -> bool:
        return self.stage >= (1 if self.node.op in ONE_PASS else 2)

    def add(self, samples: Samples, numbers: np.ndarray) -> None:
        self._grow(int(numbers.max(initial=-1)) + 1)
        if self.stage == 0:
            self.arrays["counts"][numbers] += samples.counts
            self._sum("sums", samples.keys, samples.values, numbers)
            np.fmin.at(self.arrays["lowest"], numbers[samples.keys], samples.values)
            np.fmax.at(self.arrays["highest"], numbers[samples.keys], samples.values)
        else:
            means = self.local(numbers).means
            with np.errstate(over="ignore", invalid="ignore"):
                squares = np.square(samples.values - means[samples.keys])
            self._sum("deviations", samples.keys, squares, numbers)

    def _grow(self, size: int) -> None:
        for name, array in self.arrays.items():
            if size > len(array):
                fill = np.nan if name in ("lowest", "highest") else 0
                self.arrays[name] = np.concatenate([array, np.full(size - len(array), fill, array.dtype)])

    def _sum(self, name: str, keys: np.ndarray, values: np.ndarray, numbers: np.ndarray) -> None:
        """The sum so far is the first thing that each key adds up, so that nothing is rounded differently."""
        so_far = self.arrays[name]
        places = np.arange(len(numbers))
        sums = np.bincount(np.append(places, keys), np.append(so_far[numbers], values), len(numbers))
        if not np.isfinite(sums).all():
            raise RewardError(f"{short(self.node)}: a sum overflows; divide the rewards by a constant")
        so_far[numbers] = sums

    def local(self, numbers: np.ndarray) -> Known:
        """Entries of some keys."""
        self._grow(int(numbers.max(initial=-1)) + 1)
        known = {name: array[numbers] for name, array in self.arrays.items()}
        return Known(np.zeros(0), np.zeros(0, np.int64), len(numbers), known)


class Collected:
    """Evaluator of one signal on a table that comes in parts: collects its wide statistics first, then gives values.

    The parts cut no group; wide statistics are those of `partition.iteration_nodes`.

    `while not done: for part in parts: collected.add(part); collected.next_pass()`, then `value(part)` of each part is
    what the signal gives on the whole table, bit for bit if parts come in the order of its rows.
    """

    def __init__(self, signal: Signal) -> None:
        self.signal = signal
        self.order = iteration_nodes(signal)
        self.statistics = {node.digest: _Statistic(node) for node in self.order}
        self.within = {node.digest: {inner.digest for inner in _wide_below(node)} for node in self.order}

    @property
    def done(self) -> bool:
        """Whether every wide statistic is known, so that `value` can be called."""
        return all(statistic.done for statistic in self.statistics.values())

    def _ready(self) -> list[_Statistic]:
        found = [self.statistics[node.digest] for node in self.order if not self.statistics[node.digest].done]
        return [s for s in found if all(self.statistics[inner].done for inner in self.within[s.node.digest])]

    def add(self, part: Turns) -> None:
        """Add a part of the table to the statistics of the current pass."""
        evaluation = _Part(part, self)
        for statistic in self._ready():
            samples, numbers = evaluation.counted(statistic)
            statistic.add(samples, numbers)

    def next_pass(self) -> None:
        """End the current pass, after all parts were added."""
        for statistic in self._ready():
            statistic.stage += 1

    def value(self, part: Turns) -> Value:
        """Values of the signal on one part, once all statistics are known."""
        return _Part(part, self)(self.signal)


class _Part(Evaluation):
    """An evaluation in which wide statistics are looked up."""

    def __init__(self, turns: Turns, collected: Collected) -> None:
        super().__init__(turns)
        self.statistics = collected.statistics
        self.signal = collected.signal
        self.allowed = [_name(node.options["over"]) for node in collected.order if "over" in node.options]

    def codes(self, over: tuple[str | Signal, ...]) -> Codes:
        """As `Evaluation.codes`, but a kernel must not look at what it did not say that it ranges over."""
        name = _name(over)
        if not {"group", "episode", "row"}.intersection(name) and name not in self.allowed:
            raise ExpressionError(
                f"a kernel of {short(self.signal)} ranges over the iteration, which its key does not say; let its "
                'module register it with kernel(name, range="batch")'
            )
        return super().codes(over)

    def counted(self, statistic: _Statistic) -> tuple[Samples, np.ndarray]:
        """Contribution of a part to a statistic, and the number of each of its keys."""
        node = statistic.node
        return self.samples(node), statistic.keys.number(self, node.options["over"], self.codes(node.options["over"]))

    def _statistic(self, node: Signal) -> Value:
        if node.digest not in self.statistics:
            return super()._statistic(node)
        x, codes, keep, lengths = self._inputs(node)
        own: Any = self._samples(node, x, codes, keep, lengths)[1]
        known = self.statistics[node.digest]
        keys = self.codes(node.options["over"])
        local = known.local(known.keys.number(self, node.options["over"], keys))
        result = finish(node, x, own, codes, keep, local)
        return result if lengths is None else Ragged(result, lengths)


def _name(over: tuple[str | Signal, ...]) -> list[str | bytes]:
    return [key if isinstance(key, str) else key.digest for key in over]


def _wide_below(node: Signal) -> list[Signal]:
    return [inner for child in children(node) for inner in iteration_nodes(child)]
