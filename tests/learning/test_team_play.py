"""Turns of a team side by side."""

from __future__ import annotations

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.learning.team_play import joined_play, smoothed, team_play

TURNS = Turns(
    {
        "group": [0, 0, 0, 1, 1],
        "episode": [0] * 5,
        "turn": [3, 3, 5, 0, 0],
        "agent": ["b", "a", "a", "a", "b"],
        "features": [[1.0], [2.0], [3.0], [4.0], [5.0]],
        "action_ids": [[1], [2], [3], [4], [5]],
        "reward": [0.1, 0.2, None, 0.4, 0.5],
        "terminated": [True, True, True, False, False],
    }
)


def test_rows_find_their_places() -> None:
    play = team_play(TURNS, ["a", "b"])
    assert play.seen[..., 0].tolist() == [[[2, 1], [3, 0]], [[4, 5], [0, 0]]]
    assert play.did.tolist() == [[[2, 1], [3, 0]], [[4, 5], [0, 0]]]
    np.testing.assert_allclose(play.paid, np.array([[[0.2, 0.1], [0, 0]], [[0.4, 0.5], [0, 0]]]))
    assert play.there.tolist() == [[[True, True], [True, False]], [[True, True], [False, False]]]
    assert play.ended.tolist() == [[False, True], [False, False]]


def test_episodes_of_several_lengths_are_joined() -> None:
    play = team_play(TURNS, ["a", "b"])
    short = team_play(Turns(TURNS.frame.tail(2)), ["a", "b"])
    found = joined_play(short, play, 2)
    np.testing.assert_array_equal(found.seen, play.seen)
    assert joined_play(play, short, 9).seen.shape == (3, 2, 2, 1)
    assert not joined_play(play, short, 9).there[2, 1].any()


def test_a_reward_is_spread_over_its_agent_and_episode_alone() -> None:
    paid = np.zeros((2, 5, 2))
    paid[0, 2, 0] = 3.0
    there = np.ones(paid.shape, bool)
    there[0, 4, 0] = False
    found = smoothed(paid, there, 2.0)
    assert (found[0, :4, 0] > 0).all()
    assert found[0, 4, 0] == 0
    assert not found[1].any()
    assert not found[..., 1].any()
    np.testing.assert_allclose(found.sum(), 3.0)
