"""[206] EARL (arXiv 2510.15440): a reward for how pure the selected evidence is.

The world `sieve`: twenty rows, three of them gold, each looking like what it is 95 % of the time; every row is kept or
left, and the answer is right with the share of gold rows that were kept. A table of logits by the recipe `world`.
Correctness alone keeps nearly everything. Rows between those that are shown at first come with a kept one. Left out:
video.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents import Team
from palaestra.agents.scripted import random_legal
from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Sieve
from palaestra.play.rollout import rollout
from palaestra.rewards import earl_reward, jaccard
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

USED = """where(is_last(over="episode"), earl_reward("evidence", "gold", alpha=two_phase(0.5, 0.1, share=0.3, steps=40),
beta=two_phase(0.1, 0.5, share=0.3, steps=40)), 0)"""
WORLD: dict[str, Any] = {"env": {"make": "native/sieve"}, "train": {"iterations": 40}}
ARMS = {
    "earl": {**WORLD, "reward": 'where(is_last(over="episode"), earl_reward("evidence", "gold"), 0)'},
    "correctness": {**WORLD, "reward": 'where(is_last(over="episode"), 2 * col("success") - 1, 0)'},
}


EPISODES = {
    "selected": [[3, 7], [3, 4, 5, 6, 7, 8, 9], [], [3, 7, 9]],
    "gold": [[3, 7, 9]] * 4,
    "success": [True, True, True, False],
}


@exact
def worked_rewards() -> None:
    """The card's four episodes: nearly pure, half pure, nothing selected, all selected and wrong."""
    reward = earl_reward("selected", "gold")
    np.testing.assert_allclose(np.asarray(reward.evaluate(Turns(EPISODES))), [1.4333, 0.8143, 0.5, -0.4], atol=5e-5)
    np.testing.assert_allclose(np.asarray(jaccard("selected", "gold").evaluate(Turns(EPISODES)))[0], 2 / 3)


@exact
def phases() -> None:
    """Selecting is paid a half at first and a tenth later, purity the other way round."""
    reward = parse(USED)
    keys = {"episode": [0], "turn": [0], "agent": ["a"], "evidence": [[3, 7]], "gold": [[3, 7, 9]], "success": [True]}
    for iteration, expected in ((11, 1 + 0.5 + 0.1 * 2 / 3), (12, 1 + 0.1 + 0.5 * 2 / 3)):
        paid = np.asarray(reward.evaluate(Turns({**keys, "iteration": [iteration]})))
        np.testing.assert_allclose(paid, [expected])


@exact
def rows_are_sieved() -> None:
    """Play of the env of the use is paid once, at its end, and more for purer evidence among right answers."""
    turns = rollout(Sieve, Team(seeker=random_legal()), groups=20, seed=0, iteration=20)
    frame = turns.with_column(reward=parse(USED), pure=jaccard("evidence", "gold")).frame
    assert frame.filter(pl.col("tool") == "look")["reward"].abs().max() == 0
    ended = frame.filter((pl.col("tool") == "submit") & pl.col("success"))
    assert len(ended) > 3
    np.testing.assert_allclose(ended["reward"] - 0.5 * ended["pure"], np.where(ended["pure"] >= 0.5, 1.1, 0.6))


@exact
def selecting_shows_what_lies_between() -> None:
    """Of rows of which every third is shown those beside a kept one come next, within the budget, and only those."""
    env = Sieve({"proof": 8, "chaff": 12}, accuracy=1.0, stride=3, budget=14)
    between = 0
    for seed in range(10):
        seen = env.reset(seed)
        shown = 0
        while "submit" not in seen["seeker"].text:
            shown += 1
            seen = env.step({"seeker": "keep" if "proof" in seen["seeker"].text else "leave"}).observations
        told = env.step({"seeker": "submit"}).info
        between += sum(row % 3 > 0 for row in told["evidence"])
        assert set(told["evidence"]) <= set(told["gold"])
        assert 7 <= shown <= 14
    assert between > 10


def rows_kept() -> Measure:
    """Rows that are kept in the last training episodes, per seed."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            ended = Turns.load(seed / "turns").frame.filter(pl.col("tool") == "submit")
            found.append(float(ended["evidence"].list.len().mean()))  # type: ignore[arg-type]
        return found

    return measured


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
