"""A team that is trained, shifted, and trained on."""

from __future__ import annotations

import json

import pytest

from palaestra.errors import InputError
from palaestra.evaluation.analyses import analyze
from palaestra.runs.adaptation import train_under_shifts
from palaestra.runs.recipe import validate

RECIPE = {
    "name": "arms",
    "env": {"make": "native/arms", "options": {"pays": [0.0, 1.0]}},
    "policies": {"player": {"kind": "tabular"}},
    "team": {"*": "player"},
    "learn": {"lr": 0.5},
    "train": {"iterations": 4, "groups": 2, "group_size": 16},
}
SHIFT = {"shift": "pays", "magnitude": 1, "changes": {"env": {"options": {"pays": [1.0, 0.0]}}}}


def test_a_frozen_team_fails_where_the_arms_change_places_and_one_that_learns_on_forgets():
    table = train_under_shifts(validate(RECIPE), [SHIFT], steps=8)
    found = {phase: part["return"].to_list() for (phase,), part in table.group_by("phase")}
    assert len(found["frozen"]) == len(found["base_before"]) == len(found["base_after"]) == 1
    assert (len(found["retrained"]), len(found["scratch"])) == (8, 4)
    assert found["base_before"][0] > 0.8
    assert found["frozen"][0] < 0.2
    assert found["retrained"][-1] > found["retrained"][0]
    assert found["base_after"][0] < found["base_before"][0]


def test_shifts_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "recipe.json").write_text(json.dumps(RECIPE))
    (tmp_path / "shifts.json").write_text(json.dumps([{"shift": "pays"}]))
    with pytest.raises(InputError, match="changes, magnitude, shift"):
        analyze("adapt", tmp_path / "recipe.json", tmp_path / "shifts.json")
    with pytest.raises(InputError, match="cannot be read"):
        analyze("adapt", tmp_path / "recipe.json", tmp_path / "none.json")
