"""`SubAgents`: an archive of sub-agents of which few help, and a seat that staffs a team from it for a batch of tasks.

A sub-agent helps with a task as often as its rate says, and the team solves it if one did, or by itself. Who helped is
judged afterwards, with errors. Left out: what the sub-agents do; who writes them is a model elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _SubagentsState:
    chosen: list[int] = field(default_factory=list)
    tasks: Any = None
    helped: Any = False
    judged: list[np.ndarray] = field(default_factory=list)
    over: bool = False


@ENVS.register("native/subagents")
class SubAgents(NativeEnv):
    """Team building env: `staff` picks members in turn; the team then plays `batch` tasks, paid the share solved.

    facts, of each turn of the staff: member; instances, tasks that the member was there for; helped, share in which the
    judge says that it helped. Facts of the last turn: solved, share that the team solved; contradicted, share of
    verdicts on unsolved tasks that say "helped", which nobody can have: the judge's errors, or that its verdicts are
    inverted. Success: more than half.

    Args:
        size: of the archive. good: which of them help. members: of a team. batch: tasks. rates: how often the good ones
            help, and the others. alone: what the team solves without help. noise: how often the judge errs.
        prices: of each sub-agent, told as `price`. budget: what a team may cost; it plays once nobody else fits ([45]).

    Raises:
        InputError: the numbers do not fit together.
    """

    agents: tuple[str, ...] = ("staff",)
    facts = {"member": int, "instances": int, "helped": float, "solved": float, "contradicted": float, "price": float}

    def __init__(
        self,
        *,
        size: int = 20,
        good: Sequence[int] = (2, 7, 11, 16),
        members: int = 3,
        batch: int = 12,
        rates: Sequence[float] = (0.55, 0.1),
        alone: float = 0.15,
        noise: float = 0.1,
        prices: Sequence[float] = (),
        budget: float = float("inf"),
    ) -> None:
        shares = [*rates, alone, noise]
        if not 1 <= members <= size or batch < 1 or len(rates) != 2 or any(not 0 <= share <= 1 for share in shares):
            raise InputError(f"SubAgents: members={members} of {size=}, {batch=} >= 1, two rates, shares 0 to 1")
        if any(not 0 <= member < size for member in good):
            raise InputError(f"SubAgents: good={list(good)} must be from 0 to {size - 1}")
        if prices and (len(prices) != size or not 0 < min(prices) <= budget):
            raise InputError(
                f"SubAgents: {len(prices)} prices for {size=}, the least {min(prices)}: one above 0 for each, and "
                f"budget={budget} that pays for somebody"
            )
        self.prices, self.budget = np.array(prices or [0.0] * size, float), budget
        self.members, self.batch, self.alone, self.noise = members, batch, alone, noise
        self.rates = np.where(np.isin(np.arange(size), good), rates[0], rates[1])
        self.choices = tuple(f"sub-agent {number}" for number in range(size))

    def begin(self) -> tuple[str, _SubagentsState]:
        """Start with an empty team."""
        return f"subagents:{int(self.rng.integers(2**40))}", _SubagentsState()

    def look(self) -> dict[str, Observation]:
        """Observation of the staff: the number of members; members already picked or too dear are masked."""
        if self.state.over:
            return {}
        return {"staff": Observation(f"members: {len(self.state.chosen)}", self.choices, self._free())}

    def _free(self) -> np.ndarray:
        """Who is not on the team, and can be paid."""
        free = self.prices <= self.budget - self.prices[self.state.chosen].sum() + 1e-9
        free[self.state.chosen] = False
        return np.asarray(free)

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Add a member; after the last one the team plays, and facts of each pick are told."""
        state, member = self.state, chosen["staff"]
        if member is None:
            state.over = True
            return {"staff": 0.0}, {"success": False}
        state.chosen.append(member)
        helps = self.rng.random(self.batch) < self.chances(member, state.tasks)
        state.judged.append(helps ^ (self.rng.random(self.batch) < self.noise))
        state.helped = helps | state.helped
        told: dict[str, Any] = {"member": member, "instances": self.batch, "helped": float(state.judged[-1].mean())}
        if self.prices.any():
            told["price"] = float(self.prices[member])
        if len(state.chosen) < self.members and self._free().any():
            return {}, told
        solved = state.helped | (self.rng.random(self.batch) < self.alone)
        share, state.over = float(solved.mean()), True
        if not solved.all():
            told["contradicted"] = float(np.mean(state.judged, axis=0)[~solved].mean())
        return {"staff": share}, told | {"solved": share, "success": share > 0.5}

    def chances(self, member: int, tasks: Any) -> float | np.ndarray:
        """Probability that a member helps, the same with all of the episode's tasks, or of each, float64[batch]."""
        return float(self.rates[member])
