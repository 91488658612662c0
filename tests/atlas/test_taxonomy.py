"""Everything that works has a place among the parts of an agent."""

from __future__ import annotations

import json

import pytest

from palaestra.errors import InputError
from palaestra.interface import cli
from palaestra_atlas import systems
from palaestra_atlas.taxonomy import HEADINGS, place, taxonomy


def test_the_longest_name_decides() -> None:
    headings = {("a", "b"): ("rewards",), ("a", "c"): ("rewards.count_bonus",)}
    assert place("palaestra.rewards.count_bonus", headings) == ("a", "c")
    assert place("palaestra.rewards.count_bonuses", headings) == ("a", "b")
    with pytest.raises(InputError, match=r"credit\.gae has no heading"):
        place("palaestra.credit.gae", headings)


def test_every_object_has_one_place_and_every_system_one_at_least() -> None:
    table = taxonomy()
    placed = table["objects"].explode().drop_nulls().to_list()
    claimed = {name for entry in systems() for name in entry.where if not name.endswith("taxonomy.taxonomy")}
    assert sorted(placed) == sorted(claimed)
    assert set(table["ids"].explode().drop_nulls()) == {each.id for each in systems() if each.where} - {189}
    for (part, heading), names in HEADINGS.items():  # no heading claims what is not there
        (row,) = table.filter((table["part"] == part) & (table["heading"] == heading)).rows(named=True)
        assert bool(row["objects"]) == bool(names), heading


def test_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["systems", "--survey", "--json"])
    assert done.value.code == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["heading"] for row in rows] == [heading for _, heading in HEADINGS]
    with pytest.raises(SystemExit):
        cli.main(["systems", "--survey"])
    assert "no system" in capsys.readouterr().out
