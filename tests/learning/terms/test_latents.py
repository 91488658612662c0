"""Terms of policies that draw a latent: the information bonus and the classifier of games."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from palaestra.agents import MLPPolicy, RelationalPolicy, Team
from palaestra.envs.worlds import RingWalkers
from palaestra.errors import ExpressionError, InputError
from palaestra.learning import PolicyGradient
from palaestra.learning.terms import information, latent_information, task_classifier
from palaestra.play.rollout import rollout

CLASSIFIER = "task_classifier('size', [3, 6], weight=1.0)"


def made(**options):
    return RelationalPolicy(6 + 3 * 5, 10, **{"own": 6, "game": 6, "each": 3, "latents": 3} | options)


def played(policy, groups=6):
    def world():
        return RingWalkers(sizes=[3, 6], seats=6)

    return rollout(world, Team(dict.fromkeys(world().agents, policy)), groups=groups, seed=0)


def updated(policy, terms, turns, **options):
    """Names of the parts that one update moved, and its metrics."""
    before = {name: each.clone() for name, each in policy.state_dict().items()}
    (metrics,) = PolicyGradient(Team({"a": policy}), terms, lr=0.01, **options).update(turns).values()
    moved = {name.split(".")[0] for name, each in policy.state_dict().items() if not each.equal(before[name])}
    return moved, metrics


def test_a_bound_with_weights():
    p = torch.tensor([[0.9, 0.1, 0.1, 0.1, 0.1]], dtype=torch.double)
    equal = latent_information(p.log(), torch.zeros(1, dtype=torch.int64))
    assert equal.item() == pytest.approx(np.log(0.9 * 5 / 1.3))
    weights = torch.tensor([[0.6, 0.1, 0.1, 0.1, 0.1]], dtype=torch.double)
    mixed = latent_information(p.log(), torch.zeros(1, dtype=torch.int64), weights)
    assert mixed.item() == pytest.approx(np.log(0.9 / (0.6 * 0.9 + 0.4 * 0.1)))
    assert latent_information(p.log(), torch.ones(1, dtype=torch.int64)).item() < 0


@pytest.mark.parametrize("prior", ["uniform", "game"])
def test_the_bonus_is_the_mean_over_rows_and_latents_and_moves_the_relation_alone(prior):
    policy = made()
    with torch.no_grad():
        policy.part("encoder").weight.normal_(std=0.3)
    turns = played(policy)
    features = policy.features_of_rows(turns.frame)
    logp = torch.log_softmax(policy.choice_logits(features, policy.every_latent(features)), -1).detach()
    chances = torch.softmax(policy.latent_logits(features), -1).detach()
    weights = chances if prior == "game" else torch.full_like(chances, 1 / 3)
    expected = 0.0
    for row, each in enumerate(logp):
        for z, law in enumerate(each):
            a = law.argmax()
            expected += float(weights[row, z] * (law[a] - (weights[row] * each[:, a].exp()).sum().log())) / len(logp)
    moved, metrics = updated(policy, f"information(1.0, prior='{prior}')", turns)
    assert metrics["information"] == pytest.approx(expected, abs=1e-5)
    assert moved == {"relation"}


def test_the_classifier_moves_encoder_and_relation_and_counts_only_known_games():
    policy = made()
    turns = played(policy)
    moved, metrics = updated(policy, CLASSIFIER, turns)
    assert moved == {"relation", "encoder"}
    assert 0 <= metrics["told_rightly"] <= 1
    few, _ = updated(policy, "task_classifier('size', [4, 5], weight=1.0)", turns)
    assert not few, "no row is of these games"


def test_small_pieces_make_the_same_loss():
    losses = []
    for tokens in (8192, 8):
        policy = made()
        turns = played(policy)
        _, metrics = updated(policy, f"information(0.5), {CLASSIFIER}", turns, chunk_tokens=tokens)
        losses.append([metrics["information"], metrics["told_rightly"]])
    np.testing.assert_allclose(losses[0], losses[1], atol=1e-5)


def test_other_policies_and_values_are_refused():
    walker = MLPPolicy(21, 10)
    turns = played(walker)
    for terms in ("information()", CLASSIFIER):
        with pytest.raises(InputError, match="kind 'relational'"):
            PolicyGradient(Team({"a": walker}), terms).update(turns)
    with pytest.raises(InputError, match="two different games"):
        task_classifier("size", [3])
    with pytest.raises((InputError, ExpressionError)):
        information(-1.0)
    with pytest.raises((InputError, ExpressionError)):
        information(prior="mine")
