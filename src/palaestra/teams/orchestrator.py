"""An orchestrator's seat: before the team works, somebody chooses how, and pays for what it spends.

    orchestrated({"alone": "single()", "talk": "debate(3)"}, price=0.02)

The choice is a turn like any other, with a log-probability: a language model, a table, a network or a bandit may sit
there, and whatever trains policies trains it ([130], arXiv 2602.17100: topologies chosen by reinforcement learning).
Its reward is that of the team, which is the score of the answer less `price` for each turn that the team took. Left
out: choices in the middle of an episode; there the rules of a graph decide.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError, InputError
from palaestra.foundation.registry import read_call
from palaestra.teams.deliberation import Deliberation
from palaestra.teams.instructions import ASKS, Instructions
from palaestra.teams.named import WORKFLOWS
from palaestra.teams.task_wrapper import TaskTeamEnv


class OrchestratedEnv(TaskTeamEnv):
    """Team env: `seat` picks the team of `plans` (name -> env factory) for a task; all paid less `price` a turn.

    facts: those of the teams; plan, which team works; plan_calls, how many turns it took (on the orchestrator's turn).
    """

    facts = {**Deliberation.facts, "plan": str, "plan_calls": int}

    def __init__(
        self,
        plans: Mapping[str, EnvFactory],
        seat: str,
        price: float,
        texts: Mapping[str, str] | None = None,
        instructions: Mapping[str, str] | None = None,
    ) -> None:
        self.plans: dict[str, Deliberation] = {}
        for name, make in plans.items():
            made = make()
            if not isinstance(made, Deliberation):
                raise InputError(f"orchestrated: plans.{name} makes {type(made).__name__}, which is no team of a graph")
            self.plans[name] = made
            if seat in made.agents:
                raise InputError(f"orchestrated: the seat {seat!r} is also a role of the plan {name!r}; rename one")
        self.inner = next(iter(self.plans.values()))
        self.seat, self.price = seat, price
        self.agents = (seat, *dict.fromkeys(role for made in self.plans.values() for role in made.agents))
        self._instructions = Instructions(
            "orchestrated", {seat: ""}, instructions, plans=texts or {name: name for name in plans}, price=price
        )
        self.task = ""
        self._working: Deliberation | None = None
        self._asked = False

    @property
    def tolerates(self) -> bool:
        """Whether the team at work tolerates failed roles; False while the orchestrator chooses."""
        return self._working is not None and self._working.tolerates

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """The orchestrator sees the question and its choices."""
        self.inner.reset(seed)
        self.task, self._seed, self._calls = self.inner.task, seed, 0
        self._working, self._asked = None, True
        names = tuple(self.plans)
        talk = self._instructions.turn(self.seat, "choice", self.question, choices=names)
        return {self.seat: Observation(self.question, names, messages=talk, fields=ASKS["choice"])}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Start the chosen team, or take a step in it."""
        if self._working is not None:
            return self._go_on(self._working, actions)
        if not self._asked or actions.keys() != {self.seat}:
            expected = [self.seat] if self._asked else []
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {expected}")
        return self._begin(actions[self.seat])

    def _begin(self, action: Action) -> StepResult:
        names, self._asked = tuple(self.plans), False
        chosen = Observation("", names, fields=ASKS["choice"]).index(action)
        self._name = names[chosen or 0]
        self._working = working = self.plans[self._name]
        seen = working.reset(self._seed)
        return StepResult(seen, info={"valid": {self.seat: chosen is not None}, "plan": self._name})

    def _go_on(self, team: Deliberation, actions: Mapping[str, Action]) -> StepResult:
        self._calls += len(actions)
        result = team.step(actions)
        turns = {role: [turn + 1 for turn in heard] for role, heard in result.info["heard_turn"].items()}
        info: dict[str, Any] = {**result.info, "heard_turn": turns, "plan": dict.fromkeys(actions, self._name)}
        if not result.terminated:
            return dataclasses.replace(result, info=info)
        self._working = None
        paid = self.price * self._calls
        rewards = {role: value - paid for role, value in result.rewards.items() if value is not None}
        rewards[self.seat] = next(iter(rewards.values()))
        info["plan_calls"] = {self.seat: self._calls}
        return StepResult({}, rewards, terminated=True, info=info)


def orchestrated(
    tasks: EnvFactory,
    plans: Mapping[str, str],
    *,
    seat: str = "orchestrator",
    price: float = 0.0,
    instructions: Mapping[str, str] | None = None,
) -> EnvFactory:
    """Env factory from another, `tasks`: `seat` chooses which workflow of `plans` {name: text} answers each task.

    plans: name -> a workflow by text, `debate(3, rounds=2)`; roles of the same name in several plans are one seat.
    price: of each turn of the team. instructions: {seat: system prompt} for chat models instead of the shipped one.

    Raises:
        InputError: there are no plans, or one is no team of a graph.
    """
    if len(plans) < 2 or price < 0:
        raise InputError(f"orchestrated: plans={dict(plans)} must be at least two, price={price} at least 0")
    made = {name: _built(name, text, tasks) for name, text in plans.items()}
    factory = functools.partial(OrchestratedEnv, made, seat, price, dict(plans), instructions)
    factory()
    return factory


def _built(name: str, text: str, tasks: EnvFactory) -> EnvFactory:
    called, values, options = read_call(text, "debate(3)")
    try:
        found: EnvFactory = WORKFLOWS.find(called)(tasks, *values, **options)
    except TypeError as error:
        raise InputError(f"orchestrated: plans.{name}: {text!r}: {error}") from error
    return found
