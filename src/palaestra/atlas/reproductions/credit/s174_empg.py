"""[174] EMPG (arXiv 2509.09265): confident turns count more, and turns that lead to confident ones earn a bonus.

The premise is exact: for a softmax over logits the mean squared gradient of log π is 1 - Σπ², so confident steps move a
policy little, and the weight exp(-k·H) makes up for it. A gain is not seen at this scale: on the key-door corridor of
[62] the entropy of a table says little about being wrong. Left out: language models, whose entropy does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.credit.s062_gigpo import Play, train
from palaestra.atlas.reproductions.tabular import compare
from palaestra.credit import empg, grpo

POLICIES = {(0.9, 0.1): 0.18, (0.5, 0.5): 0.5, (0.7, 0.2, 0.1): 0.46}
"""Policies, and the mean squared gradient worked out by hand."""


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


def with_entropy(batch: Play, policy: np.ndarray) -> dict[str, np.ndarray]:
    """Entropy of the policy in each turn."""
    return {"entropy": -(policy * np.log(policy)).sum(axis=-1)[batch.run, batch.state]}


@reproduction(
    174,
    claim="The mean squared gradient of a softmax policy is 1 - Σπ², small where it is confident; EMPG's weight "
    "undoes that with mean 1. A faster corridor is not seen, as tabular entropy says little about errors.",
    baseline="GRPO, same episodes and learning rate",
    criterion="worked advantages to 4 decimals; identity exact to 1e-12 and equal to the worked values; learning "
    "curves are reported, not judged",
    seeds=tuple(range(10)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, the identity, then both arms on the corridor."""
    error = worked_error()
    gradients = [squared_gradient(policy) for policy in POLICIES]
    identity = max(abs(g - (1 - np.square(p).sum())) for g, p in zip(gradients, POLICIES, strict=True))
    by_hand = max(abs(g - expected) for g, expected in zip(gradients, POLICIES.values(), strict=True))
    ours = train(empg(entropy="entropy", bonus=0.05), seeds, columns=with_entropy).success.mean(axis=0)
    theirs = train(grpo(), seeds).success.mean(axis=0)
    gain, standard_error = compare(ours, theirs)
    measured = {
        "worked_error": error,
        "identity_error": float(identity),
        "curve_mean_empg": float(ours.mean()),
        "curve_mean_grpo": float(theirs.mean()),
        "gain": gain,
        "standard_error": standard_error,
    }
    return Outcome(measured, error <= 1e-4 and max(identity, by_hand) <= 1e-12)
