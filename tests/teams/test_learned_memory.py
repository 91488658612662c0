"""A team that learns from nothing to use a shared memory: by what is written in it, and by nothing else."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "shared_memory.py"))
SHORT: dict[str, Any] = {"seed": 2, "lr": 0.5, "iterations": 40, "groups": 8}
CHANCE = 1 / 3


def solved(arm: str) -> float:
    """Share of rounds that the trained team of an arm solves."""
    turns = EXAMPLE["played"](arm, EXAMPLE["train"](arm, **SHORT), SHORT["seed"], groups=100)
    found = turns.frame.filter(agent="second")["success"].mean()
    assert isinstance(found, float)
    return found


def test_a_team_learns_what_to_write_and_what_it_means() -> None:
    assert solved("memory") > CHANCE + 0.3
    assert solved("turn") == pytest.approx(CHANCE, abs=0.1), "entries of another episode are worth nothing"


@pytest.mark.parametrize(
    ("arm", "as_often", "the_same"), [("memory", True, True), ("entry", True, False), ("turn", False, False)]
)
def test_an_entry_says_that_it_was_written_and_a_turn_of_another_episode_not_even_that(
    arm: str, as_often: bool, the_same: bool
) -> None:
    team = EXAMPLE["team_of"](arm)
    turns = EXAMPLE["rollout"](EXAMPLE["env_of"](arm), team, groups=60, group_size=1, seed=0)
    asked = turns.frame.filter(turn=0)
    chosen = [ids[0] for ids in asked["action_ids"]]
    written = [None if texts is None else texts[0] for texts in asked["memory_written"]]
    assert (as_often, the_same) == (
        all((at < 3) == (text is not None) for at, text in zip(chosen, written, strict=True)),
        all(text == "abc"[at] for at, text in zip(chosen, written, strict=True) if text and at < 3),
    )
