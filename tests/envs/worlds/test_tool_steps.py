"""ToolSteps: what a tool does to a value, what is right, and which tasks are held out."""

from __future__ import annotations

import pytest

from palaestra.envs.worlds import ToolSteps
from palaestra.envs.worlds.tool_steps import run


def begun(line: str, judges: float = 1.0) -> ToolSteps:
    env = ToolSteps(judges=judges)
    env.reset(env.read_task(line))
    return env


def taken(env: ToolSteps, tool: str) -> tuple[bool, bool, float]:
    """Whether the value is right, whether the tool failed, and the verifier's score without its small noise."""
    info = env.step({"controller": f"use the {tool}"}).info
    return info["right"], info["failed"], float(int(info["process"] * 10 // 10))


def test_a_right_value_is_found_right_and_an_error_wrong() -> None:
    env = begun("tea.txt: backward, count, double")
    assert taken(env, "strings") == (True, False, 1.0)
    assert env.state.value == "elttek"
    assert taken(env, "calculator") == (False, True, -1.0), "it does not take words"
    assert env.state.value == "elttek", "the value stays"
    assert taken(env, "ruler") == (False, False, 0.0), "6 instead of 12"
    env = begun("ten.txt: double, name")
    assert taken(env, "calculator") == (True, False, 1.0)
    end = env.step({"controller": "use the lookup now"})
    assert (end.info["success"], end.rewards) == (True, {"controller": 1.0})
    assert run("lookup", 20) == "zero"


def test_a_verifier_that_is_always_wrong_still_knows_of_errors() -> None:
    env = begun("tea.txt: backward, count, double", judges=0.0)
    assert taken(env, "strings") == (True, False, 0.0)
    assert taken(env, "guess") == (False, False, 1.0)
    assert taken(env, "strings") == (False, True, -1.0)


def test_held_out_are_a_file_and_four_steps() -> None:
    env, test = ToolSteps(), ToolSteps(split="test")
    for line, said in (
        ("red.txt: backward, count", "is held out"), ("tea.txt: backward, backward, backward, count", "is held out"),
        ("tea.txt: double, count", "a step does not take"), ("tea.txt: count", "no list"), ("x.txt: count", "no such"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            env.read_task(line)
    assert not set(env.lines) & set(test.lines)
    assert {name for name, _ in test.lines} == {name for name, _ in env.lines} | {"red.txt"}
    assert max(len(steps) for _, steps in env.lines) == 3
