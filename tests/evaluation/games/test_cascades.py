"""Cascades of position auctions: bids, sizes and bad input."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.evaluation.games.cascades import assign_cascade, best_cascade, by_value, cascade_payments, cascade_rates


def test_no_bidder_gains_by_another_bid_than_its_value() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        values, chances = rng.uniform(0, 5, 4), rng.uniform(0, 0.8, (4, 3))
        honest = values * best_cascade(values, chances).clicks - cascade_payments(values, chances)
        assert (honest >= -1e-9).all()
        for i in range(4):
            for factor in (0.4, 0.8, 1.4):
                bids = np.where(np.arange(4) == i, factor * values, values)
                gain = values * best_cascade(bids, chances).clicks - cascade_payments(bids, chances)
                assert gain[i] <= honest[i] + 1e-9


def test_the_most_valuable_is_read_first_for_any_placement() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        values, chances, slots = rng.uniform(0, 5, 4), rng.uniform(0, 1, (4, 4)), rng.permutation(4)
        best = values @ cascade_rates(slots, chances, by_value(values))
        assert best >= values @ cascade_rates(slots, chances, rng.permutation(4)) - 1e-12


def test_the_approximation_reaches_the_exact_welfare_in_larger_instances() -> None:
    rng = np.random.default_rng(2)
    values, chances = rng.uniform(0.5, 5, 15), rng.uniform(0, 0.6, (15, 6))
    assert assign_cascade(values, chances).welfare == pytest.approx(best_cascade(values, chances).welfare, rel=0.02)


def test_nobody() -> None:
    for solve in (assign_cascade, best_cascade):
        assert solve(np.zeros(0), np.zeros((0, 2))).welfare == 0
        assert solve(np.ones(2), np.zeros((2, 1))).slots.tolist() == [-1, -1]


def test_bad_input() -> None:
    with pytest.raises(InputError, match="at most 1"):
        assign_cascade(np.ones(1), np.array([[1.5]]))
    with pytest.raises(InputError, match="11 slots"):
        best_cascade(np.ones(1), np.full((1, 11), 0.1))
