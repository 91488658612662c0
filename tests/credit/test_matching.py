"""Matching: worked numbers of [97], the three methods against each other, and bad text."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.credit import call_similarity, match, match_reward, matchtir, token_f1
from palaestra.errors import ExpressionError, InputError

S = np.array([[0.9, 0.8], [0.8, 0.1]])


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"name": name, "arguments": arguments}


def test_similarity_of_calls() -> None:
    assert call_similarity(call("f", x=1, y=2), call("F", x=1, y=3, z=4)) == pytest.approx((1 + 2 / 3 + 1) / 5)
    assert call_similarity(call("now"), call("now")) == 1
    assert call_similarity(call("f", x=1), call("g", x=1)) == 0
    assert call_similarity(call("f", x=None), call("f", y=None)) == pytest.approx(1 / 3)


def test_three_ways_to_match() -> None:
    np.testing.assert_allclose(match(S), [0.8, 0.8])
    np.testing.assert_allclose(match(S, "greedy"), [0.9, 0.1])
    np.testing.assert_allclose(match(S, "sinkhorn"), [0.402, 0.383], atol=6e-4)


def test_what_finds_no_partner_is_paid_as_unmatched() -> None:
    np.testing.assert_allclose(match(np.array([[0.5], [0.7]]), unmatched=-0.5), [-0.5, 0.7])
    np.testing.assert_allclose(match(np.zeros((2, 2)), unmatched=-0.5), [-0.5, -0.5])
    assert match(np.zeros((0, 3))).shape == (0,)
    assert match(np.zeros((2, 0))).tolist() == [0, 0]
    with pytest.raises(InputError, match="did you mean 'greedy'"):
        match(S, "gredy")  # type: ignore[arg-type]
    for similarity in (np.ones(3), np.array([[np.nan]])):
        with pytest.raises(InputError, match=r"must be \[predicted, gold\] and finite"):
            match(similarity)


@given(arrays(float, (3, 4), elements=st.floats(0, 1)))
def test_optimal_is_the_best_of_all_and_no_transport_is_better(similarity: np.ndarray) -> None:
    best = max(sum(similarity[i, j] for i, j in enumerate(p)) for p in itertools.permutations(range(4), 3))
    assert match(similarity).sum() == pytest.approx(best)
    assert match(similarity, "greedy").sum() <= best + 1e-9
    assert match(similarity, "sinkhorn").sum() <= similarity.max() + 1e-9


def episode() -> Turns:
    gold = [call("f", x=1), call("g")]
    calls = [[call("f", x=2), call("h")], [call("g")], []]
    return Turns(
        {
            "episode": [0] * 3,
            "calls": [json.dumps(each) for each in calls],
            "gold": [json.dumps(gold), None, None],
            "answer": [None, None, "the cat sat"],
            "truth": ["cat"] * 3,
        }
    )


def test_a_turn_earns_the_mean_of_its_calls_and_an_answer_its_f1() -> None:
    expected = [(2 / 3) / 2, 1, 0.5]
    np.testing.assert_allclose(match_reward("calls", "gold", "answer", "truth").evaluate(episode()), expected)
    text = "match_reward(col('calls'), col('gold'), unmatched=-0.5)"
    np.testing.assert_allclose(parse(text).evaluate(episode()), [(2 / 3 - 0.5) / 2, 1, 0])
    assert parse(str(parse(text))).text == parse(text).text
    assert parse(text).needs() == {"calls", "gold"}
    assert token_f1("", "") == 1


def test_bad_calls_and_options_are_named() -> None:
    turns = episode().with_column(calls=["[]", '{"name"', "[]"])
    with pytest.raises(InputError, match=r"match_reward: row 1 of col\('calls'\) is not a list of calls like"):
        match_reward("calls", "gold").evaluate(turns)
    with pytest.raises(ExpressionError, match="both answer and truth"):
        match_reward("calls", "gold", "answer")
    with pytest.raises(ExpressionError, match="is not a column of text"):
        match_reward("calls", 1.0)


def test_turns_are_compared_with_turns_of_the_same_number() -> None:
    keys = {"group": [0] * 6, "episode": [0] * 3 + [1] * 3, "turn": [0, 1, 2] * 2, "agent": ["a"] * 6}
    turns = Turns(keys | {"reward": [1, 0.5, 1, 1, 0, 0]})
    np.testing.assert_allclose(matchtir().evaluate(turns), np.repeat([0.7071, -0.7071], 3), atol=1e-4)
    returns = np.array([2.26, 1.4, 1, 1, 0, 0])
    raw = matchtir(weight=0).evaluate(turns.with_column(group=[0] * 3 + [1] * 3))
    np.testing.assert_allclose(raw, returns, rtol=1e-5)
