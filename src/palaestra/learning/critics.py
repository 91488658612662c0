"""Networks for ArCHer [89]: a critic of turns on features, learned from replay, and a baseline per token.

The same targets as the tables of `palaestra.credit.critics`, for states and actions that are vectors: encodings of text
by any model, or what an env shows. Left out: the encoder itself (frozen, or trained together with the critic as the
paper does with RoBERTa), several devices.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from palaestra.algebra.turns import Ragged, Turns
from palaestra.credit.critics import Replay
from palaestra.errors import InputError
from palaestra.learning.batch import ragged

ActionSampler = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""Features of states [n, s] to those of freshly sampled actions of the current policy, [n, a]."""


def network(inputs: int, hidden: Sequence[int], outputs: int = 1) -> nn.Sequential:
    """Linear layers with ReLU between them; no hidden layer: a linear function."""
    sizes = [inputs, *hidden]
    layers = [each for a, b in itertools.pairwise(sizes) for each in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))


class NetworkCritic:
    """Two Q(s, a) and two V(s) networks with slowly moving targets: the upper level of ArCHer (arXiv 2402.19446).

    Q target: r + γ·(1 - done)·V_target(s'); V target: Q_target(s, a) with a freshly sampled from the policy; squared
    errors, Adam; targets move by `tau` after each batch; the two heads see different batches of the replay. The paper's
    γ, τ and learning rate are the defaults; its rate is for a pretrained encoder, from scratch 1e-3 is usual.

    Args:
        states, actions: number of features of each. hidden: widths of the layers between. seed: of the start.
    """

    def __init__(
        self,
        states: int,
        actions: int,
        *,
        hidden: Sequence[int] = (64, 64),
        gamma: float = 0.9,
        tau: float = 0.1,
        lr: float = 2e-5,
        seed: int = 0,
    ) -> None:
        if not (0 <= gamma <= 1 and 0 < tau <= 1 and lr > 0):
            raise InputError(f"NetworkCritic: gamma={gamma} and tau={tau} must lie in [0, 1], tau and lr={lr} above 0")
        self.gamma, self.tau = gamma, tau
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.q = nn.ModuleList(network(states + actions, hidden) for _ in range(2)).double()
            self.v = nn.ModuleList(network(states, hidden) for _ in range(2)).double()
        self.q_target, self.v_target = copy.deepcopy(self.q), copy.deepcopy(self.v)
        self.optimiser = torch.optim.Adam([*self.q.parameters(), *self.v.parameters()], lr=lr, fused=True)

    def fit(
        self, replay: Replay, sample: ActionSampler, rng: np.random.Generator, *, batches: int = 50, size: int = 256
    ) -> NetworkCritic:
        """Learn from random batches of the replay, whose states and actions are float[n, features].

        Raises:
            InputError: the replay is empty.
        """
        if not len(replay.reward):
            raise InputError("NetworkCritic.fit: the replay has no transitions; play some episodes first")
        for _ in range(batches):
            loss = torch.zeros((), dtype=torch.double)
            for head in range(2):
                rows = rng.integers(len(replay.reward), size=size)
                state, action, reward, after, done = (np.asarray(column, float)[rows] for column in replay)
                fresh = np.asarray(sample(state, rng), float)
                with torch.no_grad():
                    later = self.v_target[head](_tensor(after))[:, 0]
                    goal = _tensor(reward) + self.gamma * (1 - _tensor(done)) * later
                    worth = self.q_target[head](_tensor(state, fresh))[:, 0]
                loss = loss + (self.q[head](_tensor(state, action))[:, 0] - goal).square().mean()
                loss = loss + (self.v[head](_tensor(state))[:, 0] - worth).square().mean()
            self.optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()
            with torch.no_grad():
                for slow, fast in ((self.q_target, self.q), (self.v_target, self.v)):
                    for old, new in zip(slow.parameters(), fast.parameters(), strict=True):
                        old.lerp_(new, self.tau)
        return self

    def values(self, state: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """min(Q1, Q2) and min(V1, V2), float64[n] each: what `palaestra.credit.archer` calls q and v."""
        with torch.no_grad():
            q = torch.cat([head(_tensor(state, action)) for head in self.q], 1).min(1).values
            v = torch.cat([head(_tensor(state)) for head in self.v], 1).min(1).values
        return q.numpy(), v.numpy()


class TokenBaseline:
    """ArCHer's optional baseline of the low level: b(prefix) per token, squared errors to the turn's advantage.

    b sees the tokens before its own only, as the mean of their embeddings beside the last one's, so subtracting it
    leaves the expected gradient as it is. Use: `archer(baseline="baseline")` with `predict` as that column.
    """

    def __init__(self, vocabulary: int, *, size: int = 32, hidden: int = 64, lr: float = 1e-3, seed: int = 0) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(vocabulary + 1, size, padding_idx=vocabulary)
            self.head = network(2 * size, (hidden,))
        self.vocabulary = vocabulary
        self.optimiser = torch.optim.Adam([*self.embedding.parameters(), *self.head.parameters()], lr=lr)

    def fit(
        self, turns: Turns, rng: np.random.Generator, *, advantage: str = "advantage", steps: int = 50, size: int = 256
    ) -> TokenBaseline:
        """Learn from random rows with `action_ids`, `prompt_ids` if there are any, and an advantage of the turn."""
        goals = turns[advantage].cast(float).to_numpy()
        rows = np.flatnonzero(np.isfinite(goals) & turns["action_ids"].is_not_null().to_numpy())
        if not len(rows):
            raise InputError(f"TokenBaseline.fit: no row has action_ids and a finite {advantage!r}")
        for _ in range(steps):
            chosen = rng.choice(rows, min(size, len(rows)), replace=False)
            found, mask = self._of(Turns(turns.frame[chosen]))
            errors = (found - torch.from_numpy(goals[chosen]).float()[:, None]).square()
            loss = errors.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)
            self.optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()
        return self

    def predict(self, turns: Turns) -> Ragged:
        """A value per token of `action_ids`."""
        with torch.no_grad():
            found, mask = self._of(turns)
        return Ragged(found[mask].double().numpy(), mask.sum(1).numpy())

    def _of(self, turns: Turns) -> tuple[Tensor, Tensor]:
        """Baselines and mask, [rows, longest action]."""
        actions, _, lengths = ragged(turns["action_ids"])
        given = "prompt_ids" in turns.columns
        prompts, _, before = ragged(turns["prompt_ids"]) if given else (actions[:0], None, 0 * lengths)
        width = 1 + int((before + lengths).max(initial=0))
        ids = np.full((len(lengths), width), self.vocabulary)  # the first place stands for "nothing yet"
        places = np.arange(width)[None] - 1
        ids[(places >= 0) & (places < before[:, None])] = prompts
        spoken = (places >= before[:, None]) & (places < (before + lengths)[:, None])
        ids[spoken] = actions
        embedded = self.embedding(torch.from_numpy(ids))
        seen = embedded.cumsum(1) / torch.arange(1, width + 1)[:, None]
        context = torch.cat([seen, embedded], -1)[:, :-1]  # what stands before place t
        at = np.minimum(before[:, None] + np.arange(int(lengths.max(initial=0))), max(width - 2, 0))
        own = context[torch.arange(len(lengths))[:, None], torch.from_numpy(at)]
        mask = torch.from_numpy(np.arange(at.shape[1]) < lengths[:, None])
        return self.head(own)[..., 0], mask


def _tensor(*parts: np.ndarray) -> Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(part, float) for part in parts], axis=-1))
