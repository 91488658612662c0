"""`Grounding`: answer with a box on the screen; a hit alone does not say how large the box should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

SIZE = (100.0, 100.0)
SIDES = (0.1, 0.2, 0.4, 0.8)
"""Sides of the boxes that can be answered, as shares of the screen."""


@dataclass
class _GroundingState:
    screen: int
    over: bool = False


@ENVS.register("native/grounding")
class Grounding(NativeEnv):
    """GUI grounding env of one turn: `clicker` sees a screen's number, picks a box; paid 1 if its centre is on target.

    One of `screens` screens, the same in every process, each with a target; the answer is a centre and a side.

    Targets are drawn from `draw`, centred in a cell, with the smallest or the second side. Centres lie on a grid of
    `cells` × `cells`, boxes are cut at the screen's edge. Reward 1 if the centre of the box lies in the target. facts:
    box, target_box, image_size, as rewards of grounding read them; difficulty, 1 - the square root of the target's
    share of the screen.
    """

    agents: tuple[str, ...] = ("clicker",)
    facts = {"box": list[float], "target_box": list[float], "image_size": list[float], "difficulty": float}

    def __init__(self, *, screens: int = 4, cells: int = 4, draw: int = 0) -> None:
        if screens < 1 or cells < 1:
            raise InputError(f"Grounding: screens={screens} and cells={cells} must be at least 1")
        rng = np.random.default_rng(draw)
        self.centres = [((x + 0.5) / cells, (y + 0.5) / cells) for y in range(cells) for x in range(cells)]
        self.boxes = [_box(centre, side) for centre in self.centres for side in SIDES]
        self.choices = tuple(f"box {' '.join(f'{each:g}' for each in box)}" for box in self.boxes)
        self.targets = [
            _box(self.centres[rng.integers(len(self.centres))], SIDES[rng.integers(2)]) for _ in range(screens)
        ]

    def begin(self) -> tuple[str, _GroundingState]:
        """Draw a screen."""
        screen = int(self.rng.integers(len(self.targets)))
        return f"screen {screen}", _GroundingState(screen)

    def look(self) -> dict[str, Observation]:
        """Observation of the clicker: the screen's number."""
        return {} if self.state.over else {"clicker": Observation(f"screen {self.state.screen}", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Score the box against the target; an invalid answer has no box."""
        self.state.over = True
        action, target = chosen["clicker"], self.targets[self.state.screen]
        box = self.boxes[action] if isinstance(action, int) else None
        hit = box is not None and all(target[k] <= (box[k] + box[k + 2]) / 2 <= target[k + 2] for k in (0, 1))
        share = (target[2] - target[0]) * (target[3] - target[1]) / (SIZE[0] * SIZE[1])
        info: dict[str, Any] = {
            "box": box,
            "target_box": target,
            "image_size": list(SIZE),
            "difficulty": 1 - share**0.5,
            "success": hit,
        }
        return {"clicker": float(hit)}, info


def _box(centre: tuple[float, float], side: float) -> list[float]:
    ends = [
        (max(at - side / 2, 0.0) * size, min(at + side / 2, 1.0) * size) for at, size in zip(centre, SIZE, strict=True)
    ]
    return [ends[0][0], ends[1][0], ends[0][1], ends[1][1]]
