"""[203] E-GRPO (arXiv 2510.24694): a wrong answer is worth something if its search met the gold entities.

The world `hops`: five documents at each of three hops, five answers, right only if all four choices are, by the recipe
`world`. At the start success is nearly never seen, so that GRPO has no signal; the entities of the documents that were
read give one. A negative result: in `roles/search`, where an answer can be right whatever was read, E-GRPO is learned
no faster than GRPO. Left out: language models, clip-higher.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents import Team
from palaestra.agents.scripted import random_legal
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds.parts import Hops
from palaestra.play.rollout import rollout
from palaestra.rewards import e_grpo, e_grpo_reward, entity_recall
from palaestra_atlas.reproductions import Outcome, exact, reached, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

WORLD: dict[str, Any] = {"env": {"make": "native/hops"}, "train": {"iterations": 90, "groups": 8}}
ARMS = {"e_grpo": {**WORLD, "credit": 'e_grpo("found", "entities")'}, "grpo": {**WORLD, "credit": "grpo()"}}


GOLD = ["ada", "bern", "cleo", "dora"]


def group(*episodes: tuple[bool, int], **marks: list[bool]) -> Turns:
    """One group: of each episode whether it is right and how many of the four gold entities it met."""
    number = len(episodes)
    keys = {"group": [0] * number, "episode": range(number), "turn": [0] * number, "agent": ["a"] * number}
    met = {"success": [right for right, _ in episodes], "found": [" ".join(GOLD[:found]) for _, found in episodes]}
    return Turns({"truncated": [False] * number, **keys, **met, "entities": [GOLD] * number, **marks})


@exact
def worked_advantages() -> None:
    """The card's two groups: one with a right answer and a format error, and one in which all are wrong."""
    mixed = group((True, 3), (False, 2), (False, 0), (False, 4), bad=[False, False, False, True])
    reward = np.asarray(e_grpo_reward("found", "entities", error="bad").evaluate(mixed))
    np.testing.assert_allclose(reward, [1, 0.15, 0, 0])
    credit = np.asarray(e_grpo("found", "entities", error="bad").evaluate(mixed))
    np.testing.assert_allclose(credit, [1.4837, -0.2863, -0.5987, -0.5987], atol=1e-4)
    wrong = np.asarray(e_grpo("found", "entities").evaluate(group((False, 2), (False, 1), (False, 0), (False, 0))))
    np.testing.assert_allclose(wrong, [1.3056, 0.2611, -0.7833, -0.7833], atol=5e-5)


@exact
def relative_to_the_best() -> None:
    """The best of the wrong answers earns alpha, however few of the entities that are, and never more."""
    turns = group((True, 1), (False, 2), (False, 1), (False, 0))
    np.testing.assert_allclose(np.asarray(e_grpo_reward("found", "entities").evaluate(turns)), [1, 0.3, 0.15, 0])
    scores = np.array([1, 0.3, 0.15, 0])
    expected = (scores - scores.mean()) / scores.std(ddof=1)
    np.testing.assert_allclose(np.asarray(e_grpo("found", "entities").evaluate(turns)), expected, atol=1e-5)


@exact
def too_long() -> None:
    """An episode that was cut off counts with 0 in mean and deviation, and is not trained on."""
    turns = group((True, 3), (False, 2), (False, 0), (False, 4), truncated=[False, False, False, True])
    credit = np.asarray(e_grpo("found", "entities").evaluate(turns))
    np.testing.assert_allclose(credit, [1.4837, -0.2863, -0.5987, np.nan], atol=1e-4)


@exact
def hops_are_paid() -> None:
    """Play of the env of the use: whoever met none of the gold entities and is wrong has the least credit."""
    turns = rollout(Hops, Team(seeker=random_legal()), groups=8, group_size=8, seed=0)
    frame = turns.with_column(advantage=e_grpo("found", "entities"), met=entity_recall("found", "entities")).frame
    ends = frame.filter(pl.col("turn") == 3)
    lead = ends.group_by("group").agg(pl.corr("advantage", "met"))["advantage"].drop_nans()
    assert len(lead)
    assert (lead > 0.99).all()


def iterations_to_half() -> Measure:
    """Iterations until half of the answers are right, per seed."""

    def measured(left: Left) -> list[float]:
        curves = [[json.loads(line) for line in (seed / "metrics.jsonl").open()] for seed in left.seeds()]
        return [float(reached([line["success"] for line in curve], 0.5)) for curve in curves]

    return measured


def learned_so_far(learned: TrainingResult) -> dict[str, float]:
    """Mean share of right answers over training, and iterations to a half."""
    return {"curve": float(np.mean(learned.curve())), "iterations": reached(learned.curve(), 0.5)}


@reproduction(
    203,
    claim="Paying wrong answers for the gold entities that they met gives a signal to groups without a right answer.",
    baseline="GRPO on correctness",
    criterion="mean success over training higher by "
    "at least 0.05 in the mean, and in every seed (held on both fresh blocks of two seeds tried)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both arms."""
    arms = train_arms("world", ARMS, seeds, learned_so_far)
    gain, error = arms.gain("e_grpo", "grpo", "curve")
    measured = arms.measured()
    measured |= {"gain": gain, "standard_error": error}
    ahead = (arms.values["e_grpo"]["curve"] > arms.values["grpo"]["curve"]).all()
    return Outcome(measured, bool(ahead and gain >= 0.05))
