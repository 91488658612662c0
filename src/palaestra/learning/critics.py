"""Networks that value: of states, for `gae`; of turns from replay, ArCHer's [89]; and a baseline per token.

The same targets as the tables of `palaestra.credit.critics`, for states and actions that are vectors: encodings of text
by any model, or what an env shows. Left out: the encoder itself (frozen, or trained together with the critic as the
paper does with RoBERTa), several devices.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from palaestra.algebra.list_columns import ragged
from palaestra.algebra.turns import Ragged, Turns
from palaestra.credit.critics import Fresh, Replay
from palaestra.errors import InputError


def network(inputs: int, hidden: Sequence[int], outputs: int = 1) -> nn.Sequential:
    """MLP (`nn.Sequential`) of `inputs` numbers, ReLU between linear layers; linear without a hidden layer."""
    sizes = [inputs, *hidden]
    layers = [each for a, b in itertools.pairwise(sizes) for each in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))


class ValueNetwork:
    """Value network V(s) on vectors, trained by squared errors with Adam; predicts 0 until it was fitted.

    Args:
        inputs: how many numbers a state has. hidden: widths of the layers between. seed: of the start.
    """

    def __init__(self, inputs: int, *, hidden: Sequence[int] = (64,), lr: float = 1e-2, seed: int = 0) -> None:
        self.inputs = inputs
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = network(inputs, hidden).double()
        for parameter in self.network[-1].parameters():
            nn.init.zeros_(parameter)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=lr)

    def fit(self, x: np.ndarray, goal: np.ndarray, rng: np.random.Generator, *, steps: int, batch: int) -> None:
        """Train by steps on random batches of the rows whose goal is known; float64[rows, inputs], float64[rows]."""
        known = ~np.isnan(goal)
        if not known.any():
            return
        columns = [torch.from_numpy(x[known]), torch.from_numpy(goal[known])]
        for _ in range(steps):
            seen, wanted = _some(columns, rng, min(batch, int(known.sum())))
            self.optimiser.zero_grad()
            (self.network(seen)[:, 0] - wanted).square().mean().backward()
            self.optimiser.step()

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Values of states, float64[rows]."""
        with torch.no_grad():
            return np.asarray(self.network(torch.from_numpy(x))[:, 0].numpy())

    def state_dict(self) -> dict[str, Any]:
        """State of the network and its optimiser."""
        return {"inputs": self.inputs, **_state(self)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        _load(self, state)


class NetworkCritic:
    """ArCHer's upper-level critic (arXiv 2402.19446): two Q(s, a) and two V(s) networks with slowly moving targets.

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
        self, replay: Replay, fresh: Fresh, rng: np.random.Generator, *, batches: int = 50, size: int = 256
    ) -> NetworkCritic:
        """Learn Q from random batches of the replay, V from those of `fresh`.

        States and actions are float[n, features].

        Raises:
            InputError: the replay, or what is fresh, is empty.
        """
        if not len(replay.reward) or not len(fresh.state):
            raise InputError("NetworkCritic.fit: the replay has no transitions; play some episodes first")
        known, drawn = ([torch.from_numpy(np.asarray(column, float)) for column in part] for part in (replay, fresh))
        for _ in range(batches):
            loss = torch.zeros((), dtype=torch.double)
            for head in range(2):
                state, action, reward, after, done = _some(known, rng, size)
                with torch.no_grad():
                    goal = reward + self.gamma * (1 - done) * self.v_target[head](after)[:, 0]
                loss = loss + (self.q[head](torch.cat([state, action], -1))[:, 0] - goal).square().mean()
                state, action = _some(drawn, rng, size)
                with torch.no_grad():
                    worth = self.q_target[head](torch.cat([state, action], -1))[:, 0]
                loss = loss + (self.v[head](state)[:, 0] - worth).square().mean()
            self.optimiser.zero_grad()
            loss.backward()
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

    def state_dict(self) -> dict[str, Any]:
        """State of the networks, targets and optimiser."""
        return _state(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        _load(self, state)


class TokenBaseline:
    """Network of ArCHer's per-token baseline b(prefix) of ids below `vocabulary`, fitted to the turn's advantage.

    By squared errors; it is optional there.

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
        """Train on random rows with `action_ids`, `prompt_ids` if there are any, and an advantage of the turn."""
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
            loss.backward()
            self.optimiser.step()
        return self

    def predict(self, turns: Turns) -> Ragged:
        """Baseline value per token of `action_ids`."""
        with torch.no_grad():
            found, mask = self._of(turns)
        return Ragged(found[mask].double().numpy(), mask.sum(1).numpy())

    def state_dict(self) -> dict[str, Any]:
        """State of the network and its optimiser."""
        return _state(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        _load(self, state)

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


def _some(columns: list[Tensor], rng: np.random.Generator, size: int) -> list[Tensor]:
    """The same random rows of each column."""
    rows = torch.from_numpy(rng.integers(len(columns[0]), size=size))
    return [column[rows] for column in columns]


def _state(owner: Any) -> dict[str, Any]:
    """Everything of an object that has a `state_dict`."""
    return {name: each.state_dict() for name, each in vars(owner).items() if hasattr(each, "state_dict")}


def _load(owner: Any, state: dict[str, Any]) -> None:
    for name, each in vars(owner).items():
        if hasattr(each, "load_state_dict"):
            each.load_state_dict(state[name])


def _tensor(*parts: np.ndarray) -> Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(part, float) for part in parts], axis=-1))
