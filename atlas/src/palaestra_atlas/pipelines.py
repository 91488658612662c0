"""What the training lines of the atlas are made of: steps in the words of [36], loops on the axes of [6].

Both are read off the recipe that a row's `use:` line stands for, so that they cannot be older than it. Left out: lines
that are no training, and rows without a line.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from palaestra.foundation.registry import load_object
from palaestra.runs.loops import AXES, describe, loops, places
from palaestra.runs.recipe import Recipe, load, names
from palaestra.runs.steps import row_of
from palaestra_atlas import systems
from palaestra_atlas.rows import System

T = TypeVar("T")
FAMILY = "self_improvement"
"""The family whose lines are shown: the surveys are of it."""


@contextlib.contextmanager
def recipe_of(system: System) -> Iterator[Recipe | None]:
    """The recipe that a row's line trains, with what the line overrides; None if it is no training.

    Files that the recipe names are in the current directory for as long as the block lasts.
    """
    _, command, *words = shlex.split(system.use.line if system.use else "palaestra nothing")
    if system.use is None or command != "train":
        yield None
        return
    source, *changes = [word for word in words if not word.startswith("-")]
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.chdir(folder)
            if system.use.data is not None:
                load_object(system.use.data, "data")(0, Path(folder))
            yield load(source, changes, trust=True)
        finally:
            os.chdir(before)


def of_lines(make: Callable[[Recipe], T], family: str = FAMILY) -> dict[int, T]:
    """What a function makes of the recipe of each row of a family whose line is a training, by id."""
    found = {}
    for system in systems():
        if system.family == family:
            with recipe_of(system) as recipe:
                if recipe is not None:
                    found[system.id] = make(recipe)
    return found


def pipelines(family: str = FAMILY) -> list[dict[str, Any]]:
    """A row per training line of a family: id, system, and its steps as `palaestra.runs.steps.row_of` writes them."""
    named = {system.id: system.name for system in systems()}
    return [{"id": number, "system": named[number], **row} for number, row in of_lines(row_of, family).items()]


def evolution(family: str = FAMILY) -> pl.DataFrame:
    """`axis, value, loops, recipes, ids`: a row per value of the survey's axes [6], in its order.

    loops: names of the library at this value. recipes: shipped ones that have such a loop, and can be run as they are.
    ids: rows of the family whose line has one. Lists are empty where there is nothing. A row with axis `missing` names
    what should declare a loop and does not.
    """
    found, missing = loops()
    below = places(found)
    shipped = {name: places(describe(load(name))) for name in names()}
    lines = of_lines(lambda recipe: places(describe(recipe)), family)
    rows: list[dict[str, Any]] = [
        {
            "axis": axis,
            "value": value,
            "loops": below[axis][value],
            "recipes": [name for name, at in shipped.items() if at[axis][value]],
            "ids": [number for number, at in lines.items() if at[axis][value]],
        }
        for axis, values in AXES.items()
        for value in values
    ]
    if missing:
        rows.append({"axis": "missing", "value": "", "loops": missing, "recipes": [], "ids": []})
    lists = {"loops": pl.List(pl.String), "recipes": pl.List(pl.String), "ids": pl.List(pl.Int64)}
    return pl.DataFrame(rows, schema_overrides=lists)
