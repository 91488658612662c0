"""[166] EPO (arXiv 2509.22576): a corridor around past entropy keeps exploration up where a bonus alone does not.

The recipe `steps` with six steps of five actions, one of them right, paid by the share of right steps; a table of
logits trained by GRPO. The arms differ in `learn.terms` alone. Claimed is what the corridor does to entropy, not to the
return: without premature collapse, as here, holding entropy up costs return. Left out: language models, a task with
premature collapse.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from palaestra.learning.losses import corridor_weight, entropy_corridor
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

ARMS = {
    "none": ["surrogate()"],
    "bonus": ["surrogate()", "entropy(0.03)"],
    "corridor": ["surrogate()", "corridor(0.03)"],
}
SETTINGS = {
    "env": {"options": {"steps": 6, "actions": 5, "decisive": 6, "pay": "share"}},
    "credit": "grpo()",
    "train": {"iterations": 60, "group_size": 8},
}


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


@reproduction(
    166,
    claim="A hinge around the mean of past entropies, which has a gradient, holds entropy up more than a bonus does.",
    baseline="no entropy term, and an entropy bonus of the same weight",
    criterion="worked numbers to 1e-4, gradient equal to finite differences; entropy of the played actions at the end "
    "of training higher than with the bonus in every seed",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then the three arms."""
    measured = worked()
    exact = max(measured.values()) <= 1e-4
    arms = train_arms(
        "steps", {name: SETTINGS | {"learn": {"lr": 0.1, "terms": terms}} for name, terms in ARMS.items()}, seeds,
        lambda learned: {"entropy": float(np.mean(learned.curve("policies.chooser.entropy")[-5:])),
                         "right": float(np.mean(learned.curve("reward")[-5:]))},
    )  # fmt: skip
    higher = arms.values["corridor"]["entropy"] > arms.values["bonus"]["entropy"]
    return Outcome(measured | arms.measured(), bool(exact and higher.all()))
