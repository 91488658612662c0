"""SCoRe's credit against a loop, and what it must not depend on."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from palaestra.algebra.turns import Turns
from palaestra.credit import self_correction


def table(rights: list[tuple[int, int]]) -> Turns:
    n = len(rights)
    return Turns(
        {
            "iteration": [1] * 2 * n, "group": np.repeat(range(n), 2), "episode": [0] * 2 * n, "turn": [0, 1] * n,
            "look": [0, 1] * n, "right": np.array(rights, float).ravel(),
        }
    )  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=12), st.floats(0, 20))
def test_against_a_loop(rights: list[tuple[int, int]], alpha: float) -> None:
    found = np.asarray(self_correction(alpha=alpha).evaluate(table(rights))).reshape(-1, 2)
    first = np.array([one for one, _ in rights], float)
    second = np.array([other + alpha * (other - one) for one, other in rights])
    np.testing.assert_allclose(found[:, 0], first - first.mean(), atol=1e-9)
    np.testing.assert_allclose(found[:, 1], second - second.mean(), atol=1e-9)


def test_the_first_attempt_earns_nothing_by_what_comes_after_it() -> None:
    one, other = ([(0, 0), (1, 1)], [(0, 1), (1, 0)])
    first, second = (np.asarray(self_correction().evaluate(table(each)))[::2] for each in (one, other))
    np.testing.assert_array_equal(first, second)


def test_iterations_have_means_of_their_own_and_attempts_may_be_missing() -> None:
    """By hand, with α = 10, in any order of rows; the third episode of iteration 2 has no score of its first attempt.

    Iteration 1: first attempts 0 and 1, of which one was not repeated, mean .5; one second attempt, 11, less itself.
    Iteration 2: first attempts 1 and 1; second ones -10, 1 and, without a score to rise from, 1: a mean of -8/3.
    """
    rows = [  # iteration, episode, look, right, credit
        (1, 0, 0, 0.0, -0.5), (1, 0, 1, 1.0, 0.0), (1, 1, 0, 1.0, 0.5),
        (2, 0, 0, 1.0, 0.0), (2, 0, 1, 0.0, -10 + 8 / 3), (2, 1, 0, 1.0, 0.0), (2, 1, 1, 1.0, 1 + 8 / 3),
        (2, 2, 0, None, np.nan), (2, 2, 1, 1.0, 1 + 8 / 3),
    ]  # fmt: skip
    order = np.random.default_rng(0).permutation(len(rows))
    iteration, episode, look, right, credit = (list(each) for each in zip(*(rows[at] for at in order), strict=True))
    group = [10 * one + other for one, other in zip(iteration, episode, strict=True)]
    turns = {"iteration": iteration, "group": group, "episode": episode, "turn": look, "look": look, "right": right}
    np.testing.assert_allclose(np.asarray(self_correction().evaluate(Turns(turns))), credit, atol=1e-12)
