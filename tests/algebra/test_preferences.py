"""Turns as TRL's data sets: who is paired with whom, what is left out."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from palaestra import Turns, col
from palaestra.errors import InputError, MissingColumnError

ROWS: dict[str, list[Any]] = {
    "group": [0, 0, 0, 0, 1, 1, 1, 2, 2],
    "episode": [0, 1, 2, 3, 0, 1, 2, 0, 1],
    "agent": ["a"] * 9,
    "observation": ["p", "p", "p", "q", "r", "r", "r", "s", "s"],
    "action": ["good", "bad", "fair", "alone", "same", "same", "best", "x", "y"],
    "reward": [1.0, 0.0, 0.5, 1.0, 0.0, 1.0, None, 1.0, 1.0],
    "valid": [True, False, True, True, True, True, True, True, None],
    "error": [None] * 8 + ["crashed"],
}


def pairs(table: pl.DataFrame) -> set[tuple[str, str, str]]:
    return set(zip(table["prompt"], table["chosen"], table["rejected"], strict=True))


def test_the_best_against_the_worst_of_one_prompt() -> None:
    """Nobody to compare with, equal texts, ties, missing values and errors make no pair."""
    found = Turns(ROWS).to_preferences()
    assert pairs(found) == {("p", "good", "bad")}
    assert found["gap"].to_list() == [1.0]
    assert found["group"].to_list() == [0]


def test_every_pair_and_the_least_gap() -> None:
    turns = Turns(ROWS)
    every = {("p", "good", "bad"), ("p", "good", "fair"), ("p", "fair", "bad")}
    assert pairs(turns.to_preferences(which="all")) == every
    assert pairs(turns.to_preferences(which="all", gap=0.5)) == every
    assert pairs(turns.to_preferences(which="all", gap=0.6)) == {("p", "good", "bad")}
    assert pairs(turns.to_preferences(-col("reward"))) == {("p", "bad", "good")}
    with pytest.raises(InputError, match="by at least 2"):
        turns.to_preferences(gap=2)
    with pytest.raises(InputError, match="two answers of different value"):
        Turns(ROWS | {"reward": [1.0] * 9}).to_preferences(which="all")
    with pytest.raises(InputError, match="best_worst"):
        turns.to_preferences(which="best-worst")  # type: ignore[arg-type]


def test_agents_and_groups_are_not_mixed() -> None:
    seats = Turns(ROWS | {"agent": ["a", "b", "b"] + ["a"] * 6})
    assert pairs(seats.to_preferences()) == {("p", "fair", "bad")}
    with pytest.raises(InputError, match="no prompt"):
        Turns(ROWS | {"group": range(9)}).to_preferences()


def test_what_was_said_for_sft() -> None:
    found = Turns(ROWS).to_sft(col("reward") >= 1)
    assert found.columns == ["prompt", "completion"]
    assert found["completion"].to_list() == ["good", "alone", "same", "x"]
    assert len(Turns(ROWS).to_sft()) == 7
    with pytest.raises(InputError, match="no turn is left"):
        Turns(ROWS).to_sft(col("reward") > 9)
    with pytest.raises(MissingColumnError, match="observation"):
        Turns({"action": ["a"]}).to_sft()


def test_conversations_stay_messages() -> None:
    talk = json.dumps([{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi", "name": "u"}])
    rows = {name: values[:2] for name, values in ROWS.items()} | {"messages": [talk, talk]}
    silent = pl.Series([None, None], dtype=pl.String)
    assert pairs(Turns(rows | {"messages": silent}).to_preferences()) == {("p", "good", "bad")}
    found = Turns(rows).to_preferences().row(0, named=True)
    assert found["prompt"] == [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]
    assert found["chosen"] == [{"role": "assistant", "content": "good"}]
    said = Turns(rows).to_sft().row(0, named=True)
    assert said["completion"] == [{"role": "assistant", "content": "good"}]


def test_seats_without_messages_say_what_they_saw() -> None:
    talk = json.dumps([{"role": "user", "content": "hi"}])
    rows = {name: values[:4] for name, values in ROWS.items()} | {"messages": [None, None, None, talk]}
    rows["observation"] = ['p "é"', 'p "é"', None, "q"]
    found = Turns(rows).to_sft()
    asked = [{"role": "user", "content": 'p "é"'}]
    assert found["prompt"].to_list() == [asked, [{"role": "user", "content": "hi"}]]
    assert Turns(rows).to_preferences()["prompt"].to_list() == [asked]
