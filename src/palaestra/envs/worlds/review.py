"""`Review`: a draft, a check of it, and an answer that may differ from the draft [22]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

VERDICTS = ("fine", "wrong")


@dataclass
class _ReviewState:
    label: int
    sign: int
    draft: int | None = None
    verdict: int | None = None
    over: bool = False


@ENVS.register("native/review")
class Review(NativeEnv):
    """Env of MALT's pipeline [22]: `generator` drafts, `verifier` judges, `refiner` answers; noisy signs; 1 if right.

    One of `classes` answers is right.

    arXiv 2412.01928. One of `classes` is right. Each role sees a sign of it that is right with the chance `sure` has
    for that role, else any other; the verifier also the draft, the refiner the draft and the verdict. Whoever answers
    as its own sign says, or as the draft says, is right less often than all three together.

    reward: 1 for a right answer, to the refiner; success. facts: right, whether draft or answer is; answer, its class.

    Args:
        classes: answers. sure: chances of the generator's, verifier's and refiner's sign.
        split: "test" for held-out questions, which `branches` asks once.

    Raises:
        InputError: an option is out of range.
    """

    agents: tuple[str, ...] = ("generator", "verifier", "refiner")
    facts = {"right": float, "answer": int}

    def __init__(
        self, *, classes: int = 5, sure: tuple[float, float, float] = (0.6, 0.8, 0.6), split: str = "train"
    ) -> None:
        if classes < 2 or len(sure) != 3 or not all(0 <= each <= 1 for each in sure):
            raise InputError(f"Review: {classes=} must be at least 2, {sure=} three chances from 0 to 1")
        self.classes, self.sure, self.split = classes, tuple(sure), split
        self.answers = tuple(str(number) for number in range(classes))

    def begin(self) -> tuple[str, _ReviewState]:
        """Draw a question, and the generator's sign of its answer."""
        label = int(self.rng.integers(self.classes))
        return f"question {int(self.rng.integers(2**31))}", _ReviewState(label, self._sign(label, 0))

    def look(self) -> dict[str, Observation]:
        """The generator, then the verifier, then the refiner sees its sign and what was said."""
        state = self.state
        if state.over:
            return {}
        if state.draft is None:
            return {"generator": Observation(f"sign {state.sign}", choices=self.answers)}
        if state.verdict is None:
            return {"verifier": Observation(f"draft {state.draft}, sign {state.sign}", choices=VERDICTS)}
        told = f"draft {state.draft}, {VERDICTS[state.verdict]}, sign {state.sign}"
        return {"refiner": Observation(told, choices=self.answers)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take one role's choice; an invalid one counts as the first."""
        state = self.state
        ((agent, said),) = chosen.items()
        action = said if isinstance(said, int) else 0
        if agent == "verifier":
            state.verdict, state.sign = action, self._sign(state.label, 2)
            return {}, {}
        right = action == state.label
        if agent == "generator":
            state.draft, state.sign = action, self._sign(state.label, 1)
            return {}, {"right": float(right)}
        state.over = True
        return {agent: float(right)}, {"right": float(right), "answer": action, "success": bool(right)}

    def _sign(self, label: int, role: int) -> int:
        others = np.delete(np.arange(self.classes), label)
        return label if self.rng.random() < self.sure[role] else int(self.rng.choice(others))
