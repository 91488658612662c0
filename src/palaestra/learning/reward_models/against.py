"""`against`: any pointwise scorer as one against a reference, RewardDance's [47] form (2509.08826)."""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.errors import InputError, need_columns
from palaestra.judges.protocol import SCORERS, Scorer
from palaestra.judges.scorers import Members, build


@SCORERS.register("against")
class Against:
    """Scorer of P(row better than its reference) = σ(r(row) - r(reference)), in (0, 1), by a pointwise scorer r.

    What the scorer adds to all answers to a prompt cancels. Its slope in r is P·(1 - P), so a reference that is far
    behind teaches nothing any more: take references among the best, e.g. the first two of a group.

    Args:
        scorer: a scorer, or its text: 'reward_model("DIR")'.
    """

    def __init__(self, scorer: str | Scorer, *, name: str = "against") -> None:
        self.scorer = SCORERS.build(scorer) if isinstance(scorer, str) else scorer
        self.name = name

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """Probability that each row is better than its reference; null where either has no score."""
        if reference is None or len(reference) != len(rows):
            raise InputError(f"{self.name}: a reference is needed, a row for each of {len(rows)}")
        ours, theirs = (self.scorer.score(each, condition=condition) for each in (rows, reference))
        lead = ours.cast(pl.Float64) - theirs.cast(pl.Float64)
        return pl.Series(self.name, 1 / (1 + np.exp(-lead.to_numpy())), nan_to_null=True)


@SCORERS.register("against_best")
class AgainstBest(Members):
    """Scorer of the mean P(row better than another) over the `best` highest-scored other rows of its `group`.

    Source: RewardDance [47].
    The answers of one prompt are each other's references, so a run needs no other model.

    Args:
        scorer: a pointwise scorer, or its text; its score chooses the references.
        best: references of each row.
        pairwise: a scorer of pairs that compares; None: σ(r(row) - r(reference)), see `Against`.

    Raises:
        InputError: best is below 1.
    """

    def __init__(
        self, scorer: str | Scorer, *, best: int = 2, pairwise: str | Scorer | None = None, name: str = "against_best"
    ) -> None:
        if best < 1:
            raise InputError(f"against_best: best={best} must be at least 1")
        self.scorer, self.best, self.name = build(scorer), best, name
        self.pairwise = Against(self.scorer) if pairwise is None else build(pairwise)
        self.members = (self.scorer,) if pairwise is None else (self.scorer, self.pairwise)

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """Mean probability to beat the group's best others; null where no other row of the group has a score."""
        need_columns(self.name, rows.columns, ["group"])
        alone = self.scorer.score(rows, condition=condition).cast(pl.Float64).fill_nan(None)
        table = pl.DataFrame({"group": rows["group"], "alone": alone}).with_row_index("row")
        sides = table.join(table.drop_nulls("alone"), on="group", suffix="_other").filter(
            pl.col("row") != pl.col("row_other")
        )
        order = sides.sort("row", "alone_other", "row_other", descending=[False, True, False])
        pairs = order.group_by("row", maintain_order=True).head(self.best)
        ours, theirs = pairs["row"], pairs["row_other"]
        given = None if condition is None else condition[ours]
        better = self.pairwise.score(rows[ours], reference=rows[theirs], condition=given).cast(pl.Float64)
        means = pl.DataFrame({"row": ours, "better": better}).group_by("row").agg(pl.col("better").mean())
        return table.join(means, on="row", how="left", maintain_order="left")["better"].alias(self.name)
