"""Splitting of shared parameters while a team learns."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from palaestra.agents import MLPPolicy, SplitMLPPolicy, Team
from palaestra.envs.worlds import HiddenRoles
from palaestra.errors import InputError
from palaestra.learning.gradient_sharing import GradientSharing
from palaestra.play.rollout import rollout

SEATS = [f"player_{number}" for number in range(6)]


def played(**options):
    policy = SplitMLPPolicy(6, 4, keys=SEATS, hidden=(8, 8), sets=3, name="players")
    team = Team(dict.fromkeys(SEATS, policy))
    turns = rollout(HiddenRoles, team, groups=32, seed=0)
    turns = turns.with_column(advantage=turns["reward"] - turns["reward"].mean())
    return policy, GradientSharing(team, lr=0.01, **options), turns


def test_roles_are_told_apart_once():
    policy, learner, turns = played(after=2, every=2, batches=2)
    first = learner.update(turns)["players"]
    assert first["sets"] == 1
    assert -1 <= first["agreement"] <= 1
    assert learner.update(turns)["players"]["sets"] == 2
    assert sorted(policy.groups().values()) == [SEATS[0::2], SEATS[1::2]]
    for _ in range(4):
        later = learner.update(turns)["players"]
    assert (later["sets"], later["agreement"]) == (2, None)


def test_seats_that_agree_may_stay_together():
    policy, learner, turns = played(after=1, every=1, batches=1, apart=1.9)
    learner.update(turns)
    assert policy.groups() == {0: SEATS}


def test_it_goes_on_from_a_state():
    policy, learner, turns = played(after=3, every=3, batches=3)
    for _ in range(2):
        learner.update(turns)
    other, again, _ = played(after=3, every=3, batches=3)
    other.load_state_dict({name: each.clone() for name, each in policy.state_dict().items()})
    again.restore(copy.deepcopy(learner.state()))
    learner.update(turns)
    again.update(turns)
    assert policy.groups() == other.groups()
    assert len(policy.groups()) == 2
    for name, each in policy.state_dict().items():
        np.testing.assert_allclose(each, other.state_dict()[name], atol=1e-6)


def test_what_cannot_work_is_named():
    with pytest.raises(InputError, match="batches=5"):
        played(after=2)
    with pytest.raises(InputError, match="split_mlp"):
        GradientSharing(Team(a=MLPPolicy(2, 2)))


def test_a_frozen_policy_is_not_split():
    players = SplitMLPPolicy(6, 4, keys=SEATS[1:], hidden=(8, 8), sets=3, name="players")
    other = SplitMLPPolicy(6, 4, keys=SEATS[:1], hidden=(8, 8), sets=3, name="other")
    team = Team(dict.fromkeys(SEATS[1:], players) | {SEATS[0]: other})
    turns = rollout(HiddenRoles, team, groups=4, seed=0)
    turns = turns.with_column(advantage=turns["reward"] - turns["reward"].mean())
    learner = GradientSharing(team, freeze=["other"], after=1, every=1, batches=1)
    assert learner.update(turns)["players"]["sets"] == 2
    with pytest.raises(InputError, match="split_mlp policy that learns"):
        GradientSharing(Team(a=MLPPolicy(6, 4), b=players), freeze=["players"])


def test_there_are_never_more_sets_than_allowed():
    policy, learner, turns = played(after=1, every=1, batches=1, splits=3)
    policy.sets = 2
    for _ in range(4):
        learner.update(turns)
    assert len(policy.groups()) == 2


@pytest.mark.parametrize(("apart", "sets"), [(0.6, 2), (1.9, 1)])
def test_what_counts_is_how_far_the_two_halves_are_from_each_other(apart, sets):
    """Seats of one role lie closer together than that, seats of both roles farther apart."""
    policy, learner, turns = played(after=1, every=1, batches=1, apart=apart)
    learner.update(turns)
    assert len(policy.groups()) == sets


def test_a_second_split_comes_so_many_updates_after_the_first():
    _, learner, turns = played(after=2, every=3, batches=1, splits=2, least=1)
    found = [learner.update(turns)["players"] for _ in range(5)]
    assert [each["agreement"] is not None for each in found] == [False, True, False, False, True]
    assert [each["sets"] for each in found[:4]] == [1, 2, 2, 2]
