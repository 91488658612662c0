"""Losses by which an encoder learns who an agent plays with, from what the agent itself sees.

A trajectory is what one agent saw in its turns of one episode. Windows of it are laid out as `palaestra.envs.recent`
makes them. Left out: encoders that see what the others see.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from palaestra.algebra.turns import Turns


class Trajectories(NamedTuple):
    """Data: observation sequences of agents, padded, a row per trajectory, and their lengths.

    seen: float32[rows, longest, features], zeros behind the end. lengths: int64[rows].
    """

    seen: np.ndarray
    lengths: np.ndarray


def trajectories(turns: Turns, seen: np.ndarray, rng: np.random.Generator) -> Trajectories:
    """Draw one trajectory per episode of `Turns`, of a random agent, from `seen` (array of rows), as `Trajectories`.

    seen: float32[rows, features], what each row of the table saw.
    """
    part = turns.segments("episode", "agent")
    order = np.arange(len(turns)) if part.order is None else part.order
    starts, lengths = np.asarray(part.starts), np.asarray(part.lengths)
    drawn = rng.permutation(len(starts))
    _, first = np.unique(turns.codes("episode").ids[order[starts]][drawn], return_index=True)
    chosen = np.sort(drawn[first])
    starts, lengths = starts[chosen], lengths[chosen]
    inside = np.arange(lengths.max()) < lengths[:, None]
    places = np.minimum(starts[:, None] + np.arange(lengths.max()), len(turns) - 1)
    found = seen[order[places]] * inside[..., None]
    return Trajectories(found.astype(np.float32), lengths)


def joined(old: Trajectories | None, new: Trajectories, most: int) -> Trajectories:
    """Concatenation of old (or None) and new `Trajectories`, padded to one length; only the newest `most` rows stay."""
    if old is None:
        return Trajectories(new.seen[-most:], new.lengths[-most:])
    longest = max(old.seen.shape[1], new.seen.shape[1])
    parts = [np.pad(each.seen, ((0, 0), (0, longest - each.seen.shape[1]), (0, 0))) for each in (old, new)]
    return Trajectories(np.concatenate(parts)[-most:], np.concatenate([old.lengths, new.lengths])[-most:])


def info_nce(a: Tensor, b: Tensor, tau: float = 0.1) -> Tensor:
    """Symmetric InfoNCE loss (scalar) of tensors [rows, size]: row i of `a` has its positive in row i of `b` alone.

    Both are scaled to length 1. With s = a·bᵀ / τ the loss is the mean of -log softmax(s)ᵢᵢ over rows and columns.

    Args:
        a: [rows, size].
        b: [rows, size].
        tau: temperature.

    Returns:
        A scalar, with gradient.

    Source: CLAM (arXiv 2401.00132); van den Oord et al. 2018, arXiv 1807.03748.

    >>> pairs = torch.eye(2)
    >>> round(float(info_nce(pairs, pairs, tau=1.0)), 5)
    0.31326
    """
    scores = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T / tau
    own = torch.arange(len(scores), device=scores.device)
    return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2


def crop(known: Trajectories, rng: np.random.Generator, *, steps: int, least: int = 8) -> np.ndarray:
    """Windows float32[rows, steps, 1 + features]: a random (`rng`) piece of each of `Trajectories`, right-aligned.

    Its length is drawn from `least` to what the shortest trajectory allows, at most `steps`, its place from all.

    Returns:
        float32[rows, steps, 1 + features].
    """
    most = min(steps, int(known.lengths.min()))
    length = rng.integers(min(least, most), most + 1, size=len(known.lengths))
    end = rng.integers(length, known.lengths + 1)
    return pieces(known, end, length, steps)


def pieces(known: Trajectories, end: np.ndarray, length: np.ndarray, steps: int) -> np.ndarray:
    """Windows with the `length` turns before turn `end` of each of `Trajectories`: float32[rows, steps, 1 + features].

    They are right-aligned; the first feature is 1 where there is a turn, and all are 0 before it.
    """
    at = end[:, None] - steps + np.arange(steps)
    present = at >= (end - length)[:, None]
    found = known.seen[np.arange(len(end))[:, None], np.maximum(at, 0)] * present[..., None]
    return np.concatenate([present[..., None].astype(np.float32), found], axis=-1, dtype=np.float32)


def mask_steps(windows: np.ndarray, ratio: float, rng: np.random.Generator) -> np.ndarray:
    """Copy of an array of windows: each turn's features zeroed with probability `ratio`, never those of all turns."""
    present = windows[..., 0] > 0
    hidden = (rng.random(present.shape) < ratio) & present
    every = (hidden == present).all(axis=1)
    hidden[every, -1] = False  # the newest turn is always there
    found = windows.copy()
    found[..., 1:][hidden] = 0.0
    return found


