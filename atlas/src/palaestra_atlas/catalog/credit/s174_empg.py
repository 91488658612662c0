"""[174] EMPG (arXiv 2509.09265): confident turns count more, and turns that lead to confident ones earn a bonus.

The premise is exact: for a softmax over logits the mean squared gradient of log π is 1 - Σπ², so confident steps move a
policy little, and the weight exp(-k·H) makes up for it. A gain is not seen: on the key-door corridor the entropy
of a table says little about being wrong, and it is learned no sooner than with GRPO. Left out: language models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import empg
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

POLICIES = {(0.9, 0.1): 0.18, (0.5, 0.5): 0.5, (0.7, 0.2, 0.1): 0.46}
"""Policies, and the mean squared gradient worked out by hand."""
SETTING = {"learn": {"lr": 0.2}, "train": {"iterations": 25, "groups": 1, "group_size": 16}}


def worked_error() -> float:
    """Four turns of one episode with entropies .1, .5, 1, .4, worked out by hand for A = 1."""
    entropies = [0.1, 0.5, 1.0, 0.4]
    keys = {"group": [0] * 4, "episode": [0] * 4, "turn": range(4), "agent": ["walker"] * 4}
    credit = empg("reward", entropy="entropy").evaluate(Turns(keys | {"reward": [1.0] * 4, "entropy": entropies}))
    return float(np.abs(np.asarray(credit) - [0.4885, -0.0654, -0.4316, 0.0084]).max())


def squared_gradient(policy: Sequence[float]) -> float:
    """E‖∇ log π(a)‖² over a ~ π, from the gradients 1{a} - π themselves."""
    p = np.array(policy)
    return float((p * np.square(np.eye(len(p)) - p).sum(axis=1)).sum())


@reproduction(
    174,
    claim="The mean squared gradient of a softmax policy is 1 - Σπ², small where it is confident; EMPG's weight "
    "undoes that with mean 1. No gain is seen: the entropy of a table says little about errors.",
    baseline="GRPO, same seeds and learning rate; learning curves on the corridor are reported, not judged",
    criterion="worked advantages to 4 decimals; identity exact to 1e-12 and equal to the worked values",
    seeds=tuple(range(2000, 2020)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, the identity; then trained as by `palaestra train corridor credit="empg()"`."""
    error = worked_error()
    gradients = [squared_gradient(policy) for policy in POLICIES]
    identity = max(abs(g - (1 - np.square(p).sum())) for g, p in zip(gradients, POLICIES, strict=True))
    by_hand = max(abs(g - expected) for g, expected in zip(gradients, POLICIES.values(), strict=True))
    arms = train_arms(
        "corridor",
        {name: SETTING | {"credit": f"{name}()"} for name in ("empg", "grpo")},
        seeds,
        lambda learned: {"curve": np.mean(learned.curve()), "end": np.mean(learned.curve()[-5:])},
    )
    measured = {"worked_error": error, "identity_error": float(identity)} | arms.measured()
    return Outcome(measured, error <= 1e-4 and max(identity, by_hand) <= 1e-12)
