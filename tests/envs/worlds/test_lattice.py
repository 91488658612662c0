"""A dilemma on a torus: neighbours, payoffs, what is seen."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.envs.worlds import Lattice
from palaestra.errors import InputError


def played(moves, **options):
    env = Lattice(size=3, **options)
    env.reset(0)
    return env, env.step(dict(zip(env.agents, np.ravel(moves).tolist(), strict=True)))


def test_a_cell_is_paid_by_its_four_neighbours():
    """The middle cooperates alone; only the cells beside it gain, corners do not touch it."""
    moves = np.ones((3, 3), int)
    moves[1, 1] = 0
    env, result = played(moves, payoffs=(3, 0, 5, 1))
    paid = np.array([result.rewards[agent] for agent in env.agents]).reshape(3, 3)
    assert paid.tolist() == [[4, 8, 4], [8, 0, 8], [4, 8, 4]]
    assert result.info["cooperated"]["cell_4"] == 1
    assert sum(result.info["cooperated"].values()) == 1


def test_what_is_illegal_defects_and_unison_is_success():
    _, result = played(["cooperate"] * 8 + ["nonsense"], rounds=1)
    assert result.info["success"] is False
    assert result.rewards["cell_8"] == pytest.approx(4 * 1.2)
    _, unison = played([0] * 9, rounds=1)
    assert unison.info["success"] is True
    assert unison.terminated


def test_the_text_says_what_the_array_says():
    env = Lattice(size=4)
    for seen in env.reset(5).values():
        assert [letter == "C" for letter in seen.text] == (seen.array == 1).tolist()


@pytest.mark.parametrize("options", [{"size": 2}, {"rounds": 0}, {"dilemma": -1.0}, {"payoffs": (1, 2)}])
def test_numbers_out_of_range_are_named(options):
    with pytest.raises(InputError, match="Lattice"):
        Lattice(**options)
