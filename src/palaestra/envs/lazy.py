"""Observations whose parts are made when they are first read: who reads only features pays for no text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from palaestra.envs.protocol import Action, Observation

Make = Callable[[str], Any]
"""Name of a field -> its value."""


class _Made:
    """A field that is made when it is first read; the instance keeps it where it is found before this one is."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, seen: Any, owner: type | None = None) -> Any:
        if seen is None:
            return self
        kept = seen.__dict__
        value = kept[self._name] = kept["_make"](self._name)
        return value


class LazyObservation(Observation):
    """`Observation` whose fields are computed by a function when they are first read, and cached.

    In comparisons, copies, pickles and `dataclasses.replace` it is an ordinary `Observation`; all of them read every
    field.

    >>> seen = LazyObservation.of(lambda field: f"a long {field}", choices=("yes", "no"))
    >>> seen.choices, seen.text
    (('yes', 'no'), 'a long text')
    """

    text = _Made()  # type: ignore[assignment]
    choices = _Made()  # type: ignore[assignment]
    mask = _Made()  # type: ignore[assignment]
    array = _Made()  # type: ignore[assignment]
    messages = None
    tools = ()
    fields = ()

    @staticmethod
    def of(make: Make, **given: Any) -> LazyObservation:
        """An observation with the given fields; `make(field)` computes the others when they are read.

        What it makes must be the same whenever it is asked, also after the env went on, and in any thread.
        """
        seen: LazyObservation = _NEW(LazyObservation)
        kept = seen.__dict__
        kept["_make"] = make
        if given:
            kept.update(given)
        return seen

    def index(self, action: Action) -> int | None:
        """The id of `action` if it is legal here, else None; a number needs no names."""
        if type(action) is int and (mask := self.mask) is not None:
            return action if 0 <= action < len(mask) and mask[action] else None
        return Observation.index(self, action)

    def key(self) -> int:
        """As `Observation.key`, kept: envs may share one observation between episodes."""
        kept = self.__dict__
        found: int | None = kept.get("_key")
        if found is None:
            found = kept["_key"] = Observation.key(self)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """What is pickled and copied is an ordinary observation."""
        return Observation, tuple(getattr(self, field.name) for field in fields(Observation))

    @property  # type: ignore[misc]
    def __class__(self) -> type[Observation]:  # type: ignore[override]
        """For the methods that a dataclass has, this is its base class: equal fields make equal observations."""
        return Observation


_NEW = object.__new__
