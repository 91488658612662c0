"""OPRL's process reward model [29]: a copy of the policy that learns which episode of a group went better."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.returns import episode_score
from palaestra.algebra.signals import evaluate
from palaestra.algebra.turns import Turns
from palaestra.credit import pairwise_logistic
from palaestra.errors import InputError
from palaestra.learning.stages.stage import Context, Stage, stage

if TYPE_CHECKING:
    from palaestra.agents.policy import Learnable


@stage
class process_reward(Stage):
    """Stage: column `prm_logprobs`, token log-probabilities of a copy of the policy that learns who does better.

    Source: arXiv 2509.19199, a process reward model without labels of steps.

    The score of an episode is the mean over its turns of β · Σ_tokens (log π_φ - log π), π the policy that played; φ
    learns from -log σ(score_i - score_j) over all pairs of a group in which i did better, by Adam, `epochs` steps an
    iteration, and then the column is filled. The credit is `oprl()`; its implicit reward of a turn is β · Σ
    (prm_logprobs - logprobs). score: text of what decides who did better; default the agent's return. chunk: rows that
    are differentiated at once; gradients are exact whatever it is. Metric: process_loss_POLICY, the mean of
    a pair.

    Raises:
        InputError: a number is out of range.
    """

    adds = {"prm_logprobs": "log-probabilities of the tokens under the process reward model"}

    def __init__(
        self, *, beta: float = 0.05, lr: float = 1e-3, epochs: int = 1, score: str | None = None, chunk: int = 1024
    ) -> None:
        if epochs < 0 or chunk < 1 or not (lr > 0 and beta > 0):
            raise InputError(
                f"process_reward: epochs={epochs} must not be negative, chunk={chunk} at least 1, "
                f"lr={lr} and beta={beta} above 0"
            )
        self.beta, self.lr, self.epochs, self.chunk = beta, lr, epochs, chunk
        self.score = episode_score(None if score is None else parse(score))
        self.models: dict[str, Learnable] = {}
        self.optimisers: dict[str, Any] = {}
        self._waiting: dict[str, Any] = {}
        self.needs = {"group", "episode", "policy", "logprobs", "action_ids", *self.score.needs()}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `prm_logprobs`; null in rows of policies that are not trained."""
        outcome = np.asarray(evaluate(turns, self.score)[0], float)
        episode, group = turns.codes("episode"), turns.codes("group")
        found: list[Any] = [None] * len(turns)
        for policy in context.team.trainable:
            model = self._model(policy)
            spoke = (turns.frame["policy"].cast(pl.String) == policy.name) & turns.frame["action_ids"].is_not_null()
            rows = np.flatnonzero(spoke.fill_null(False).to_numpy())
            if not len(rows):
                continue
            for _ in range(self.epochs):
                loss = self._learn(policy.name, turns.frame[rows], outcome[rows], episode.ids[rows], group.ids[rows])
                context.metrics[f"process_loss_{policy.name}"] = loss
            for row, each in zip(rows.tolist(), self._logprobs(model, turns.frame[rows]), strict=True):
                found[row] = each.tolist()
        return turns.with_column(prm_logprobs=pl.Series("prm_logprobs", found, pl.List(pl.Float64)))

    def _learn(
        self, name: str, rows: pl.DataFrame, outcome: np.ndarray, episode: np.ndarray, group: np.ndarray
    ) -> float:
        """One step, and the loss before it.

        The slope of the loss in each episode's score is exact, so chunks can be
        differentiated apart.
        """
        import torch

        model, optimiser = self.models[name], self.optimisers[name]
        old = rows["logprobs"].list.sum().to_numpy().astype(float)
        new = np.array([each.sum() for each in self._logprobs(model, rows)])
        _, first, own = np.unique(episode, return_index=True, return_inverse=True)
        turns = np.bincount(own)
        scores = self.beta * np.bincount(own, new - old) / turns
        known = ~np.isnan(outcome[first]) & ~np.isnan(scores)
        slope = np.zeros(len(first))
        loss, slope[known] = pairwise_logistic(scores[known], outcome[first][known], group[first][known])
        weight = torch.from_numpy((slope * self.beta / turns)[own])
        moving = np.flatnonzero(weight.numpy())
        if not len(moving):
            return loss
        optimiser.zero_grad()
        for start in range(0, len(moving), self.chunk):
            part = moving[start : start + self.chunk]
            scored = model.score(rows[part])
            summed = (scored.logprobs * scored.mask).sum(-1)
            (summed * weight[part].to(summed)).sum().backward()
        optimiser.step()
        return loss

    def _logprobs(self, model: Learnable, rows: pl.DataFrame) -> list[np.ndarray]:
        import torch

        found: list[np.ndarray] = []
        with torch.no_grad():
            for start in range(0, len(rows), self.chunk):
                scored = model.score(rows[start : start + self.chunk])
                pairs = zip(scored.logprobs.double().cpu().numpy(), scored.mask.cpu().numpy(), strict=True)
                found += [values[mask] for values, mask in pairs]
        return found

    def _model(self, policy: Learnable) -> Learnable:
        if policy.name not in self.models:
            import torch

            model = policy.frozen_copy()
            learns = {id(old): new for old, new in zip(_all(policy), _all(model), strict=True)}
            own = [learns[id(parameter)].requires_grad_() for parameter in policy.parameters()]
            self.models[policy.name], self.optimisers[policy.name] = model, torch.optim.Adam(own, lr=self.lr)
            if policy.name in self._waiting:
                state = self._waiting.pop(policy.name)
                model.load_state_dict(state["model"])
                self.optimisers[policy.name].load_state_dict(state["optimiser"])
        return self.models[policy.name]

    def state_dict(self) -> dict[str, Any]:
        """State: the models and their optimisers, by policy."""
        return self._waiting | {
            name: {"model": model.state_dict(), "optimiser": self.optimisers[name].state_dict()}
            for name, model in self.models.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`; a model is made when its policy is met."""
        self.models.clear()
        self.optimisers.clear()
        self._waiting = dict(state)


def _all(policy: Any) -> list[Any]:
    """Every parameter of a policy, those that do not learn included."""
    return list((policy.model if hasattr(policy, "model") else policy.module).parameters())
