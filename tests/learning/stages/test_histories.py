"""Histories out of thoughts that led to right actions, with variants where the right action is of a rare kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Action, StepResult
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.histories import align_histories
from palaestra.play.executors import Local, Plan


def knowing(**options: object) -> align_histories:
    stage = align_histories(**options)  # type: ignore[arg-type]
    stage.known = {("a", n): ("tap", f"old {n}") for n in range(3)} | {("a", 3): ("type", "old 3")}
    stage.pools = {("a", 0): ["I see a long list", "list"], ("a", 1): ["open it", "go"]}
    return stage


def test_pools_replace_recorded_thoughts_of_earlier_steps_only() -> None:
    rng = np.random.default_rng(0)
    assert knowing(rare=0.0).histories(("a", 2), rng) == ["list\ngo"]
    assert knowing(rare=0.0).histories(("a", 3), rng) == ["list\ngo\nold 2"]
    assert knowing(rare=0.0).histories(("a", 0), rng) == [""]
    assert knowing(rare=0.0, length=12).histories(("a", 2), rng) == ["I see a long list\nopen it"]


def test_rare_kinds_get_different_members_of_the_product() -> None:
    found = knowing(rare=0.5, variants=3).histories(("a", 3), np.random.default_rng(0))
    assert found[0] == "list\ngo\nold 2"
    assert len(set(found)) == 3
    assert len(knowing(rare=0.5, variants=9).histories(("a", 3), np.random.default_rng(0))) == 4, "two times two"
    assert len(knowing(rare=0.5, variants=9).histories(("a", 2), np.random.default_rng(0))) == 1, "a common kind"


class Steps(TaskEnv):
    """Two steps of one trace."""

    facts = {"expected": str, "trace": int, "step": int, "kind": str, "recorded": str}

    def draw(self, seed: int) -> Task:
        self.number = seed % 2
        return Task(f"step {self.number}", f"step {self.number}", lambda said: float("right" in said))

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        result = super().step(actions)
        told = {"trace": 7, "step": self.number, "kind": "tap", "recorded": "as recorded"}
        return dataclasses.replace(result, info={**result.info, **told})


def test_in_play_and_after_a_resume() -> None:
    def say(request: Request) -> str:
        return str(request.rng.choice(["right", "wrong"]))

    team = Team(solver=ScriptedPolicy(say, name="solver"))
    stage = align_histories()

    def played(stage: align_histories, iteration: int) -> pl.DataFrame:
        told = Context(np.random.default_rng(iteration), iteration, Steps, team, Local())
        plan = stage.plan(Plan(groups=2, group_size=16, seed=1, iteration=iteration, env_seeds=[0, 1]), told)
        return stage(Local().play(Steps, team, plan), told).frame

    first, second = played(stage, 1), played(stage, 2)
    assert first["help"].drop_nulls().unique().to_list() == ["Earlier steps:\nas recorded"]
    assert second["help"].drop_nulls().unique().to_list() == ["Earlier steps:\nright"]
    aligned = second.filter(pl.col("source") == "aligned")
    assert len(aligned) == 8, "half of the group of the second step; the first has no history"
    assert aligned["observation"].str.starts_with("Earlier steps:").all(), "it is learned from with its history"
    resumed = align_histories()
    resumed.load_state_dict(stage.state_dict())
    assert (resumed.known, resumed.pools) == (stage.known, stage.pools)


def test_only_earlier_steps_count_as_aligned() -> None:
    """Nobody is ever right in the second step: it has no pool, and none of its histories shows it."""
    team = Team(solver=ScriptedPolicy(lambda request: "right" if "step 0" in request.observation.text else "wrong"))
    stage = align_histories()
    for iteration, share in ((1, 0.0), (2, 1.0)):
        told = Context(np.random.default_rng(iteration), iteration, Steps, team, Local())
        plan = stage.plan(Plan(groups=2, group_size=4, seed=1, iteration=iteration, env_seeds=[0, 1]), told)
        stage(Local().play(Steps, team, plan), told)
        assert told.metrics["aligned"] == share


def test_long_pools_forget_the_oldest_and_bad_options_are_refused() -> None:
    stage = align_histories(last=2)
    rows = {"group": [0] * 4, "episode": range(4), "turn": [0] * 4, "seed": [1] * 4, "observation": ["?"] * 4}
    rows |= {"trace": ["t"] * 4, "step": [0] * 4, "kind": ["tap"] * 4, "recorded": ["r"] * 4}
    stage._remember(Turns(rows | {"action": ["a", "b", "c", "c"], "success": [True, True, True, True]}))
    assert stage.pools == {("t", 0): ["b", "c"]}
    for bad in ({"share": 1.0}, {"variants": 0}, {"rare": 2.0}, {"template": "before"}):
        with pytest.raises(InputError, match="align_histories: "):
            align_histories(**bad)  # type: ignore[arg-type]


def test_all_of_64_histories_are_tried_and_half_right_is_not_right() -> None:
    stage = align_histories(rare=1.0, variants=99, right="share")
    stage.known = {("a", n): ("tap", "old") for n in range(6)} | {("a", 6): ("type", "old")}
    stage.pools = {("a", n): [f"{n}", f"also {n}"] for n in range(6)}
    assert len(set(stage.histories(("a", 6), np.random.default_rng(0)))) == 64
    rows = {"trace": ["b"] * 2, "step": [0, 0], "kind": ["tap"] * 2, "recorded": ["old"] * 2, "seed": [0, 0]}
    keys = {"group": [0, 1], "episode": [0, 0], "turn": [0, 0], "agent": ["x", "x"]}
    stage._remember(Turns(pl.DataFrame(keys | rows | {"action": ["half", "whole"], "share": [0.5, 1.0]})))
    assert stage.pools["b", 0] == ["whole"]
