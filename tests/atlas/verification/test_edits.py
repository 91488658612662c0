"""Edits put a stand-in into running code and take it out again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palaestra.errors import InputError
from palaestra_atlas.verification.edits import Edit, applied

SOURCE = '''
import functools
from dataclasses import dataclass

LIMIT = 3


def doubled(x, *, by=2):
    """Twice."""
    return x * by


def counter(start=0):
    total = start

    def add(n):
        nonlocal total
        total += n
        return total

    return add


@functools.lru_cache
def remembered(x):
    return x + LIMIT


class Base:
    def name(self):
        return "base"


class Thing(Base):
    def name(self):
        return "thing of " + super().name()

    @property
    def size(self):
        return LIMIT

    @size.setter
    def size(self, size):
        raise ValueError(size)

    @classmethod
    def make(cls):
        return cls()

    @staticmethod
    def half(x):
        return x / 2


@dataclass(frozen=True)
class Point:
    x: int = 1
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    import importlib
    import sys

    (tmp_path / "edited_here.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("edited_here")
    sys.modules.pop("edited_here")


def at(name: str, **change: Any) -> Edit:
    return Edit(at=f"edited_here:{name}", **change)


def test_a_replaced_text_is_seen_by_references_that_were_taken_before(module: Any) -> None:
    kept = module.doubled
    with applied([at("doubled", replace="x * by", by="x + by")]):
        assert (kept(5), module.doubled(5)) == (7, 7)
    assert kept(5) == 10


def test_it_is_taken_out_when_the_block_fails(module: Any) -> None:
    edits = applied([at("doubled", body="return 0"), at("LIMIT", set=9)])
    edits.__enter__()
    assert (module.doubled(4), module.LIMIT) == (0, 9)
    assert not edits.__exit__(RuntimeError, RuntimeError(), None)
    assert (module.doubled(4), module.LIMIT) == (8, 3)


def test_defaults_of_functions_and_dataclasses(module: Any) -> None:
    changes = {"doubled": {"by": 3}, "Point.__init__": {"x": 7}, "counter": {"start": 5}}
    with applied([at(name, default=change) for name, change in changes.items()]):
        assert (module.doubled(5), module.Point().x, module.counter()(1)) == (15, 7, 6)
    assert (module.doubled(5), module.Point().x, module.counter()(1)) == (10, 1, 1)


def test_closures_methods_properties_and_super(module: Any) -> None:
    thing = module.Thing()
    edits = [
        at("counter", replace="total += n", by="total -= n"),
        at("Thing.name", replace='"thing of "', by='"copy of "'),
        at("Thing.size", body="return 0"),
        at("Thing.make", body="return None"),
        at("Thing.half", replace="/ 2", by="/ 4"),
    ]
    with applied(edits):
        assert (module.counter()(2), thing.name(), thing.size, module.Thing.make(), thing.half(8)) == (
            -2, "copy of base", 0, None, 2,
        )  # fmt: skip
    assert (module.counter()(2), thing.name(), thing.size, thing.half(8)) == (2, "thing of base", 3, 4)


def test_remembered_answers_are_forgotten_on_both_ways(module: Any) -> None:
    assert module.remembered(1) == 4
    with applied([at("remembered", replace="x + LIMIT", by="x")]):
        assert module.remembered(1) == 1
    assert module.remembered(1) == 4


def test_two_edits_of_one_function_and_a_lent_name(module: Any) -> None:
    edits = [
        at("doubled", replace="x *", by="dumps(x) *"),
        at("doubled", replace="* by", by="* (by + 1)").model_copy(update={"uses": ("json:dumps",)}),
    ]
    with applied(edits):
        assert module.doubled(5) == "555"
    assert not hasattr(module, "dumps")


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("doubled", {"replace": "x / by", "by": ""}, "occurs 0 times"),
        ("doubled", {"replace": "x", "by": "y"}, "occurs 2 times"),
        ("nothing", {"body": "return 1"}, "no such function"),
        ("doubled", {"default": {"with_": 1}}, "no parameter 'with_'"),
        ("NOTHING", {"set": 1}, "there is no 'NOTHING'"),
        ("Thing.no", {"default": {"x": 1}}, "has no 'no'"),
    ],
)
def test_an_edit_that_does_not_fit_is_named(module: Any, name: str, change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said), applied([at(name, **change)]):
        pass


def test_an_edit_says_one_thing() -> None:
    with pytest.raises(ValueError, match="exactly one of"):
        at("doubled", body="return 1", set=2)
    with pytest.raises(ValueError, match="exactly one of"):
        at("doubled")
    with pytest.raises(ValueError, match="belongs to"):
        at("doubled", body="return 1", by="x")
