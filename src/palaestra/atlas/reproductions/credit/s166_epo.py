"""[166] EPO (arXiv 2509.22576): a corridor around past entropy keeps exploration up where a bonus alone does not.

Six steps with five actions, one of them right; a table of logits trained by GRPO on the share of right steps. The
entropy term is the library's. Claimed is what it does to entropy, not to the return: without premature collapse, as
here, holding entropy up costs return. Left out: language models, a task with premature collapse.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.credit import grpo
from palaestra.learning.losses import corridor_weight, entropy_corridor, epo_entropy

STEPS, ACTIONS = 6, 5
GROUP, UPDATES, RATE, WEIGHT = 8, 200, 0.5, 0.03


def entropy_of(logits: Tensor) -> Tensor:
    """Nats, over the last axis."""
    log_p = logits.log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)


def worked() -> dict[str, float]:
    """Penalty and weights worked out by hand; gradient by autograd and by finite differences."""
    four = torch.tensor([[0.5, 1.0, 1.5, 0.85]], dtype=torch.float64)
    penalty = float(entropy_corridor(four, torch.ones_like(four, dtype=torch.bool), 1.0))
    weights = [corridor_weight(k, 40) for k in (0, 10, 20, 40)]

    def of(values: Tensor) -> Tensor:
        return entropy_corridor(entropy_of(values)[None, None], torch.ones(1, 1, dtype=torch.bool), 1.0)

    logits = torch.tensor([2.0, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(of(logits), logits)
    h, eye = 1e-6, torch.eye(3, dtype=torch.float64)
    numeric = torch.stack([(of(logits.detach() + h * e) - of(logits.detach() - h * e)) / (2 * h) for e in eye])
    return {
        "penalty_error": abs(penalty - 0.15),
        "weight_error": float(np.abs(np.array(weights) - [2.0, 1.6065, 1.3679, 1.1353]).max()),
        "gradient_error": float((slope - torch.tensor([0.3353, -0.1676, -0.1676])).abs().max()),
        "finite_difference_error": float((slope - numeric).abs().max()),
    }


def train(kind: str, seed: int) -> tuple[float, float]:
    """Mean entropy and chance of a right step after training."""
    rng = np.random.default_rng(seed)
    right = torch.as_tensor(rng.integers(ACTIONS, size=STEPS))
    logits = torch.zeros(STEPS, ACTIONS, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(1, STEPS, dtype=torch.bool)
    history: list[float] = []
    keys = {"group": [0] * GROUP, "episode": range(GROUP), "agent": ["a"] * GROUP}
    for number in range(UPDATES):
        p = logits.detach().softmax(-1).numpy()
        action = torch.as_tensor((rng.random((GROUP, STEPS, 1)) >= p.cumsum(-1)[:, :-1]).sum(-1))
        reward = (action == right).double().mean(1).numpy()
        advantage = torch.as_tensor(np.asarray(grpo().evaluate(Turns(keys | {"reward": reward}))))
        chosen = logits.log_softmax(-1)[torch.arange(STEPS), action]
        entropy = entropy_of(logits)[None]
        loss = -(advantage[:, None] * chosen).mean()
        if kind == "bonus":
            loss = loss - WEIGHT * entropy.mean()
        elif kind == "corridor":
            past = float(np.mean(history)) if history else None
            loss = loss + epo_entropy(entropy, mask, past, step=number, steps=UPDATES, weight=WEIGHT)
        history.append(float(entropy.detach().mean()))
        (slope,) = torch.autograd.grad(loss, logits)
        with torch.no_grad():
            logits -= RATE * slope
    with torch.no_grad():
        return float(entropy_of(logits).mean()), float(logits.softmax(-1)[torch.arange(STEPS), right].mean())


@reproduction(
    166,
    claim="A hinge around the mean of past entropies, which has a gradient, holds entropy up more than a bonus does.",
    baseline="no entropy term, and an entropy bonus of the same weight",
    criterion="worked numbers to 1e-4, gradient equal to finite differences; entropy at the end higher than with the "
    "bonus in every seed",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then the three arms."""
    measured = worked()
    exact = max(measured.values()) <= 1e-4
    found = {kind: np.array([train(kind, seed) for seed in seeds]) for kind in ("none", "bonus", "corridor")}
    for kind, arm in found.items():
        measured |= {f"entropy_{kind}": float(arm[:, 0].mean()), f"right_{kind}": float(arm[:, 1].mean())}
    return Outcome(measured, exact and bool((found["corridor"][:, 0] > found["bonus"][:, 0]).all()))
