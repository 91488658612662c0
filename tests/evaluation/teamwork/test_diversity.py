from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.evaluation.teamwork import (
    added_channels,
    channels,
    diverse_members,
    effective_channels,
    vote_accuracy,
)

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # what is 0 / 0 is left out before it is divided


def with_cosine(n, c):
    """n unit vectors, pairwise cosine c."""
    return np.linalg.cholesky(np.full((n, n), c) + (1 - c + 1e-15) * np.eye(n))


@pytest.mark.parametrize(
    ("n", "c", "expected"), [(4, 0.0, 4.0), (4, 0.5, 2.9257), (4, 0.9, 1.4173), (4, 1.0, 1.0), (16, 0.9, 1.7595)]
)
def test_the_worked_numbers(n, c, expected):
    assert effective_channels(with_cosine(n, c)) == pytest.approx(expected, abs=1e-4)


def test_two_blocks_of_two():
    block = with_cosine(2, 0.9)
    assert effective_channels(np.block([[block, np.zeros((2, 2))], [np.zeros((2, 2)), block]])) == pytest.approx(
        2.4392, abs=1e-4
    )


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 1000))
def test_between_one_and_what_the_space_holds_and_the_same_turned_or_scaled(n, d, seed):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, d))
    found = effective_channels(vectors)
    assert 1 - 1e-9 <= found <= min(n, d) + 1e-9
    turned = np.linalg.qr(rng.normal(size=(d, d)))[0]
    assert effective_channels(vectors @ turned * rng.uniform(0.5, 2, (n, 1))) == pytest.approx(found)


def test_nothing_is_one_and_what_is_no_vector_is_named():
    assert effective_channels(np.zeros((0, 3))) == effective_channels(np.zeros((2, 3))) == 1.0
    assert effective_channels(np.eye(3), [1, 1, 0]) == pytest.approx(2.0)
    assert effective_channels([[1.0, 0.0], [0.0, 0.0], [0.0, 3.0]]) == pytest.approx(2.0)
    assert effective_channels(np.eye(2), [0, 0]) == 1.0
    with pytest.raises(InputError, match="finite"):
        effective_channels([[np.nan]])
    with pytest.raises(InputError, match="weights"):
        effective_channels(np.eye(2), [1])


def test_channels_of_rounds_and_of_the_right_ones():
    turns = Turns({"group": [0] * 4, "turn": [0, 0, 0, 1], "score": [1.0, 1.0, 0.0, None],
                   "embedding": [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]})  # fmt: skip
    rows = channels(turns).rows(named=True)
    assert rows[0]["channels_right"] == pytest.approx(2.0)
    assert rows[0]["channels_wrong"] == pytest.approx(1.0)
    assert rows[0]["effective"] == pytest.approx(1.5)
    assert rows[1]["channels"] == 1.0
    assert rows[1]["channels_right"] is None


def test_two_that_differ_beat_sixteen_that_do_not():
    assert vote_accuracy(0.7, 2, 0.0) == pytest.approx(0.839, abs=5e-4)
    assert vote_accuracy(0.7, 2, 0.5) == pytest.approx(0.790, abs=1e-3)
    rng = np.random.default_rng(0)
    for n, rho in ((4, 0.5), (16, 0.9)):
        noise = np.sqrt(rho) * rng.normal(size=(40_000, 1)) + np.sqrt(1 - rho) * rng.normal(size=(40_000, n))
        share = ((0.7 + noise).mean(1) > 0).mean()
        assert share == pytest.approx(vote_accuracy(0.7, n, rho), abs=3 * 0.5 / 200)
    with pytest.raises(InputError, match="correlation"):
        vote_accuracy(0.7, 2, 1.5)


def test_an_answer_of_which_nobody_knows_whether_it_is_right_is_in_neither():
    turns = {"group": [0] * 3, "episode": [0, 1, 2], "turn": [0] * 3, "embedding": [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]}
    for unknown in (None, float("nan")):
        row = channels(Turns({**turns, "score": [1.0, unknown, unknown]})).row(0, named=True)
        assert (row["channels_right"], row["channels_wrong"]) == (pytest.approx(1.0), None)


def test_a_copy_adds_nothing_and_the_odd_one_out_is_taken_first():
    turns = Turns(
        {"group": [0] * 3, "turn": [0] * 3, "agent": list("abc"), "embedding": [[1.0, 0.0]] * 2 + [[0.0, 1.0]]}
    )
    added = dict(added_channels(turns).select("agent", "added").iter_rows())
    assert added["a"] < 0 < added["c"]
    assert diverse_members(turns, 2)["agent"].to_list()[0] == "c"
    assert diverse_members(turns, 9)["channels"].to_list()[1] == pytest.approx(2.0)
    with pytest.raises(InputError):
        diverse_members(turns, 0)
