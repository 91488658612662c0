"""`PerturbedPolicy`: a trained network whose observations are shifted a little, so that it does what another intends.

RAT's adversary ([182]): within the ε-ball the shift lowers KL(victim at the shifted observation ‖ intention at the true
one). The shift is found anew for each observation by signed gradient steps. Left out: an adversary network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from palaestra.agents.discrete import DiscretePolicy
from palaestra.agents.mlp import MLPPolicy
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError, nearest

if TYPE_CHECKING:
    import polars as pl

AIMS = ("intention", "network", "away", "noise")
"""Which shift: towards the intention's action, by gradient or by a network; away from the victim's own action; or a
random corner of the ball."""


class PerturbedPolicy(DiscretePolicy):
    """Adversarial attack as a policy: a victim policy acts on observations shifted by up to `epsilon`.

    Args:
        inputs: features of an observation. actions: ids.
        epsilon: most that a feature is shifted.
        aim: one of `AIMS`.
        steps: signed gradient steps; one goes to a corner of the ball.
        learns: "intention": scored are its own log-probabilities of what was done, so that it learns off-policy from
            what the victim was led to do. "victim": those of the victim at shifted observations, while the intention
            stays, which is training against the attack.
        hidden: widths of the intention's layers, and of the shift network's. victim_hidden: of the victim's.
        seed: of the intention's start.

    Raises:
        InputError: an option is out of range.
    """

    KIND = "perturbed"
    SETTINGS = ("inputs", "actions", "epsilon", "aim", "steps", "learns", "hidden", "victim_hidden", "name")

    def __init__(
        self,
        inputs: int,
        actions: int,
        *,
        epsilon: float,
        aim: str = "intention",
        steps: int = 1,
        learns: Literal["intention", "victim"] = "intention",
        hidden: Sequence[int] = (64,),
        victim_hidden: Sequence[int] = (64, 64),
        name: str = "perturbed",
        seed: int = 0,
    ) -> None:
        if aim not in AIMS or learns not in ("intention", "victim"):
            raise InputError(f"PerturbedPolicy: aim={aim!r}{nearest(str(aim), AIMS)}, learns={learns!r}")
        if not epsilon >= 0 or steps < 1:
            raise InputError(f"PerturbedPolicy: epsilon={epsilon} must not be negative, steps={steps} at least 1")
        parts = {
            "intention": MLPPolicy(inputs, actions, hidden=hidden, seed=seed),
            "victim": MLPPolicy(inputs, actions, hidden=victim_hidden, seed=seed),
        }
        if aim == "network":
            parts["adversary"] = MLPPolicy(inputs, inputs, hidden=hidden, seed=seed + 1)
            for parameter in parts["adversary"].module[-1].parameters():  # type: ignore[index]
                torch.nn.init.zeros_(parameter)
        module = torch.nn.ModuleDict({part: made.module for part, made in parts.items()})
        super().__init__(module, actions=actions, name=name)
        self.inputs, self.epsilon, self.aim, self.steps, self.learns = inputs, epsilon, aim, steps, learns
        self.hidden, self.victim_hidden = tuple(hidden), tuple(victim_hidden)
        for part in parts:
            module[part].requires_grad_(part == learns)

    def misfit(self, observation: Observation) -> str | None:
        """Reason why an observation does not fit, also if it has the wrong number of features; None if it fits."""
        size = None if observation.array is None else np.size(observation.array)
        if size != self.inputs:
            return f"InputError: the observation has {size or 'no'} features, policy {self.name!r} reads {self.inputs}"
        return super().misfit(observation)

    def logits(self, observations: Sequence[Observation]) -> torch.Tensor:
        """Logits of the victim at the shifted observations, [observations, actions]."""
        seen = torch.from_numpy(np.array([np.asarray(o.array).ravel() for o in observations], np.float32))
        return self.of("victim", self.shifted(seen))

    def logits_of_rows(self, rows: pl.DataFrame) -> torch.Tensor:
        """Logits of the intention at the true features, or of the victim at shifted ones, by `learns`."""
        features = rows["features"]
        if features.null_count() or not (features.list.len() == self.inputs).all():
            raise InputError(f"PerturbedPolicy.score: every row needs {self.inputs} features")
        seen = torch.from_numpy(features.explode().to_numpy().astype(np.float32).reshape(len(rows), self.inputs))
        return self.of("intention", seen) if self.learns == "intention" else self.of("victim", self.shifted(seen))

    def shifted(self, seen: torch.Tensor) -> torch.Tensor:
        """Attacked observations, within `epsilon` of the given ones in every feature, float32[rows, inputs]."""
        if not self.epsilon:
            return seen
        if self.aim == "noise":
            return seen + self.epsilon * _corner(seen)
        if self.aim == "network":
            return seen + self.epsilon * torch.tanh(self.of("adversary", seen))
        with torch.enable_grad():
            wanted = self.of("intention" if self.aim == "intention" else "victim", seen).detach()
            step = self.epsilon if self.steps == 1 else 2 * self.epsilon / self.steps
            moved = seen.clone()
            for _ in range(self.steps):
                moved.requires_grad_(True)
                loss = self._loss(self.of("victim", moved), wanted)
                (gradient,) = torch.autograd.grad(loss, moved)
                moved = moved.detach() - step * gradient.sign()
                moved = seen + (moved - seen).clamp(-self.epsilon, self.epsilon)
        return moved

    def _loss(self, logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """KL(victim ‖ intention) summed over the rows, or how probable the victim's best action stays."""
        logp = torch.log_softmax(logits, -1)
        if self.aim == "away":
            return logp.gather(1, wanted.argmax(-1, keepdim=True)).sum()
        return self.divergences(logits, wanted).sum()

    @staticmethod
    def divergences(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """KL(victim ‖ intention) of each row, from the logits of both, float32[rows]."""
        logp = torch.log_softmax(logits, -1)
        return (logp.exp() * (logp - torch.log_softmax(wanted, -1))).sum(-1)

    def of(self, part: str, seen: torch.Tensor) -> torch.Tensor:
        """Output of a part ("victim", "intention" or "adversary") for observations, float32[rows, …]."""
        modules: Any = self.module
        found: torch.Tensor = modules[part](seen)
        return found


def _corner(seen: torch.Tensor) -> torch.Tensor:
    """A corner of the unit cube for each observation, which depends on it alone: ±1, float32[rows, inputs]."""
    rows = [np.frombuffer(row.tobytes(), np.uint32) for row in seen.detach().numpy()]
    signs = [np.random.default_rng(row).integers(2, size=seen.shape[1]) * 2 - 1 for row in rows]
    return torch.from_numpy(np.array(signs, np.float32))
