"""`FactoredPolicy`: one action is several numbers, each chosen by its own softmax, as in Gymnasium's MultiDiscrete."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from palaestra.agents.mlp import MLPPolicy
from palaestra.agents.policy import Decision, Request, Scored
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError

if TYPE_CHECKING:
    import polars as pl


class FactoredPolicy(MLPPolicy):
    """Trainable MLP policy whose action is `parts` independent numbers below `levels`, such as `0 2 1 1`.

    One network of `Observation.array` has a softmax for each part. The numbers are the tokens of the action, so every
    loss for sequences trains it: `logprobs` has one entry per part. For envs whose action is a text of numbers.

    Args:
        inputs: Features of the observation.
        parts: Numbers in an action.
        levels: Values of each number, 0 to `levels` - 1.
        hidden, seed: As in `MLPPolicy`.

    Raises:
        InputError: `parts` is below 1 or `levels` below 2.
    """

    KIND = "factored"
    SETTINGS: ClassVar[tuple[str, ...]] = ("inputs", "parts", "levels", "hidden", "name")

    def __init__(
        self,
        inputs: int,
        *,
        parts: int = 8,
        levels: int = 3,
        hidden: Sequence[int] = (64,),
        name: str = "factored",
        seed: int = 0,
    ) -> None:
        if parts < 1 or levels < 2:
            raise InputError(f"FactoredPolicy {name!r}: parts={parts} must be at least 1, levels={levels} at least 2")
        super().__init__(inputs, parts * levels, hidden=hidden, name=name, seed=seed)
        self.parts, self.levels = parts, levels

    def misfit(self, observation: Observation) -> str | None:
        """Reason why an observation does not fit: it has choices, or the wrong number of features; else None."""
        if observation.choices is not None:
            return f"InputError: the observation has choices, policy {self.name!r} writes {self.parts} numbers"
        size = None if observation.array is None else np.size(observation.array)
        if size != self.inputs:
            found = "no array" if size is None else f"{size} features"
            return f"InputError: the observation has {found}, policy {self.name!r} reads {self.inputs}"
        return None

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """Draw every number by inverse CDF; an observation that does not fit gives an `error`."""
        start = time.perf_counter()
        decisions = [Decision("", error=self.misfit(request.observation)) for request in requests]
        fit = [place for place, decision in enumerate(decisions) if decision.error is None]
        if fit:
            with torch.no_grad():
                scores = self.logits([requests[place].observation for place in fit]).cpu().double()
            logp = torch.log_softmax(self._split(scores), -1).numpy()
            chances = np.exp(logp)
            cdf = chances.cumsum(-1)
            uniforms = np.stack([requests[place].rng.random(self.parts) for place in fit])
            drawn = (cdf <= uniforms[..., None] * cdf[..., -1:]).sum(-1)
            logprobs = np.take_along_axis(logp, drawn[..., None], -1)[..., 0].astype(np.float32)
            entropies = -(chances * logp).sum(-1).astype(np.float32)
            for row, place in enumerate(fit):
                decision = decisions[place]
                decision.action = " ".join(map(str, drawn[row].tolist()))
                decision.action_ids = drawn[row].astype(np.int32)
                decision.logprobs, decision.entropies = logprobs[row], entropies[row]
        for decision in decisions:
            decision.duration = (time.perf_counter() - start) / len(requests)
        return decisions

    def choice_probabilities(self, observations: Sequence[Observation]) -> tuple[np.ndarray, np.ndarray]:
        """Always raises InputError: an action of several numbers is no single choice."""
        raise InputError(f"policy {self.name!r} of kind 'factored' writes several numbers and has no single choice")

    def score(self, rows: pl.DataFrame) -> Scored:
        """Log-probabilities of the numbers of each row's stored action, with gradient."""
        lengths = rows["action_ids"].list.len()
        if lengths.null_count() or not (lengths == self.parts).all():
            raise InputError(f"FactoredPolicy.score: every row needs {self.parts} action_ids: filter such rows first")
        logp = torch.log_softmax(self._split(self.logits_of_rows(rows)), -1)
        drawn = rows["action_ids"].explode().to_numpy().astype(np.int64).reshape(-1, self.parts)
        ids = torch.from_numpy(drawn).to(logp.device)
        chosen = logp.gather(2, ids[..., None])[..., 0]
        entropies = -(logp.exp() * logp).sum(-1)
        return Scored(chosen, entropies, torch.ones_like(chosen, dtype=torch.bool), logp)

    def _split(self, logits: torch.Tensor) -> torch.Tensor:
        """[rows, parts · levels] as [rows, parts, levels]."""
        return logits.reshape(-1, self.parts, self.levels)
