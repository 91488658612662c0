"""Reasons with actions: choices stand once for each reason, the env is given the action, the reason is a fact."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from palaestra.envs.protocol import Observation, StepResult
from palaestra.envs.worlds import Pulls, Slips
from palaestra.errors import InputError
from palaestra.teams import WORKFLOWS, Thoughts, thoughts
from palaestra.teams.thoughts import parted, with_thought
from palaestra.testing import check_env

SMALL = functools.partial(Slips, cells=2)


def test_it_is_an_env():
    check_env(thoughts(SMALL, ["near", "far"]))
    check_env(thoughts(functools.partial(Pulls, pulls=2), ["why not"]), varied=False)
    assert "thoughts" in WORKFLOWS


def test_each_choice_stands_once_without_and_once_with_each_reason():
    env = Thoughts(SMALL, ["near", "far"])
    seen = env.reset(0)["walker"]
    assert seen.choices[:3] == env.env.choices
    assert seen.choices[3:] == tuple(f"<think>{reason}</think>{each}" for reason in ("near", "far")
                                     for each in env.env.choices)  # fmt: skip
    right = env.env.right()
    told = env.step({"walker": with_thought("far", right)})
    assert (told.info["rationale"], told.info["bad"]) == ({"walker": "far"}, False)
    number = env.env.choices.index(env.env.right())
    told = env.step({"walker": number + 3})
    assert (told.info["rationale"], told.info["success"]) == ({"walker": "near"}, True)


class Words:
    """An env in words that hears what its agent says."""

    agents, task = ("a",), ""

    def reset(self, seed):
        self.heard = []
        return {"a": Observation("say")}

    def step(self, actions):
        self.heard.append(actions["a"])
        return StepResult({"a": Observation("say")}, {}, False)


class Masked:
    """An env of three choices of which the second is not legal."""

    agents, task = ("a",), ""

    def reset(self, seed):
        return {"a": Observation("choose", choices=("x", "y", "z"), mask=np.array([True, False, True]))}

    def step(self, actions):
        return StepResult(self.reset(0), {}, False)


def test_what_is_not_legal_is_not_legal_with_a_reason():
    env = Thoughts(Masked, ["near"])
    assert env.reset(0)["a"].mask.tolist() == [True, False, True, True, False, True]


def test_replies_in_words_may_give_any_reason():
    env = Thoughts(Words, ["unused"])
    env.reset(0)
    told = env.step({"a": " <think>it\nis near </think> go left"})
    assert told.info["rationale"] == {"a": "it\nis near"}
    env.step({"a": "go right"})
    assert env.env.heard == ["go left", "go right"]
    assert parted(with_thought("x", "y")) == ("x", "y")


@pytest.mark.parametrize("reasons", [[], [""], ["a", "a"]])
def test_reasons_are_texts_that_differ(reasons):
    with pytest.raises(InputError, match="reasons"):
        thoughts(SMALL, reasons)
