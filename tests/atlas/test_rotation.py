"""Rows take turns; with old evidence more often, without any always."""

from __future__ import annotations

import pytest
from tests.atlas import rotation

from palaestra_atlas import systems


@pytest.fixture(autouse=True)
def another_turn_than_that_of_18(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PALAESTRA_ALL", raising=False)
    monkeypatch.setattr(rotation, "turn", lambda: (rotation.parts()[18] + 1) % rotation.PARTS)
    monkeypatch.setattr(rotation, "proved", lambda number: number != 18)


def test_each_row_is_played_once_in_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [row.id for row in systems() if row.id != 18]
    played = []
    for turn in range(rotation.PARTS):
        monkeypatch.setattr(rotation, "turn", lambda turn=turn: turn)
        played.append({number for number in numbers if rotation.due(number)})
    assert sorted(number for part in played for number in part) == numbers
    assert all(len(part) <= 50 for part in played)


def test_a_row_with_evidence_of_other_code_is_played_every_fourth_time(monkeypatch: pytest.MonkeyPatch) -> None:
    played = []
    for turn in range(rotation.PARTS):
        monkeypatch.setattr(rotation, "turn", lambda turn=turn: turn)
        played.append(rotation.due(18))
    assert sum(played) == rotation.PARTS / rotation.OLD


def test_a_row_without_evidence_is_always_played(monkeypatch: pytest.MonkeyPatch) -> None:
    read = rotation.evidence.read
    monkeypatch.setattr(rotation.evidence, "read", lambda number: None if number == 18 else read(number))
    other = next(n for n, part in rotation.parts().items() if part == rotation.parts()[18] and n != 18)
    rotation.skip_unless_due(18)
    with pytest.raises(pytest.skip.Exception, match="PALAESTRA_ALL=1"):
        rotation.skip_unless_due(other)


def test_all_are_played_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAESTRA_ALL", "1")
    rotation.skip_unless_due(22)
