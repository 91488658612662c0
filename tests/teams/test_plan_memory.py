"""Plans that worked: when there is a reference, what lists have in common, and the file between runs."""

from __future__ import annotations

import pytest

from palaestra.errors import InputError, StorageError
from palaestra.teams.plan_memory import PlanMemory, common


def test_longest_common_subsequence():
    assert common(("a", "b", "c", "d"), ("b", "x", "d")) == ("b", "d")
    assert common((), ("a",)) == ()
    assert common(("a", "b"), ("b", "a")) == ("a",), "the earliest of the first list"


def test_only_the_newest_successes_count():
    memory = PlanMemory(least=2, most=2)
    for plan in (["x"], ["a", "y"], ["a", "z"]):
        memory.add("log", plan, success=True)
    memory.add("log", ["q"], success=False)
    assert memory.reference("log") == ("a",)
    memory.add("log", ["b"], success=True)
    assert memory.reference("log") is None, "nothing in common"
    assert memory.reference("stone") is None


def test_the_next_run_reads_what_was_saved(tmp_path):
    file = tmp_path / "plans.json"
    assert PlanMemory.load(file, least=1).plans == {}
    memory = PlanMemory(least=1)
    memory.add("log", ["explore log", "mine log"], success=True)
    memory.save(file)
    assert PlanMemory.load(file, least=1) == memory
    file.write_text("[1]")
    with pytest.raises(StorageError, match="holds no plans"):
        PlanMemory.load(file)
    with pytest.raises(InputError, match="least"):
        PlanMemory(least=3, most=2)
