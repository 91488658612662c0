"""`Wishes`: somebody says how much help they want for how many words, and gets one of many answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _WishesState:
    wish: int
    offset: float
    over: bool = False


@ENVS.register("native/wishes")
class Wishes(NativeEnv):
    """One-turn preference env: `writer` sees weights of help and words and picks an answer; paid the weighted sum.

    Answers (h, h²), help and words, and as many that help `worse` less for as many words; paid by the direction.

    Wish k of n is the unit vector v = (cos θ, sin θ), θ from -45° to 0: the best answer has h = min(1, 1 / (2 tan|θ|)).
    Facts: helpful, words, v_helpful, v_words, dominated (an answer of the worse kind), and `offset`, a number of the
    task's own with that spread, which says nothing of the answer. The reward is v·(h, words); success: none is better.
    """

    agents: tuple[str, ...] = ("writer",)
    facts = {"helpful": float, "words": float, "v_helpful": float, "v_words": float, "dominated": bool, "offset": float}

    def __init__(self, wishes: int = 5, answers: int = 30, *, worse: float = 0.3, offset: float = 0.0) -> None:
        if wishes < 1 or answers < 2 or not offset >= 0:
            raise InputError(f"Wishes: {wishes=} must be at least 1, {answers=} at least 2, {offset=} not negative")
        angles = [-math.pi / 4 * (1 - k / max(wishes - 1, 1)) for k in range(wishes)]
        self.wishes = [(math.cos(angle), math.sin(angle)) for angle in angles]
        helped = [(k + 1) / answers for k in range(answers)]
        self.answers = [(h, h * h) for h in helped] + [(h - worse, h * h) for h in helped]
        self.offset = float(offset)
        self.choices = tuple(f"answer {number}" for number in range(2 * answers))

    def begin(self) -> tuple[str, _WishesState]:
        """Draw a wish, which is the task."""
        wish = int(self.rng.integers(len(self.wishes)))
        return f"wish {wish}", _WishesState(wish, self.offset * float(self.rng.normal()))

    def look(self) -> dict[str, Observation]:
        """Observation of the writer: the wish as two whole numbers, 100·v, as DPA writes it."""
        if self.state.over:
            return {}
        helpful, words = (round(100 * each) for each in self.wishes[self.state.wish])
        return {"writer": Observation(f"helpfulness {helpful}, words {words}", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Score the answer; an invalid one has no help and no words."""
        self.state.over, answer, v = True, chosen["writer"], self.wishes[self.state.wish]
        if answer is None:
            return {}, {"success": False}
        worth = [v[0] * h + v[1] * w for h, w in self.answers]
        helpful, words = self.answers[answer]
        told = {"helpful": helpful, "words": words, "v_helpful": v[0], "v_words": v[1],
                "dominated": answer >= len(self.answers) // 2, "offset": self.state.offset}  # fmt: skip
        return {"writer": worth[answer]}, {**told, "success": worth[answer] == max(worth)}
