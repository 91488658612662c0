"""Tasks from templates: a goal with slots, a state that says whether it was reached (AndroidWorld).

`TaskTemplate` is what a user writes, `suite` makes instances of it, and `Desktop` plays a toy suite of eight settings.
Success is read from the state and counts only if the agent also declared the task done. Left out: the emulator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.exact.templates import seed_of
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


class TaskTemplate(Protocol):
    """Protocol of a parametrised task: a goal text with slots, random parameters, initial state, success score.

    complexity: the agent has int(10 × complexity) steps.
    """

    @property
    def name(self) -> str:
        """The template's name, unique in a suite."""

    @property
    def complexity(self) -> float:
        """The task's length in tens of steps."""

    def params(self, rng: np.random.Generator) -> dict[str, Any]:
        """Random values for the slots."""

    def goal(self, params: Mapping[str, Any]) -> str:
        """The goal in words, with the slots filled in."""

    def init(self, state: dict[str, Any], params: Mapping[str, Any]) -> None:
        """Set the state to where the task begins."""

    def success(self, state: Mapping[str, Any], params: Mapping[str, Any]) -> float:
        """How far the state meets the goal, in [0, 1]; composite tasks give fractions."""


@dataclass(frozen=True)
class Instance:
    """Data of one task of a suite: its `TaskTemplate`, its number, and the seed of its parameters."""

    template: TaskTemplate
    number: int
    seed: int

    def params(self) -> dict[str, Any]:
        """The slots' values, drawn from the instance's own seed."""
        return self.template.params(np.random.default_rng(self.seed))


def suite(templates: Sequence[TaskTemplate], n: int, seed: int = 30) -> list[Instance]:
    """List of `Instance`s, n of each `TaskTemplate`; an instance does not depend on the rest of the suite."""
    return [Instance(t, i, seed_of(seed, t.name, i)) for t in templates for i in range(n)]


@dataclass(frozen=True)
class Setting:
    """Task template of the toy desktop (`native/desktop`): set one named setting to a drawn value."""

    name: str
    values: int = 10
    complexity: float = 0.3

    def params(self, rng: np.random.Generator) -> dict[str, Any]:
        """A random value to set."""
        return {"value": int(rng.integers(self.values))}

    def goal(self, params: Mapping[str, Any]) -> str:
        """Text of the goal: which value the setting is to have."""
        return f"set {self.name} to {params['value']}"

    def init(self, state: dict[str, Any], params: Mapping[str, Any]) -> None:
        """Reset the setting to nothing."""
        state[self.name] = None

    def success(self, state: Mapping[str, Any], params: Mapping[str, Any]) -> float:
        """1 if the setting has the wanted value, else 0."""
        return float(state[self.name] == params["value"])


SETTINGS = tuple(
    Setting(name) for name in ("brightness", "volume", "alarm", "timer", "contacts", "calendar", "notes", "files")
)


@dataclass
class _TemplatesState:
    instance: Instance
    params: dict[str, Any]
    values: dict[str, Any]
    steps: int = 0
    over: bool = False


@ENVS.register("native/desktop")
class Desktop(NativeEnv):
    """Toy desktop env: `user_agent` sees a goal and a setting, sets it, then says `done` or `infeasible`; 1 if met.

    The setting has `values` values.

    In the end info has `template`, `instance_id`, `goal`, `episode_length` and the `instance_seed`.
    """

    agents: tuple[str, ...] = ("user_agent",)
    facts = {"template": str, "goal": str, "instance_id": int, "instance_seed": int, "episode_length": int}

    def __init__(self, *, instances: int = 10, seed: int = 30, show_goal: bool = True, values: int = 10) -> None:
        """Set up the suite.

        Args:
            instances: of each template; 1 trains on one fixed parameter per template.
            seed: of the suite; another one has fresh parameters.
            show_goal: whether the agent reads the slots, or only which template it is.
            values: that each setting can have.
        """
        if instances < 1 or values < 2:
            raise InputError(f"Desktop: instances={instances} must be at least 1, values={values} at least 2")
        templates = [replace(setting, values=values) for setting in SETTINGS]
        self.suite, self.show_goal, self.values = suite(templates, instances, seed), show_goal, values
        self.moves = (*(f"set {value}" for value in range(values)), "done", "infeasible")

    def begin(self) -> tuple[str, _TemplatesState]:
        """Draw an instance of the suite."""
        instance = self.suite[int(self.rng.integers(len(self.suite)))]
        params = instance.params()
        values: dict[str, Any] = {}
        instance.template.init(values, params)
        return f"{instance.template.name}:{instance.seed}", _TemplatesState(instance, params, values)

    def look(self) -> dict[str, Observation]:
        """Observation of the user agent: the goal, and the setting's current value."""
        state = self.state
        if state.over:
            return {}
        template = state.instance.template
        goal = template.goal(state.params) if self.show_goal else template.name
        return {"user_agent": Observation(f"{goal} | now {state.values[template.name]}", self.moves)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Set a value, or declare the end; an invalid move only costs a step."""
        state, move = self.state, chosen["user_agent"]
        template = state.instance.template
        state.steps += 1
        if move is not None and move < self.values:
            state.values[template.name] = move
        done = move == self.values
        state.over = done or move == self.values + 1 or state.steps >= int(10 * template.complexity)
        if not state.over:
            return {}, {}
        score = template.success(state.values, state.params) if done else 0.0
        return {"user_agent": score}, {
            "success": score == 1.0,
            "template": template.name,
            "instance_id": state.instance.number,
            "instance_seed": state.instance.seed,
            "goal": template.goal(state.params),
            "episode_length": state.steps,
        }
