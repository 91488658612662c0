"""`Inquiry`: find out a hidden number by questions, then say it. The smallest world in which a turn informs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _InquiryState:
    number: int
    known: int = 0
    asked: int = 0
    over: bool = False


@ENVS.register("native/inquiry")
class Inquiry(NativeEnv):
    """Env of asking before answering: `seeker` reveals bits of a number by questions, then answers; 1 if right.

    A number of `bits` bits; question k reveals bit k, others nothing; at most `turns` questions.

    Legal answers are those that fit what is known, so that even who knows nothing answers as well as one can. The text
    says which bits are known, with `values` also what they are (for policies that read: a table meets fewer states
    without). early: it may answer before its turns are over. doubt: the chance that a question forgets a bit once all
    are known. Reward 1 for the right number.

    facts, as things stand before the turn: gold, the id of the right answer; gold_text, its name; answers, the mask of
    actions that answer and fit; known, how many bits are.
    """

    agents: tuple[str, ...] = ("seeker",)
    facts = {"gold": int, "gold_text": str, "answers": list[bool], "known": int}

    def __init__(
        self,
        *,
        bits: int = 3,
        questions: int = 6,
        turns: int = 8,
        early: bool = True,
        values: bool = False,
        doubt: float = 0.0,
    ) -> None:
        if not 1 <= bits <= 8 or questions < bits or turns < 1 or not 0 <= doubt <= 1:
            raise InputError(
                f"Inquiry: 1 <= bits={bits} <= 8, questions={questions} >= bits, turns={turns} >= 1, "
                f"doubt={doubt} in [0, 1]"
            )
        self.bits, self.questions, self.turns = bits, questions, turns
        self.early, self.values, self.doubt = early, values, doubt
        self.choices = (*(f"ask {k}" for k in range(questions)), *(f"say {n}" for n in range(2**bits)))

    def begin(self) -> tuple[str, _InquiryState]:
        """Draw the number."""
        number = int(self.rng.integers(2**self.bits))
        return f"number {number}", _InquiryState(number)

    def _answers(self) -> np.ndarray:
        """bool[choices]: answers that fit."""
        numbers = np.arange(2**self.bits)
        fits = ((numbers ^ self.state.number) & self.state.known) == 0
        return np.concatenate([np.zeros(self.questions, bool), fits])

    def look(self) -> dict[str, Observation]:
        """Observation: which bits of the number are known so far, and their values if the env shows them."""
        state = self.state
        if state.over:
            return {}
        known = [k for k in range(self.bits) if state.known >> k & 1]
        text = ", ".join(f"bit {k} is {state.number >> k & 1}" if self.values else f"bit {k}" for k in known)
        mask = self._answers()
        if state.asked < self.turns:
            mask &= self.early
            mask[: self.questions] = True
        return {"seeker": Observation(f"known: {text or 'nothing'}", choices=self.choices, mask=mask)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Ask or answer; anything else is a question that reveals nothing."""
        state, action = self.state, chosen["seeker"]
        gold = self.questions + state.number
        info: dict[str, Any] = {
            "gold": gold,
            "gold_text": self.choices[gold],
            "answers": self._answers().tolist(),
            "known": state.known.bit_count(),
        }
        if isinstance(action, int) and action >= self.questions:
            state.over = True
            return {"seeker": float(action == gold)}, info | {"success": action == gold}
        if state.known == 2**self.bits - 1 and self.rng.random() < self.doubt:
            state.known ^= 1 << int(self.rng.integers(self.bits))
        elif isinstance(action, int) and action < self.bits:
            state.known |= 1 << action
        state.asked += 1
        if action is None and state.asked > self.turns:  # who will not answer has none
            state.over = True
            info["success"] = False
        return {}, info
