"""[172] GUI-G1 (arXiv 2505.15810): a reward for hits alone does not care how large the predicted box is.

A table answers with boxes of sixteen centres and four sides. Large boxes hit as often as tight ones, so that with hits
alone any side will do; overlap and edge closeness hold it. The weight by difficulty is checked as a number: a table
shares nothing between tasks, so that no weight of a task can be seen in its training. Left out: screenshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import gui_g1
from palaestra.rewards import gui_g1_reward
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

SETTING = {
    "env": {"make": "native/grounding", "options": {"screens": 2}},
    "credit": "gui_g1()",
    "learn": {"lr": 0.2},
    "train": {"iterations": 50, "groups": 4, "group_size": 16},
}


def worked_error() -> float:
    """Four boxes for the target (20, 20, 60, 40) of a screen of 100 × 100, and two tasks; worked out by hand."""
    boxes = [[20, 20, 60, 40], [30, 25, 50, 35], [0, 0, 100, 60], [70, 70, 90, 90]]
    facts = {"target_box": [[20, 20, 60, 40]] * 4, "image_size": [[100, 100]] * 4}
    reward = np.asarray(gui_g1_reward().evaluate(Turns({"box": boxes} | facts))) - [1.375, 1.1780, 1.1256, 0.0673]
    keys = {"group": [0, 0, 1, 1], "episode": [0, 1, 0, 1], "turn": [0] * 4, "agent": ["a"] * 4}
    weighed = Turns(keys | {"reward": [1.0, 0.0, 1.0, 0.0], "difficulty": [0.5, 0.5, 0.9, 0.9]})
    credit = np.asarray(gui_g1().evaluate(weighed)) - [0.25, -0.25, 0.45, -0.45]
    return float(np.abs(np.concatenate([reward, credit])).max())


def looked_at(learned: TrainingResult) -> dict[str, float]:
    """Of the trained policy: share of hits, mean share of the screen that its boxes cover."""
    turns = learned.play(groups=32, group_size=8, seed=1)
    box = np.array(turns["box"].to_list())
    return {
        "hits": float(turns["success"].mean()),  # type: ignore[arg-type]
        "area": float(np.prod(box[:, 2:] - box[:, :2], axis=1).mean() / 100**2),
    }


@reproduction(
    172,
    claim="A reward for hits alone leaves the size of the boxes open; hit, overlap and edge closeness together settle "
    "it; a task's credit is weighed by its difficulty.",
    baseline="the hit alone, same policy, seeds and learning rate",
    criterion="worked rewards and weighed credit to 4 decimals; mean area at the end at least twice as large with hits "
    "alone, hits >= 0.9 with both, means over the seeds; should hold in 9 of 10 blocks of three fresh seeds",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers; then trained as by `palaestra train world env.make=native/grounding … credit="gui_g1()"`."""
    arms = train_arms(
        "world",
        {"full": SETTING | {"reward": "gui_g1_reward()"}, "hit": SETTING | {"reward": "hit()"}},
        seeds,
        looked_at,
    )
    error, ratio = worked_error(), arms.mean("hit", "area") / arms.mean("full", "area")
    holds = error <= 1e-4 and ratio >= 2 and min(arms.mean(arm, "hits") for arm in ("full", "hit")) >= 0.9
    return Outcome({"worked_error": error, "area_ratio": ratio} | arms.measured(), holds)
