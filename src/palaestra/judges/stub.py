"""A judge without a model: its errors, their correlation, its love for what comes first and its silence are given.

What voting, swapping and an audit are worth is tested against it, because its truth is known.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.errors import InputError, MissingColumnError, nearest
from palaestra.judges.protocol import SCORERS, VERDICTS

SHARED = 0
"""What the draws are made for that all stubs of a seed have in common; a name's own are made for its checksum + 1."""


class StubJudge:
    """Simulated judge scorer: answers level j with probability `confusion[true level, j]`, fixed by row, vote, order.

    A comparison draws a level for either side and takes the higher; two that are equal are a tie.

    Args:
        confusion: float[levels, levels], rows sum to 1. truth: the column with the true level, an integer from 0.
        position_bias: share of comparisons in which it takes what is shown first, whatever it is.
        error_correlation: share of answers that are the row's common draw: that of its other votes, and of all other
            stubs with this seed.
        parse_failure: share of answers that cannot be read: no value, not ok.

    Raises:
        InputError: confusion is no square of probabilities, or a share is outside [0, 1].

    >>> sure = StubJudge([[1, 0], [0, 1]])
    >>> sure.score(pl.DataFrame({"truth": [1, 0]}), reference=pl.DataFrame({"truth": [0, 0]})).to_list()
    [1.0, 0.5]
    """

    def __init__(
        self,
        confusion: Sequence[Sequence[float]] = ((0.8, 0.2), (0.2, 0.8)),
        *,
        position_bias: float = 0.0,
        error_correlation: float = 0.0,
        parse_failure: float = 0.0,
        seed: int = 0,
        truth: str = "truth",
        name: str = "stub",
    ) -> None:
        table = np.asarray(confusion, float)
        if table.ndim != 2 or len(set(table.shape)) > 1 or (table < 0).any() or not np.allclose(table.sum(-1), 1):
            raise InputError("StubJudge: confusion must be a square of probabilities whose rows sum to 1")
        shares = {
            "position_bias": position_bias,
            "error_correlation": error_correlation,
            "parse_failure": parse_failure,
        }
        for share, value in shares.items():
            if not 0 <= value <= 1:
                raise InputError(f"StubJudge: {share}={value} is a share, between 0 and 1")
        self.confusion, self.truth, self.name, self.seed = table, truth, name, seed
        self.position_bias, self.error_correlation, self.parse_failure = shares.values()

    def verdicts(
        self,
        rows: pl.DataFrame,
        *,
        reference: pl.DataFrame | None = None,
        condition: pl.DataFrame | None = None,
        samples: int = 1,
    ) -> pl.DataFrame:
        """See `Judge`; the condition is not looked at. rationale is empty, tokens and cost are 0."""
        true = [self._levels(table) for table in (rows, reference) if table is not None]
        if len({len(each) for each in true}) > 1:
            raise InputError(f"StubJudge: {len(true[0])} rows and {len(true[1])} of the reference; give one for each")
        item = rows["item"] if "item" in rows.columns else pl.Series("item", range(len(rows)), pl.UInt32)
        parts = []
        for sample in range(samples):
            for order in (None,) if reference is None else (0, 1):
                value, answer, ok = self._answers(true, sample, order)
                part = pl.DataFrame({"value": value, "answer": answer, "ok": ok})
                parts.append(part.with_columns(item, sample=pl.lit(sample), order=pl.lit(order)))
        known = {"criterion": pl.lit("score"), "judge": pl.lit(self.name), "rationale": pl.lit(""), "tokens": pl.lit(0)}
        table = pl.concat(parts).with_columns(**known, cost=pl.lit(0.0))
        said = pl.when("ok").then(pl.col("value")).alias("value")
        return table.with_columns(said).select("item", *(pl.col(name).cast(kind) for name, kind in VERDICTS.items()))

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """The simulated level of each row; with a reference the mean of both orders, missing if unreadable."""
        found = self.verdicts(rows, reference=reference)["value"].to_numpy().reshape(1 + (reference is not None), -1)
        return pl.Series("score", found.mean(0), pl.Float64, nan_to_null=True)

    def _answers(
        self, true: list[np.ndarray], sample: int, order: int | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        own = np.random.default_rng([self.seed, zlib.crc32(self.name.encode()) + 1, sample, order or 0])
        number = len(true[0])
        follows, biased, silent = own.random((3, number))
        chance = np.where(
            follows < self.error_correlation,
            np.random.default_rng([self.seed, SHARED]).random((len(true), number)),
            own.random((len(true), number)),
        )
        limits = self.confusion.cumsum(-1)
        said = [(each[:, None] > limits[level][:, :-1]).sum(-1) for each, level in zip(chance, true, strict=True)]
        ok = silent >= self.parse_failure
        if order is None:
            return said[0].astype(float), said[0].astype(str), ok
        value = np.where(biased < self.position_bias, 1.0 - order, (np.sign(said[0] - said[1]) + 1) / 2)
        first = value if order == 0 else 1 - value
        return value, np.where(first == 0.5, "tie", np.where(first > 0.5, "A", "B")), ok

    def _levels(self, rows: pl.DataFrame) -> np.ndarray:
        if self.truth not in rows.columns:
            raise MissingColumnError(f"StubJudge: no column {self.truth!r}{nearest(self.truth, rows.columns)}")
        found, most = rows[self.truth], len(self.confusion) - 1
        if found.null_count() or not found.cast(pl.Int64).is_between(0, most).all():
            raise InputError(f"StubJudge: column {self.truth!r} must hold levels from 0 to {most}")
        return found.cast(pl.Int64).to_numpy()


@SCORERS.register()
def stub(
    *,
    right: float = 0.8,
    levels: int = 2,
    position_bias: float = 0.0,
    error_correlation: float = 0.0,
    parse_failure: float = 0.0,
    seed: int = 0,
    truth: str = "truth",
) -> StubJudge:
    """Makes a simulated judge, a `StubJudge`: right with probability `right`, else any other level equally often."""
    table = np.full((levels, levels), (1 - right) / max(levels - 1, 1))
    np.fill_diagonal(table, right if levels > 1 else 1.0)
    return StubJudge(
        table.tolist(),
        position_bias=position_bias,
        error_correlation=error_correlation,
        parse_failure=parse_failure,
        seed=seed,
        truth=truth,
    )
