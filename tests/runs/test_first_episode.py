"""An env that does not keep the protocol is told so in one line, before anything is spent."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from palaestra.envs.protocol import Observation, StepResult
from palaestra.errors import RecipeError
from palaestra.runs import build
from palaestra.runs.recipe import Recipe, validate


class Sound:
    """One question, one answer. The others below break one promise each."""

    agents: Any = ("solver",)
    task = "one"

    def reset(self, seed: int) -> Any:
        return {"solver": Observation("say yes", choices=("yes", "no"))}

    def step(self, actions: Mapping[str, Any]) -> Any:
        return StepResult({}, {"solver": 1.0}, terminated=True)


class Nobody(Sound):
    agents = None


class BareText(Sound):
    def reset(self, seed: int) -> Any:
        return "say yes"


class TextPerAgent(Sound):
    def reset(self, seed: int) -> Any:
        return {"solver": "say yes"}


class Gym(Sound):
    def reset(self, seed: int) -> Any:
        return super().reset(seed), {}


class GymStep(Sound):
    def step(self, actions: Mapping[str, Any]) -> Any:
        return "seen", 1.0, True, False, {}


class PaysAStranger(Sound):
    def step(self, actions: Mapping[str, Any]) -> Any:
        return StepResult({}, {"solvr": 1.0}, terminated=True)


class PaysOne(Sound):
    def step(self, actions: Mapping[str, Any]) -> Any:
        return StepResult({}, 1.0, terminated=True)  # type: ignore[arg-type]


class PaysText(Sound):
    def step(self, actions: Mapping[str, Any]) -> Any:
        return StepResult({}, {"solver": "1.5"}, terminated=True)  # type: ignore[dict-item]


class Fails(Sound):
    def step(self, actions: Mapping[str, Any]) -> Any:
        raise AssertionError("its own")


class Hangs(Sound):
    def step(self, actions: Mapping[str, Any]) -> Any:
        time.sleep(120)


def recipe(world: str) -> Recipe:
    first = {
        "name": "first",
        "env": {"make": f"{__name__}:{world}"},
        "policies": {"solver": {"kind": "tabular", "options": {"actions": 2}}},
        "team": {"*": "solver"},
    }
    return validate(first, trust=True)


@pytest.mark.parametrize(
    ("world", "complaint"),
    [
        ("Nobody", f"env.make: '{__name__}:Nobody' made Nobody, whose agents are None; expected a tuple of"),
        ("BareText", "env: seed 0, reset: observations are 'say yes' (str), expected a mapping {agent: palaestra.envs"),
        ("TextPerAgent", "env: seed 0, reset: agent 'solver' sees 'say yes', expected palaestra.envs.Observation(text"),
        ("Gym", "env: seed 0, reset: observations are ({'solver': Observation"),
        ("GymStep", "env: seed 0, step 1: step returned tuple, expected palaestra.envs.StepResult(observations, rew"),
        ("PaysAStranger", "env: seed 0, step 1: 'solvr' is rewarded, but the agents are ('solver',)"),
        ("PaysOne", "env: seed 0, step 1: rewards is 1.0 and info {}; expected rewards={agent: number}"),
        ("PaysText", "env: seed 0, step 1: the reward of 'solver' is '1.5', expected a number or None"),
    ],
)
def test_what_the_protocol_wants_is_said_in_one_line(world: str, complaint: str) -> None:
    with pytest.raises(RecipeError) as caught:
        build.check(build.resolve(recipe(world)))
    assert str(caught.value).startswith(complaint)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("world", ["Sound", "Fails", "Hangs"])
def test_a_failure_is_a_bad_episode_and_a_slow_env_is_not_waited_for(world: str) -> None:
    began = time.monotonic()
    build.check(build.resolve(recipe(world)))
    assert time.monotonic() - began < 60
