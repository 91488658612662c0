"""[172] GUI-G1 (arXiv 2505.15810): a reward for hits alone does not care how large the predicted box is.

A table answers with boxes of sixteen centres and four sides. Large boxes hit as often as tight ones, so that with hits
alone any side will do; overlap and edge closeness hold it. The weight by difficulty is checked as a number: a table
shares nothing between tasks, so that no weight of a task can be seen in its training. Left out: screenshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import torch

from palaestra.agents import LMPolicy, TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.credit import dr_grpo, gui_g1
from palaestra.envs.worlds.grounding import Grounding
from palaestra.learning import PolicyGradient
from palaestra.play.rollout import rollout
from palaestra.rewards import gui_g1_reward
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

SETTING = {
    "env": {"make": "native/grounding", "options": {"screens": 2}},
    "credit": "gui_g1()",
    "learn": {"lr": 0.2},
    "train": {"iterations": 50, "groups": 4, "group_size": 16},
}


@exact
def four_boxes() -> None:
    """Four boxes for the target (20, 20, 60, 40) of a screen of 100 × 100: exact, small, large, far away."""
    boxes = [[20, 20, 60, 40], [30, 25, 50, 35], [0, 0, 100, 60], [70, 70, 90, 90]]
    facts = {"target_box": [[20, 20, 60, 40]] * 4, "image_size": [[100, 100]] * 4}
    reward = np.asarray(gui_g1_reward().evaluate(Turns({"box": boxes} | facts)))
    np.testing.assert_allclose(reward, [1.375, 1.1780, 1.1256, 0.0673], atol=5e-5)


@exact
def weighed_credit() -> None:
    """Reward less the group's mean, whatever its spread, times the difficulty of the task."""
    keys = {"group": [0, 0, 1, 1], "episode": [0, 1, 0, 1], "turn": [0] * 4, "agent": ["a"] * 4}
    weighed = Turns(keys | {"reward": [1.0, 0.0, 1.2, 1.0], "difficulty": [0.5, 0.5, 0.9, 0.9]})
    np.testing.assert_allclose(np.asarray(gui_g1().evaluate(weighed)), [0.25, -0.25, 0.09, -0.09], atol=1e-9)


@exact
def small_targets_weigh_more() -> None:
    """The world tells how small its target is, and pays 1 for a hit; the credit of equal answers is in proportion."""
    turns = rollout(
        lambda: Grounding(screens=8), Team(clicker=TabularPolicy(64, name="clicker")), groups=16, group_size=4
    )
    target = np.array(turns["target_box"].to_list())
    share = np.prod(target[:, 2:] - target[:, :2], axis=1) / 100**2
    np.testing.assert_allclose(turns["difficulty"], 1 - np.sqrt(share))
    assert turns["difficulty"].round(6).n_unique() == 2
    ours = turns.with_column(reward=gui_g1_reward())
    plain, credit = (np.asarray(each.evaluate(ours)) for each in (dr_grpo(), gui_g1()))
    np.testing.assert_allclose(credit, plain * turns["difficulty"].to_numpy(), atol=1e-9)
    assert (turns["reward"] <= ours["reward"]).all()


@exact
def length_counts() -> None:
    """In the learner's loss a wrong answer of twenty tokens weighs ten times as much as one of two, over 64 · rows."""
    policy = LMPolicy.tiny(hidden=16, layers=1, heads=2, name="lm")
    keys = {"group": [0] * 2, "episode": [0, 1], "turn": [0] * 2, "agent": ["a"] * 2, "policy": ["lm"] * 2}
    frame = pl.DataFrame(keys | {"prompt_ids": [[5, 6]] * 2, "action_ids": [list(range(7, 27)), [7, 8]]})
    with torch.no_grad():
        scored = policy.score(frame)
    logprobs = [row[keep].tolist() for row, keep in zip(scored.logprobs, scored.mask, strict=True)]
    turns = Turns(frame.with_columns(logprobs=pl.Series(logprobs), advantage=pl.Series([-1.0, -1.0])))
    learner = PolicyGradient(Team(a=policy), 'surrogate(aggregate="constant", constant=64)', lr=0.0)
    np.testing.assert_allclose(learner.update(turns)["lm"]["loss"], (20 + 2) / (2 * 64), rtol=1e-4)  # type: ignore[arg-type]


def covered() -> Measure:
    """Mean share of the screen that the boxes of right answers cover in the last iteration, per seed."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            turns = Turns.load(seed / "turns").frame
            last = turns.filter("success", pl.col("iteration") == pl.col("iteration").max())
            box = np.array(last["box"].to_list())
            found.append(float(np.prod(box[:, 2:] - box[:, :2], axis=1).mean() / 100**2))
        return found

    return measured


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
    criterion="mean area at the end at least twice as large with hits "
    "alone, hits >= 0.9 with both, means over the seeds; should hold in 9 of 10 blocks of three fresh seeds",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Trained as by `palaestra train world env.make=native/grounding … credit="gui_g1()"`."""
    arms = train_arms(
        "world",
        {"full": SETTING | {"reward": "gui_g1_reward()"}, "hit": SETTING | {"reward": "hit()"}},
        seeds,
        looked_at,
    )
    ratio = arms.mean("hit", "area") / arms.mean("full", "area")
    holds = ratio >= 2 and min(arms.mean(arm, "hits") for arm in ("full", "hit")) >= 0.9
    return Outcome({"area_ratio": ratio} | arms.measured(), holds)
