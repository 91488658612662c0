"""Episodes compared with those of the frozen initial policy, by criteria, up to a ceiling."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs import make
from palaestra.errors import InputError
from palaestra.learning import PolicyGradient
from palaestra.learning.stages import Context
from palaestra.learning.stages.against_start import against_start
from palaestra.play.executors import Local, Plan
from palaestra.runs.inline import learn

ARMS = make("native/arms", pays=[0.0, 0.0], shows={"good": [0.0, 1.0], "long": [1.0, 0.0]})
GOOD = r"""against("verifier(\"4 * col('good')\")")"""


class Named:
    """σ of the difference in the column that the criterion names."""

    name = "named"

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        assert reference is not None
        assert condition is not None
        name = condition["criterion"][0]
        return pl.Series(1 / (1 + np.exp(reference[name].to_numpy() - rows[name].to_numpy())))


def context(team: Team, seed: int = 0) -> Context:
    return Context(np.random.default_rng(seed), 1, ARMS, team, Local())


def played(team: Team, groups: int = 10) -> Turns:
    return Local().play(ARMS, team, Plan(groups=groups, group_size=4, seed=3))


def learned(team: Team, turns: Turns) -> None:
    learner = PolicyGradient(team, lr=2.0)
    for _ in range(3):
        learner.update(turns.with_column(advantage=np.where(turns["action"] == "arm 1", 1.0, -1.0)))


def test_half_at_first_and_more_of_what_is_learned_also_after_a_resume() -> None:
    team = Team(player=TabularPolicy(2, name="player"))
    stage = against_start("better", GOOD)
    first = played(team)
    before = stage(first, context(team))["against.better"].to_numpy()
    assert set(np.round(before, 6)) <= {0.017986, 0.5, 0.982014}
    assert abs(before.mean() - 0.5) < 0.15
    learned(team, first)
    after = stage(played(team), context(team))["against.better"].to_numpy()
    assert after.mean() > 0.65
    resumed = against_start("better", GOOD)
    resumed.load_state_dict(stage.state_dict())
    again = resumed(played(team), context(team))["against.better"].to_numpy()
    assert again.mean() > 0.65, "against the policy of now it would be .5"


def test_mean_over_criteria_and_ceiling() -> None:
    team = Team(player=TabularPolicy(2, name="player"))
    turns = played(team)
    both = against_start("both", Named(), criteria=["good", "long"])(turns, context(team))["against.both"]
    assert both.to_list() == pytest.approx([0.5] * len(turns)), "what one gains the other loses"
    good = against_start("good", Named(), criteria=["good"])(turns, context(team))["against.good"]
    low = against_start("good", Named(), criteria=["good"], ceiling=0.6)(turns, context(team))["against.good"]
    assert good.max() == pytest.approx(0.7311, abs=1e-4)
    assert low.to_list() == pytest.approx(good.clip(0, 0.6).to_list())


def test_criteria_by_task_and_a_task_without_any() -> None:
    team = Team(player=TabularPolicy(2, name="player"))
    turns = played(team)
    kind = np.where(turns["group"].to_numpy() % 2 == 0, "one", "two")
    marked = turns.with_column(part=kind)
    criteria = {"one": ["good"], "two": ["long"]}
    found = against_start("x", Named(), criteria=criteria)(marked, context(team))["against.x"].to_numpy()
    single = [against_start("x", Named(), criteria=[c])(turns, context(team))["against.x"] for c in ("good", "long")]
    np.testing.assert_allclose(found, np.where(kind == "one", single[0], single[1]))
    with pytest.raises(InputError, match="part='two'"):
        against_start("x", Named(), criteria={"one": ["good"]})(marked, context(team))


def test_by_recipe_with_tasks_that_are_sampled_by_weight() -> None:
    arms: dict[str, Any] = {"make": "native/arms", "options": {"pays": [0.0, 0.0], "shows": {"good": [0.0, 1.0]}}}
    found = learn(
        "world",
        {
            "env": {"make": "native/mixture", "options": {"parts": {"a": {**arms, "weight": 3}, "b": arms}}},
            "stages": [f"against_start('better', {GOOD!r})"],
            "reward": "col('against.better')",
            "train": {"iterations": 12, "groups": 8, "group_size": 8},
        },
    )
    means = [line["stages"]["against_start"]["against_start"] for line in found.lines]
    assert means[-1] > means[0] + 0.15, means


def test_bad_options_are_refused() -> None:
    bad: dict[str, Any]
    for bad in ({"ceiling": 0.0}, {"criteria": []}, {"criteria": {"a": []}}):
        with pytest.raises(InputError, match="against_start: "):
            against_start("x", Named(), **bad)
