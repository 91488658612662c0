"""Predictions of neighbours: what counts, and what learns from which error."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from palaestra.agents.encoders import NeighbourEncoder
from palaestra.learning.agent_models import Trajectories
from palaestra.learning.agent_prediction import PredictiveEncoder, coming, masked_l1


def known(rows=12, turns=6):
    rng = np.random.default_rng(0)
    slots = np.concatenate([np.ones((rows, turns, 2, 1)), rng.random((rows, 1, 2, 2)).repeat(turns, 1)], axis=-1)
    return Trajectories(slots.reshape(rows, turns, 6).astype(np.float32), np.full(rows, turns))


def test_what_comes_ends_with_zeros():
    found = coming(torch.arange(1.0, 5.0).reshape(1, 4, 1, 1), 3).reshape(4, 3)
    assert found.tolist() == [[2, 3, 4], [3, 4, 0], [4, 0, 0], [0, 0, 0]]


def test_errors_of_nothing_are_zero():
    nothing = torch.zeros(1, 2, 1, 2, 3)
    assert float(masked_l1(nothing + 1, nothing, torch.ones(1, 2, 1, dtype=torch.bool))) == 0.0


def test_both_errors_fall():
    made = PredictiveEncoder(NeighbourEncoder(6, others=2, window=3), lr=0.01)
    seen = made.tensor(known(), np.arange(12))
    before = [float(each.detach()) for each in made.losses(seen)]
    made.fit(known(), np.random.default_rng(0), steps=40, batch=8)
    after = [float(each.detach()) for each in made.losses(seen)]
    assert after[0] < before[0] / 2
    assert after[1] < before[1] / 2


def test_trajectories_of_one_turn_teach_nothing():
    made = PredictiveEncoder(NeighbourEncoder(6, others=2))
    assert made.fit(known(turns=1), np.random.default_rng(0), steps=2, batch=4) == {}


def test_the_slow_copy_follows_and_a_stored_one_goes_on():
    made, other = (PredictiveEncoder(NeighbourEncoder(6, others=2, window=2)) for _ in range(2))
    made.fit(known(), np.random.default_rng(0), steps=2, batch=4)
    before = [each.clone() for each in made.slow.parameters()]
    made.follow(0.5)
    for old, slow, new in zip(before, made.slow.parameters(), made.encoder.parameters(), strict=True):
        torch.testing.assert_close(slow.detach(), (old + new.detach()) / 2)
    other.load_state_dict(copy.deepcopy(made.state_dict()))
    found = [each.fit(known(), np.random.default_rng(1), steps=2, batch=4) for each in (made, other)]
    assert found[0] == pytest.approx(found[1])


def test_an_error_is_the_mean_over_turns_in_which_somebody_is_there():
    """Two of four slots count: one whose number is present, of a neighbour that was there."""
    goal = torch.tensor([[[[[1.0, 4.0], [0.0, 9.0]], [[1.0, 2.0], [1.0, 8.0]]]]])
    there = torch.tensor([[[True, False]]])
    found = torch.ones_like(goal)
    assert masked_l1(found, goal, there).item() == pytest.approx((0 + 3) / 2)
    assert masked_l1(found, goal, torch.ones_like(there)).item() == pytest.approx((3 + 1 + 7) / 2 / 3)
    assert masked_l1(found, goal, torch.zeros_like(there)).item() == 0.0
