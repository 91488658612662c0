"""A worker that remembers attempts by what they earned."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from palaestra.errors import InputError
from palaestra.evaluation.analyses import analyze
from palaestra.teams.nested_memory import Attempt, NestedMemory, Setup, set_up, solve
from palaestra.teams.pipeline_stream import play_stream

RNG = np.random.default_rng(0)
TASK = {
    "contest": "c", "kinds": ["a", "b"], "needed": [2, 0], "fixes": 3, "optimum": [0.5], "leaderboard": [-0.1, -0.5],
}  # fmt: skip


def test_random_retrieval_gives_what_failed_too() -> None:
    memory = NestedMemory("random")
    memory.remember(Attempt("a", 0, -1.0))
    memory.remember(Attempt("a", 1, 1.0))
    memory.begin()
    assert {memory.propose("a", 9, RNG) for _ in range(50)} == {0, 1}


def test_a_fix_that_stopped_working_is_left() -> None:
    memory = NestedMemory()
    memory.remember(Attempt("a", 1, 1.0))
    memory.begin()
    memory.remember(Attempt("a", 1, -1.0))
    assert 1 not in {memory.propose("a", 3, RNG) for _ in range(30)}


def test_what_earned_nothing_is_neither_taken_again_nor_left() -> None:
    memory = NestedMemory()
    memory.remember(Attempt("a", 1, 0.0))
    assert {memory.propose("a", 3, RNG) for _ in range(60)} == {0, 1, 2}
    memory.remember(Attempt("a", 2, -1.0))
    memory.begin()
    assert {memory.propose("a", 3, RNG) for _ in range(60)} == {0, 1}
    memory.remember(Attempt("a", 0, 0.1))
    assert {memory.propose("a", 3, RNG) for _ in range(60)} == {0}
    memory.remember(Attempt("b", 2, 1.0))
    assert {memory.propose("b", 2, RNG) for _ in range(20)} == {0, 1}, "there is no such fix here"
    assert memory.propose("a", 0 + 1, RNG) == 0


def test_as_many_tries_as_fixes_always_suffice() -> None:
    for retrieve in ("reward", "random", "none"):
        done = set_up(Setup(["a"] * 5, [1] * 5, 4), NestedMemory(retrieve), RNG, tries=4)  # type: ignore[arg-type]
        assert done.valid
    with pytest.raises(InputError, match="tries=0"):
        set_up(Setup(["a"], [0], 1), NestedMemory(), RNG, tries=0)


def test_what_worked_once_works_at_once_the_next_time() -> None:
    """Of two fixes the first stage needs one try or two, the second of its kind one."""
    found = [set_up(Setup(["a"] * 2, [1] * 2, 2), NestedMemory(), np.random.default_rng(i)) for i in range(12)]
    assert {(each.attempts, each.first) for each in found} == {(2, (True, True)), (3, (False, True))}
    assert set_up(Setup(["a"], [0], 1), NestedMemory(), RNG, tries=1).passed == (True,)


def test_an_ensemble_keeps_only_what_helps() -> None:
    truth = np.zeros(10)
    predicted, members = solve(lambda x: truth + x[0], lambda p: -float(abs(p).mean()), 1, RNG, budget=6)
    assert members == 1
    assert abs(predicted).mean() < 0.3


def test_streams_are_determined_by_their_seed(tmp_path: Path) -> None:
    tasks = pl.DataFrame([TASK | {"contest": f"c{n}"} for n in range(3)])
    one, other = (play_stream(tasks, NestedMemory(), tries=3, budget=5, seed=4) for _ in range(2))
    assert one.equals(other)
    assert one["valid"].all()
    (tmp_path / "t.json").write_text(json.dumps(tasks.to_dicts()))
    assert analyze("pipelines(budget=5, seed=4)", tmp_path / "t.json").equals(one)
    with pytest.raises(InputError, match="retrieve='best'"):
        analyze("pipelines('best')", tmp_path / "t.json")
    with pytest.raises(InputError, match="below fixes=3"):
        play_stream(tasks.with_columns(needed=pl.lit([7, 0])), NestedMemory())
