"""Precision and recall of every detector on labelled twins, and that docs/evaluation.md prints what is measured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.evaluation.triage import detect, triage

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.append(str(HERE))

import twins  # noqa: E402

DOCS = Path(__file__).parents[3] / "docs" / "evaluation.md"


def kinds(tables: Iterable[Turns]) -> list[list[str]]:
    """What is found in each of them, all as episodes of one table: a detector compiles its patterns once."""
    frames = [each.frame.with_columns(episode=pl.lit(n)) for n, each in enumerate(tables)]
    whole = Turns(pl.concat(frames, how="diagonal_relaxed"))
    found = detect(whole)
    said: list[list[str]] = [[] for _ in frames]
    for episode, kind in zip(whole["episode"].gather(found["row"]), found["type"], strict=True):
        said[episode].append(kind)
    return said


def marks(groups: Any, make: Callable[[str], Turns]) -> tuple[int, int, int, int]:
    """Found and all of the harmful, flagged and all of the harmless."""
    wanted = [group.kind for group in groups for _ in group.harmful]
    harmful = kinds(make(text) for group in groups for text in group.harmful)
    harmless = kinds(make(text) for group in groups for text in group.harmless)
    found = sum(any(kind.startswith(want) for kind in said) for want, said in zip(wanted, harmful, strict=True))
    return found, len(harmful), sum(map(bool, harmless)), len(harmless)


def loop_marks(episodes: Any) -> tuple[int, int, int, int]:
    found = [[k for k in said if ".loop." in k] for said in kinds(map(twins.played, episodes))]
    harmful = [f"execution.{each.loop}" in kind for each, kind in zip(episodes, found, strict=True) if each.loop]
    harmless = [bool(kind) for each, kind in zip(episodes, found, strict=True) if not each.loop]
    return sum(harmful), len(harmful), sum(harmless), len(harmless)


def measured() -> dict[str, tuple[int, int, int, int]]:
    return {
        "answers of tools": marks(twins.ANSWERS_TUNED, twins.answered),
        "answers of tools, fresh": marks(twins.ANSWERS_FRESH, twins.answered),
        "answers of tools, mixed": marks(twins.ANSWERS_MIXED, twins.answered),
        "answers of tools, another hand": marks(twins.ANSWERS_OTHERS, twins.answered),
        "words of people": marks(twins.SPEECH_TUNED, twins.said),
        "words of people, fresh": marks(twins.SPEECH_FRESH, twins.said),
        "loops": loop_marks(twins.LOOPS_TUNED),
        "loops, fresh": loop_marks(twins.LOOPS_FRESH),
        "crashes": marks(twins.CRASHES, twins.crashed),
    }


@pytest.fixture(scope="module")
def table() -> dict[str, tuple[int, int, int, int]]:
    return measured()


def test_precision_and_recall(table: dict[str, tuple[int, int, int, int]]) -> None:
    for name, (found, harmful, flagged, harmless) in table.items():
        assert found >= 0.9 * harmful, name
        assert flagged <= 0.05 * harmless, name


def test_the_page_prints_what_is_measured(table: dict[str, tuple[int, int, int, int]]) -> None:
    page = DOCS.read_text(encoding="utf-8")
    for name, (found, harmful, flagged, harmless) in table.items():
        precision = f"{100 * found / (found + flagged):.0f} %"
        line = (
            f"| {name} | {found} of {harmful} | {flagged} of {harmless} | {precision} | {100 * found / harmful:.0f} % |"
        )
        assert line in page, line


@pytest.mark.parametrize(
    "text",
    ["Order total: 500 EUR", "Flight 401 leaves at 9:10", '{"id": 409}', "0 errors, 0 warnings", '{"error": null}'],
)
def test_a_number_or_a_word_is_no_failure(text: str) -> None:
    assert detect(twins.answered(text)).is_empty()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"error": {"code": 403, "message": "nope"}}', "execution.failure.auth"),
        ('{"isError": true, "message": "quota"}', "environment.exhaustion.rate_limit"),
        ("Traceback (most recent call last):\n  File x\nKeyError: 'a'", "execution.failure.other"),
        ("[ERROR] Access denied.", "execution.failure.auth"),
    ],
)
def test_an_answer_that_says_so_is_one(text: str, kind: str) -> None:
    assert detect(twins.answered(text))["type"].to_list() == [kind]


def test_crashed_episodes_are_read_first_and_once() -> None:
    quiet = [twins.answered("fine").with_column(episode=[n, n], error=[None, None]) for n in range(8)]
    failed = twins.answered("403 Forbidden").with_column(episode=[8, 8], error=[None, None])
    crashed = twins.answered("fine").with_column(episode=[9, 9], error=["env: ValueError: bad move"] * 2)
    limited = twins.answered("fine").with_column(episode=[10, 10], error=[None, None], limit=["token"] * 2)
    turns = Turns.concat([*quiet, failed, crashed, limited])
    chosen = triage(turns, 3)
    assert chosen["episode"].to_list() == [9, 8, 10]
    assert chosen["why"].to_list() == ["crash.env", "failure.auth", "exhaustion.limit"]
    assert chosen["score"].to_list() == pytest.approx([12.0, 6.4, 2.4])
    assert chosen["quality"][0] == 0
    found = detect(turns)
    assert found["row"].to_list() == [16, 19, 21], "the row of the call, else the last"
