"""`Mixture`: several kinds of tasks in one run, each sampled with its weight."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from palaestra.envs.facts import facts_of
from palaestra.envs.making import find, make
from palaestra.envs.protocol import Action, Env, Observation, StepResult
from palaestra.envs.registry import ENVS
from palaestra.errors import InputError, nearest

FIELDS = ("make", "weight", "options")

T = TypeVar("T")


@ENVS.register("native/mixture")
class Mixture:
    """Env that plays one of several named envs per episode, drawn by the reset seed with fixed weights.

    All episodes of a group have one seed, and so one part. The parts must have the same agents, which sit in the same
    seats whatever is played; with `own_seats` each part has its own, `PART.AGENT`. OneReward [161]
    (arXiv 2508.21066) samples its tasks with weights of .5, .25 and .25, the harder ones more often.

    facts: those of all parts, null in the others; part, the name of the part.

    Args:
        parts: By name: `make`, the env's name; `weight`, default 1; and the `options` of the env.
        own_seats: Whether agents are named by their part, so that parts may have different ones.
        split: Passed on to parts that have splits, as "train" or "test".

    Raises:
        InputError: there are no parts, a field is unknown, a weight is not positive, agents differ, or two parts tell a
            fact of one name with different types.

    Example:
        >>> both = {"easy": {"make": "native/arms"}, "hard": {"make": "native/arms", "weight": 3}}
        >>> env = Mixture(both)
        >>> parts = [env.reset(seed) and env.part for seed in range(400)]
        >>> round(parts.count("hard") / 400, 1)
        0.8
    """

    def __init__(
        self, parts: Mapping[str, Mapping[str, Any]], *, own_seats: bool = False, split: str | None = None
    ) -> None:
        if not parts:
            raise InputError("native/mixture: parts is empty; give at least one env")
        self.envs: dict[str, Env] = {name: _made(name, part, split) for name, part in parts.items()}
        weights = np.array([float(part.get("weight", 1)) for part in parts.values()])
        if not (np.isfinite(weights).all() and (weights > 0).all()):
            raise InputError(f"native/mixture: weights {weights.tolist()} must all be positive")
        self.shares = weights / weights.sum()
        self.facts: dict[str, type] = {"part": str}
        first = next(iter(self.envs))
        self.own_seats = own_seats
        seats = [self._seat(agent, name) for name, env in self.envs.items() for agent in env.agents]
        self.agents = tuple(seats) if own_seats else tuple(self.envs[first].agents)
        for name, env in self.envs.items():
            if not own_seats and set(env.agents) != set(self.agents):
                raise InputError(f"native/mixture: part {name!r} has agents {env.agents}, {first!r} has {self.agents}")
            for fact, kind in facts_of(env).items():
                if self.facts.setdefault(fact, kind) != kind:
                    raise InputError(f"native/mixture: fact {fact!r} is {kind} in {name!r} and another type before")
        self.part, self.task = first, ""

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Draw the part that this seed plays, and begin its episode."""
        drawn = np.random.default_rng([seed, 161]).choice(len(self.shares), p=self.shares)
        self.part = list(self.envs)[int(drawn)]
        seen = self.envs[self.part].reset(seed)
        self.task = f"{self.part}: {self.envs[self.part].task}"
        return self._seated(seen)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take a step in the part that is played."""
        inner = {agent.removeprefix(f"{self.part}."): each for agent, each in actions.items()}
        result = self.envs[self.part].step(inner if self.own_seats else actions)
        observations, rewards = self._seated(result.observations), self._seated(result.rewards)
        info = {name: self._of_agents(each) for name, each in result.info.items()}
        return replace(result, observations=observations, rewards=rewards, info={**info, "part": self.part})

    def _seat(self, agent: str, part: str) -> str:
        return f"{part}.{agent}" if self.own_seats else agent

    def _seated(self, values: Mapping[str, T]) -> dict[str, T]:
        """The same by seat."""
        return {self._seat(agent, self.part): each for agent, each in values.items()}

    def _of_agents(self, fact: Any) -> Any:
        """A fact, by seat if it is told by agent."""
        by_agent = isinstance(fact, Mapping) and fact.keys() <= {*self.envs[self.part].agents}
        return self._seated(fact) if by_agent else fact


def _made(name: str, part: Mapping[str, Any], split: str | None) -> Env:
    for field in part:
        if field not in FIELDS:
            raise InputError(f"native/mixture: part {name!r} has {field!r}{nearest(str(field), FIELDS)}")
    if "make" not in part:
        raise InputError(f"native/mixture: part {name!r} has no 'make', the name of its env")
    options = dict(part.get("options") or {})
    if split is not None and "split" in inspect.signature(find(part["make"])[0]).parameters:
        options["split"] = split
    return make(part["make"], **options)()
