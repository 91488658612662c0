"""Votes and verdicts: Co-Reward's worked example, ties, missing votes."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.tables import values

from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError, InputError
from palaestra.rewards import co_reward, cross_label, judge_votes, vote

BY_VIEW = ("group", "view")


def views(first: str, second: str) -> Turns:
    answers = [letter if letter != "." else None for letter in first + second]
    n, m = len(first), len(second)
    table = {"group": [0] * (n + m), "episode": range(n + m), "turn": [0] * (n + m), "agent": ["a"] * (n + m)}
    return Turns(table | {"answer": answers, "view": ["x"] * n + ["y"] * m})


def test_worked_example() -> None:
    turns = views("AAAABBCC", "BBBBBAAC")
    np.testing.assert_array_equal(values(cross_label("answer"), turns), [0, 0, 0, 0, 1, 1, 0, 0] + [0] * 5 + [1, 1, 0])
    own = values(vote("answer", over=BY_VIEW), turns)
    np.testing.assert_array_equal(own[:8], [1, 1, 1, 1, 0, 0, 0, 0])


def test_row_order_does_not_matter() -> None:
    turns = views("ABAB", "CCBA")
    for order in (np.random.default_rng(0).permutation(8), np.arange(8)[::-1]):
        shuffled = Turns(turns.frame[order.tolist()])
        for signal in (vote("answer", over=BY_VIEW), cross_label("answer"), co_reward("answer")):
            np.testing.assert_allclose(values(signal, shuffled), values(signal, turns)[order])
    np.testing.assert_array_equal(values(vote("answer", over=BY_VIEW), turns)[:4], [1, 0, 1, 0])  # A came first


def test_of_equal_answers_the_first_in_play_wins() -> None:
    """In an episode the earlier turn, in a turn the agent whose name comes first, wherever their rows are."""
    for column, row in (("turn", [1, 0]), ("agent", ["b", "a"])):
        keys = {"group": [0] * 2, "episode": [0] * 2, "turn": [0] * 2, "agent": ["a"] * 2, "answer": ["X", "Y"]}
        np.testing.assert_array_equal(values(vote("answer"), Turns(keys | {column: row})), [0, 1])


def test_co_reward_of_two_tasks_of_several_turns_by_hand() -> None:
    """One group in which two tasks are played; the answer is given on an episode's last turn.

    Task p: wording 0 says A, A, B, wording 1 says B, B, so the rewards are 0, 0, 1 and 0, 0. Task q: wording 0 says C,
    D, wording 1 says D: 0, 1 and (C was first) 0. Each wording is standardised alone.
    """
    said = [("p", 0, "A"), ("p", 0, "A"), ("p", 0, "B"), ("p", 1, "B"), ("p", 1, "B"), ("q", 0, "C"), ("q", 0, "D")]
    said += [("q", 1, "D")]
    lengths = [1, 2, 3, 1, 2, 1, 2, 3]
    rows = [
        (episode, turn, task, wording, answer if turn == length - 1 else None)
        for episode, ((task, wording, answer), length) in enumerate(zip(said, lengths, strict=True))
        for turn in range(length)
    ]
    episode, turn, task, wording, answer = zip(*rows, strict=True)
    keys = {"group": [0] * len(rows), "episode": episode, "turn": turn, "agent": ["a"] * len(rows)}
    turns = Turns(keys | {"task": task, "wording": wording, "answer": answer})
    how = {"pair": "task", "view": "wording", "ddof": 0}
    found = values(co_reward("answer", eps=0.0, **how), turns)  # type: ignore[arg-type]
    p, q = np.array([-1, -1, 2]) / np.sqrt(2), [-1, 1]
    np.testing.assert_allclose(found, np.repeat([*p, 0, 0, *q, 0], lengths), atol=1e-12)
    wide = values(co_reward("answer", eps=0.5, **how), turns)  # type: ignore[arg-type]
    np.testing.assert_allclose(wide[turns["task"] == "q"], np.repeat([-0.5, 0.5, 0], lengths[5:]), atol=1e-12)


def test_no_answer_neither_votes_nor_wins() -> None:
    turns = views("..A", "AB.")
    np.testing.assert_array_equal(values(vote("answer", over=BY_VIEW), turns), [0, 0, 1, 1, 0, 0])
    counted = values(vote("answer", over=BY_VIEW, ignore_null=False), turns)
    np.testing.assert_array_equal(counted, [0, 0, 0, 1, 0, 0])


def test_a_strict_majority_is_more_than_half() -> None:
    found = values(vote("answer", over=BY_VIEW, strict_majority=True), views("AABB", "AAB"))
    np.testing.assert_array_equal(found, [np.nan] * 4 + [1, 1, 0])


def test_no_label_from_the_other_view_is_missing_and_no_reward() -> None:
    turns = views("AAB", "...")
    np.testing.assert_array_equal(values(cross_label("answer"), turns), [np.nan] * 3 + [0] * 3)
    assert not values(co_reward("answer"), turns).any()
    alone = Turns(turns.frame.filter(view="x"))
    assert np.isnan(values(cross_label("answer"), alone)).all()


def test_a_pair_in_which_nobody_answers_has_no_label() -> None:
    assert np.isnan(values(cross_label("answer"), views("..", ".."))).all()


def test_three_views_are_an_error() -> None:
    turns = Turns({"group": [0] * 3, "answer": ["a"] * 3, "view": [0, 1, 2]})
    with pytest.raises(InputError, match="row 0: its pair has 3 values of 'view'"):
        cross_label("answer").evaluate(turns)


def test_co_reward_is_grpo_within_each_view() -> None:
    found = values(co_reward("answer"), views("AAAABBCC", "BBBBBAAC"))
    np.testing.assert_allclose([found[:8].sum(), found[8:].sum()], 0, atol=1e-9)
    assert found[4] > 0 > found[0]
    assert found[4] == pytest.approx(0.75 / np.std([0] * 6 + [1] * 2, ddof=1), abs=1e-4)


@pytest.mark.parametrize(
    ("verdicts", "ignore", "no", "missing"),
    [
        ([True, True, False], 1, 1, 1),
        ([True, False, None], 0, 0, np.nan),
        ([True, None, None], 1, 0, np.nan),
        ([None, None, None], np.nan, 0, np.nan),
        ([True, True], 1, 1, np.nan),
    ],
)
def test_verdicts(verdicts: list[bool | None], ignore: float, no: float, missing: float) -> None:
    turns = Turns({"v": pl.Series([verdicts], dtype=pl.List(pl.Boolean))})
    found = [values(judge_votes("v", n=3, on_error=how), turns)[0] for how in ("ignore", "no", "missing")]  # type: ignore[arg-type]
    np.testing.assert_array_equal(found, [ignore, no, missing])


def test_who_was_not_asked_gave_no_verdict() -> None:
    turns = Turns({"v": pl.Series([[], None, [True]], dtype=pl.List(pl.Boolean))})
    for how in ("ignore", "no", "missing"):
        np.testing.assert_array_equal(values(judge_votes("v", on_error=how), turns), [np.nan, np.nan, 1])  # type: ignore[arg-type]


def test_unknown_handling_of_errors() -> None:
    with pytest.raises(ExpressionError, match="on_error='ignored'"):
        judge_votes("v", on_error="ignored")  # type: ignore[arg-type]


def test_the_row_of_a_pair_with_too_many_views_is_named() -> None:
    two = views("AB", "AB").frame
    third = two.filter(view="x").with_columns(view=pl.lit("z"))
    more = pl.concat([two, third]).with_columns(pl.col("group") + 1, pl.col("episode") + 10)
    with pytest.raises(InputError, match="row 4: its pair has 3 values"):
        values(cross_label("answer"), Turns(pl.concat([two, more])))
