"""A team's env as the sequence of one model."""

from __future__ import annotations

import functools

import pytest

from palaestra.envs.worlds import Corridor, Rendezvous, Trail
from palaestra.errors import EnvError
from palaestra.teams import WORKFLOWS, OneModel, one_model
from palaestra.testing import check_env

ONE = functools.partial(Trail, hops=(1,))


def test_it_is_an_env() -> None:
    check_env(one_model(ONE))
    assert "one_model" in WORKFLOWS


def test_lines_go_to_the_seats_until_a_tool_answers() -> None:
    env = one_model(ONE)()
    assert isinstance(env, OneModel)
    name = env.reset(1)["model"].text.split()[1]
    told = env.step({"model": f"plan: {name} 1\nsearch: {name}"})
    assert told.info["roles"] == ["plan", "search"]
    assert told.info["valid"] == {"model": True}
    seen = told.observations["model"]
    assert seen.text.splitlines() == [
        f"from {name} 1",
        f"plan: {name} 1",
        f"search: {name}",
        f"result: {told.info['result']}",
    ]
    assert [each["role"] for each in seen.conversation()] == ["user", "assistant", "user"]
    read = told.info["result"]
    end = env.step({"model": f"reflect: {read} 0 right\nanswer: {read}"})
    assert end.terminated
    assert end.info["success"]
    assert end.rewards == {"model": 1.0}


@pytest.mark.parametrize("said", ["", "search: ann", "hello", "plan: ann 1\nplan: ann 1"])
def test_what_is_not_due_is_not_given_to_the_team(said: str) -> None:
    env = one_model(ONE)()
    env.reset(1)
    told = env.step({"model": said})
    assert told.info["valid"] == {"model": False}
    assert told.observations["model"].text.endswith("result: ?")


def test_lines_behind_a_tools_answer_are_not_taken() -> None:
    env = one_model(ONE)()
    name = env.reset(1)["model"].text.split()[1]
    told = env.step({"model": f"plan: {name} 1\nsearch: {name}\nreflect: {name} 0 right"})
    assert told.info["roles"] == ["plan", "search"]
    assert not told.info["valid"]["model"]


def test_it_is_cut_off() -> None:
    env = one_model(ONE, turns=2)()
    env.reset(1)
    env.step({"model": "?"})
    end = env.step({"model": "?"})
    assert end.truncated
    assert not end.info["success"]


def test_seats_that_act_at_once_or_choose_are_refused() -> None:
    with pytest.raises(EnvError, match="at once"):
        one_model(Rendezvous)().reset(0)
    with pytest.raises(EnvError, match="chooses"):
        one_model(Corridor)().reset(0)
