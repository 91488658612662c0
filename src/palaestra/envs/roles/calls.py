"""`Calls`: a task that needs certain tool calls, in any order; what was called and what was right are facts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _CallsState:
    task: int
    called: list[int] = field(default_factory=list)


@ENVS.register("roles/calls")
class Calls(NativeEnv):
    """Env of tool calls, one per turn: reward 1 at the end if each of the `needed` tools was called exactly once.

    Only the task's number and the turn are seen.

    Which ones a task needs is drawn from `draw`; the agent sees the task and the number of the turn. Reward 1 for all.
    facts: calls, this turn's as JSON, `[{"name": …, "arguments": {…}}]`; gold, those that would have been right.
    """

    prompt = "roles/calls"
    agents: tuple[str, ...] = ("caller",)
    facts = {"calls": str, "gold": str}

    def __init__(self, *, tasks: int = 1, tools: int = 6, needed: int = 4, draw: int = 0) -> None:
        if tasks < 1 or not 1 <= needed <= tools or tools < 2:
            raise InputError(f"Calls: tasks={tasks} >= 1, tools={tools} >= 2 and 1 <= needed={needed} <= tools")
        rng = np.random.default_rng(draw)
        self.tasks, self.needed = tasks, needed
        self.gold = [sorted(rng.permutation(tools)[:needed].tolist()) for _ in range(tasks)]
        self.choices = tuple(f"tool_{number}" for number in range(tools))

    def begin(self) -> tuple[str, _CallsState]:
        """Start an episode with a drawn task."""
        task = int(self.rng.integers(self.tasks))
        return f"task {task}", _CallsState(task)

    def look(self) -> dict[str, Observation]:
        """Observation of the caller: the number of the task and of the call; empty when all calls are made."""
        turn = len(self.state.called)
        if turn == self.needed:
            return {}
        return {"caller": Observation(f"task {self.state.task}, call {turn}", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Record the call; a name that is no tool calls nothing. After the last one, pay 1 if all were right."""
        state, action = self.state, chosen["caller"]
        known = isinstance(action, int)
        state.called.append(action if known else -1)
        gold = self.gold[state.task]
        info: dict[str, Any] = {"calls": self._json([action] if known else []), "gold": self._json(gold)}
        if len(state.called) < self.needed:
            return {}, info
        right = sorted(state.called) == gold
        return {"caller": float(right)}, info | {"success": right}

    def _json(self, tools: list[Any]) -> str:
        return json.dumps([{"name": self.choices[tool], "arguments": {}} for tool in tools])
