from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.messages import messages
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds.levels import Levels, always, worker
from palaestra.errors import InputError
from palaestra.play.rollout import rollout
from palaestra.rewards import conductor, density
from palaestra.teams import conducted
from palaestra.teams.conductor import ConductedEnv, layers
from palaestra.testing.env import check_env


def shape(nodes, edges, depth, most):
    return Turns({"plan_nodes": [nodes], "plan_edges": [edges], "plan_depth": [depth], "plan_most": [most]})


@pytest.mark.parametrize(
    ("shown", "expected"),
    [((4, 3, 4, 4), 4.8595), ((4, 3, 2, 4), 8.012), ((4, 6, 4, 4), 3.0151), ((7, 12, 3, 10), 9.002),
     ((5, 4, 2, 4), -0.2449),
     ((1, 0, 1, 4), float(np.exp(np.exp(-0.25) + 2)))],
)  # fmt: skip
def test_density_is_that_of_the_worked_teams(shown, expected):
    assert density().evaluate(shape(*shown)) == pytest.approx([expected], abs=2e-3 if expected > 9 else 1e-4)


def test_the_reward_says_what_came_of_it_and_is_missing_for_workers():
    turns = Turns({
        "valid": [True, True, True, False, True], "success": [True, False, False, False, True],
        "plan_read": [True, True, False, None, None], "plan_nodes": [1, 1, 1, None, None],
        "plan_edges": [0, 0, 0, None, None], "plan_depth": [1, 1, 1, None, None], "plan_most": [4, 4, 4, 4, None],
    })  # fmt: skip
    assert conductor(0.0).evaluate(turns) == pytest.approx([1.5, 1.0, 0.7, -2.0, np.nan], nan_ok=True)
    assert conductor(0.1).evaluate(turns)[0] == pytest.approx(1.5 + 0.1 * np.exp(np.exp(-0.25) + 2))


def test_a_team_is_read_from_its_text():
    made = layers("2-3-1")
    assert made is not None
    assert made.steps == (("w1", "w2"), ("w3", "w4", "w5"), ("w6",))
    assert sum(map(len, made.heard.values())) == 9
    written = layers("{w2: [w1], w4: [w1, w2]}")
    assert written is not None
    assert written.steps == (("w1",), ("w2",), ("w4",))


@pytest.mark.parametrize(
    "text",
    ["", "many", "3", "2-0-1", "9-9-1", "{w1: [w2], w2: [w1]}", "{w1: [x]}", "{w1: 3}", "{a", "[]"],
)
def test_what_is_no_team_is_none(text):
    assert layers(text) is None


def play(plan, **options):
    env = conducted(Levels, most={"easy": 4, "medium": 7, "hard": 10}, **options)
    seats = dict.fromkeys(env().agents, ScriptedPolicy(worker(), name="worker"))
    return rollout(env, Team(seats | {"orchestrator": ScriptedPolicy(always(plan), name="o")}), groups=12, seed=3)


def test_the_team_that_was_written_works_and_is_measured():
    turns = play("3-1", price=0.1)
    seat = turns.frame.filter(turns["agent"] == "orchestrator")
    assert set(seat["plan_nodes"]) == {4}
    assert set(seat["plan_calls"]) == {4}
    assert dict(zip(seat["observation"], seat["plan_most"])).items() <= {"easy": 4, "medium": 7, "hard": 10}.items()
    assert set(seat["reward"] + 0.4) <= {0.0, 1.0}
    assert set(messages(turns)["receiver"]) == {"w4"}
    rewards = conductor().evaluate(turns)
    assert (np.isfinite(rewards) == (turns["agent"] == "orchestrator").to_numpy()).all()


def test_what_is_no_team_ends_the_episode():
    turns = play("a few")
    assert set(turns["agent"]) == {"orchestrator"}
    assert not turns["valid"].any()
    assert not turns["success"].any()
    assert set(conductor().evaluate(turns)) == {-2.0}


def test_a_failure_is_told_and_all_turns_are_paid_for():
    turns = play("1", tries=2, price=0.1)
    seat = turns.frame.filter(turns["agent"] == "orchestrator")
    again = seat.filter(seat["observation"].str.contains("failed"))
    assert 0 < len(again) < 12
    assert again["observation"].str.ends_with(" | 1 failed").all()
    assert set((again["reward"] + 0.2).round(6)) <= {0.0, 1.0}


def test_templates_are_choices_and_bad_ones_are_named():
    env = conducted(Levels, templates=["1", "3-1"])
    assert env().reset(0)["orchestrator"].choices == ("1", "3-1")
    check_env(env)
    with pytest.raises(InputError, match="templates has '4-4'"):
        conducted(Levels, templates=["4-4"])
    with pytest.raises(InputError, match="must be at least 1"):
        conducted(Levels, tries=0)


@pytest.mark.parametrize(("most", "expected"), [({"hard": 7, "very hard": 9}, 9), ({"easy": 2}, 12), (4, 4)])
def test_of_several_levels_that_a_question_names_the_largest_counts(most, expected):
    env = SimpleNamespace(most=most, question="a very hard one", workers=12)
    assert ConductedEnv._most(env) == expected
