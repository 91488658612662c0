"""Contrast between pieces of trajectories."""

from __future__ import annotations

import copy

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents.encoders import PrefixEncoder
from palaestra.algebra.turns import Turns
from palaestra.learning import agent_models
from palaestra.learning.agent_models import (
    ContrastiveEncoder,
    Trajectories,
    crop,
    effective_rank,
    info_nce,
    joined,
    mask_steps,
    pieces,
    trajectories,
)


@pytest.mark.parametrize(("tau", "value"), [(1.0, 0.31326), (0.5, 0.12693), (0.1, 4.54e-5)])
def test_two_orthogonal_pairs(tau, value):
    pairs = torch.eye(2, dtype=torch.double)
    assert float(info_nce(pairs, 3 * pairs, tau)) == pytest.approx(value, rel=1e-4)


def numbered(lengths, longest=12):
    seen = np.tile(np.arange(1, longest + 1, dtype=np.float32), (len(lengths), 1))
    seen[seen > np.array(lengths)[:, None]] = 0
    return Trajectories(seen[..., None], np.array(lengths))


def test_pieces_are_turns_in_order_ending_where_they_shall():
    found = pieces(numbered([6, 12]), np.array([5, 12]), np.array([2, 4]), 4)
    assert found[0].tolist() == [[0, 0], [0, 0], [1, 4], [1, 5]]
    assert found[1].tolist() == [[1, 9], [1, 10], [1, 11], [1, 12]]


def test_crops_stay_inside_and_begin_everywhere():
    known = numbered([6] * 300 + [9] * 300)
    found = crop(known, np.random.default_rng(0), steps=8, least=3)
    there = found[..., 0] > 0
    assert set(there.sum(axis=1)) == {3, 4, 5, 6}
    inside = np.where(there, found[..., 1], np.nan)
    assert np.nanmin(inside) == 1
    assert set(np.nanmax(inside, axis=1)) == set(range(3, 10))
    assert (np.nanmax(inside[:300], axis=1) <= 6).all()


def test_a_mask_never_hides_everything():
    window = crop(numbered([10] * 200), np.random.default_rng(0), steps=8, least=2)
    masked = mask_steps(window, 0.95, np.random.default_rng(1))
    assert ((masked[..., 1] > 0).sum(axis=1) >= 1).all()
    assert (masked[..., 0] == window[..., 0]).all()
    assert (mask_steps(window, 0.0, np.random.default_rng(1)) == window).all()


def test_one_trajectory_of_each_episode_in_any_order_of_rows():
    rows = pl.DataFrame([
        {"group": g, "episode": e, "turn": t, "agent": a}
        for g in range(2) for e in range(2) for t in range(3) for a in ("x", "y")
    ]).sample(fraction=1.0, shuffle=True, seed=0)  # fmt: skip
    seen = np.stack([2 * rows["group"] + rows["episode"], (rows["agent"] == "y").cast(int), rows["turn"]], axis=1)
    found = trajectories(Turns(rows), seen.astype(np.float32), np.random.default_rng(0))
    assert found.lengths.tolist() == [3] * 4
    assert sorted(found.seen[:, 0, 0]) == [0, 1, 2, 3]
    assert (found.seen[..., 2] == np.arange(3)).all()
    assert (found.seen[..., 1] == found.seen[:, :1, 1]).all()


def test_the_newest_trajectories_are_kept():
    both = joined(numbered([2, 3], 3), numbered([5], 5), 2)
    assert both.lengths.tolist() == [3, 5]
    assert both.seen.shape == (2, 5, 1)


def test_it_goes_on_after_a_stop():
    known = numbered(list(range(8, 13)) * 6)
    made = [ContrastiveEncoder(PrefixEncoder(1, 8, 3), inputs=3, steps=8, least=3) for _ in range(2)]
    made[0].fit(known, np.random.default_rng(0), steps=3, batch=8)
    made[0].follow(0.5)
    made[1].load_state_dict(copy.deepcopy(made[0].state_dict()))
    ends = [each.fit(known, np.random.default_rng(1), steps=2, batch=8) for each in made]
    assert ends[0] == ends[1]


def test_nothing_is_learned_from_fewer_than_two():
    made = ContrastiveEncoder(PrefixEncoder(1, 8, 3), inputs=3, steps=8)
    for lengths in ([9], [1, 1, 1]):
        assert made.fit(numbered(lengths), np.random.default_rng(0), steps=2, batch=8) == {}


def test_the_rank_of_one_direction_is_one():
    assert effective_rank(np.outer(np.arange(5.0), np.ones(3))) == pytest.approx(1.0)
    assert effective_rank(np.zeros((4, 3))) == pytest.approx(1.0)


def test_beyond_the_end_of_a_trajectory_there_is_nothing():
    lengths = [3, 1, 2]
    rows = pl.DataFrame([
        {"group": 0, "episode": e, "turn": t, "agent": "x"} for e, length in enumerate(lengths) for t in range(length)
    ])  # fmt: skip
    seen = np.arange(1.0, 7.0, dtype=np.float32)[:, None]
    found = trajectories(Turns(rows), seen, np.random.default_rng(0))
    assert found.lengths.tolist() == lengths
    assert found.seen[..., 0].tolist() == [[1, 2, 3], [4, 0, 0], [5, 6, 0]]


def test_a_margin_is_how_much_more_partners_agree_than_others():
    """Cosines are 1 in the diagonal, and 0, 0, .6, .6, .8, .8 beside it."""
    pairs = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.6, 0.8]])
    assert agent_models._margin(pairs, 3 * pairs) == pytest.approx(1 - 2 * (0.6 + 0.8) / 6)
