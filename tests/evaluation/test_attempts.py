"""Chains of sub-tasks: when they stop, what they hear, and which workspace goes on."""

from __future__ import annotations

import polars as pl
import pytest

from palaestra.errors import InputError
from palaestra.evaluation.attempts import attempt_chain, pass_by_attempt


def test_the_chain_stops_when_perfect_and_hears_what_failed() -> None:
    heard: list[tuple[int, int, tuple[str, ...]]] = []
    scores = iter([4.0, 8.0, 6.0, 10.0, 3.0])

    def work(subtask: int, space: int, feedback: tuple[str, ...]) -> int:
        heard.append((subtask, space, feedback))
        return len(heard)

    def judge(subtask: int, space: int) -> tuple[float, tuple[str, ...]]:
        return next(scores), (f"item {space}",)

    first, second = attempt_chain(work, judge, 0, subtasks=2, most=3)
    assert (first.best, first.carried, len(first.attempts)) == (8.0, 2, 3)
    assert (second.best, second.carried, len(second.attempts)) == (10.0, 1, 1)
    assert heard[:4] == [(0, 0, ()), (0, 1, ("item 1",)), (0, 2, ("item 2",)), (1, 2, ())]


@pytest.mark.parametrize(("carry", "start_of_second"), [("best", 2), ("first", 1)])
def test_whose_workspace_is_carried_on(carry: str, start_of_second: int) -> None:
    starts = []

    def work(subtask: int, space: int, feedback: tuple[str, ...]) -> int:
        starts.append((subtask, space))
        return len(starts)

    scores = iter([4.0, 8.0, 10.0])
    attempt_chain(work, lambda subtask, space: (next(scores), ()), 0, subtasks=2, most=2, carry=carry)
    assert starts[2] == (1, start_of_second)
    with pytest.raises(InputError, match="most=0"):
        attempt_chain(work, lambda s, w: (1.0, ()), 0, subtasks=1, most=0)


def test_of_equal_attempts_the_first_goes_on() -> None:
    spaces = iter([1, 2, 3, 4])
    scores = iter([6.0, 6.0, 10.0])
    first, _ = attempt_chain(
        lambda subtask, space, heard: next(spaces), lambda s, w: (next(scores), ()), 0, subtasks=2, most=2
    )
    assert (first.best, first.carried) == (6.0, 1)


def test_by_the_released_rule_a_perfect_attempt_goes_on_all_the_same() -> None:
    scores, starts = iter([4.0, 10.0, 3.0, 3.0]), []

    def work(subtask: int, space: int, feedback: tuple[str, ...]) -> int:
        starts.append(space)
        return len(starts)

    first, _ = attempt_chain(work, lambda *_: (next(scores), ()), 0, subtasks=2, most=2, carry="first")  # type: ignore
    assert (first.carried, starts[2]) == (2, 2)


def test_what_has_passed_stays_passed() -> None:
    turns = pl.DataFrame(
        {"system": "s", "group": 0, "episode": [0, 1, 1, 1], "turn": [0, 0, 1, 2], "score.attempt": [10.0, 2, 6, 10]}
    )
    assert pass_by_attempt(turns)["passed"].to_list() == [0.5, 0.5, 1]
