"""`Widgets`: requests that are answered part by part ([173]).

What is learned of the parts should carry over to requests that were never made.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.parts import Parts
from palaestra.errors import InputError

TYPES = ("click", "scroll", "type")
PARTS = ("action", "column", "row", "thought")
WORDS = (20, 40, 80, 160, 320)
SIDE, PIXELS = 5, 20.0


@ENVS.register("native/widgets")
class Widgets(Parts):
    """GUI request env: `user_agent` gives action, column, row, words; 1 if the action (of a click: and place) is right.

    One of three actions is asked for, at one of 5 × 5 widgets.

    Of the 75 requests `trained` are made, drawn from `draw`; the split "test" makes the others. Reward 1 for the right
    action, for a click at the right widget. facts, with the last part: action_type and gold_type; point and target_box,
    in pixels; words, how many were thought. features: what is asked for, as one of five three times over, anew for
    each part, so that a linear network has weights of its own for each part and none for a request.
    """

    agents: tuple[str, ...] = ("user_agent",)
    facts = {"action_type": str, "gold_type": str, "point": list[float], "target_box": list[float], "words": int}

    def __init__(self, *, trained: int = 55, split: Literal["train", "test"] = "train", draw: int = 0) -> None:
        every = np.indices((len(TYPES), SIDE, SIDE)).reshape(3, -1).T
        if not 1 <= trained < len(every):
            raise InputError(f"Widgets: trained={trained} must be from 1 to {len(every) - 1}")
        order = np.random.default_rng(draw).permutation(len(every))
        self.gold: list[list[int]] = every[order[trained:] if split == "test" else order[:trained]].tolist()
        super().__init__(sizes=[len(TYPES), SIDE, SIDE, len(WORDS)], tasks=len(self.gold))

    def look(self) -> dict[str, Observation]:
        """Observation of the user agent: the request, and which part of the answer is due."""
        part = len(self.state.said)
        if part == len(self.sizes):
            return {}
        asked = self.gold[self.state.task]
        features = np.zeros((len(PARTS), 3, SIDE), np.float32)
        features[part, range(3), asked] = 1.0
        text = f"{TYPES[asked[0]]} at column {asked[1]} row {asked[2]}: {PARTS[part]}?"
        mask = np.arange(len(self.choices)) < self.sizes[part]
        return {"user_agent": Observation(text, self.choices, mask, features.ravel())}

    def judge(self, task: int, said: list[int]) -> tuple[float, dict[str, Any]]:
        """Reward 1 if the answer is right; one with an invalid part is wrong and tells only what was asked."""
        kind, column, row = self.gold[task]
        left, top = PIXELS * column, PIXELS * row
        info: dict[str, Any] = {
            "gold_type": TYPES[kind],
            "target_box": [left, top, left + PIXELS, top + PIXELS],
            "success": False,
        }
        if -1 in said:
            return 0.0, info
        right = said[0] == kind and (TYPES[kind] != "click" or said[1:3] == [column, row])
        point = [(place + 0.5) * PIXELS for place in said[1:3]]
        told = {"action_type": TYPES[said[0]], "point": point, "words": WORDS[said[3]], "success": right}
        return float(right), info | told
