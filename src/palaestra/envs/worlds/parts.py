"""Answers that are said part by part, each part without a look at the ones before.

A whole answer is rarely right and a part often is. `PickCall`: a tool and its values ([215]); `Pointing`: a place on a
screen ([193]); `Hops`: a document at each hop, then an answer ([203]); `PlanDetails`: a slot, and whether each fact is
looked up ([191]).
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _PartsState:
    task: int
    said: list[int] = field(default_factory=list)


class Parts(NativeEnv):
    """Base class of envs: one agent answers one of `tasks` tasks in parts of `sizes[k]` options; `judge` scores all.

    Part k is one of `sizes[k]` options; an invalid one is option -1.
    """

    def __init__(self, *, sizes: Sequence[int], tasks: int) -> None:
        if tasks < 1 or min(sizes, default=0) < 2:
            raise InputError(
                f"{type(self).__name__}: tasks={tasks} >= 1 and at least two options for each part: {list(sizes)}"
            )
        self.sizes, self.tasks = tuple(sizes), tasks
        self.choices = tuple(f"option {number}" for number in range(max(sizes)))

    def begin(self) -> tuple[str, _PartsState]:
        """Draw a task."""
        task = int(self.rng.integers(self.tasks))
        return f"task {task}", _PartsState(task)

    def look(self) -> dict[str, Observation]:
        """Observation of the agent: the number of the task, and which part is asked for."""
        part = len(self.state.said)
        if part == len(self.sizes):
            return {}
        mask = np.arange(len(self.choices)) < self.sizes[part]
        return {self.agents[0]: Observation(f"task {self.state.task}, part {part}", self.choices, mask)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take one part; the last one ends and scores the answer."""
        state, action = self.state, chosen[self.agents[0]]
        state.said.append(action if isinstance(action, int) else -1)
        told = self.tell(state.task, state.said)
        if len(state.said) < len(self.sizes):
            return {}, told
        reward, info = self.judge(state.task, state.said)
        return {self.agents[0]: reward}, told | info

    def tell(self, task: int, said: list[int]) -> dict[str, Any]:
        """Facts reported after every part, a dict; none by default."""
        return {}

    @abstractmethod
    def judge(self, task: int, said: list[int]) -> tuple[float, dict[str, Any]]:
        """Reward of a whole answer, and its facts: (float, dict); subclasses define it."""


@ENVS.register("native/call")
class PickCall(Parts):
    """Tool-call env part by part: `caller` picks a tool, then a value per argument; paid 1 at the end if all are right.

    Which are right is drawn from `draw`. facts, with the last part: calls, what was called, as JSON; gold, the right
    call.
    """

    agents: tuple[str, ...] = ("caller",)
    facts = {"calls": str, "gold": str}

    def __init__(self, *, tasks: int = 6, tools: int = 3, arguments: int = 2, values: int = 5, draw: int = 0) -> None:
        super().__init__(sizes=[tools, *[values] * arguments], tasks=tasks)
        self.gold = np.random.default_rng(draw).integers(self.sizes, size=(tasks, 1 + arguments)).tolist()

    def judge(self, task: int, said: list[int]) -> tuple[float, dict[str, Any]]:
        """Reward 1 if all parts are right; facts say how much of the call was."""
        right = said == self.gold[task]
        return float(right), {"calls": _json(said), "gold": _json(self.gold[task]), "success": right}


def _json(parts: Sequence[int]) -> str:
    values = {f"argument_{number}": value for number, value in enumerate(parts[1:])}
    return json.dumps([{"name": f"tool_{parts[0]}", "arguments": values}])


@ENVS.register("native/pointing")
class Pointing(Parts):
    """Pointing env: `user_agent` picks a column, then a row of the screen; paid 1 within `near` pixels of the target.

    Places are `pixels` apart.

    Where the targets are is drawn from `draw`. facts, with the last part: point and gold_point, in pixels; distance
    between them.
    """

    agents: tuple[str, ...] = ("user_agent",)
    facts = {"point": list[float], "gold_point": list[float], "distance": float}

    def __init__(
        self, *, tasks: int = 4, places: int = 20, pixels: float = 10.0, near: float = 10.0, draw: int = 0
    ) -> None:
        super().__init__(sizes=[places, places], tasks=tasks)
        self.pixels, self.near = float(pixels), float(near)
        self.gold = np.random.default_rng(draw).integers(places, size=(tasks, 2)).tolist()

    def judge(self, task: int, said: list[int]) -> tuple[float, dict[str, Any]]:
        """Reward 1 for a hit; an invalid point gives no distance."""
        gold = [self.pixels * place for place in self.gold[task]]
        if -1 in said:
            return 0.0, {"gold_point": gold, "success": False}
        point = [self.pixels * place for place in said]
        distance = float(np.hypot(point[0] - gold[0], point[1] - gold[1]))
        hit = distance <= self.near
        return float(hit), {"point": point, "gold_point": gold, "distance": distance, "success": hit}


@ENVS.register("native/hops")
class Hops(Parts):
    """Multi-hop reading env: `seeker` picks a document at each hop, then an answer; paid 1 at the end if all are right.

    Each document names an entity. facts, on every turn: found, the entity of what was read; entities, those of the
    right documents: what `e_grpo("found", "entities")` reads.
    """

    agents: tuple[str, ...] = ("seeker",)
    facts = {"found": str, "entities": list[str]}

    def __init__(self, *, tasks: int = 4, hops: int = 3, documents: int = 5, draw: int = 0) -> None:
        if hops < 1:
            raise InputError(f"Hops: hops={hops} must be at least 1")
        super().__init__(sizes=[documents] * (hops + 1), tasks=tasks)
        self.gold = np.random.default_rng(draw).integers(documents, size=(tasks, hops + 1)).tolist()

    def judge(self, task: int, said: list[int]) -> tuple[float, dict[str, Any]]:
        """Reward 1 if all parts are right."""
        right = said == self.gold[task]
        return float(right), {"success": right}

    def tell(self, task: int, said: list[int]) -> dict[str, Any]:
        """Facts: the entity that was read, and those of the right documents."""
        hop = len(said) - 1
        read = {"found": f"<{hop}:{said[hop]}>"} if hop < len(self.sizes) - 1 else {}
        return {**read, "entities": [f"<{hop}:{number}>" for hop, number in enumerate(self.gold[task][:-1])]}


@ENVS.register("native/plan")
class PlanDetails(Parts):
    """Planning env: `planner` picks a slot, then looks up or invents each of `details` facts; 1 for a feasible slot.

    One of `slots` slots is.

    facts, with the last part: gate, whether the slot is feasible; detail, the share of facts that were looked up;
    invented, how many were not. Reward 1 for a feasible plan, which says nothing of inventions.
    """

    agents: tuple[str, ...] = ("planner",)
    facts = {"gate": bool, "detail": float, "invented": int}

    def __init__(self, *, tasks: int = 1, slots: int = 5, details: int = 4, draw: int = 0) -> None:
        if details < 1:
            raise InputError(f"Plan: details={details} must be at least 1")
        super().__init__(sizes=[slots, *[2] * details], tasks=tasks)
        self.feasible = np.random.default_rng(draw).integers(slots, size=tasks).tolist()

    def judge(self, task: int, said: list[int]) -> tuple[float, dict[str, Any]]:
        """Reward 1 for a feasible slot; details are facts only."""
        gate, looked_up = said[0] == self.feasible[task], said[1:].count(0)
        info = {"gate": gate, "detail": looked_up / (len(said) - 1), "invented": len(said) - 1 - looked_up}
        return float(gate), info | {"success": gate}
