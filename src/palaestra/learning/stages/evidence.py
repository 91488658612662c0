"""Evidence for decisions, by a judge that is fitted to recorded decisions; `debate` argues with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.judges.evidence import EvidenceJudge, fit_evidence_judge
from palaestra.learning.stages.stage import Context, Stage, stage


@stage
class evidence(Stage):
    """Stage: column `lead`, how much each feature speaks for the turn's action, by a judge fitted to file `recorded`.

    The judge of Justifiable decisions [162] (arXiv 2402.15826): linear, and fitted with `revealed` random features of
    each record, so that it can judge by a few of them; see `palaestra.judges.evidence`. `debate()` reads `lead`.

    Args:
        recorded: File of recorded decisions (.csv, .parquet, .jsonl …) with the columns `features`, `decision` and
            `alternative`. In .csv files lists cannot stand.
        features: Column of the turns with the state's features, lists of numbers.
        alternative: Column of the turns with the action that this one is compared with; None: where there are two
            recorded decisions, the other one.
        revealed: Number of features that the judge sees of a record at a time; None: all.
        draws: Number of masks for each record.
        ridge: Weight of the ridge penalty.
        seed: Of the masks.

    Raises:
        InputError: the file or a column is missing, a number is out of range, an action was never recorded, or there
            are more than two decisions and no column of alternatives.
    """

    adds = {"lead": "how much each feature speaks for the action rather than for its alternative"}

    def __init__(
        self,
        recorded: str,
        *,
        features: str = "features",
        alternative: str | None = None,
        revealed: int | None = 4,
        draws: int = 8,
        ridge: float = 1e-3,
        seed: int = 0,
    ) -> None:
        from palaestra.evaluation.analyses import table

        rows = table(Path(recorded), "features", "decision", "alternative")
        self.judge: EvidenceJudge = fit_evidence_judge(rows, revealed=revealed, draws=draws, ridge=ridge, seed=seed)
        self.features, self.alternative = features, alternative
        if alternative is None and len(self.judge.decisions) != 2:
            raise InputError(f"evidence: {len(self.judge.decisions)} recorded decisions; name a column of alternatives")
        self.needs = {"action", features} | ({alternative} if alternative else set())

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `lead`; null where there are no features, or no action."""
        frame = turns.frame
        known = (frame[self.features].is_not_null() & frame["action"].is_not_null()).to_numpy()
        lead: list[list[float] | None] = [None] * len(frame)
        if known.any():
            rows = frame.filter(pl.Series(known))
            one, two = self.judge.decisions[0], self.judge.decisions[-1]
            other = pl.when(pl.col("action").cast(pl.String) == one).then(pl.lit(two)).otherwise(pl.lit(one))
            alternative = rows.select(other if self.alternative is None else pl.col(self.alternative)).to_series()
            found = self.judge.lead(np.array(rows[self.features].to_list(), float), rows["action"], alternative)
            for place, values in zip(np.flatnonzero(known), found.tolist(), strict=True):
                lead[place] = values
        return turns.with_column(lead=pl.Series(lead, dtype=pl.List(pl.Float64)))
