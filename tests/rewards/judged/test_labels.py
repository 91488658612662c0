"""Step labels and best-of-n: worked numbers, the share of wrong labels, missing values."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError
from palaestra.rewards import best_of_n, hard_negatives, potential_label, value_label

WALK = Turns({
    "group": [0] * 7, "episode": [0, 0, 0, 1, 1, 2, 2], "turn": [0, 1, 2, 0, 1, 0, 1], "agent": ["a"] * 7,
    "value": [0.4, 0.0, 0.6, 0.2, 0.0, 0.5, 0.5], "success": [False] * 3 + [True] * 2 + [None] * 2,
})  # fmt: skip


def test_all_steps_of_a_success_and_the_steps_of_a_failure_that_could_still_end_well() -> None:
    assert potential_label().evaluate(WALK) == pytest.approx([0, 1, 0, 1, 1, np.nan, np.nan], nan_ok=True)


def test_the_value_of_a_step_is_that_of_the_turn_behind_it_and_at_the_end_the_outcome() -> None:
    assert value_label().evaluate(WALK) == pytest.approx([0, 0.6, 0, 0, 1, 0.5, np.nan], nan_ok=True)


@pytest.mark.parametrize(("q", "wrong"), [(0.1, 0.59049), (0.3, 0.16807), (0.5, 0.03125)])
def test_a_step_that_can_be_saved_is_missed_as_often_as_five_continuations_all_fail(q: float, wrong: float) -> None:
    """[43]: (1 - q)^5, here .59, .17, .03."""
    n = 20_000
    means = np.random.default_rng(0).binomial(5, q, n) / 5
    turns = Turns({
        "group": np.repeat(range(n), 2), "episode": [0] * (2 * n), "turn": [0, 1] * n, "agent": ["a"] * (2 * n),
        "value": np.stack([np.ones(n), means], 1).ravel(), "success": [False] * (2 * n),
    })  # fmt: skip
    labels = np.asarray(potential_label().evaluate(turns)).reshape(n, 2)
    assert 1 - labels[:, 0].mean() == pytest.approx(wrong, abs=4 * np.sqrt(wrong * (1 - wrong) / n))
    assert not labels[:, 1].any()


def test_hard_negatives_leave_out_what_has_no_label_or_score() -> None:
    turns = Turns({"p": [0.9, 0.6, None, 0.9, 0.5], "label": [0.0, 1.0, 0.0, None, 0.0]})
    assert np.asarray(hard_negatives("p", "label").evaluate(turns)).tolist() == [1, 0, 0, 0, 0]


def test_best_of_n_takes_one_episode_of_each_group_whatever_the_order_of_rows() -> None:
    rng = np.random.default_rng(0)
    turns = Turns({"group": np.repeat(range(30), 5), "episode": list(range(5)) * 30, "score": rng.integers(0, 3, 150),
                   "action": rng.choice(["a", "b"], 150)})  # fmt: skip
    shuffled = Turns(turns.frame.sample(fraction=1.0, shuffle=True, seed=1))
    for ties in ("first", "vote"):
        for n in (None, 1, 3):
            taken = turns.frame.filter(np.asarray(best_of_n("score", n=n, ties=ties).evaluate(turns)) == 1)
            assert taken["group"].to_list() == list(range(30))
            again = shuffled.frame.filter(np.asarray(best_of_n("score", n=n, ties=ties).evaluate(shuffled)) == 1)
            assert again.sort("group").equals(taken)
            if n is not None:
                assert taken["episode"].to_numpy().max() < n
                gaps = Turns(turns.frame.with_columns(pl.col("episode") * 3 + 2))
                assert np.array_equal(*(best_of_n("score", n=n, ties=ties).evaluate(each) for each in (turns, gaps)))
            for group, score, action in taken.select("group", "score", "action").rows():
                rivals = turns.frame.filter((turns["group"] == group) & (turns["episode"] < (n or 5)))
                assert score == rivals["score"].max()
                if ties == "vote":
                    best = rivals.filter(rivals["score"] == score)["action"].to_list()
                    assert best.count(action) == max(best.count(each) for each in best)


def test_best_of_n_leaves_out_what_was_not_scored() -> None:
    turns = Turns({"group": [0, 0, 1], "episode": [0, 1, 0], "s": [None, -2.0, None]})
    assert np.asarray(best_of_n("s").evaluate(turns)).tolist() == [0, 1, 0]
    with pytest.raises(ExpressionError, match="n=0"):
        best_of_n("s", n=0)
