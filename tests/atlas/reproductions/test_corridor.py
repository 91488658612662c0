"""The private corridor keeps its rules."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.atlas.reproductions.corridor import GROUP, HORIZON, play, train
from palaestra.credit import gigpo

LEFT, RIGHT, WAIT = range(3)


def always(actions: list[int]) -> np.ndarray:
    """The policy of one run that takes this action in each of the 14 states."""
    return np.eye(3)[actions][None]


def test_key_then_door_takes_nine_turns_and_only_the_door_pays() -> None:
    batch = play(always([LEFT] * 7 + [RIGHT] * 7), [np.random.default_rng(0)])
    one = batch.episode == 0
    assert len(batch.run) == 9 * GROUP
    assert batch.state[one].tolist() == [3, 2, 1, 7, 8, 9, 10, 11, 12]
    assert batch.reward[one].tolist() == [0] * 8 + [1]


@pytest.mark.parametrize("action", [LEFT, RIGHT, WAIT])
def test_the_door_stays_shut_without_the_key_and_the_walls_hold(action: int) -> None:
    batch = play(always([action] * 14), [np.random.default_rng(0)])
    assert len(batch.run) == HORIZON * GROUP
    assert batch.reward.sum() == 0
    assert batch.state.max() < 14


def test_the_table_says_which_run_and_where() -> None:
    batch = play(np.full((2, 14, 3), 1 / 3), [np.random.default_rng(0), np.random.default_rng(1)])
    turns = batch.turns()
    assert turns["run"].n_unique() == 2
    assert turns["episode"].n_unique() == GROUP
    assert turns.divergent_groups().is_empty()


def test_a_run_does_not_depend_on_its_neighbours() -> None:
    credit = gigpo()
    together, alone = train(credit, [3, 4], 5), train(credit, [4], 5)
    np.testing.assert_array_equal(together.length[:, 1], alone.length[:, 0])
