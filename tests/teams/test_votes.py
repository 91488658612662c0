"""Votes with weights and quorums, and several gates."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.teams.graph import Graph
from palaestra.teams.rules import AGGREGATES, GATES, ROUTES, STOPS, Message


def draw() -> np.random.Generator:
    return np.random.default_rng(0)


def said(**answers: str) -> list[Message]:
    return [
        Message(role.replace("_", "-"), text, float(text) if text.rstrip(".").isdigit() else None, 0, 0)
        for role, text in answers.items()
    ]


@pytest.mark.parametrize(
    ("rule", "chosen"),
    [
        ("vote()", "7"),
        ("weighted({'expert': 3})", "8"),
        ("weighted({'expert': 2}, default=0.5)", "8"),
        ("weighted({'node': 2, 'expert': 3})", "7"),
        ("weighted({'expert': 9, 'node-1': 10})", "7"),
        ("quorum(2)", "7"),
        ("quorum(3, otherwise=\"of('expert')\")", "8"),
        ("quorum(3)", "9"),
    ],
)
def test_whose_answer_it_is(rule: str, chosen: str) -> None:
    messages = said(node_1="7", expert="8", node_2="7", node_3="9")
    assert AGGREGATES.build(rule)(messages, draw).text == chosen


@pytest.mark.parametrize("rule", ["vote()", "weighted({})", "quorum(3, otherwise='last()')"])
def test_answers_that_say_the_same_are_one_vote_in_their_commonest_spelling(rule: str) -> None:
    messages = [
        Message(f"node-{at}", text, 1.0, 0, 0) for at, text in enumerate(["nile", "Nile", "Nile.", "Oder", "Oder"])
    ]
    assert AGGREGATES.build(rule)([*messages, messages[1]], draw) == messages[1]
    numbers = [Message(f"node-{at}", text, 1.0, 0, 0, says=says) for at, (text, says) in enumerate(NUMBERS.items())]
    assert (
        AGGREGATES.build(rule)([*numbers, Message("a", "41", 0.0, 0, 0), Message("b", "41", 0.0, 0, 0)], draw).text
        == "42"
    )


NUMBERS = {"42": "42.0", "42.0": "42.0", "$42": "42.0"}


@pytest.mark.parametrize("rule", ["vote()", "weighted({})", "quorum(1)"])
def test_what_the_task_could_not_read_has_no_vote(rule: str) -> None:
    assert AGGREGATES.build(rule)(said(a="", b="", c="42"), draw).text == "42"
    assert AGGREGATES.build(rule)(said(a="x", b="y", c="x"), draw).text == "x", "unless it could read nothing"


def test_who_was_not_read_has_not_agreed() -> None:
    agree = STOPS.build("agree()")
    assert agree(said(a="42", b="42."))
    assert not agree(said(a="42", b="42", c=""))
    assert not agree(said(a="", b="", c="42"))
    assert STOPS.build("agree(share=0.6)")(said(a="42", b="42", c=""))
    assert not STOPS.build("agree(share=0.6)")(said(a="", b="", c="42"))
    route = ROUTES.build("agreeing(2)")
    assert route(["a", "b", "c", "d"], said(a="", b="", c="42", d="42."), draw) == ["c", "d"]


def test_equal_weights_are_drawn_and_the_draw_is_used() -> None:
    messages = said(a="7", b="8", c="9")
    rule = AGGREGATES.build("weighted({'c': 0})")
    found = [rule(messages, functools.partial(np.random.default_rng, seed)).text for seed in range(60)]
    assert set(found) == {"7", "8"}
    assert 15 < found.count("7") < 45


def test_gates_in_turn_judge_what_is_left() -> None:
    messages = said(a="x", b="x", c="x", d="7", e="7", f="8")
    verdicts = GATES.build('in_turn("readable()", "top(2)")')("r", None, messages, draw)
    assert [held for _, held in verdicts] == ["cannot be read"] * 3 + [None, None, "not among the 2"]
    assert [weight for weight, _ in verdicts][3:] == [2 / 3, 2 / 3, 1 / 3]
    alone = GATES.build("top(2)")("r", None, messages, draw)
    assert [held for _, held in alone][:2] == [None, None], "in the other order what cannot be read would win"
    assert GATES.build('in_turn("readable()")')("r", None, messages[:3], draw) == [(1.0, "cannot be read")] * 3


@pytest.mark.parametrize("rule", ["weighted({'a': -1})", "weighted({'a': 'x'})", "quorum(0)", "quorum(2, 'nobody()')"])
def test_rules_that_cannot_be_are_named(rule: str) -> None:
    with pytest.raises(InputError):
        AGGREGATES.build(rule)
    with pytest.raises(InputError):
        Graph.of(["a", "b"], aggregate=rule)


@pytest.mark.parametrize(
    "rules",
    [
        {"aggregate": "weighted({'nod': 3})"},
        {"aggregate": "quorum(2, otherwise=\"of('nod')\")"},
        {"gate": "in_turn('readable()', \"named('nod')\")"},
    ],
)
def test_roles_that_nobody_has_are_found_in_rules_of_rules(rules: dict[str, str]) -> None:
    with pytest.raises(InputError, match="has 'nod', which is no role"):
        Graph.of(["node-1", "node-2", "judge"], **rules)  # type: ignore[arg-type]
    fixed = {name: rule.replace("'nod'", "'judge'") for name, rule in rules.items()}
    assert Graph.of(["node-1", "judge"], **fixed)  # type: ignore[arg-type]
    assert Graph.of(["node-1", "judge"], aggregate="weighted({'node': 2})")


def test_no_gate_is_no_gate() -> None:
    with pytest.raises(InputError, match="at least one gate"):
        GATES.build("in_turn()")
