"""[155] Proactive Agent (arXiv 2410.12361): the table of proposals and of silence, and an assistant trained by a judge.

The published counting was run beside ours on made-up traces. The world `proactive`: need .3 per event, a cue that is
wrong in 5 %, a judge who errs in 8 %. Left out: language models, and several candidates per event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from palaestra.evaluation.scorers import Confusion, confusion
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

AGENT = (1.0, 0.49776, 0.50661, 0.50224, 0.66467)
MODEL = (0.93333, 0.90323, 0.91667, 0.09677, 0.91803)
ARMS = {
    "judged": {},
    "unpunished": {"reward": 'where(col("proposed") & col("accepted"), 1.0, 0.0)'},
}


def worked_error() -> float:
    """Deviation from the published rows of an agent (227 events) and of the reward model (120)."""
    found = [
        (each.recall, each.precision, each.accuracy, each.false_alarm, each.f1)
        for each in (Confusion(111, 112, 4, 0), Confusion(56, 6, 54, 4))
    ]
    return float(np.abs(np.array(found) - [AGENT, MODEL]).max())


def helpful(learned: TrainingResult) -> dict[str, float]:
    """Precision and recall on held-out events, against what was needed."""
    frame = learned.play(groups=300).frame.drop_nulls(["proposed", "needed"])
    table = confusion(
        frame.with_columns(right=pl.col("proposed") == pl.col("needed")), action="proposed", accepted="right"
    )
    return {"precision": table.precision, "recall": table.recall}


@reproduction(
    155,
    claim="An assistant that a judge of proposals rewards and punishes learns to stay silent where nobody needs help.",
    baseline="the same recipe where a rejected proposal costs nothing",
    criterion="published rows to 5e-6; precision above .8 at recall above .8 in every seed, where the baseline stays "
    "below .5 precision (held on the three fresh seeds tried)",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both rewards by the recipe `proactive`."""
    short = {"train": {"iterations": 30, "groups": 16, "group_size": 4}}
    arms = train_arms("proactive", {name: short | changes for name, changes in ARMS.items()}, seeds, helpful)
    measured = {"worked_error": worked_error(), "always": 0.3} | arms.measured()
    good = min(float(arms.values["judged"][name].min()) for name in ("precision", "recall"))
    base = float(arms.values["unpunished"]["precision"].max())
    return Outcome(measured, measured["worked_error"] < 5e-6 and good > 0.8 and base < 0.5)
