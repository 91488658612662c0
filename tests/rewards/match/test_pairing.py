"""Pairing: worked numbers of [97], the three methods against each other, and bad text."""

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
from palaestra.errors import ExpressionError, InputError
from palaestra.rewards import call_similarity, match_reward, matched

S = np.array([[0.9, 0.8], [0.8, 0.1]])


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"name": name, "arguments": arguments}


def test_similarity_of_calls() -> None:
    assert call_similarity(call("f", x=1, y=2), call("F", x=1, y=3, z=4)) == pytest.approx((1 + 2 / 3 + 1) / 5)
    assert call_similarity(call("now"), call("now")) == 1
    assert call_similarity(call("f", x=1), call("g", x=1)) == 0
    assert call_similarity(call("f", x=None), call("f", y=None)) == pytest.approx(1 / 3)


def test_three_ways_to_match() -> None:
    np.testing.assert_allclose(matched(S), [0.8, 0.8])
    np.testing.assert_allclose(matched(S, method="greedy"), [0.9, 0.1])
    np.testing.assert_allclose(matched(S, method="sinkhorn"), [0.402, 0.383], atol=6e-4)


def test_what_finds_no_partner_is_paid_as_unmatched() -> None:
    np.testing.assert_allclose(matched(np.array([[0.5], [0.7]]), unmatched=-0.5), [-0.5, 0.7])
    np.testing.assert_allclose(matched(np.zeros((2, 2)), unmatched=-0.5), [-0.5, -0.5])
    assert matched(np.zeros((0, 3))).shape == (0,)
    assert matched(np.zeros((2, 0))).tolist() == [0, 0]
    with pytest.raises(InputError, match="did you mean 'greedy'"):
        matched(S, method="gredy")  # type: ignore[arg-type]
    for similarity in (np.ones(3), np.array([[np.nan]])):
        with pytest.raises(InputError, match=r"must be \[predicted, gold\] and finite"):
            matched(similarity)


@given(arrays(float, (3, 4), elements=st.floats(0, 1)))
def test_optimal_is_the_best_of_all_and_no_transport_is_better(similarity: np.ndarray) -> None:
    best = max(sum(similarity[i, j] for i, j in enumerate(p)) for p in itertools.permutations(range(4), 3))
    assert matched(similarity).sum() == pytest.approx(best)
    assert matched(similarity, method="greedy").sum() <= best + 1e-9
    assert matched(similarity, method="sinkhorn").sum() <= similarity.max() + 1e-9


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
    assert parse(text).needs() == {"calls", "gold", "episode"}


def test_what_a_model_wrote_is_data_and_bad_gold_is_named() -> None:
    turns = episode()
    for text in (
        '{"name"',
        "I would call f",
        "[1]",
        '[{"arguments": {}}]',
        "[" * 5000,
        "null",
        '[{"name": "f", "arguments": 3}]',
    ):
        spoilt = turns.with_column(calls=[text, *turns["calls"].to_list()[1:]])
        np.testing.assert_allclose(match_reward("calls", "gold").evaluate(spoilt), [0, 1, 0])
        np.testing.assert_allclose(match_reward("calls", "gold", unmatched=-0.5).evaluate(spoilt), [-0.5, 1, 0])
        with pytest.raises(InputError, match="match_reward: row 0 of 'gold' is not a list of calls like"):
            match_reward("calls", "gold").evaluate(turns.with_column(gold=[text, None, None]))
    with pytest.raises(ExpressionError, match="both answer and truth"):
        match_reward("calls", "gold", "answer")
    with pytest.raises(ExpressionError, match="is not a column"):
        match_reward("calls", 1.0)  # type: ignore[arg-type]


def test_calls_of_agents_that_act_at_once_do_not_depend_on_the_order_of_rows() -> None:
    one, other, gold = [call("f", x=1)], [call("f", x=1), call("f")], [call("f", x=1), call("f", x=2)]
    names = ["a", "b", "c"]
    given = dict(zip(names, map(json.dumps, (one, other, one)), strict=True))
    for method in ("optimal", "greedy"):
        found = set()
        for order in itertools.permutations(names):
            turns = Turns(
                {"episode": [0] * 3, "turn": [0] * 3, "agent": order, "calls": [given[n] for n in order]}
            ).with_column(gold=[json.dumps(gold)] * 3)
            paid = np.asarray(match_reward("calls", "gold", method=method).evaluate(turns)).round(9)  # type: ignore[arg-type]
            found.add(tuple(sorted(zip(order, paid.tolist(), strict=True))))
        assert len(found) == 1
