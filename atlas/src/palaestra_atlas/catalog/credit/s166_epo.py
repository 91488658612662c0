"""[166] EPO (arXiv 2509.22576): a corridor around past entropy keeps exploration up where a bonus alone does not.

The recipe `steps` with six steps of five actions, one of them right, paid by the share of right steps; a table of
logits. The arms differ in `learn.terms` alone. Shown is what the corridor does to entropy, which a larger bonus does as
well, and not the paper's gain in success: without premature collapse, as here, holding entropy up costs return. Left
out: language models, a task with premature collapse.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import torch
from torch import Tensor

from palaestra.agents import TabularPolicy, Team
from palaestra.envs.worlds.steps import Steps
from palaestra.learning import PolicyGradient
from palaestra.learning.losses import corridor_weight, entropy_corridor, epo_entropy
from palaestra.learning.terms.term import share_of_episodes
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

ARMS = {
    "none": ["surrogate()"],
    "bonus": ["surrogate()", "entropy(0.03)"],
    "large_bonus": ["surrogate()", "entropy(0.09)"],
    "corridor": ["surrogate()", "corridor(0.03)"],
}
SETTINGS = {
    "env": {"options": {"steps": 6, "actions": 5, "decisive": 6, "pay": "share"}},
    "train": {"iterations": 60, "group_size": 8},
}


def entropy_of(logits: Tensor) -> Tensor:
    """Nats, over the last axis."""
    log_p = logits.log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)


@exact
def worked_loss() -> None:
    """The card's four entropies about a past mean of 1: penalties .3, 0, .3, 0, twice whose mean is in the loss."""
    four, mask = torch.tensor([[0.5, 1.0, 1.5, 0.85]], dtype=torch.float64), torch.ones(1, 4, dtype=torch.bool)
    assert abs(float(entropy_corridor(four, mask, 1.0)) - 0.15) < 1e-9
    for each, expected in ((0.5, 0.3), (1.0, 0.0), (1.5, 0.3), (0.85, 0.0)):
        one = torch.tensor([[each]], dtype=torch.float64)
        assert abs(float(entropy_corridor(one, mask[:, :1], 1.0)) - expected) < 1e-9
    loss = epo_entropy(four, mask, 1.0, step=0, steps=40, weight=0.1)
    assert abs(float(loss) + 0.1 * (0.9625 - 2 * 0.15)) < 1e-9


@exact
def weights() -> None:
    """Beta at the updates 0, 10, 20 and 40 of 40."""
    found = [corridor_weight(k, 40) for k in (0, 10, 20, 40)]
    np.testing.assert_allclose(found, [2.0, 1.6065, 1.3679, 1.1353], atol=5e-5)


@exact
def hinge_gradient() -> None:
    """For logits 2, 0, 0 the gradient of the penalty is (.3353, -.1676, -.1676), as by finite differences."""

    def of(values: Tensor) -> Tensor:
        return entropy_corridor(entropy_of(values)[None, None], torch.ones(1, 1, dtype=torch.bool), 1.0)

    logits = torch.tensor([2.0, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(of(logits), logits)
    h, eye = 1e-6, torch.eye(3, dtype=torch.float64)
    numeric = torch.stack([(of(logits.detach() + h * e) - of(logits.detach() - h * e)) / (2 * h) for e in eye])
    np.testing.assert_allclose(slope, [0.3353, -0.1676, -0.1676], atol=1e-4)
    np.testing.assert_allclose(slope, numeric, atol=1e-6)


@exact
def means_of_means() -> None:
    """A turn of one token and one of nine count alike; episodes of one and two turns too."""
    entropy, mask = torch.full((2, 9), 3.0), torch.ones(2, 9, dtype=torch.bool)
    entropy[0, 0], mask[0, 1:] = 1.0, False
    for history, penalty in ((None, 0.0), (1.0, (0.0 + 1.8) / 2)):
        found = float(epo_entropy(entropy, mask, history, step=0, steps=10, weight=1.0))
        assert abs(found + (1 + 3) / 2 - 2 * penalty) < 1e-5
    share = torch.from_numpy(share_of_episodes(pl.DataFrame({"group": [0] * 3, "episode": [0, 1, 1]})))
    one = torch.ones(3, 1, dtype=torch.bool)
    held = float(epo_entropy(torch.tensor([[1.0], [2.0], [4.0]]), one, None, step=0, steps=9, weight=1.0, share=share))
    assert abs(held + (1 + 3) / 2) < 1e-5


@exact
def learner_returns() -> None:
    """After an update at low entropy, a learner whose entropy stands high above it brings it down, bonus or not."""
    team = Team(chooser=TabularPolicy(5, name="chooser"))
    policy = team.policies["chooser"]
    turns = rollout(lambda: Steps(steps=2, actions=5), team, groups=1, group_size=4)
    turns = turns.with_column(advantage=np.tile([1e-6, -1e-6], len(turns) // 2))
    policy.meet(turns.frame)  # type: ignore[attr-defined]
    learner = PolicyGradient(team, ["surrogate()", "corridor(1.0)"], lr=0.1, betas=(0.0, 0.999), updates=40)
    logits, found = policy.module.get_parameter("logits"), []  # type: ignore[attr-defined]
    for preference in (6.0, 1.5):
        logits.data[:] = 0.0
        logits.data[:, 0] = preference
        before = float(entropy_of(logits[0].detach()))
        learner.update(turns)
        found.append((before, float(entropy_of(logits[0].detach()))))
    (first, _), (high, after) = found
    assert first < 0.2 < 1.3 < high
    assert after < high - 1e-3


@reproduction(
    166,
    claim="A hinge around the mean of past entropies, which has a gradient, holds entropy up more than a bonus does.",
    baseline="no entropy term, and an entropy bonus of the same weight; one of three times the weight is reported",
    criterion="entropy of the played actions at the end of training higher than with the bonus in every seed",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The four arms."""
    arms = train_arms(
        "steps", {name: SETTINGS | {"learn": {"lr": 0.1, "terms": terms}} for name, terms in ARMS.items()}, seeds,
        lambda learned: {"entropy": float(np.mean(learned.curve("policies.chooser.entropy")[-5:])),
                         "right": float(np.mean(learned.curve("reward")[-5:]))},
    )  # fmt: skip
    higher = arms.values["corridor"]["entropy"] > arms.values["bonus"]["entropy"]
    return Outcome(arms.measured(), bool(higher.all()))
