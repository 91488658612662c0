from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

from palaestra.envs.lazy import LazyObservation
from palaestra.envs.protocol import Observation

MASK, ARRAY = np.array([True, False, True]), np.array([0.5, 2.0], np.float32)
FIELDS: dict[str, Any] = {"text": "p0 2", "choices": ("up", "down", "stay"), "mask": MASK, "array": ARRAY}


def lazy(made: list[str], **given: Any) -> LazyObservation:
    """An observation that notes what it makes."""

    def make(name: str) -> Any:
        made.append(name)
        return FIELDS[name]

    return LazyObservation.of(make, **given)


def test_a_field_is_made_once_and_only_if_it_is_read() -> None:
    made: list[str] = []
    seen = lazy(made, choices=FIELDS["choices"])
    assert made == []
    assert seen.mask is MASK
    assert seen.mask is MASK
    assert made == ["mask"]
    assert seen.choices == FIELDS["choices"]
    assert (seen.messages, seen.tools, seen.fields) == (None, (), ())
    assert made == ["mask"], "what was given, and what has a default, is not made"
    with pytest.raises(AttributeError, match="nothing"):
        seen.nothing  # type: ignore[attr-defined]


def test_a_number_is_an_action_without_names_or_text() -> None:
    made: list[str] = []
    seen = lazy(made)
    assert [seen.index(action) for action in (0, 1, 2, 3, -1)] == [0, None, 2, None, None]
    assert made == ["mask"]
    plain = Observation(**FIELDS)
    for action in ("UP ", "down", "stay", "Action: up", 2.0, 1.5, np.int64(2), True, "?"):
        assert seen.index(action) == plain.index(action), action  # type: ignore[arg-type]


def test_it_equals_an_ordinary_observation_and_prints_like_one() -> None:
    plain, seen = Observation(**FIELDS), lazy([])
    assert seen == plain
    assert plain == seen
    assert seen == lazy([])
    assert seen != dataclasses.replace(plain, text="p0 1")
    assert repr(seen) == repr(plain)
    assert isinstance(seen, Observation)
    assert seen.key() == plain.key()
    assert seen.legal == plain.legal
    assert seen.conversation() == plain.conversation()
    assert seen.schema == plain.schema
    shown = LazyObservation.of(lambda name: name if name == "text" else None)
    assert hash(shown) == hash(Observation("text"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        seen.text = "other"  # type: ignore[misc]


def test_its_key_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, key = lazy([]), Observation(**FIELDS).key()
    assert seen.key() == key
    monkeypatch.setattr(Observation, "key", lambda _: 0)
    assert seen.key() == key


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda seen: pickle.loads(pickle.dumps(seen))])
def test_copies_and_pickles_are_ordinary_observations(copied: Any) -> None:
    again = copied(lazy([]))
    assert type(again) is Observation
    assert (again.text, again.choices) == (FIELDS["text"], FIELDS["choices"])
    np.testing.assert_array_equal(again.mask, MASK)
    np.testing.assert_array_equal(again.array, ARRAY)


def test_a_replaced_field_leaves_the_others() -> None:
    other = dataclasses.replace(lazy([]), text="else", messages=({"role": "user", "content": "?"},))
    assert type(other) is Observation
    assert (other.text, other.choices, other.mask is MASK) == ("else", FIELDS["choices"], True)
    assert dataclasses.asdict(lazy([]))["text"] == FIELDS["text"]
