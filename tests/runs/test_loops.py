"""Loops: all are declared, and runs change what is declared."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from palaestra.errors import InputError
from palaestra.learning.stages.stage import STAGES, Stage
from palaestra.runs.loops import AXES, LOOPS, Loop, describe, fingerprint, loop_of, loops, observe, places
from palaestra.runs.recipe import load, override

ANSWERS = override(load("answers"), {"train": {"groups": 4, "group_size": 4}})


def test_all_are_declared_and_no_row_is_of_nothing() -> None:
    found, missing = loops()
    assert missing == []
    rows = {(each.kind, each.name): each.row for each in found}
    assert rows == {(kind, name): row for kind, names in LOOPS.items() for name, row in names.items() if row}


def test_a_loop_from_outside_declares_itself() -> None:
    @STAGES.register("diary")
    class diary(Stage):
        def state_dict(self) -> dict[str, object]:
            return {}

    try:
        with pytest.raises(InputError, match="stage diary: says not what evolves"):
            loop_of("stage", "diary")
        assert "stage diary" in loops()[1]
        diary.loop = ("memory", "between", "text")  # type: ignore[attr-defined]
        assert loop_of("stage", "diary") == Loop("memory", "between", "text")
        diary.loop = ("memory", "sometimes", "text")  # type: ignore[attr-defined]
        with pytest.raises(InputError, match="diary: when='sometimes' is none of within, between"):
            loop_of("stage", "diary")
    finally:
        STAGES.remove("diary")


def test_places_have_every_value() -> None:
    found = places(describe(load("leduc-psro")))
    assert {axis: tuple(values) for axis, values in found.items()} == AXES
    assert found["evolves"]["team"] == ["psro"]
    assert found["evolves"]["tool"] == []


def test_phases_are_part_of_a_recipe() -> None:
    phases = [{"name": "a", "until": 1, "learn": {"terms": "clone()"}}, {"name": "b", "stages": ["accumulate()"]}]
    rows = [(each.name, each.row.signal) for each in describe(override(ANSWERS, {"phases": phases}))]
    assert rows == [
        ("policy_gradient", "demonstration"), ("policy_gradient", "scalar"), ("accumulate", "demonstration"),
    ]  # fmt: skip


def test_what_changes_is_observed() -> None:
    changed = observe(override(ANSWERS, {"stages": ["accumulate()", "keep('success')"]}), iterations=1)
    assert changed == (True, ["accumulate"])


def test_fingerprints() -> None:
    state = {"a": np.arange(3), "b": [torch.zeros(2), None, 1.5]}
    assert fingerprint(state) == fingerprint({"b": [torch.zeros(2), None, 1.5], "a": np.arange(3)})
    for other in ({**state, "a": np.arange(3.0)}, {**state, "b": [torch.ones(2), None, 1.5]}, {"a": np.arange(3)}):
        assert fingerprint(other) != fingerprint(state)
