"""Reward programs in a run: from a file; written, refused, written again; revised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stage_play import context, script, talk, trained

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, StorageError
from palaestra.judges.scripted import scripted_writer
from palaestra.learning.stages.programs import _summary, program

PLAY = talk([["good", "bad"], ["bad", "bad"]]).with_column(success=[True, True, False, False])
GOOD = 'def reward(turn):\n    return 1.0 if turn["action"] == "good" else 0.0'
CONSTANT = "def reward(turn):\n    return 1.0"
BROKEN = "def reward(turn)\n    return 1"


def writer(*answers: str) -> tuple[Any, list[str]]:
    """A policy that answers in order, and what it was told."""
    play, told = scripted_writer(*answers), []

    def answer(text: str) -> str:
        told.append(text)
        return play(None)  # type: ignore[arg-type]

    return script(answer), told


def test_a_file_pays_every_turn(tmp_path: Path) -> None:
    path = tmp_path / "reward.py"
    path.write_text(
        'COLUMNS = ["action"]\n\n' + GOOD + '\n\n\ndef odd(turn):\n    return 1 / (turn["action"] == "good")\n'
    )
    made = program(str(path), functions=["reward", "odd"])(PLAY, context())
    assert made["r_reward"].to_list() == [1, 0, 0, 0]
    assert made["r_odd"].to_list() == [1, None, None, None]
    assert "ZeroDivisionError" in made["r_odd_error"][1]
    assert program(str(path)).needs == {"action", "episode", "agent"}
    with pytest.raises(StorageError, match=r"nowhere\.py"):
        program("nowhere.py")


def test_what_is_refused_is_told_and_written_again() -> None:
    policy, told = writer(BROKEN, CONSTANT, GOOD)
    stage, here = program(writer=policy, columns=["action"], task="be good"), context()
    made = stage(PLAY, here)
    assert made["r_reward"].to_list() == [1, 0, 0, 0]
    assert here.spent.calls == 3
    assert [why.split(":")[0] for why in stage.attempted] == ["syntax", "constant", ""]
    assert "syntax" in told[1]
    assert "be good" in told[0]
    again = program(writer=policy, columns=["action"], task="be good")
    again.load_state_dict(stage.state_dict())
    assert again(PLAY, context(2))["r_reward"].to_list() == [1, 0, 0, 0]
    assert len(told) == 3, "a program that passed is kept"


def test_nothing_that_passes_is_a_missing_reward_and_asked_for_again() -> None:
    policy, told = writer(CONSTANT, CONSTANT, GOOD)
    stage = program(writer=policy, columns=["action"], task="be good", attempts=2)
    assert stage(PLAY, context())["r_reward"].null_count() == 4
    assert stage(PLAY, context(2))["r_reward"].to_list() == [1, 0, 0, 0]
    assert len(told) == 3
    policy, told = writer(CONSTANT, GOOD)
    once = program(writer=policy, columns=["action"], task="be good", attempts=1)
    assert once(PLAY, context())["r_reward"].null_count() == 4
    assert len(told) == 1


def test_it_is_revised_by_what_came_of_it() -> None:
    better = GOOD.replace("0.0", "-1.0")
    policy, told = writer(GOOD, better)
    stage = program(writer=policy, columns=["action"], task="be good", revise=2)
    found = [stage(PLAY, context(iteration))["r_reward"].to_list() for iteration in (1, 2, 3)]
    assert found == [[1, 0, 0, 0], [1, 0, 0, 0], [1, -1, -1, -1]]
    assert "Success 0.50 in 2 episodes of 2.0 turns.\nA bad one: bad, bad" in told[1]
    policy, told = writer(GOOD, better)
    stage = program(writer=policy, columns=["action"], task="be good", revise=3)
    found = [stage(PLAY, context(iteration))["r_reward"][1] for iteration in (1, 2, 3, 4)]
    assert found == [0, 0, 0, -1]
    policy, told = writer(GOOD, better)
    stage = program(writer=policy, columns=["action"], task="be good", revise=1)
    assert [stage(PLAY, context(iteration))["r_reward"][1] for iteration in (1, 2)] == [0, -1]


def test_its_writer_is_told_one_bad_episode_in_the_order_of_play() -> None:
    rows = {"group": [0, 0, 1, 1], "episode": [0] * 4, "turn": [1, 0, 0, 1], "agent": ["a"] * 4}
    told = _summary(Turns(rows | {"action": ["then", "first", "other", "group"], "success": [False] * 4}))
    assert told.endswith("A bad one: first, then")


def test_its_writer_is_told_how_failed_episodes_ended() -> None:
    policy, told = writer(GOOD, GOOD)
    play = PLAY.with_column(
        fell=[False, True, False, True], tired=[True, True, False, False], success=[True] * 2 + [False] * 2
    )
    stage = program(writer=policy, columns=["action", "fell", "tired"], task="be good", revise=1)
    for iteration in (1, 2):
        stage(play, context(iteration))
    assert "Per episode: fell 1.0, tired 1.0.\n1 failed; at their end: fell in 1, tired in 0.\nA bad one" in told[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give a path or a writer"),
        ({"writer": "w"}, "told a task and the columns"),
        ({"writer": "w", "task": "t", "columns": ["action"], "attempts": 0}, "attempts=0"),
        ({"writer": "w", "task": "t", "columns": ["action"], "revise": 0}, "revise=0"),
    ],
)
def test_what_cannot_be_written_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        program(**options)


def test_a_run_trains_on_what_was_written() -> None:
    changes = {
        "env": {"options": {"map": "lava"}},
        "policies": {"writer": {"kind": "script", "options": {"script": "palaestra.judges.scripted:nearer"}}},
        "stages": [
            'program(writer="writer", functions=["dense", "sparse"],'
            ' columns=["before", "distance", "lava", "goal"], task="out")'
        ],
        "reward": "auto_mc_reward()",
        "train": {"iterations": 2},
    }  # fmt: skip
    learned, tables = trained("maze", changes)
    assert [line["stages"]["program"]["calls"] for line in learned.lines] == [2, 0]
    table = tables[1]
    assert set(table["reward"].round(3).to_list()) <= {0.0, 0.1, -0.1, 1.0, 1.1}
    nearer = (table["distance"] < table["before"]) & ~table["lava"] & ~table["goal"]
    assert table.filter(nearer)["reward"].unique().to_list() == pytest.approx([0.1])
