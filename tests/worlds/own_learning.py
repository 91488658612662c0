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

    def forward_backward(self, turns: Turns, *, advantage: str = "advantage") -> dict[str, dict[str, Any]]:
        metrics = {}
        for name, policy in self.policies.items():
            rows = turns.frame.filter(turns["policy"].cast(str) == name)
            loss = -policy.score(rows).logprobs.mean()
            loss.backward()
            metrics[name] = {
                "loss": float(loss.detach()),
                "zero_credit": None,
                "entropy": None,
                "kl": None,
                "rows": len(rows),
            }
        return metrics

    def optim_step(self) -> None:
        for policy in self.policies.values():
            for parameter in policy.parameters():
                if parameter.grad is not None:
                    parameter.data -= self.step * parameter.grad
                    parameter.grad = None
        self.updates += 1

    def update(self, turns: Turns, *, advantage: str = "advantage", rng: Any = None) -> dict[str, dict[str, Any]]:
        metrics = self.forward_backward(turns, advantage=advantage)
        self.optim_step()
        return metrics

    def state(self) -> dict[str, Any]:
        return {"updates": self.updates}

    def restore(self, state: dict[str, Any]) -> None:
        self.updates = state["updates"]


def calm(weight: float = 0.1) -> Term:
    """Keep probabilities away from 0 and 1."""

    def loss(piece: Any) -> torch.Tensor:
        piece.log("calm", piece.mean(piece.new.square()))
        return weight * piece.mean(piece.new.square())  # type: ignore[no-any-return]

    return Term("calm", loss)
