"""The rubric game: what play teaches, what only labels can, and answers that could not be had."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.judges.rubric_game import Planted, RubricGame
from palaestra.learning.stages import STAGES
from palaestra.runs.inline import learn

LABELLED = [(frozenset({11}), True), (frozenset(), True), (frozenset({3}), False), (frozenset({4, 11}), False)]


def test_play_adds_what_was_missed_and_labels_drop_what_condemns_the_good() -> None:
    rng = np.random.default_rng(0)
    alone = RubricGame(Planted(), LABELLED, (0, 11), checked=0, most=20)
    rules, history = alone.run(20, rng)
    assert set(rules) == set(range(12))  # 11 stays: planted answers are all bad
    assert history["accuracy"][-1] == pytest.approx(0.75)
    both = RubricGame(Planted(), LABELLED, (0, 11), most=20)
    rules, history = both.run(20, rng)
    assert set(rules) == set(range(11))
    assert history["accuracy"][-1] == 1
    assert history["flipped"].sum() >= 1


def test_what_was_found_teaches_the_writer_to_hide() -> None:
    game = RubricGame(Planted(flaws=(0, 1)), LABELLED, (0,), queries=1, checked=0)
    rng = np.random.default_rng(1)
    for _ in range(10):
        game.round(rng)
    assert 0 in game.hide
    assert 1 in game.judge


def test_answers_that_could_not_be_had_leave_the_rules_as_they_are() -> None:
    class Silent(Planted):
        def rewrite(self, rules: Any, advice: Any, rng: Any) -> None:
            return None

    class Mute(Planted):
        def judge(self, rules: Any, answer: Any, rng: Any) -> None:
            return None

    for players in (Silent(), Mute()):
        game = RubricGame(players, LABELLED, (0, 11))
        rules, history = game.run(3, np.random.default_rng(0))
        assert rules == (0, 11)
    assert history["accuracy"].null_count() == 3
    long = RubricGame(Planted(), LABELLED, tuple(range(5)), most=5, checked=0)
    long.run(5, np.random.default_rng(0))
    assert long.judge == tuple(range(5))
    with pytest.raises(InputError, match="0 labelled answers"):
        RubricGame(Planted(), [])


def test_a_policy_that_is_paid_by_a_rubric_that_is_written_beside_it() -> None:
    env = {"make": "native/stories", "options": {"flaws": 8}}  # fewer than a rubric has room for
    changes = {"env": env, "reward": 'col("verdict")', "train": {"iterations": 20}}
    right = {}
    for name, rounds in {"game": 1, "start": 0}.items():
        stages = [f"rubric_game(rules=[0, 1, 2, 8], flaws=8, rounds={rounds})"]
        learned = learn("world", changes | {"stages": stages}, seed=3)
        told = learned.lines[-1]["stages"]["rubric_game"]
        assert told["rules"] == (8 if rounds else 4)
        right[name] = np.mean([line["stages"]["rubric_game"]["accuracy"] for line in learned.lines[-10:]])
    assert right["game"] > 0.99
    assert right["start"] < 0.9
    with pytest.raises(InputError, match="flaws=0"):
        STAGES.build("rubric_game(flaws=0)")
    with pytest.raises(InputError, match="none with players"):
        STAGES.build("rubric_game(flaws=8, players='palaestra.judges.rubric_game:Planted')")
