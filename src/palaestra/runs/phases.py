"""Phases of a recipe: fields that change between iterations, for how long, and in which order.

    phases:
    - {name: imitate, until: 20, learn: {terms: clone()}}
    - alternate:
      - {name: explore, until: 5, reward: "reward + .1 * count_bonus('state')"}
      - {name: exploit, until: stalled(3)}
      repeat: 4

A phase overrides fields of the recipe, as a control with `train` does; what the phase before it changed is not kept.
Left out: other policies, other seats, and what is decided once for a run, such as seeds and evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.errors import InputError, RecipeError, nearest
from palaestra.runs.conditions import Condition

CHANGES = ("env", "reward", "stages", "credit", "learn", "train")
"""Fields of a recipe that a phase may change."""

OF_TRAIN = ("groups", "group_size", "incomplete")
"""Fields of `train` that a phase may change."""

OF_THE_RUN = ("devices", "timeout")
"""Fields of `learn` that no phase may change."""


@dataclass(frozen=True)
class Phase:
    """Data of one training phase: its name, the condition that ends it (None: never), and recipe fields it changes."""

    name: str
    ends: Condition | None
    changes: Mapping[str, Any]

    @property
    def place(self) -> str:
        """The phase's place in the recipe, for messages: `phases.NAME`."""
        return f"phases.{self.name}"


@dataclass(frozen=True)
class Cycle:
    """Data of a cycle: training phases that follow each other, repeated `times` times; None: until the run ends."""

    phases: tuple[Phase, ...]
    times: int | None


@dataclass(frozen=True)
class Order:
    """Data of a run's sequence of phases: (phase number, round) pairs, and whether the last cycle is endless.

    endless: the last cycle goes on as long as the run; then `steps` are at least as many as its iterations.
    """

    steps: tuple[tuple[int, int], ...]
    endless: bool


def read(written: Sequence[Mapping[str, Any]], iterations: int | None = None) -> list[Cycle]:
    """Parse a recipe's `phases` (dicts) into a list of `Cycle`; a phase by itself is a cycle of one. RecipeError else.

    Args:
        written: The phases as a recipe has them.
        iterations: Of the run, of which `until: share(x)` takes a part.

    Raises:
        RecipeError: a field is not known, or missing, or cannot change; names the phase and the field.
    """
    cycles = [
        _cycle(item, f"phases.{number}", number == len(written) - 1, iterations) for number, item in enumerate(written)
    ]
    seen: set[str] = set()
    for phase in phases_of(cycles):
        if phase.name in seen:
            raise RecipeError(f"{phase.place}: there are two phases of this name; give each its own")
        seen.add(phase.name)
    return cycles


def phases_of(cycles: Sequence[Cycle]) -> list[Phase]:
    """List of all phases of the cycles, each once, in order."""
    return [phase for cycle in cycles for phase in cycle.phases]


def order(cycles: Sequence[Cycle], iterations: int) -> Order:
    """The `Order` of (phase number, round) pairs of `cycles` in a run of so many iterations, at one iteration a phase.

    >>> a, b, c = ({"name": name, "until": 1} for name in "abc")
    >>> cycles = read([a, {"alternate": [b, c]}])
    >>> order(cycles, 5).steps
    ((0, 1), (1, 1), (2, 1), (1, 2), (2, 2), (1, 3), (2, 3))
    """
    steps: list[tuple[int, int]] = []
    first = 0
    for cycle in cycles:
        times = cycle.times if cycle.times is not None else -(-iterations // len(cycle.phases))
        numbers = range(first, first + len(cycle.phases))
        steps += [(number, each) for each in range(1, max(times, 1) + 1) for number in numbers]
        first += len(cycle.phases)
    return Order(tuple(steps), bool(cycles) and cycles[-1].times is None)


def _cycle(item: Any, place: str, last: bool, total: int | None) -> Cycle:
    if not isinstance(item, Mapping):
        raise RecipeError(f"{place}: a phase is a mapping of fields, found {item!r}")
    if "alternate" not in item:
        if "repeat" in item:
            raise RecipeError(f"{place}.repeat: of a list of phases: {{alternate: [...], repeat: 3}}")
        return Cycle((_phase(item, place, last, total),), 1)
    for field in item:
        if field not in ("alternate", "repeat"):
            raise RecipeError(f"{place}.{field}: unknown field (fields here: alternate, repeat)")
    listed, times = item["alternate"], item.get("repeat")
    if not isinstance(listed, list | tuple) or not listed:
        raise RecipeError(f"{place}.alternate: expected a list of phases, found {listed!r}")
    if times is not None and (isinstance(times, bool) or not isinstance(times, int) or times < 1):
        raise RecipeError(f"{place}.repeat: expected a number of rounds, at least 1, found {times!r}")
    if times is None and not last:
        raise RecipeError(f"{place}.repeat: what comes after it would never begin; say how often, repeat: 3")
    return Cycle(tuple(_phase(each, f"{place}.alternate.{n}", False, total) for n, each in enumerate(listed)), times)


def _phase(item: Any, place: str, last: bool, total: int | None) -> Phase:
    """last: it may be without an end. total: iterations of the run."""
    if not isinstance(item, Mapping):
        raise RecipeError(f"{place}: a phase is a mapping of fields, found {item!r}")
    name = item.get("name")
    if not isinstance(name, str) or not re.fullmatch(r"[\w-]+", name):
        raise RecipeError(f"{place}.name: a name of letters, digits, _ and - is needed, found {name!r}")
    place = f"phases.{name}"
    for field, value in item.items():
        _may_change(field, value, place)
    until = item.get("until")
    if until is None and not last:
        raise RecipeError(f"{place}.until: when is it over? A number of iterations, success > .9, stalled(5), …")
    try:
        ends = None if until is None else Condition(until, total)
    except InputError as error:
        raise RecipeError(f"{place}.until: {error}") from error
    return Phase(name, ends, {field: value for field, value in item.items() if field not in ("name", "until")})


def _may_change(field: str, value: Any, place: str) -> None:
    known = ("name", "until", *CHANGES)
    if field not in known:
        raise RecipeError(f"{place}.{field}: no phase can change it{nearest(field, known)}")
    if field in ("env", "learn", "train") and not isinstance(value, Mapping):
        raise RecipeError(f"{place}.{field}: expected a mapping of fields, found {value!r}")
    for inner in _fixed(field, value):
        raise RecipeError(
            f"{place}.{field}.{inner}: the same for the whole run; say it at {field}.{inner} of the recipe"
            + (", and how long a phase is under `until`" if inner == "iterations" else "")
        )


def _fixed(field: str, value: Mapping[str, Any]) -> Iterator[str]:
    for inner in value if field in ("learn", "train") else ():
        if inner in OF_THE_RUN if field == "learn" else inner not in OF_TRAIN:
            yield inner
