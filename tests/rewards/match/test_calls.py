"""Tool calls: ToolRL's worked numbers, and what a matching promises."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError, InputError
from palaestra.rewards import call_match, length_reward, linear, match_calls, tag_format, tool_rl_reward

GOLD = [{"name": "search", "arguments": {"q": "cats", "k": 3}}, {"name": "calc", "arguments": {"e": "1+1"}}]
WORKED: list[tuple[Any, float]] = [
    ([{"name": "search", "arguments": {"q": "cats", "k": 5}}], -0.5),
    (GOLD[::-1], 3.0),
    ([], -3.0),
    ([{"name": "other", "arguments": {}}], -3.0),
    ([*GOLD, {"name": "search", "arguments": {}}], 8 / 3),
]


def table(preds: list[str | None], golds: list[str | None]) -> Turns:
    return Turns({"calls": preds, "gold": golds})


def test_worked_numbers() -> None:
    turns = table([json.dumps(pred) for pred, _ in WORKED], [json.dumps(GOLD)] * len(WORKED))
    found = tool_rl_reward("calls", "gold").evaluate(turns)
    np.testing.assert_allclose(np.asarray(found), [right for _, right in WORKED])
    coarse = tool_rl_reward("calls", "gold", granularity="all").evaluate(turns)
    np.testing.assert_allclose(np.asarray(coarse), [-3, 3, -3, -3, -3])
    calls = tool_rl_reward("calls", "gold", granularity="call").evaluate(turns)
    np.testing.assert_allclose(np.asarray(calls), [6 * 0.5 / 3 - 3, 3, -3, -3, 6 * (2 / 3 + 2) / 3 - 3])


def test_unreadable_calls_are_the_worst_and_no_gold_calls_are_nothing() -> None:
    gold = json.dumps(GOLD)
    turns = table(["{", "[1]", None, '[{"name": 1, "arguments": 5}]', "[]", "[]"], [gold, gold, gold, gold, "[]", None])
    np.testing.assert_allclose(np.asarray(tool_rl_reward("calls", "gold").evaluate(turns)), [-3] * 4 + [0, 0])


def test_gold_calls_that_cannot_be_read_are_an_error() -> None:
    with pytest.raises(InputError, match=r"column 'gold' holds '\{'"):
        call_match("calls", "gold").evaluate(table(["[]"], ["{"]))


def test_parameters_is_another_name_for_arguments() -> None:
    other = [{"name": call["name"], "parameters": call["arguments"]} for call in GOLD]
    assert match_calls(GOLD, other).exact


def test_arguments_may_be_json_in_a_text_as_endpoints_give_them() -> None:
    given = [{"name": call["name"], "arguments": json.dumps(call["arguments"])} for call in GOLD]
    np.testing.assert_array_equal(
        call_match("calls", "gold").evaluate(table([json.dumps(given)], [json.dumps(GOLD)])), 1
    )
    broken = [{"name": "search", "arguments": "{"}]
    np.testing.assert_array_equal(
        call_match("calls", "gold").evaluate(table([json.dumps(broken)], [json.dumps(GOLD)])), 0
    )


def test_text_that_is_nested_without_end_is_unreadable_and_no_crash() -> None:
    found = call_match("calls", "gold").evaluate(table(["[" * 200_000], [json.dumps(GOLD)]))
    np.testing.assert_array_equal(found, [0])
    with pytest.raises(ExpressionError, match="column 'calls' holds List"):
        call_match("calls", "gold").evaluate(Turns({"calls": [[{"name": "f"}]], "gold": [json.dumps(GOLD)]}))


def test_the_best_partner_may_be_wanted_twice() -> None:
    gold = [{"name": "f", "arguments": {"a": 1}}, {"name": "f", "arguments": {"a": 1, "b": 2}}]
    pred = [{"name": "f", "arguments": {"a": 1, "b": 2}}]
    greedy, optimal = (match_calls(gold, pred, method=method) for method in ("greedy", "optimal"))  # type: ignore[arg-type]
    assert greedy.keys + greedy.values == pytest.approx(1.5)  # the first gold call takes the only prediction
    assert (optimal.keys, optimal.values) == pytest.approx((1.0, 2.0))


CALLS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("fgh"), "arguments": st.dictionaries(st.sampled_from("abc"), st.integers(0, 2))}
    ),
    max_size=4,
)


@settings(max_examples=80, deadline=None)
@given(CALLS.filter(bool), CALLS)
def test_scores_are_between_nothing_and_all_and_optimal_is_no_worse(gold: list[Any], pred: list[Any]) -> None:
    optimal, greedy = match_calls(gold, pred), match_calls(gold, pred, method="greedy")
    assert 0 <= greedy.score <= optimal.score + 1e-12 <= 1 + 2e-12
    assert match_calls(gold, gold[::-1]).exact
    assert match_calls(gold, pred[::-1]).score == pytest.approx(optimal.score)


def test_components_and_schedules() -> None:
    turns = table([json.dumps(WORKED[0][0])], [json.dumps(GOLD)]).with_column(iteration=[75], good=[True])
    parts = [
        float(np.asarray(call_match("calls", "gold", part=p).evaluate(turns))[0]) for p in ("name", "keys", "values")
    ]  # type: ignore[arg-type]
    assert parts == [0.5, 1.0, 1.0]
    dynamic = tool_rl_reward(
        "calls", "gold", format="good", scale=linear(2, 3, steps=150), format_scale=linear(2, 1, steps=150)
    )
    assert np.asarray(dynamic.evaluate(turns))[0] == pytest.approx(1.5 + 2.5 * (2 * 2.5 / 6 - 1))


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("<think>a</think><answer>b</answer>", 1),
        (" <think>a\nb</think>\n<answer></answer> ", 1),
        ("<answer>b</answer><think>a</think>", 0),
        ("<think>a</think><answer>b</answer> more", 0),
        ("<think><think>a</think><answer>b</answer>", 0),
        (None, 0),
    ],
)
def test_tags_in_order_and_once(text: str | None, right: int) -> None:
    assert np.asarray(tag_format("action", ("think", "answer")).evaluate(Turns({"action": [text]})))[0] == right


def test_tags_that_the_right_answer_has() -> None:
    think, call, said = "<think>a</think>", "<tool_call>b</tool_call>", "<response>c</response>"
    golds = [think + call, think + said, think + call + said]
    turns = Turns({"action": [text for text in golds for _ in golds], "answer": golds * 3})
    found = np.asarray(tag_format("action", ("think", "tool_call", "response"), like="answer").evaluate(turns))
    np.testing.assert_array_equal(found.reshape(3, 3), np.eye(3))
    nothing = tag_format("action", ("think",), like="answer")
    assert not np.asarray(nothing.evaluate(Turns({"action": [think, None], "answer": [None, None]}))).any()


def test_length_in_words() -> None:
    turns = Turns({"action": ["a b", None, "a " * 900]})
    np.testing.assert_allclose(np.asarray(length_reward("action").evaluate(turns)), [2 / 512, 0, 1])


def test_from_a_recipe_and_unknown_options() -> None:
    assert str(parse("tool_rl_reward('calls', 'gold')")) == str(tool_rl_reward("calls", "gold"))
    with pytest.raises(ExpressionError, match="granularity='fines'"):
        tool_rl_reward("calls", "gold", granularity="fines")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="method='best'"):
        match_calls(GOLD, GOLD, method="best")  # type: ignore[arg-type]


def test_a_gold_call_that_was_not_made_takes_no_partner_from_the_next() -> None:
    calc: dict[str, Any] = {"name": "calc", "arguments": {"e": "1+1"}}
    gold = [{"name": "search", "arguments": {"q": "cats"}}, calc]
    for method in ("optimal", "greedy"):
        report = match_calls(gold, [calc], method=method)  # type: ignore[arg-type]
        assert (report.name, report.keys, report.values) == (0.5, 1, 1)


def test_where_nothing_was_right_or_nothing_was_called() -> None:
    for method in ("optimal", "greedy"):
        none = match_calls([], GOLD, method=method)  # type: ignore[arg-type]
        assert (none.name, none.keys, none.values, none.exact, none.best) == (0, 0, 0, False, 1)
        assert match_calls([], [], method=method).exact  # type: ignore[arg-type]
        assert match_calls(GOLD, [], method=method).name == 0  # type: ignore[arg-type]
