"""Losses by which a `NeighbourEncoder` learns from what its neighbours did next: two predictions, one on the other.

Of iPLAN [48]. Left out: its penalty on unstable predictions, whose weight is 0 there, and the wait before the second
model starts.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from palaestra.agents.encoders import NeighbourEncoder
from palaestra.learning.agent_models import Trajectories


def coming(seen: Tensor, ahead: int) -> Tensor:
    """Tensor of the next `ahead` turns after each turn, zeros past the end: [rows, turns, others, ahead, each].

    >>> coming(torch.arange(1.0, 4.0).reshape(1, 3, 1, 1), 2).reshape(3, 2).tolist()
    [[2.0, 3.0], [3.0, 0.0], [0.0, 0.0]]
    """
    padded = nn.functional.pad(seen[:, 1:], (0, 0, 0, 0, 0, ahead))
    return padded.unfold(1, ahead, 1).transpose(-1, -2)


def masked_l1(found: Tensor, goal: Tensor, there: Tensor) -> Tensor:
    """Mean absolute error (scalar) of tensor `found` from `goal` where a neighbour is present, its slot `there` in use.

    found, goal: [rows, turns, others, ahead, each]. there: bool[rows, turns, others].
    """
    counts = (goal[..., 0] > 0) & there[..., None]
    return ((found - goal).abs().mean(-1) * counts).sum() / counts.sum().clamp(min=1)


class PredictiveEncoder:
    """Trainer of a copy of a neighbour encoder by predicting turns; `follow` moves `slow`, an average of that copy.

    First loss: a GRU reads a neighbour's last `window` turns, each with the behaviour latent of the turn before, and
    predicts the next `window`. Second loss: a layer predicts the next `ahead` turns from the instant latent, which
    reads behaviour latents without gradient. Both are `masked_l1`, each with an Adam of its own.

    Args:
        encoder: what is copied. ahead: turns of the second prediction. width: of the decoders.
        lr: of Adam for the first loss. instant_lr: for the second. seed: of the decoders.
    """

    def __init__(
        self,
        encoder: NeighbourEncoder,
        *,
        ahead: int = 5,
        width: int = 32,
        lr: float = 3e-3,
        instant_lr: float | None = None,
        seed: int = 0,
    ) -> None:
        self.encoder, self.slow = copy.deepcopy(encoder).requires_grad_(True), copy.deepcopy(encoder)
        self.ahead = ahead
        behaviour, instant = encoder.parts
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            read = nn.GRU(encoder.each + behaviour, width, batch_first=True)
            write = nn.Linear(width, encoder.window * encoder.each)
            soon = nn.Sequential(nn.Linear(instant, width), nn.Tanh(), nn.Linear(width, ahead * encoder.each))
        self.decoders = nn.ModuleDict({"read": read, "write": write, "soon": soon})
        self.decoders.to(next(encoder.parameters()).device)
        first = [*self.encoder.read.parameters(), *self.encoder.kind.parameters()]
        known = {id(each) for each in first}
        second = [each for each in self.encoder.parameters() if id(each) not in known]
        self.optimiser = torch.optim.Adam([*first, *read.parameters(), *write.parameters()], lr=lr)
        self.later = torch.optim.Adam([*second, *soon.parameters()], lr=lr if instant_lr is None else instant_lr)

    def losses(self, seen: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both prediction errors on observed neighbours, [rows, turns, others, each]."""
        made, there = self.encoder, seen[..., 0] > 0
        behaviour = made.behaviours(seen)
        before = nn.functional.pad(behaviour[:, :-1], (0, 0, 0, 0, 1, 0))
        read = torch.cat([made.histories(seen), before.unsqueeze(-2).expand(-1, -1, -1, made.window, -1)], -1)
        _, last = self.decoders["read"](read[there])
        found = seen.new_zeros(*there.shape, made.window, made.each)
        found[there] = self.decoders["write"](last[0]).unflatten(-1, (made.window, made.each))
        first = masked_l1(found, coming(seen, made.window), there)
        instant = made.instants(seen, behaviour.detach(), noise)
        soon = self.decoders["soon"](instant).unflatten(-1, (self.ahead, made.each))
        return first, masked_l1(soon, coming(seen, self.ahead), there)

    def fit(self, known: Trajectories, rng: np.random.Generator, *, steps: int, batch: int) -> dict[str, float]:
        """Train by steps on random trajectories; those of one turn take no part.

        Returns:
            loss and instant_loss of the last step; empty if nothing was learned.
        """
        long = np.flatnonzero(known.lengths >= 2)
        found: dict[str, float] = {}
        for _ in range(steps if len(long) else 0):
            seen = self.tensor(known, rng.choice(long, size=min(batch, len(long)), replace=False))
            shape = (*seen.shape[:3], self.encoder.others, 2)
            noise = torch.from_numpy(rng.gumbel(size=shape).astype(np.float32)).to(seen.device)
            first, second = self.losses(seen, noise)
            self.optimiser.zero_grad()
            self.later.zero_grad()
            (first + second).backward()
            self.optimiser.step()
            self.later.step()
            found = {"loss": float(first.detach()), "instant_loss": float(second.detach())}
        return found

    def tensor(self, known: Trajectories, some: np.ndarray) -> Tensor:
        """Neighbours of some trajectories, float32[rows, turns, others, each]."""
        device = next(self.encoder.parameters()).device
        return self.encoder.slots(torch.from_numpy(known.seen[some]).to(device))

    def follow(self, ema: float) -> None:
        """Move the slow copy: old + ema · (new - old)."""
        with torch.no_grad():
            for old, new in zip(self.slow.parameters(), self.encoder.parameters(), strict=True):
                old.lerp_(new, ema)

    def state_dict(self) -> dict[str, Any]:
        """Both encoders, the decoders and the optimisers."""
        return {
            name: getattr(self, name).state_dict() for name in ("encoder", "slow", "decoders", "optimiser", "later")
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        for name, each in state.items():
            getattr(self, name).load_state_dict(each)
