"""`Stakeholder`: choose what a rubric asks about, then the best output by that rubric is handed in ([3])."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

WEIGHTS = (0.4, 0.3, 0.2, 0.1)
"""What the stakeholder cares for: these qualities, and no other."""


@dataclass
class _StakeholderState:
    outputs: np.ndarray
    asked: list[int] = field(default_factory=list)
    over: bool = False


@ENVS.register("native/stakeholder")
class Stakeholder(NativeEnv):
    """Preference elicitation env: `manager` asks about criteria; paid the true utility of the output then chosen.

    A question is about one of `qualities` criteria, at most `asked` of them; there are `outputs` random outputs.

    The one with the highest utility by these is handed in, and its true utility is the reward.

    price: what every question costs; if it is given, the manager may also stop asking, and `asked` is the most.

    facts, at the end: ndcg, how well the rubric orders the outputs; questions. Success: the very best was handed in.
    """

    agents: tuple[str, ...] = ("manager",)
    facts = {"ndcg": float, "questions": int}

    def __init__(self, *, qualities: int = 12, asked: int = 6, outputs: int = 8, price: float | None = None) -> None:
        if not 1 <= asked <= qualities or qualities < len(WEIGHTS) or outputs < 2:
            raise InputError(f"Stakeholder: {asked=} from 1 to {qualities=}, {outputs=} at least 2")
        self.asked, self.outputs, self.price = asked, outputs, price
        self.weights = np.array([*WEIGHTS, *[0.0] * (qualities - len(WEIGHTS))])
        self.choices = tuple(f"ask about quality {number}" for number in range(qualities))
        self.choices += () if price is None else ("hand in",)

    def begin(self) -> tuple[str, _StakeholderState]:
        """Draw the outputs, which are not shown."""
        return "rubric", _StakeholderState(self.rng.random((self.outputs, len(self.weights))))

    def look(self) -> dict[str, Observation]:
        """Observation of the manager: a choice among the criteria that were not asked about yet."""
        if self.state.over:
            return {}
        left = np.ones(len(self.choices), bool)
        left[self.state.asked] = False
        return {"manager": Observation("choose a criterion", choices=self.choices, mask=left)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Ask about a criterion; an invalid choice asks about the first that is left."""
        state, pick = self.state, chosen["manager"]
        left = [number for number in range(len(self.weights)) if number not in state.asked]
        if pick != len(self.weights):
            state.asked.append(left[0] if pick is None else pick)
        state.over = pick == len(self.weights) or len(state.asked) >= self.asked
        if not state.over:
            return {}, {}
        true = state.outputs @ self.weights
        rubric = state.outputs[:, state.asked] @ self.weights[state.asked]
        best, discount = int(rubric.argmax()), 1 / np.log2(np.arange(2, len(true) + 2))
        ndcg = float(true[np.argsort(-rubric, kind="stable")] @ discount / (np.sort(true)[::-1] @ discount))
        told = {"ndcg": ndcg, "questions": len(state.asked), "success": bool(true[best] == true.max())}
        return {"manager": float(true[best]) - (self.price or 0.0) * len(state.asked)}, told
