"""What is written down about an iteration."""

from __future__ import annotations

import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.learning.alarms import alarms
from palaestra.learning.iteration_metrics import measure


def test_an_episode_counts_once_however_many_take_part() -> None:
    """Three of four take part in a failure worth 0, one alone in a success worth 1: half of the episodes succeed."""
    turns = Turns({
        "group": [0, 0, 0, 0], "episode": [0, 0, 0, 1], "turn": [0, 1, 2, 0], "agent": ["a", "b", "c", "a"],
        "policy": ["p"] * 4, "reward": [0.0, 0.0, 0.0, 1.0], "success": [False, False, False, True],
        "error": [None] * 4, "valid": [True] * 4, "action": ["x"] * 4,
    })  # fmt: skip
    line = measure(turns, 2, {"p": {}}, ["p"])
    assert line["success"] == pytest.approx(0.5)
    assert line["reward"] == pytest.approx(0.5)
    assert line["episodes"] == 2


def test_who_was_not_scored_is_not_worth_zero() -> None:
    turns = Turns({
        "group": [0] * 4, "episode": [0, 0, 1, 1], "turn": [0, 1] * 2, "agent": ["a", "b"] * 2, "policy": ["p"] * 4,
        "reward": [3.0, None, None, None], "success": [True, None, None, None], "error": [None] * 4,
        "valid": [True, True, False, None], "action": list("xxyx"), "r_one": [1.0, -2.0, None, 0.0],
    })  # fmt: skip
    line = measure(turns, [2], {"p": {}}, ["p"])
    assert (line["reward"], line["success"], line["components"]) == (3.0, 1.0, {"one": 1.5})
    assert line["policies"]["p"]["illegal"] == pytest.approx(1 / 3)
    assert line["policies"]["p"]["distinct_actions"] == 0.5
    assert [measure(turns, size, {}, ["p"])["incomplete_groups"] for size in (2, 3, [2], [3])] == [0, 1, 0, 1]


def test_prompts_that_a_template_would_write_otherwise_are_counted_and_raise_an_alarm() -> None:
    turns = Turns({
        "group": [0] * 5, "episode": [0] * 5, "turn": range(5), "agent": ["a"] * 5, "policy": ["p"] * 5,
        "reward": [0.0] * 5, "success": [False] * 5, "error": [None] * 5, "valid": [True] * 5, "action": list("vwxyz"),
        "prefix": ["first", "extends", "rewritten", "retokenised", "anew"],
    })  # fmt: skip
    line = measure(turns, 1, {"p": {"entropy": 1.0, "zero_credit": 0.0, "kl": None}}, ["p"])
    assert line["policies"]["p"]["broken_prefixes"] == pytest.approx(3 / 4)
    assert any("75% of its later prompts are not what the chat template writes" in text for text in alarms(line, []))
    alone = measure(turns.filter(pl.col("prefix") == "first"), 1, {"p": {}}, ["p"])
    assert "broken_prefixes" not in alone["policies"]["p"]


def test_a_critic_that_is_new_raises_no_alarm_and_one_that_learned_nothing_is_named() -> None:
    policy = {"illegal": 0.0, "entropy": 1.0, "distinct_actions": 0.5, "zero_credit": 1.0, "kl": None}
    line = {"policies": {"p": policy}, "errors": {}, "incomplete_groups": 0, "groups": 1, "reward": 0.5}
    without = alarms(line, [])
    assert without == alarms(line, [line])
    assert "the groups agree on their reward; take" in without[0]
    learned = line | {"stages": {"prefix_critic": {"calls": 0}}}
    assert alarms(learned, []) == []
    assert "agree on their reward, or prefix_critic has learned nothing;" in alarms(learned, [learned])[0]


def test_the_share_of_answers_that_were_cut_off() -> None:
    turns = Turns({
        "group": [0] * 4, "episode": [0] * 4, "turn": range(4), "agent": ["a"] * 4, "policy": ["p", "p", "p", "q"],
        "reward": [0.0] * 4, "success": [False] * 4, "error": [None] * 4, "valid": [True] * 4, "action": list("wxyz"),
        "finish": ["stop", "length", None, None],
    })  # fmt: skip
    line = measure(turns, 1, {"p": {}, "q": {}}, ["p", "q"])
    assert line["policies"]["p"]["cut_off"] == 0.5
    assert "cut_off" not in line["policies"]["q"], "it generates no text"
