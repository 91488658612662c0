from __future__ import annotations

import pytest

from palaestra.foundation.registry import Registry, read_call


def test_what_was_read_once_may_be_changed() -> None:
    text = "clip([0.2, 0.28], over={'a': [1]})"
    _, values, options = read_call(text)
    values[0].append(3)
    options["over"]["a"].append(2)
    assert read_call(text) == ("clip", [[0.2, 0.28]], {"over": {"a": [1]}})


def test_a_name_that_is_given_again_is_built_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaestra.foundation.registry.REGISTRIES", {})
    names: Registry[list[int]] = Registry("kind of a test", example="one(1)")
    names.add("one", lambda: [1])
    first = names.build("one()")
    assert names.build("one()") is not first
    names.remove("one")
    names.add("one", lambda number: [number])
    assert names.build("one(2)") == [2]


def test_a_maker_that_cannot_be_hashed_is_a_maker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaestra.foundation.registry.REGISTRIES", {})

    class Maker:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, number: int) -> int:
            return number

    names: Registry[int] = Registry("kind of a test")
    names._made["one"] = Maker()
    assert names.build("one(2)") == 2
