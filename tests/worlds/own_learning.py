"""A learner and a term from outside the package: recipes name `own_learning:Nudge` and `own_learning:calm(0.1)`."""

from __future__ import annotations

from typing import Any

import torch

from palaestra.agents import Team
from palaestra.algebra.turns import Turns
from palaestra.learning.terms import Term


class Nudge:
    """Makes the chosen action of every row a little likelier, whatever it was worth; counts its updates."""

    def __init__(self, team: Team, *, lr: float, updates: int, push: float = 1.0) -> None:
        self.policies = {policy.name: policy for policy in team.trainable}
        self.step, self.planned, self.updates = lr * push, updates, 0

    def needs(self) -> set[str]:
        return set()

    def update(self, turns: Turns, *, advantage: str = "advantage", rng: Any = None) -> dict[str, dict[str, Any]]:
        metrics = {}
        for name, policy in self.policies.items():
            rows = turns.frame.filter(turns["policy"].cast(str) == name)
            loss = -policy.score(rows).logprobs.mean()
            slopes = torch.autograd.grad(loss, policy.parameters())
            with torch.no_grad():
                for parameter, slope in zip(policy.parameters(), slopes):
                    parameter -= self.step * slope
            metrics[name] = {
                "loss": float(loss.detach()),
                "zero_credit": None,
                "entropy": None,
                "kl": None,
                "rows": len(rows),
            }
        self.updates += 1
        return metrics

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.updates = state["updates"]


def calm(weight: float = 0.1) -> Term:
    """Keep probabilities away from 0 and 1."""

    def loss(piece: Any) -> torch.Tensor:
        piece.log("calm", piece.mean(piece.new.square()))
        return weight * piece.mean(piece.new.square())  # type: ignore[no-any-return]

    return Term("calm", loss)
