"""Proposals that are scored and asked again: who is asked, what they read, and what the critic was fitted to."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra import envs
from palaestra.agents import ScriptedPolicy, Team, fixed
from palaestra.algebra.turns import Turns
from palaestra.credit.joint_actions import fitted_critic
from palaestra.envs.conversations import opening
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.play.rollout import rollout
from palaestra.teams import advantage_feedback
from palaestra.teams.advantage_feedback import _told
from palaestra.testing import check_env

ENV = envs.make("native/sites", workers=2, sites=3)


def table() -> Turns:
    """Every joint action of the first turn once; what blocks each other costs both 1."""
    key = ENV().reset(0)["worker_0"].key()
    pairs = [(i, j) for i in range(3) for j in range(3)]
    keys = {"group": [0] * 18, "episode": np.repeat(range(9), 2), "turn": [0] * 18}
    facts = {"agent": ["worker_0", "worker_1"] * 9}
    facts |= {"state": np.full(18, key, np.uint64), "action": [f"site {site}" for pair in pairs for site in pair]}
    return Turns(keys | facts | {"reward": np.repeat([-float(i == j) for i, j in pairs], 2)})


def rounds(order: str, **options: object) -> pl.DataFrame:
    def elsewhere(request: object) -> str:
        return "site 2" if "expected advantage of -" in request.observation.text else "site 0"  # type: ignore[attr-defined]

    team = Team(worker_0=fixed("site 0"), worker_1=ScriptedPolicy(elsewhere, name="second"))
    env = advantage_feedback(ENV, table(), threshold=-0.01, order=order, **options)  # type: ignore[arg-type]
    return rollout(env, team, groups=1).frame.filter(pl.col("round") == 0)


def test_one_agent_or_all_are_asked_again() -> None:
    first = rounds("sequential")
    assert first["agent"].to_list() == ["worker_0", "worker_1", "worker_1"]
    assert first["action"].to_list() == ["site 0", "site 0", "site 2"]
    assert first["accepted"].to_list() == [True, False, True]
    assert "decided: worker_0: site 0" in first["observation"][1]
    both = rounds("joint")
    assert both["agent"].to_list() == ["worker_0", "worker_1"] * 2
    assert both["action"].to_list() == ["site 0", "site 0", "site 0", "site 2"]


def test_the_best_proposal_is_taken_when_no_query_is_left() -> None:
    team = Team(worker_0=fixed("site 0"), worker_1=fixed("site 0", name="too"))
    played = rollout(advantage_feedback(ENV, max_queries=3), team, groups=1).frame
    first = played.filter(pl.col("round") == 0)
    assert first["agent"].to_list() == ["worker_0"] + ["worker_1"] * 3
    assert played["reward"].sum() == pytest.approx(-2.0), "twenty turns of both, nothing cleared"


@pytest.mark.parametrize("descending", [False, True])
def test_the_critic_knows_what_was_logged_whatever_the_order_of_a_turns_rows(descending: bool) -> None:
    critic = fitted_critic(Turns(table().frame.sort("episode", "agent", descending=[False, descending])))
    (state,) = {cell[0] for cell in critic.cells if len(cell) == 1}
    assert critic.value(state) == pytest.approx(-2 / 3)
    assert critic.value(state, ["worker_0 site 1"]) == pytest.approx(-2 / 3)
    assert critic.value(state, ["worker_0 site 1", "worker_1 site 1"]) == pytest.approx(-2.0)


def test_a_turn_is_worth_what_is_earned_from_it_on() -> None:
    keys = {"group": [0] * 4, "episode": [0] * 4, "turn": [0, 0, 1, 1], "agent": ["worker_0", "worker_1"] * 2}
    facts = {"state": np.array([1, 1, 2, 2], np.uint64), "action": ["site 0"] * 4}
    critic = fitted_critic(Turns(keys | facts | {"reward": [1.0, 1.0, 3.0, 3.0]}))
    assert [value for cell, (value, _) in critic.cells.items() if len(cell) == 1] == [8.0, 6.0]


def test_it_is_an_env_and_says_what_cannot_be() -> None:
    check_env(advantage_feedback(ENV, table()), varied=False)
    with pytest.raises(InputError, match="order='other' is sequential or joint"):
        advantage_feedback(ENV, order="other")  # type: ignore[arg-type]


def test_chat_models_read_the_rules_of_the_game_and_then_what_was_decided() -> None:
    env = advantage_feedback(ENV, table(), threshold=-0.01)()
    seen = env.reset(0)["worker_0"]
    asked = env.step({"worker_0": seen.index("site 0")}).observations["worker_1"]
    read = asked.conversation()[-1]["content"]
    assert read.startswith("left: 0 1 2\ndecided: worker_0: site 0")
    assert "`site 1`" in read
    seen = Observation("short", messages=opening("Rules.", "Long."))
    told = _told(seen, "decided: a: b")
    assert told.conversation() == opening("Rules.", "Long.\n\ndecided: a: b")
