"""What a use is measured by: functions of what a command left behind, one number per seed or one for the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, nearest
from palaestra.foundation.registry import load_object, read_call


@dataclass(frozen=True)
class Left:
    """What one command left behind.

    Attributes:
        directory: its working directory; a training wrote into `run/` there.
        code: its exit code.
        stdout: what it printed.
    """

    directory: Path
    code: int
    stdout: str

    def seeds(self) -> list[Path]:
        """The folders of a training's seeds, in order."""
        return sorted((self.directory / "run").glob("seed-*"), key=lambda path: int(path.name.partition("-")[2]))


Measure = Callable[[Left], list[float]]
MEASURES: dict[str, Callable[..., Measure]] = {}


def _measure(make: Callable[..., Measure]) -> Callable[..., Measure]:
    MEASURES[make.__name__] = make
    return make


def measure(text: str) -> Measure:
    """The measure of a row's text: `success()`, `metric("reward", last=10)`, `module:function("x")`.

    Raises:
        InputError: there is no such measure.
    """
    name, values, options = read_call(text, 'success(), metric("success", last=10)')
    if ":" in name:
        return load_object(name, "measure")(*values, **options)  # type: ignore[no-any-return]
    if name not in MEASURES:
        raise InputError(f"unknown measure {name!r}{nearest(name, MEASURES)}")
    return MEASURES[name](*values, **options)


@_measure
def success(system: str = "after") -> Measure:
    """Share of held-out episodes in which a system succeeds, per seed; systems: before, after, controls by name."""
    return _held_out("success", system)


@_measure
def held_out(column: str, system: str = "after") -> Measure:
    """Mean of a column over the held-out episodes of a system, per seed."""
    return _held_out(column, system)


def _held_out(column: str, system: str) -> Measure:
    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            table = pl.read_parquet(seed / "evaluation.parquet").filter(pl.col("system") == system)
            if table.is_empty():
                raise InputError(f"no system {system!r} in the evaluation")
            of_one = ("task", "trial") if "trial" in table.columns else ("task", "group", "episode")
            last = table.group_by(of_one).agg(pl.col(column).cast(float).last())
            found.append(float(last[column].mean()))  # type: ignore[arg-type]
        return found

    return measured


@_measure
def metric(name: str, last: int | None = None, first: int | None = None) -> Measure:
    """Mean of a training metric over iterations, per seed; a dot goes into an object: `policies.player.entropy`.

    Args:
        name: path of the metric in `metrics.jsonl`.
        last: only so many last iterations.
        first: only so many first ones.
    """

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            lines = [json.loads(line) for line in (seed / "metrics.jsonl").read_text().splitlines()]
            values = [_inside(line, name) for line in lines]
            values = values[:first] if first else values
            values = values[-last:] if last else values
            found.append(float(np.nanmean([np.nan if value is None else float(value) for value in values])))
        return found

    return measured


@_measure
def turns(expression: str) -> Measure:
    """Mean of a signal over the saved training turns, per seed; missing values leave the mean."""

    def measured(left: Left) -> list[float]:
        signal = parse(expression)
        tables = [Turns.load(seed / "turns") for seed in left.seeds()]
        return [float(np.nanmean(np.asarray(signal.evaluate(table), float))) for table in tables]

    return measured


@_measure
def summary(path: str) -> Measure:
    """One number of a training's `summary.json`, or one per seed where the path ends in a list."""

    def measured(left: Left) -> list[float]:
        value = _inside(json.loads((left.directory / "run" / "summary.json").read_text()), path)
        return [float(each) for each in value] if isinstance(value, list) else [float(value)]

    return measured


@_measure
def printed(path: str) -> Measure:
    """One number of what a command printed with `--json`; a part of the path that is a number is a position."""

    def measured(left: Left) -> list[float]:
        return [float(_inside(json.loads(left.stdout), path))]

    return measured


def _inside(data: Any, path: str) -> Any:
    for part in path.split("."):
        try:
            data = data[int(part)] if isinstance(data, list) else data[part]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            there = sorted(data) if isinstance(data, dict) else type(data).__name__
            raise InputError(f"no {part!r} on the way of {path!r}; there is {there}") from error
    return data
