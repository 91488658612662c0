"""`SecondLook`: an answer by a weak sign, then a second one with the first answer and a fresh sign in view [141]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _Looks:
    item: int
    label: int
    sign: int
    answer: int | None = None
    over: bool = False


@ENVS.register("native/second_look")
class SecondLook(NativeEnv):
    """Self-correction env (SCoRe [141]): `student` answers from a noisy sign, then a fresh one; each right pays 1.

    arXiv 2409.12917; first answers can be memorised.

    The first look shows which of `items` it is, and a sign of the answer; the second shows the first answer and a fresh
    sign, not the item. A sign is right with the chance `first` or `second`, else any class. Items of training always
    have the same answer, so it can be learned by heart; those of the split "test" are new, and look like no item.

    array: item, first answer and sign as one-hot numbers, and which look it is. reward: 1 for a right answer, each
    time; success is that of the second. facts: right, 1 or 0 of each answer; look, 0 or 1.
    """

    agents: tuple[str, ...] = ("student",)
    facts = {"right": float, "look": int}

    def __init__(
        self, *, items: int = 64, classes: int = 6, first: float = 0.5, second: float = 0.6, split: str = "train"
    ) -> None:
        if items < 1 or classes < 2 or not (0 <= first <= 1 and 0 <= second <= 1):
            raise InputError(
                f"SecondLook: items={items} at least 1, classes={classes} at least 2, 0 <= first={first}, "
                f"second={second} <= 1 are needed"
            )
        self.items, self.classes, self.first, self.second, self.split = items, classes, first, second, split
        self.answers = tuple(str(number) for number in range(classes))

    def begin(self) -> tuple[str, _Looks]:
        """Draw an item with its answer; items of training always have the same answer."""
        if self.split == "test":
            label = int(self.rng.integers(self.classes))
            return f"new {int(self.rng.integers(2**31))}", _Looks(-1, label, self._sign(label, self.first))
        item = int(self.rng.integers(self.items))
        label = int(np.random.default_rng([141, item]).integers(self.classes))
        return f"item {item}", _Looks(item, label, self._sign(label, self.first))

    def look(self) -> dict[str, Observation]:
        """Observation of the student: item and sign in the first turn; then the first answer and a fresh sign."""
        state = self.state
        if state.over:
            return {}
        item = np.arange(self.items) == (state.item if state.answer is None else -1)
        answer = np.arange(self.classes) == (-1 if state.answer is None else state.answer)
        sign = np.arange(self.classes) == state.sign
        again = [state.answer is not None]
        seen = f"item {state.item}" if state.answer is None else f"you said {state.answer}"
        array = np.concatenate([item, answer, sign, again]).astype(np.float32)
        return {"student": Observation(f"{seen}, sign {state.sign}", choices=self.answers, array=array)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take an answer; an invalid one is wrong."""
        state, action = self.state, chosen["student"]
        right, look = float(action == state.label), int(state.answer is not None)
        info: dict[str, Any] = {"right": right, "look": look}
        if look:
            state.over, info["success"] = True, bool(right)
        else:
            state.answer = action if isinstance(action, int) else 0
            state.sign = self._sign(state.label, self.second)
        return {"student": right}, info

    def _sign(self, label: int, chance: float) -> int:
        return label if self.rng.random() < chance else int(self.rng.integers(self.classes))
