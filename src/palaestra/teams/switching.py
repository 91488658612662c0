"""`switching`: before every step a gate chooses between independent agents and a seat that acts for all (MANSA [115]).

    switching(cost=0.2)                central control where it is worth 0.2 a step
    switching(cost=0.2, budget=10)     at most ten times in an episode

Left out: agents with free texts, and a central seat that only learns, beside agents that act.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError, InputError

MODES = ("independent", "central")
Mode = Literal["independent", "central"]


class SwitchingEnv:
    """Env wrapper in which a `gate` chooses each step who acts: the agents, or one `central` seat for all.

    The gate and the central seat see what all agents see; the gate also sees how many calls are left, if there is a
    budget. The central seat chooses one joint action of those who act: every combination is a choice, legal if all its
    parts are. An illegal one is an illegal action of everybody. Only who acted in a step is paid for it: an agent its
    own reward, the central seat the mean over agents, the gate this mean less `cost` if it called the central seat. So
    each learner learns from the steps in which it acted.

    Args:
        env: makes the env; all its agents have choices.
        cost: price of a central step, taken from the gate's reward.
        budget: central steps in an episode; then the gate can only choose `independent`. None: no limit.
        only: the one mode that the gate may choose, for comparison.
        gate, central: names of the seats.

    facts: those of `env`; mode, of the step; calls, central steps of the episode so far; total, the sum over the
    episode so far of the mean reward over agents, without the cost.

    Raises:
        InputError: a number is below 0, there is no such mode, or the env has an agent of such a name.
        EnvError: when it is played, somebody acts with free text.
    """

    def __init__(
        self,
        env: EnvFactory,
        cost: float = 0.1,
        *,
        budget: int | None = None,
        only: Mode | None = None,
        gate: str = "gate",
        central: str = "central",
    ) -> None:
        self.inner: Env = env()
        if cost < 0 or (budget is not None and budget < 0) or only not in (None, *MODES):
            raise InputError(f"switching: cost={cost} and budget={budget} at least 0, only={only!r} one of {MODES}")
        if taken := sorted({gate, central} & set(self.inner.agents)) or ([gate] if gate == central else []):
            raise InputError(f"switching: {taken[0]!r} must be a new name; choose another gate= or central=")
        self.cost, self.budget, self.only, self.gate, self.central = float(cost), budget, only, gate, central
        self.agents = (gate, central, *self.inner.agents)
        self.facts = {**facts_of(self.inner), "mode": str, "calls": int, "total": float}
        self.task = ""

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the episode; the gate acts first."""
        self._calls, self._total, self._mode = 0, 0.0, ""
        self._asked: Mapping[str, Observation] = {}
        self._seen: Mapping[str, Observation] = self.inner.reset(seed)
        self.task = self.inner.task
        return self._gate()

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the gate's choice, or the actions of whoever is in control."""
        due = set(self._asked)
        if actions.keys() != due or not due:
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {sorted(due)}")
        if not self._mode:
            return self._switch(actions[self.gate])
        mode, self._mode = self._mode, ""
        result = self.inner.step(self._spread(actions[self.central]) if mode == "central" else actions)
        shared = sum(value for value in result.rewards.values() if value is not None) / len(self.inner.agents)
        called = mode == "central"
        self._total += shared
        rewards: dict[str, float | None] = {self.central: shared} if called else dict(result.rewards)
        rewards[self.gate] = shared - self.cost * called
        info: dict[str, Any] = {name: self._own(value, called) for name, value in result.info.items()}
        info |= {"mode": mode, "calls": self._calls, "total": self._total}
        self._seen = result.observations
        shown = self._gate() if self._seen else {}
        self._asked = shown
        return dataclasses.replace(result, observations=shown, rewards=rewards, info=info)

    def _switch(self, action: Action) -> StepResult:
        found = self._asked[self.gate].index(action)
        self._mode = MODES[found] if found is not None else self.only or "independent"
        if self._mode == "central":
            self._calls += 1
            shown: dict[str, Observation] = {self.central: self._joint()}
        else:
            shown = dict(self._seen)
        self._asked = shown
        return StepResult(shown, info={"valid": {self.gate: found is not None}})

    def _gate(self) -> dict[str, Observation]:
        """What all see, and what is left of the budget."""
        left = None if self.budget is None else self.budget - self._calls
        mask = np.array([self.only != "central" or left == 0, self.only != "independent" and left != 0])
        seen = self._all(MODES, mask)
        if left is not None:
            array = None if seen.array is None else np.append(seen.array, np.float32(left / max(self.budget or 0, 1)))
            seen = dataclasses.replace(seen, text=f"{seen.text}\ncalls left: {left}", array=array)
        shown = {self.gate: seen}
        self._asked = shown
        return shown

    def _joint(self) -> Observation:
        """Every combination of what those can do who act."""
        parts = []
        for agent, seen in self._seen.items():
            if seen.choices is None:
                raise EnvError(f"switching: {agent!r} acts with free text; joint actions need choices")
            legal = np.ones(len(seen.choices), bool) if seen.mask is None else seen.mask
            parts.append(list(zip(seen.choices, legal.tolist(), strict=True)))
        self._combined = list(itertools.product(*parts))
        names = tuple(" & ".join(name for name, _ in each) for each in self._combined)
        return self._all(names, np.array([all(legal for _, legal in each) for each in self._combined]))

    def _spread(self, action: Action) -> dict[str, Action]:
        """Each agent's part of a joint action."""
        found = self._asked[self.central].index(action)
        if found is None:
            return dict.fromkeys(self._seen, "")
        return {agent: name for agent, (name, _) in zip(self._seen, self._combined[found], strict=True)}

    def _all(self, choices: tuple[str, ...], mask: np.ndarray) -> Observation:
        text = "\n".join(f"{agent} sees: {seen.text}" for agent, seen in self._seen.items())
        arrays = [np.ravel(seen.array) for seen in self._seen.values() if seen.array is not None]
        array = np.concatenate(arrays).astype(np.float32) if len(arrays) == len(self._seen) else None
        return Observation(text, choices=choices, mask=None if mask.all() else mask, array=array)

    def _own(self, value: Any, called: bool) -> Any:
        """What is said of the agents' turns is said of the central seat's, who took them."""
        if not called or not isinstance(value, Mapping) or not value.keys() <= set(self.inner.agents):
            return value
        given = list(value.values())
        return {self.central: all(given) if all(isinstance(each, bool) for each in given) else given[0]}


def switching(
    env: EnvFactory,
    cost: float = 0.1,
    *,
    budget: int | None = None,
    only: Mode | None = None,
    gate: str = "gate",
    central: str = "central",
) -> EnvFactory:
    """Env factory from another, `env`: a gate seat chooses independent or central control, see `SwitchingEnv`."""
    factory = functools.partial(SwitchingEnv, env, cost, budget=budget, only=only, gate=gate, central=central)
    factory()
    return factory
