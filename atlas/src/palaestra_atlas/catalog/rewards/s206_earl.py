"""[206] EARL (arXiv 2510.15440): a reward for how pure the selected evidence is.

The world `sieve`: twenty rows, three of them gold, each looking like what it is 95 % of the time; every row is kept or
left, and the answer is right with the share of gold rows that were kept. A table of logits by the recipe `world`.
Correctness alone keeps nearly everything. Left out: video, and the resampling around a selected frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

WORLD: dict[str, Any] = {"env": {"make": "native/sieve"}, "train": {"iterations": 40}}
ARMS = {
    "earl": {**WORLD, "reward": 'where(is_last(over="episode"), earl_reward("evidence", "gold"), 0)'},
    "correctness": {**WORLD, "reward": 'where(is_last(over="episode"), 2 * col("success") - 1, 0)'},
}


def kept(learned: TrainingResult) -> dict[str, float]:
    """Rows that the trained policy keeps, and their overlap with the gold ones."""
    ended = learned.play(groups=100, seed=1).frame.filter(pl.col("tool") == "submit")
    both = ended["evidence"].list.set_intersection(ended["gold"]).list.len()
    either = ended["evidence"].list.set_union(ended["gold"]).list.len()
    return {"rows": float(ended["evidence"].list.len().mean()), "iou": float((both / either).mean())}  # type: ignore[arg-type]


@reproduction(
    206,
    claim="A term for the overlap of selected and gold evidence makes the policy select the evidence and little else.",
    baseline="1 for a right and -1 for a wrong answer",
    criterion="in every seed at most 5 rows and IoU >= 0.7 with the term; without it more than 10 rows in the mean "
    "(so in both fresh blocks of three that were tried; one of their six seeds keeps fewer than 10 rows without it)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Rows kept and their purity, with and without the term."""
    arms = train_arms("world", ARMS, seeds, kept)
    earl = arms.values["earl"]
    pure = ((earl["rows"] <= 5) & (earl["iou"] >= 0.7)).all() and arms.mean("correctness", "rows") > 10
    return Outcome(arms.measured() | {"worst_iou_earl": float(earl["iou"].min())}, bool(pure))
