"""`Judging`: a judge of two answers chooses how to look, sees what that says, gives its verdict ([31] [35] [213])."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

ACCURACY = ((0.95, 0.6), (0.6, 0.8))
"""Reasoning is judged best by solving the task first, chat by a rubric (RM-R1, arXiv 2505.02387)."""
WAYS = ("solve", "rubric", "tool", "guess")


@dataclass
class _JudgingState:
    kind: int
    label: int
    way: int | None = None
    seen: int | None = None
    over: bool = False


@ENVS.register("native/judging")
class Judging(NativeEnv):
    """Env of judging: `judge` picks a costly way to inspect two answers, says A, B or both; 1 if right, else -1.

    One of the answers is better, either one equally often.

    First the judge sees the kind of the task and chooses a way to look (solve, rubric, tool or guess, as many as
    `accuracy[kind]` has). What it then sees is right with the chance accuracy[kind][way]. Last it says A, B or both,
    which is no verdict. Reward 1 for the right verdict and -1 else, less `costs[way]`.

    facts: kind, way; label, "A" or "B"; of the verdict result (0 if it is none), consistent (it is what was
    seen), formatted (it is a verdict); price; glitch, what a broken checker adds: ± `broken`, with chance `glitches`.
    """

    agents: tuple[str, ...] = ("judge",)
    facts = {
        "kind": int,
        "way": int,
        "label": str,
        "result": float,
        "consistent": float,
        "formatted": float,
        "price": float,
        "glitch": float,
    }

    def __init__(
        self,
        *,
        accuracy: Sequence[Sequence[float]] = ACCURACY,
        costs: Sequence[float] = (),
        glitches: float = 0.0,
        broken: float = 50.0,
    ) -> None:
        table = [[float(x) for x in row] for row in accuracy]
        widths, chances = {len(row) for row in table}, [x for row in table for x in row]
        if len(widths) != 1 or not 1 <= max(widths) <= len(WAYS) or not all(0 <= x <= 1 for x in chances):
            raise InputError(f"Judging: accuracy={table} must have rows of 1 to {len(WAYS)} chances, all as long")
        if costs and len(costs) != len(table[0]):
            raise InputError(f"Judging: {len(costs)} costs for {len(table[0])} ways to look; give one each")
        if not 0 <= glitches <= 1:
            raise InputError(f"Judging: glitches={glitches} is a share, between 0 and 1")
        self.accuracy, self.glitches, self.broken = table, glitches, broken
        self.costs = [float(x) for x in costs] or [0.0] * len(table[0])
        self.ways = WAYS[: len(table[0])]
        self.choices = (*self.ways, "A", "B", "both")

    def begin(self) -> tuple[str, _JudgingState]:
        """Draw a kind of task, and which answer is better."""
        kind = int(self.rng.integers(len(self.accuracy)))
        return f"kind {kind}", _JudgingState(kind, int(self.rng.integers(2)))

    def look(self) -> dict[str, Observation]:
        """Observation of the judge: the kind of the task, then what the chosen way of inspection shows."""
        if self.state.over:
            return {}
        looking = np.arange(len(self.choices)) < len(self.ways)
        if self.state.way is None or self.state.seen is None:
            return {"judge": Observation(f"task of kind {self.state.kind}", choices=self.choices, mask=looking)}
        seen = f"{self.ways[self.state.way]} says {'AB'[self.state.seen]}"
        return {"judge": Observation(seen, choices=self.choices, mask=~looking)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Inspect, or give the verdict; an invalid choice is a failed inspection or no verdict."""
        state, said = self.state, chosen["judge"]
        info: dict[str, Any] = {"kind": state.kind, "label": "AB"[state.label], "price": 0.0}
        if state.way is None:
            if not isinstance(said, int):
                state.over = True
                return {"judge": -1.0}, info | {"formatted": 0.0, "success": False}
            right = self.rng.random() < self.accuracy[state.kind][said]
            state.way, state.seen = said, state.label if right else 1 - state.label
            return {"judge": -self.costs[said]}, info | {"way": said, "price": self.costs[said]}
        state.over = True
        verdict = said - len(self.ways) if isinstance(said, int) and said < len(self.ways) + 2 else None
        result = float(verdict == state.label)
        glitch = self.broken * float(self.rng.choice([-1, 1])) if self.rng.random() < self.glitches else 0.0
        info |= {"way": state.way, "result": result, "formatted": float(verdict is not None), "glitch": glitch}
        info |= {"consistent": float(verdict == state.seen), "success": result == 1.0}
        return {"judge": 1.0 if result == 1.0 else -1.0}, info


def examiner(*, right: float = 0.75, ways: int = 2) -> Callable[[Any], str]:
    """Makes a policy function (request -> action): the judge inspects the right way with chance `right`, else any.

    It says what it saw.
    """

    def play(request: Any) -> str:
        text = request.observation.text
        if " says " in text:
            return str(text[-1])
        way = int(text.split()[-1]) if request.rng.random() < right else int(request.rng.integers(ways))
        return WAYS[way % ways]

    return play
