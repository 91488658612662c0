"""A chain whose stages are checked."""

from __future__ import annotations

import pytest

from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError
from palaestra.teams import workflows
from palaestra.testing.env import check_env


class Word(TaskEnv):
    """Say yes."""

    def draw(self, seed: int) -> Task:
        """A number that does not matter."""
        return Task(f"{seed}", f"{seed}: say yes", lambda text: float(text == "yes"), "yes")


def play(env, say):
    """Who read what, and the last result. say: role -> what it says, one after the other."""
    seen, told = env.reset(1), []
    while seen:
        told += [(role, each.text.split(" | ")[1:]) for role, each in seen.items()]
        result = env.step({role: say[role].pop(0) for role in seen})
        seen = result.observations
    return told, result


def test_only_what_is_refused_is_done_again():
    env = workflows.checked_chain(Word, ["plan", "act"])()
    told, result = play(env, {"plan": ["a"], "check-plan": ["ok"], "act": ["no", "yes"], "check-act": ["try again"]})
    assert told == [
        ("plan", []), ("check-plan", ["a"]), ("act", ["a"]), ("check-act", ["no"]), ("act", ["no", "a", "try again"]),
    ]  # fmt: skip
    assert result.info["final"] == "yes"
    assert result.info["success"]
    told, result = play(env, {"plan": ["a"], "check-plan": ["ok"], "act": ["yes"], "check-act": ["ok"]})
    assert [role for role, _ in told] == ["plan", "check-plan", "act", "check-act"]
    assert result.info["success"]


def test_without_retries_it_is_a_chain():
    told, result = play(workflows.checked_chain(Word, ["plan", "act"], 0)(), {"plan": ["a"], "act": ["yes"]})
    assert told == [("plan", []), ("act", ["a"])]
    assert result.info["success"]
    with pytest.raises(InputError, match="retries=-1"):
        workflows.checked_chain(Word, ["plan"], -1)


def test_it_keeps_the_protocol():
    check_env(workflows.checked_chain(Word, ["plan", "act", "report"], 2))
