"""`Routing`: requests of several kinds, workers of different skill and price, and a router that sees the kind.

After a shock the best worker of a kind has lost its skill. Whether an episode is before or after it is written in its
reset seed (its second bit), so that the stage `shock` can say when it comes. Left out: queues; a worker is always free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

SKILLS = ((0.90, 0.30), (0.80, 0.50), (0.55, 0.85), (0.60, 0.60), (0.40, 0.75))
PRICES = (1.0, 0.6, 0.8, 0.2, 0.4)
LOST = 0.1
"""Skill of the best worker for requests of kind 0 after the shock."""


@dataclass
class _RoutingState:
    kind: int
    shifted: bool
    over: bool = False


@ENVS.register("native/routing")
class Routing(NativeEnv):
    """Routing env of one turn: `router` sees a request's kind, picks a worker; 1 if right, less `weight` x its price.

    The array that is seen is one-hot of the kind, or with announced=True also 1 after the shock. facts: kind; price, of
    the worker; answered. Success: rightly answered.

    Args:
        skills: [workers][kinds], how often each worker is right. prices: of one request. weight: what of the price is
            taken from the reward. announced: whether the router is told of the shock.

    Raises:
        InputError: the numbers do not fit together.
    """

    agents: tuple[str, ...] = ("router",)
    facts = {"kind": int, "price": float, "answered": bool}

    def __init__(
        self,
        *,
        skills: Sequence[Sequence[float]] = SKILLS,
        prices: Sequence[float] = PRICES,
        weight: float = 0.1,
        announced: bool = False,
    ) -> None:
        self.skills, self.prices = np.array(skills, float), np.array(prices, float)
        if self.skills.ndim != 2 or len(self.skills) != len(self.prices) or len(self.prices) < 2 or weight < 0:
            raise InputError(
                f"Routing: skills of shape {self.skills.shape}, {len(self.prices)} prices and weight={weight}; "
                "expected [workers][kinds] of at least two workers, a price for each, and a weight of at least 0"
            )
        self.weight, self.announced = float(weight), announced
        self.choices = tuple(f"worker {number}" for number in range(len(self.prices)))

    def reset(self, seed: int) -> Any:
        """Begin the episode of `seed`, whose second bit says whether the shock has come."""
        self._shifted = bool(seed >> 1 & 1)
        return super().reset(seed)

    def begin(self) -> tuple[str, _RoutingState]:
        """Draw a request's kind."""
        kind, number = int(self.rng.integers(self.skills.shape[1])), int(self.rng.integers(2**40))
        return f"routing:{kind}:{'after' if self._shifted else 'before'}:{number}", _RoutingState(kind, self._shifted)

    def look(self) -> dict[str, Observation]:
        """Observation of the router: the kind of the request, and that a shock has come, if shocks are announced."""
        if self.state.over:
            return {}
        kinds = self.skills.shape[1]
        array = np.zeros(kinds + self.announced, np.float32)
        array[self.state.kind] = 1
        if self.announced:
            array[kinds] = self.state.shifted
        told = " after the shock" if self.announced and self.state.shifted else ""
        return {"router": Observation(f"request of kind {self.state.kind}{told}", self.choices, None, array)}

    def skill(self, worker: int, kind: int, shifted: bool) -> float:
        """Probability that a worker is right about a kind, before or after the shock."""
        if shifted and kind == 0 and worker == int(self.skills[:, 0].argmax()):
            return LOST
        return float(self.skills[worker, kind])

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Let the chosen worker answer, and pay; an invalid choice is paid nothing."""
        state, worker = self.state, chosen["router"]
        state.over = True
        told: dict[str, Any] = {"kind": state.kind}
        if worker is None:
            return {"router": 0.0}, told | {"success": False}
        answered = bool(self.rng.random() < self.skill(worker, state.kind, state.shifted))
        price = float(self.prices[worker])
        return {"router": answered - self.weight * price}, told | {
            "price": price,
            "answered": answered,
            "success": answered,
        }
