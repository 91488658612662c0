"""All coalitions of a team on the same tasks."""

from __future__ import annotations

import pytest

from palaestra.agents import Team, fixed
from palaestra.agents.scripted import ScriptedPolicy
from palaestra.envs import make
from palaestra.errors import InputError
from palaestra.evaluation.teamwork import coalition_table, module_values
from palaestra.play.coalitions import play_coalitions
from palaestra.play.rollout import rollout
from palaestra.teams import workflows
from palaestra_atlas.catalog.teams.s088_capabench import Lucky, default, module, worth

SEATS = ["planning", "reasoning", "action", "reflection"]


def test_every_coalition_plays_the_same_tasks():
    team = Team(dict.fromkeys(SEATS, ScriptedPolicy(module, name="tested")))
    plain = ScriptedPolicy(default, name="default")
    env = workflows.chain(Lucky, SEATS)
    table = play_coalitions(env, team, dict.fromkeys(SEATS[:2], plain), groups=6, group_size=2, seed=3)
    assert len(table) == 4 * 6 * 2
    assert sorted(set(table["coalition"])) == ["", "planning", "planning+reasoning", "reasoning"]
    assert table["task"].n_unique() == 6
    assert not set(table["task"]) & set(rollout(env, team, groups=6, seed=3).frame["seed"])  # none to train on
    modules, values = coalition_table(table)
    assert modules == ["planning", "reasoning"]
    luck = [float(Lucky().draw(task).question) for task in sorted(set(table["task"]))]
    for place, extra in enumerate(([], ["planning"], ["reasoning"], ["planning", "reasoning"])):
        chance = worth(frozenset([*extra, "action", "reflection"]))
        assert values[:, place].tolist() == [float(chance > each) for each in luck]
    assert module_values(table)["value"].sum() == pytest.approx((values[:, 3] - values[:, 0]).mean())


def test_the_reward_of_an_episode_is_the_agents_mean_return():
    env = make("native/stage_games", rounds=3, games=[[[1.0, 0.0], [0.0, -1.0]]])
    best = Team(player_0=fixed("move 0", name="g0"), player_1=fixed("move 0", name="g1"))
    worst = {"player_0": fixed("move 1", name="b0"), "player_1": fixed("move 1", name="b1")}
    table = play_coalitions(env, best, worst, groups=2, score="reward")
    assert table["reward"].to_list() == [-3, -3, 0, 0, 0, 0, 3, 3]


def test_a_seat_must_be_there():
    team = Team(solver=fixed("x"))
    with pytest.raises(InputError, match=r"seat 'solvr' must be one of the team.*solver"):
        play_coalitions(workflows.single(Lucky), team, {"solvr": fixed("y", name="other")}, groups=1)
    with pytest.raises(InputError, match="0 seats"):
        play_coalitions(workflows.single(Lucky), team, {}, groups=1)
