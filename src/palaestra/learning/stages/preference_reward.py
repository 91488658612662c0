"""`preference_reward`: a reward of turns, learned from which of two episodes is preferred ([182], arXiv 1706.03741)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import evaluate
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.cells import vectors
from palaestra.learning.stages.stage import Context, Stage, stage

if TYPE_CHECKING:
    import torch


@stage
class preference_reward(Stage):
    """Stage: column `preference`, a reward of `seat`'s turns learned from pairs of episodes, compared by `prefers`.

    In each iteration `pairs` pairs of episodes are drawn; the one with more of `prefers`, summed over its turns, is
    preferred; pairs with as much are left out, and episodes without any value. A network r of what was seen and done
    is moved to lower -log σ(Σ r of the preferred - Σ r of the other), sums over the turns of the seat. Then
    `preference` is r on the rows of the seat, with deviation 1 over them; null elsewhere.

    Args:
        seat: the agent. prefers: expression over the table, the teacher of the preferences.
        pairs, steps: of each iteration. hidden, lr: of the network. size: numbers of a text that is hashed.

    Metrics: `agreement`, share of the pairs on which the network agrees before it learns from them; 0.5 by guessing.

    Raises:
        InputError: a number is out of range.
    """

    adds = {"preference": "reward of the turn, learned from preferences between episodes"}

    def __init__(
        self, seat: str, prefers: str, *, pairs: int = 64, steps: int = 20, hidden: Sequence[int] = (32,),
        lr: float = 1e-2, size: int = 32,
    ) -> None:  # fmt: skip
        if min(pairs, steps, size) < 1 or not lr > 0:
            raise InputError(f"preference_reward: pairs={pairs}, steps={steps} and size={size} >= 1, lr={lr} > 0")
        self.seat, self.prefers, self.pairs, self.steps, self.size = seat, parse(prefers), pairs, steps, size
        self.hidden, self.lr = tuple(hidden), lr
        self.needs = {"episode", "agent", "action", "observation"}
        self._made: tuple[torch.nn.Module, torch.optim.Optimizer] | None = None
        self._state: list[Any] | None = None

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `preference`."""
        import torch

        own = np.flatnonzero((turns.frame["agent"].cast(pl.String) == self.seat).to_numpy())
        found = np.full(len(turns), np.nan)
        if not len(own):
            return turns.with_column(preference=found)
        codes = turns.codes("episode")
        said = np.asarray(evaluate(turns, self.prefers)[0], float)
        worth = np.bincount(codes.ids, np.nan_to_num(said), codes.size)
        worth[np.bincount(codes.ids, ~np.isnan(said), codes.size) == 0] = np.nan
        chosen, rejected = _pairs(worth, self.pairs, context.rng)
        x, episode = torch.from_numpy(vectors(turns, self.size, action=True)[own]), torch.from_numpy(codes.ids[own])
        network, optimiser = self._network(x.shape[1], context.seed)

        def ahead() -> torch.Tensor:
            sums = torch.zeros(codes.size, dtype=torch.float64).index_add(0, episode.long(), network(x)[:, 0])
            return sums[chosen] - sums[rejected]

        if len(chosen):
            context.metrics["agreement"] = float((ahead() > 0).double().mean())
            for _ in range(self.steps):
                optimiser.zero_grad()
                torch.nn.functional.softplus(-ahead()).mean().backward()  # type: ignore[no-untyped-call]
                optimiser.step()
        with torch.no_grad():
            paid = network(x)[:, 0].numpy()
        found[own] = paid / max(float(paid.std()), 1e-8)
        return turns.with_column(preference=found)

    def _network(self, width: int, seed: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        """The network and its optimiser; made when the width is known."""
        if self._made is None:
            import torch

            from palaestra.learning.critics import network

            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                made = network(width, self.hidden).double()
            self._made = made, torch.optim.Adam(made.parameters(), lr=self.lr)
            if self._state is not None:
                parts: tuple[Any, ...] = self._made
                for part, state in zip(parts, self._state, strict=True):
                    part.load_state_dict(state)
        return self._made

    def state_dict(self) -> dict[str, Any]:
        """State: network and optimiser."""
        return {"parts": self._state if self._made is None else [part.state_dict() for part in self._made]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self._made, self._state = None, state["parts"]


def _pairs(worth: np.ndarray, number: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The better and the worse of pairs drawn at random of what has a worth, where there is one; int64[pairs] each."""
    known = np.flatnonzero(~np.isnan(worth))
    one, other = known[rng.integers(max(len(known), 1), size=(2, number if len(known) else 0))]
    differ = worth[one] != worth[other]
    first = worth[one] > worth[other]
    return np.where(first, one, other)[differ], np.where(first, other, one)[differ]
