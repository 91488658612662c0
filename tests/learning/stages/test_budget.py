"""Budgets: what is played follows predicted chances, more of it teaches, and a stopped run goes on the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.credit import allocate_budget, grpo, rare_success
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.errors import InputError
from palaestra.learning import PolicyGradient, Trainer
from palaestra.learning.stages.budget import predicted_budget
from palaestra.learning.stages.stage import Context
from palaestra.play.executors import Local, Plan
from palaestra.play.rollout import rollout, starts

BUDGET = ("predicted_budget()",)
GOOD = (0, 0, 2, 5, 8, 10, 10)
"""How many of ten answers are right, per task."""


class Lottery:
    """Some of ten answers are right, the first few; the features say how many. `broken`: that task cannot be reset."""

    agents = ("a",)

    def __init__(self, *, array: bool = True, broken: int | None = None) -> None:
        self.array, self.broken, self.task = array, broken, ""

    def reset(self, seed: int) -> Mapping[str, Observation]:
        number = seed % len(GOOD)
        if number == self.broken:
            raise RuntimeError("lost")
        self.right, self.task = GOOD[number], f"task {number}"
        array = np.array([self.right - 5, 1], np.float32) / 3 if self.array else None
        return {"a": Observation(self.task, choices=tuple("abcdefghij"), array=array)}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        right = int(actions["a"]) < self.right
        return StepResult({}, {"a": float(right)}, terminated=True, info={"success": right})


def trainer(directory: Path | None = None, *, env: Any = Lottery, **options: Any) -> Trainer:
    team = Team({"a": TabularPolicy(10)})
    learner = PolicyGradient(team, lr=options.pop("lr", 0.0))
    settings = {"iterations": 4, "groups": 14, "group_size": 4, "checkpoint_every": 2, "save_turns": "all"}
    return Trainer(env, team, credit=grpo(), learner=learner, directory=directory, **(settings | options))


def sizes_and_mixed(directory: Path) -> tuple[pl.DataFrame, float]:
    """Episodes per group of every iteration, and the share of groups that teach."""
    episodes = Turns.load(directory / "turns").frame.unique(["iteration", "group", "episode"])
    groups = episodes.group_by("iteration", "group", "task").agg(
        pl.len().alias("size"), (pl.col("success").n_unique() == 2).alias("mixed")
    )
    return groups, float(np.mean(groups["mixed"].to_numpy()))


def test_more_groups_teach_for_as_many_episodes(tmp_path: Path) -> None:
    mixed = {}
    for name, stages in {"same": [], "predicted": ["predicted_budget()"]}.items():
        lines = trainer(tmp_path / name, stages=stages, iterations=14).run()
        assert all(line["episodes"] == 56 and line["incomplete_groups"] == 0 for line in lines)
        groups, mixed[name] = sizes_and_mixed(tmp_path / name)
    assert mixed["predicted"] > mixed["same"] + 0.03
    first = groups.filter(pl.col("iteration") == 1)["size"]
    assert first.unique().to_list() == [4], "nothing is known yet"
    later = groups.filter(pl.col("iteration") > 7).group_by("task").agg(pl.col("size").mean())
    size = dict(later.iter_rows())
    assert max(size["task 0"], size["task 6"]) < 4 < min(size["task 2"], size["task 4"])


def test_a_resume_is_exact_and_needs_the_same_budget(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole", stages=BUDGET, lr=0.3)
    whole.run()
    trainer(tmp_path / "stopped", stages=BUDGET, lr=0.3, iterations=2).run()
    again = trainer(tmp_path / "stopped", stages=BUDGET, lr=0.3)
    again.run(resume=True)
    assert (
        sizes_and_mixed(tmp_path / "whole")[0]
        .sort("iteration", "group")
        .equals(sizes_and_mixed(tmp_path / "stopped")[0].sort("iteration", "group"))
    )
    one, other = (each.learner.policies["tabular"].state_dict() for each in (whole, again))
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[key], other[key]) for key in one)
    for stages in ((), ("predicted_budget(minimum=1)",)):
        with pytest.raises(InputError, match="stages="):
            trainer(tmp_path / "stopped", stages=stages, lr=0.3, iterations=6).run(resume=True)


def test_the_prediction_is_from_the_groups_of_the_past() -> None:
    budget = predicted_budget(minimum=1, last=10)
    plan = Plan(groups=6, group_size=4, seed=1)
    team = Team({"a": TabularPolicy(10)})
    context = Context(np.random.default_rng(0), 0, Lottery, team, Local())
    assert budget.plan(plan, context).group_size == [4] * 6
    played = rollout(Lottery, team, groups=6, group_size=4, seed=1)
    older = played.frame.with_columns(pl.col("group") + 6)
    whole = Turns.concat([played, older])  # as behind `accumulate`
    assert budget(whole, context) is whole
    state, seen = budget.state_dict(), starts(Lottery, groups=6, seed=1)
    assert state["solved"].tolist() == played["success"].to_list()[-10:]
    known = [seen[group] for group in [3] * 2 + [4] * 4 + [5] * 4]
    assert np.array_equal(state["features"], [start.array for start in known if start is not None])
    twin = predicted_budget(minimum=1, last=10)
    twin.load_state_dict(state)
    model = budget.value().fit(state["features"], state["solved"])
    chances = model.predict(np.array([start.array for start in seen if start is not None]))
    sizes = allocate_budget(chances, 24, minimum=1).tolist()
    assert twin.plan(plan, context).group_size == budget.plan(plan, context).group_size == sizes
    other = predicted_budget(minimum=1, last=10, utility="rare_success")
    other.load_state_dict(state)
    by_rarity = allocate_budget(chances, 24, minimum=1, utility=rare_success).tolist()
    assert other.plan(plan, context).group_size == by_rarity != sizes


def test_starts_are_what_the_rollout_shows_and_none_where_it_fails() -> None:
    played = rollout(Lottery, Team({"a": TabularPolicy(10)}), groups=5, seed=3, iteration=2)
    seen = starts(Lottery, groups=5, seed=3, iteration=2)
    assert [start.text for start in seen if start is not None] == played["observation"].to_list()

    def broken() -> Lottery:
        return Lottery(broken=2)

    seen = starts(broken, groups=20, seed=3)
    lost = [start is None for start in seen]
    assert any(lost)
    assert not all(lost)
    lines = trainer(env=broken, stages=BUDGET, iterations=3).run()
    assert lines[-1]["errors"]
    assert lines[-1]["incomplete_groups"] == lines[-1]["groups"] - sum(
        start is not None for start in starts(broken, groups=14, seed=0, iteration=3)
    )


def test_of_an_env_that_shows_text_the_words_are_the_features() -> None:
    budget = predicted_budget(minimum=1)
    trainer(env=lambda: Lottery(array=False), stages=[budget], iterations=3).run()
    features = budget.state_dict()["features"]
    assert features.shape == (168, 32)
    assert len(np.unique(features, axis=0)) == len(GOOD)


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(InputError, match="minimum=0"):
        predicted_budget(minimum=0)
    with pytest.raises(InputError, match="did you mean 'rare_success'"):
        predicted_budget(utility="rare_sucess")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="14 rollouts are less than 2 for each of 14 tasks"):
        trainer(stages=BUDGET, group_size=1).run()
    by_name = predicted_budget(features=lambda start: np.array([len(start.text)]))
    trainer(env=lambda: Lottery(array=False), stages=[by_name]).run()
