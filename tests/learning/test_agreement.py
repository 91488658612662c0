"""Distances between gradients, and partitions by them."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.agents import MLPPolicy, Team
from palaestra.envs.worlds import HiddenRoles
from palaestra.errors import InputError
from palaestra.learning import PolicyGradient
from palaestra.learning.agreement import cosine_distance, first_split, gradient_agreement, split
from palaestra.play.rollout import rollout


def test_a_gradient_of_nothing_is_at_distance_one():
    assert cosine_distance(np.array([[3.0, 0.0], [0.0, 0.0]])).tolist() == [[0, 1], [1, 0]]


def test_opposite_directions_are_apart_whatever_their_lengths():
    found = cosine_distance(np.array([[1.0, 0.0], [5.0, 0.0], [-2.0, 0.0]]))
    np.testing.assert_allclose(found, [[0, 0, 2], [0, 0, 2], [2, 2, 0]], atol=1e-5)


def test_the_smaller_part_has_at_least_so_many_members():
    distance = np.ones((5, 5)) - np.eye(5)
    distance[:4, :4] = 0
    assert split(distance, least=1).labels.tolist() == [0, 0, 0, 0, 1]
    assert split(distance).labels.sum() in (2, 3)
    with pytest.raises(InputError, match="at least 4"):
        split(distance[:3, :3])


def test_twenty_members_are_the_most_that_are_tried():
    labels = np.arange(20) % 2
    distance = (labels[:, None] != labels).astype(float)
    assert split(distance, least=10).labels.tolist() == labels.tolist()
    with pytest.raises(InputError, match="21 members"):
        split(np.zeros((21, 21)))


def test_places_that_are_too_small_are_not_split():
    assert first_split({"small": np.zeros((3, 3))}) is None


def test_it_measures_any_policy_and_moves_nothing():
    policy = MLPPolicy(10, 4, hidden=(8,), name="players")
    env = HiddenRoles(features=10)
    team = Team(dict.fromkeys(env.agents, policy))
    turns = rollout(lambda: HiddenRoles(features=10), team, groups=8, seed=0)
    turns = turns.with_column(advantage=turns["reward"] - turns["reward"].mean())
    learner = PolicyGradient(team, lr=0.1)
    before = {name: each.clone() for name, each in policy.state_dict().items()}
    found = gradient_agreement(learner, turns, by="role")["players"]
    assert found.names == ["0", "1"]
    assert 0 < found.distance[0, 1] <= 2
    learner.optim_step()
    assert all((policy.state_dict()[name] == each).all() for name, each in before.items())