class ContrastiveEncoder:
    """Trainer of a copy of an encoder by `info_nce` of two views; `follow` moves `slow`, an average of that copy.

    Args:
        encoder: from windows to contexts. inputs: size of a context. steps: turns of a window.
        least, mask, tau: of `crop`, `mask_steps`, `info_nce`. size: of the projection. lr: of Adam. seed: of its start.
    """

    def __init__(
        self,
        encoder: nn.Module,
        *,
        inputs: int,
        steps: int,
        least: int = 8,
        mask: float = 0.5,
        tau: float = 0.5,
        size: int = 16,
        lr: float = 3e-3,
        seed: int = 0,
    ) -> None:
        self.window, self.least, self.mask, self.tau = steps, least, mask, tau
        self.encoder, self.slow = copy.deepcopy(encoder).requires_grad_(True), copy.deepcopy(encoder)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.project = nn.Linear(inputs, size).to(next(encoder.parameters()).device)
        self.optimiser = torch.optim.Adam([*self.encoder.parameters(), *self.project.parameters()], lr=lr)

    def views(self, known: Trajectories, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Two random pieces of each trajectory as windows, with some turns of the first zeroed."""
        strong, weak = (crop(known, rng, steps=self.window, least=self.least) for _ in range(2))
        return mask_steps(strong, self.mask, rng), weak

    def fit(self, known: Trajectories, rng: np.random.Generator, *, steps: int, batch: int) -> dict[str, float]:
        """Train by contrastive steps on random trajectories of at least two turns; needs two of them.

        Returns:
            loss, and the margin of the cosines, of the last step; empty if nothing was learned.
        """
        long = np.flatnonzero(known.lengths >= 2)
        found: dict[str, float] = {}
        for _ in range(steps if len(long) >= 2 else 0):
            some = rng.choice(long, size=min(batch, len(long)), replace=False)
            pair = self.views(Trajectories(known.seen[some], known.lengths[some]), rng)
            device = self.project.weight.device
            a, b = (self.project(self.encoder(torch.from_numpy(each).to(device))) for each in pair)
            loss = info_nce(a, b, self.tau)
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            found = {"loss": float(loss.detach()), "margin": _margin(a.detach(), b.detach())}
        return found

    def follow(self, ema: float) -> None:
        """Move the slow copy: old + ema · (new - old)."""
        with torch.no_grad():
            for old, new in zip(self.slow.parameters(), self.encoder.parameters(), strict=True):
                old.lerp_(new, ema)

    def state_dict(self) -> dict[str, Any]:
        """Both encoders, the projection and the optimiser."""
        names = ("encoder", "slow", "project", "optimiser")
        return {name: getattr(self, name).state_dict() for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        for name, each in state.items():
            getattr(self, name).load_state_dict(each)


def _margin(a: Tensor, b: Tensor) -> float:
    """Mean cosine of partners less the mean cosine of all other pairs."""
    cosines = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T
    own = cosines.diagonal()
    others = (cosines.sum() - own.sum()) / max(cosines.numel() - len(own), 1)
    return float(own.mean() - others)


def effective_rank(contexts: np.ndarray) -> float:
    """Effective rank (float) of the rows of a matrix, centred: exp of the entropy of the normalised singular values.

    >>> round(effective_rank(np.eye(3) - 1 / 3), 6)
    2.0
    """
    sigma = np.linalg.svd(contexts - contexts.mean(axis=0), compute_uv=False)
    share = sigma / sigma.sum() if sigma.sum() > 0 else np.ones(1)
    share = share[share > 1e-12]
    return float(np.exp(-(share * np.log(share)).sum()))
