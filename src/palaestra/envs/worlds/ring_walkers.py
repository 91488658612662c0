"""`RingWalkers`: more or fewer walkers on a ring; how many there are decides which of the others one must go to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

RULES: Mapping[int, str] = MappingProxyType({3: "right", 4: "left", 5: "left", 6: "far", 8: "right"})
"""Rule by the number of walkers: the walker to go to."""


@ENVS.register("native/ring_walkers")
class RingWalkers(NativeEnv):
    """Ring env of one jump by a varying number of walkers: 1, shared in a cell, for reaching the one that matters.

    The ring has `cells` cells; all jump at once.

    The number of walkers is one of `sizes`, each equally often. They stand on different cells, and each chooses how
    many cells to go to the right, from 0 to cells - 1. A walker is paid 1, shared by all who go to the same cell, if it
    goes to where the walker stood that matters to it: the next one to the `right`, the next one to the `left`, or the
    one that is `far`, with the greatest distance (of two the one to the right). Which of them matters is a property of
    the number of walkers. An observation says how many walkers there are and where, but not who matters, so that each
    size is a game of its own, and no other size tells its rule.

    The array of a walker is the number of walkers in one-hot form, `seats` numbers, and then for each other seat 1 and
    the sine and cosine of the angle to that walker, or zeros if nobody sits there. Success: all are paid 1. facts:
    size, the number of walkers; reached, whether this one went to the right place.

    Args:
        sizes: Numbers of walkers of which one is drawn per episode.
        rules: The walker that matters by number of walkers: "right", "left" or "far"; default `RULES`.
        seats: Number of agents, at least the largest size; default: the largest size.
        cells: Number of cells of the ring.

    Raises:
        InputError: A size is below 2 or above `seats`, has no rule or an unknown one, or there are fewer cells than
            seats.

    Source: a small stand-in for the particle worlds with 6, 9 or 12 agents of MRA [65], arXiv 2108.12988.

    Example:
        >>> env = RingWalkers(sizes=[3])
        >>> env.reset(0)["walker_0"].text, env.targets().tolist()
        ('3 walkers; cells to the others: 2 8', [2, 6, 2])
    """

    facts = {"size": int, "reached": bool}

    def __init__(
        self,
        *,
        sizes: Sequence[int] = (3, 4, 6),
        rules: Mapping[int | str, str] | None = None,
        seats: int | None = None,
        cells: int = 10,
    ) -> None:
        self.rules = {int(size): rule for size, rule in (RULES if rules is None else rules).items()}
        self.sizes, self.cells = tuple(sizes), cells
        seats = seats or max(sizes, default=0)
        ruled = all(self.rules.get(size) in ("right", "left", "far") for size in sizes)
        if not sizes or min(sizes) < 2 or max(sizes) > seats or cells < seats or not ruled:
            raise InputError(
                f"RingWalkers: sizes={list(sizes)} must be from 2 to seats={seats}, each with a rule right, left or "
                f"far in rules={self.rules}, and cells={cells} at least seats"
            )
        self.agents = tuple(f"walker_{number}" for number in range(seats))
        self.choices = tuple(str(step) for step in range(cells))

    def begin(self) -> tuple[str, np.ndarray | None]:
        """Draw the number of walkers and their cells."""
        size = self.sizes[int(self.rng.integers(len(self.sizes)))]
        places = self.rng.permutation(self.cells)[:size]
        return f"ring of {size}: {' '.join(map(str, places))}", places

    def _others(self) -> np.ndarray:
        """Cells to the right from each walker (row) to each other one, int64[size, size - 1], from 1 to cells - 1."""
        size = len(self.state)
        steps = (self.state[None, :] - self.state[:, None]) % self.cells
        found: np.ndarray = steps[~np.eye(size, dtype=bool)].reshape(size, size - 1)
        return found

    def targets(self) -> np.ndarray:
        """The right action of each walker, int64[size]: the step to the walker that matters to it."""
        others = self._others()
        rule = self.rules[len(self.state)]
        if rule == "far":
            near = np.minimum(others, self.cells - others)
            best = (2 * near + (others <= self.cells // 2)).argmax(1)
            return np.take_along_axis(others, best[:, None], 1)[:, 0]
        found: np.ndarray = others.min(1) if rule == "right" else others.max(1)
        return found

    def look(self) -> dict[str, Observation]:
        """Observations by agent: the number of walkers, and the others' places relative to its own."""
        if self.state is None:
            return {}
        others, size, seats = self._others(), len(self.state), len(self.agents)
        angles = others * (2 * np.pi / self.cells)
        seen = np.zeros((size, seats + 3 * (seats - 1)), np.float32)
        seen[:, size - 1] = 1
        slots = np.stack([np.ones_like(angles), np.sin(angles), np.cos(angles)], -1)
        seen[:, seats : seats + 3 * (size - 1)] = slots.reshape(size, -1)
        texts = [" ".join(map(str, sorted(row))) for row in others.tolist()]
        return {
            agent: Observation(f"{size} walkers; cells to the others: {text}", choices=self.choices, array=row)
            for agent, text, row in zip(self.agents, texts, seen, strict=False)
        }

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Move all walkers at once; an invalid choice leaves its walker where it is."""
        size, there = len(self.state), self.agents[: len(self.state)]
        steps = np.array([step if isinstance(step := chosen[agent], int) else 0 for agent in there])
        cells = (self.state + steps) % self.cells
        reached = steps == self.targets()
        paid = reached / (cells[:, None] == cells).sum(1)
        self.state = None
        info: dict[str, Any] = {"size": size, "reached": dict(zip(there, reached.tolist(), strict=True))}
        info["success"] = bool(paid.min() == 1)
        return dict(zip(there, paid.tolist(), strict=True)), info
