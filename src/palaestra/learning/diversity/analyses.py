"""The archives of a run of `learn.kind: diversity` as a table: `palaestra analyze 'archives()' runs/NAME/seed-0`."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from palaestra.errors import InputError
from palaestra.evaluation.analyses import ANALYSES, Analysis
from palaestra.learning import need_torch


@ANALYSES.register("archives")
def archived(*, only: str | None = None, top: int | None = None) -> Analysis:
    """Makes an analysis (a seed's folder -> table of the genomes in its last checkpoint) of a diversity search.

    Columns: archive, reward, place_0 …, genome.
    SEED is the folder of a seed. only: "rewarded", "novelty" or "candidate". top: so many of the largest rewards.
    """

    def answer(seed: Path) -> pl.DataFrame:
        need_torch()
        from palaestra.learning import checkpoints  # here, so that every other analysis does without torch
        from palaestra.learning.diversity import states

        found = checkpoints.latest(seed / "checkpoints")
        learner = {} if found is None else checkpoints.load(found).get("learner", {})
        if "search" not in learner:
            raise InputError(f"{seed}: no checkpoint of learn.kind diversity; name the folder of a seed, seed-0")
        rows = states.archives(learner["search"])
        rows = rows if only is None else rows.filter(pl.col("archive") == only)
        return rows.sort("reward", descending=True, maintain_order=True).head(top) if top is not None else rows

    return answer
