"""`one_model`: a team's turns as one sequence that a single model says, with a role tag before each of them.

    one_model()          the roles of the env are the tags

A turn of the model is everything up to the next answer of a tool or the end: lines `ROLE: what the role says`, which
are given to the seats of the team's env one after the other. Left out: seats that act at once, and hidden information
of seats, for the model knows all of it (Chain-of-Agents [7], arXiv 2508.13167).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from palaestra.envs.conversations import ChatMessage
from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError

SEAT = "model"
UNREAD = "?"
"""Message to the model after lines of which none was due."""


class OneModel:
    """Env wrapper that gives a whole team env to one seat `model`, whose replies name the role of each line.

    What a tool says is the env's fact `result`, and the next message. A line whose role is not due, or without a role,
    and those behind it are not given to the team; the turn is not valid. After `turns` turns the episode is cut off.
    Rewards are the mean of the seats'; facts told by seat are those of the seat that spoke last.

    facts: those of the team's env, each as its last turn within this one told it; roles, who spoke, in order.

    Raises:
        EnvError: When it is played, seats act at once, or choose among actions.
    """

    def __init__(self, team: EnvFactory, *, turns: int = 12) -> None:
        self.team, self.turns = team, turns
        self.env: Env = team()
        self.agents: tuple[str, ...] = (SEAT,)
        self.task = ""
        self.facts: dict[str, Any] = {**facts_of(self.env), "roles": list[str]}

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin with the question."""
        self._due = self._one(self.env.reset(seed))
        self.task, self._turn = self.env.task, 0
        question = "" if self._due is None else self._due[1].text
        self._talk: list[ChatMessage] = [{"role": "user", "content": question}]
        return self._show()

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Give the lines to the seats that they name, until a tool answers or the episode is over."""
        said = str(actions[SEAT])
        self._turn += 1
        lines = [line for line in said.splitlines() if line.strip()]
        told: dict[str, Any] = {}
        roles: list[str] = []
        reward, valid = 0.0, bool(lines)
        terminated = truncated = False
        for line in lines:
            role, _, rest = line.partition(":")
            if self._due is None or role.strip() != self._due[0] or told.get("result") is not None:
                valid = False
                break
            result = self.env.step({self._due[0]: rest.strip()})
            given = [value for value in result.rewards.values() if value is not None]
            reward += sum(given) / len(self.env.agents)
            told |= {name: _of(value, self._due[0]) for name, value in result.info.items()}
            valid &= bool(told.pop("valid", True))
            roles.append(role.strip())
            terminated, truncated, self._due = result.terminated, result.truncated, self._one(result.observations)
        if self._due is not None and self._turn >= self.turns:
            self._due, truncated = None, True
            told.setdefault("success", False)
        self._talk += [
            {"role": "assistant", "content": said},
            {"role": "user", "content": f"result: {told.get('result') or UNREAD}"},
        ]
        info = {**told, "roles": roles, "valid": {SEAT: valid}}
        return StepResult(self._show(), {SEAT: reward}, terminated=terminated, truncated=truncated, info=info)

    def _show(self) -> dict[str, Observation]:
        if self._due is None:
            return {}
        text = "\n".join(str(each["content"]) for each in self._talk)
        return {SEAT: Observation(text, messages=tuple(self._talk))}

    @staticmethod
    def _one(seen: Mapping[str, Observation]) -> tuple[str, Observation] | None:
        """Seat that acts next, with its observation; None at the end."""
        if not seen:
            return None
        if len(seen) > 1:
            raise EnvError(f"one_model: {sorted(seen)} act at once, which has no order in one sequence")
        ((seat, each),) = seen.items()
        if each.choices is not None:
            raise EnvError(f"one_model: {seat!r} chooses among actions; take an env in which seats say text")
        return seat, each


def _of(value: Any, seat: str) -> Any:
    """A fact of a turn, also where the env tells it by seat."""
    return value.get(seat) if isinstance(value, Mapping) else value


def one_model(team: EnvFactory, *, turns: int = 12) -> EnvFactory:
    """Env factory from another, `team`: its env played by one model, which writes all roles' lines; see `OneModel`."""
    return functools.partial(OneModel, team, turns=turns)
