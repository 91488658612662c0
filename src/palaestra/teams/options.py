"""`options`: an upper seat for each agent chooses a subgoal, which the agent keeps until it has reached it.

    options(longest=12)                        subgoals end when they are reached, or after twelve steps
    options(longest=12, adaptive=True)         all choose anew as soon as anybody has reached one

The hierarchy of GMAH [32], a reconstruction from its abstract and the public part of its code. Left out: subgoals that
a model writes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError, InputError


class OptionsEnv:
    """Env wrapper with a seat `upper-AGENT` per agent, whose turns are options: subgoals kept for several steps.

    When somebody needs a subgoal, all upper seats act in one turn; a seat whose agent has one may only choose it again,
    so that joint choices are complete and `value_decomposition` can mix their worths. An option ends when its agent has
    reached its subgoal, or after `longest` steps. With `adaptive` all choose anew when anybody has reached a subgoal,
    as the others' may be gone. An upper seat is paid gamma^j times what the env pays its agent, j steps after the last
    choice: the discounted reward inside. What follows is worth gamma^k less, k the difference of `inner_step`
    (`value_decomposition(clock='inner_step')`). An agent is paid 1 - 0.9·k/longest in the k-th step of its option if
    that reached the subgoal, else 0, and not by the env.

    Upper seats see what their agent sees. An agent sees its own observation, with arrays followed by its subgoal: one
    number per subgoal, 1 for its own, and `aim(agent, subgoal)` if the env has it.

    Args:
        env: Makes the env: `goals`, names of the subgoals; `open()`, bool[goals], which can be chosen; `reached()`,
            bool[agents, goals], what each agent reached in the last step. All agents act in every step, see arrays.
        longest: Steps after which an option ends. gamma: discount inside an option, above 0 to 1.
        adaptive: Whether all choose anew when anybody reached a subgoal.

    facts: those of `env`; of an agent's turn: subgoal, subgoal_done, whether the turn reached it, and option, the
    number of its option, from 0; of all turns: inner_step, steps of the env before the turn.

    Raises:
        InputError: A number is out of range, or the env has no subgoals.
        EnvError: When it is played, agents act in turns or without arrays.
    """

    def __init__(
        self,
        env: EnvFactory,
        *,
        longest: int = 12,
        gamma: float = 0.95,
        adaptive: bool = False,
    ) -> None:
        self.inner: Any = env()
        if longest < 1 or not 0 < gamma <= 1:
            raise InputError(f"options: longest={longest} must be at least 1, gamma={gamma} in (0, 1]")
        if not all(hasattr(self.inner, name) for name in ("goals", "open", "reached")):
            raise InputError(f"options: {type(self.inner).__name__} has no goals, open() and reached()")
        inner: Any = self.inner
        self.longest, self.gamma, self.adaptive = longest, float(gamma), adaptive
        self.seats = {agent: f"upper-{agent}" for agent in inner.agents}
        self.agents: tuple[str, ...] = (*self.seats.values(), *inner.agents)
        self.goals: tuple[str, ...] = tuple(inner.goals)
        self.facts: dict[str, Any] = {
            **facts_of(inner),
            "subgoal": str,
            "subgoal_done": bool,
            "option": int,
            "inner_step": int,
        }
        self.task = ""

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin; every agent needs a subgoal."""
        self._seen: Mapping[str, Observation] = self.inner.reset(seed)
        self.task = self.inner.task
        self._steps = self._since = 0
        n = len(self.inner.agents)
        self._chosen, self._age, self._option = np.full(n, -1), np.zeros(n, int), np.full(n, -1)
        return self._next()

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take subgoals from the upper seats, or moves from the agents."""
        if actions.keys() != self._asked.keys() or not self._asked:
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {sorted(self._asked)}")
        if self._asked.keys() != set(self.inner.agents):
            return self._choose(actions)
        chosen, before = self._chosen, self._steps
        result = self.inner.step(actions)
        self._seen = result.observations
        self._steps += 1
        self._age += 1
        done = self.inner.reached()[np.arange(len(chosen)), chosen]
        paid = self._own_pay(done)
        own: dict[str, float | None] = dict(zip(self.inner.agents, paid.tolist(), strict=True))
        inside = self.gamma**self._since
        own |= {seat: inside * float(result.rewards.get(agent) or 0.0) for agent, seat in self.seats.items()}
        self._since += 1
        info = {
            **result.info,
            "subgoal": {
                agent: self.goals[goal] for agent, goal in zip(self.inner.agents, chosen.tolist(), strict=True)
            },
            "subgoal_done": dict(zip(self.inner.agents, done.tolist(), strict=True)),
            "option": dict(zip(self.inner.agents, self._option.tolist(), strict=True)),
            "inner_step": before,
        }
        self._chosen = np.where(self._ended(done), -1, chosen)
        observations = self._next() if self._seen else {}
        replaced: StepResult = dataclasses.replace(result, observations=observations, rewards=own, info=info)
        return replaced

    def _own_pay(self, done: np.ndarray) -> np.ndarray:
        """Rewards of the lower level, float64[agents]."""
        return np.asarray(np.where(done, 1 - 0.9 * self._age / self.longest, 0.0))

    def _ended(self, done: np.ndarray) -> np.ndarray:
        """Whose options are over, bool[agents]."""
        if self.adaptive and self.inner.reached().any():
            return np.ones(len(done), bool)
        return np.asarray(done | (self._age >= self.longest))

    def _choose(self, actions: Mapping[str, Action]) -> StepResult:
        found = {seat: self._asked[seat].index(action) for seat, action in actions.items()}
        fallback = int(self.inner.open().argmax())
        new = np.array([fallback if found[seat] is None else found[seat] for seat in self.seats.values()])
        self._age[self._chosen < 0] = 0
        self._option = self._option + (self._chosen < 0)
        self._chosen, self._since = np.where(self._chosen < 0, new, self._chosen), 0
        info = {"valid": {seat: each is not None for seat, each in found.items()}, "inner_step": self._steps}
        return StepResult(self._walking(), info=info)

    def _next(self) -> Mapping[str, Observation]:
        """Upper seats, if anybody needs a subgoal, else the agents."""
        need = self._chosen < 0
        if not need.any():
            return self._walking()
        masks = np.where(need[:, None], self.inner.open(), np.arange(len(self.goals)) == self._chosen[:, None])
        self._asked = {
            seat: dataclasses.replace(self._seen[agent], choices=self.goals, mask=None if mask.all() else mask)
            for (agent, seat), mask in zip(self.seats.items(), masks, strict=True)
        }
        return dict(self._asked)

    def _walking(self) -> Mapping[str, Observation]:
        """Agents with their subgoals."""
        if self._seen.keys() != set(self.inner.agents):
            raise EnvError("options: every agent of the env must act in every step")
        own = zip(self._seen.items(), self._chosen.tolist(), strict=True)
        self._asked = {agent: self._with(agent, seen, goal) for (agent, seen), goal in own}
        return dict(self._asked)

    def _with(self, agent: str, seen: Observation, goal: int) -> Observation:
        if seen.array is None:
            raise EnvError("options: the env must show arrays")
        aim = self.inner.aim(agent, goal) if hasattr(self.inner, "aim") else ()
        array = np.concatenate([np.ravel(seen.array), np.eye(len(self.goals))[goal], aim]).astype(np.float32)
        return dataclasses.replace(seen, text=f"{seen.text}; subgoal: {self.goals[goal]}", array=array)


def options(env: EnvFactory, *, longest: int = 12, gamma: float = 0.95, adaptive: bool = False) -> EnvFactory:
    """Env factory from another, `env`: upper seats choose the agents' subgoals, see `OptionsEnv`; checked at once."""
    factory = functools.partial(OptionsEnv, env, longest=longest, gamma=gamma, adaptive=adaptive)
    factory()
    return factory
