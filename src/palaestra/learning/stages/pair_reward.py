"""`pair_reward`: reward model of single turns, fitted to better and worse turns on one prompt (Retroformer [37])."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import Keys
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.judges.value_pairs import mine
from palaestra.learning.stages.cells import vectors
from palaestra.learning.stages.preference_reward import preference_reward
from palaestra.learning.stages.stage import Context, stage


@stage
class pair_reward(preference_reward):
    """Stage: column `pair_reward` on `seat`'s turns, a Bradley-Terry model of answers to a prompt compared by `score`.

    Retroformer's reward model [37] (arXiv 2308.02151): of two reflections on one failure the one with the higher rating
    is chosen. In each iteration all pairs of equal `by` and different `score` are mined, and a network r of prompt and
    answer is moved to lower -log σ(r(chosen) - r(rejected)) over the newest `memory` pairs. A rating is one noisy
    outcome; r averages over many, so that it may rank answers better than the ratings of a batch.

    Args:
        seat: The agent.
        score: Text of the signal that rates a turn; missing on turns that have no rating.
        by: Key of turns that answer the same prompt.
        memory: Number of pairs that are fitted, the newest.
        steps: Updates of each iteration.
        hidden: Widths of the network's hidden layers.
        lr: Learning rate of the network.
        size: Numbers of a text that is hashed.

    Metrics: `pairs`, mined in this iteration; `agreement`, share of these on which the network agrees before it learns
    from them; 0.5 by guessing.

    Raises:
        InputError: A number is out of range.
    """

    adds = {"pair_reward": "reward of the turn by a model of pairs, deviation 1 over the seat's turns"}

    def __init__(
        self, seat: str, score: str, *, by: Keys = "state", memory: int = 2000, steps: int = 20,
        hidden: Sequence[int] = (32,), lr: float = 1e-2, size: int = 64,
    ) -> None:  # fmt: skip
        if memory < 1 or not (steps >= 1 and size >= 1 and lr > 0):
            raise InputError(f"pair_reward: memory={memory}, steps={steps} and size={size} >= 1, lr={lr} > 0")
        self.seat, self.score, self.by, self.memory = seat, parse(score, columns=(score,)), by, memory
        self.steps, self.hidden, self.lr, self.size = steps, tuple(hidden), lr, size
        self.needs = {"episode", "agent", "action", "observation"} | self.score.needs()
        self.needs |= {by} if isinstance(by, str) else set(by)  # type: ignore[arg-type]
        self._made, self._state = None, None
        self._past: np.ndarray | None = None

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `pair_reward`; null on rows of other seats."""
        import torch

        own = (turns.frame["agent"].cast(pl.String) == self.seat).to_numpy()
        found = np.full(len(turns), np.nan)
        if not own.any():
            return turns.with_column(pair_reward=found)
        x = vectors(turns, self.size, action=True)
        network, optimiser = self._network(x.shape[1], context.seed)
        mined, _ = mine(turns, self.score, self.by, unit="row", source="pair_reward")
        chosen, rejected = (mined[side].to_numpy().astype(np.int64) for side in ("chosen", "rejected"))
        both = np.stack([x[chosen], x[rejected]], axis=1)[own[chosen] & own[rejected]]
        context.metrics["pairs"] = float(len(both))
        if len(both):
            with torch.no_grad():
                said = network(torch.from_numpy(both))[..., 0]
            context.metrics["agreement"] = float((said[:, 0] > said[:, 1]).double().mean())
        self._past = (both if self._past is None else np.concatenate([self._past, both]))[-self.memory :]
        sides = torch.from_numpy(self._past)
        for _ in range(self.steps if len(self._past) else 0):
            optimiser.zero_grad()
            r = network(sides)[..., 0]
            torch.nn.functional.softplus(r[:, 1] - r[:, 0]).mean().backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        with torch.no_grad():
            worth = network(torch.from_numpy(x[own]))[:, 0].numpy()
        found[own] = worth / max(float(worth.std()), 1e-8)
        return turns.with_column(pair_reward=found)

    def state_dict(self) -> dict[str, Any]:
        """State: network, optimiser and pairs; the latter empty if there were none yet."""
        return super().state_dict() | {"past": np.zeros((0, 2, 1)) if self._past is None else self._past.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        super().load_state_dict(state)
        past = np.asarray(state["past"], float)
        self._past = past if len(past) else None
