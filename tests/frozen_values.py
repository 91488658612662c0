"""Values that were right once, kept row by row: `differences` says which formula gives others now, and on which rows.

The file has a line for each case: its expression, and what it gave, to six significant digits. `python -m
tests.credit.test_frozen` (and the like) writes the file again and prints what changed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tests.frozen import Case

from palaestra.errors import PalaestraError

ROWS = 8
"""Rows that are kept of a longer table or list, evenly spaced, beside the mean of all, or how many words differ."""


def plain(value: Any, rows: int | None = None) -> Any:
    """As JSON has it: a table by column, a record by field; missing is null, NaN and infinities are words.

    Args:
        value: of numbers, words, arrays, tables, and lists or mappings of these.
        rows: of longer tables and arrays of numbers so many are kept, and the mean of all; None: everything.
    """
    if isinstance(value, pl.DataFrame):
        return {name: plain(value[name], rows) for name in value.columns}
    if isinstance(value, pl.Series):
        return plain(value.to_list(), rows)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name), rows) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each, rows) for key, each in value.items()}
    if hasattr(value, "tolist"):  # arrays and tensors, and their scalars
        return plain(value.tolist(), rows)
    if isinstance(value, (list, tuple)):
        found = [plain(each, rows) for each in value]
        return _thinned(found, rows) if rows is not None and len(found) > rows else found
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return _number(float(value))


def _number(value: float) -> float | int | str:
    if not math.isfinite(value):
        return str(value)
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _thinned(found: list[Any], rows: int) -> dict[str, Any]:
    places = np.unique(np.linspace(0, len(found) - 1, rows).round().astype(int))
    numbers = [float(each) for each in _leaves(found)]
    mean = {"mean": _number(sum(numbers) / len(numbers))} if numbers else {}
    words = {"different": len(set(found))} if any(isinstance(each, str) for each in found) else {}
    return {"length": len(found), **mean, **words, **{str(place): found[place] for place in places}}


def _leaves(value: Any) -> Iterator[float]:
    """Numbers and truth values in lists, at any depth."""
    if isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, (int, float)):
        yield value


def found(case: Case, rows: int | None = None) -> Any:
    """What a case gives, or the name of an error that says what is wrong."""
    try:
        return plain(case(), rows)
    except PalaestraError as error:
        return type(error).__name__


@cache
def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8")))


def differences(file: Path, cases: Mapping[str, Case], kind: str, rows: int | None = None) -> str:
    """What cases of this kind, the first word of their name, give otherwise than the file says; empty: nothing.

    Names that end in ~ come from iterations, in ~~ from single precision: those are kept to 1e-5 and 1e-4.
    """
    then = {name: value for name, value in _read(file).items() if name.split()[0] == kind}
    now = {name: case for name, case in cases.items() if name.split()[0] == kind}
    lines = [f"{name}: in the file, and no case any more" for name in then if name not in now]
    for name, case in now.items():
        if name not in then:
            lines.append(f"{name}: not in the file")
        elif other := list(_differ(then[name], found(case, rows), _nearness(name))):
            more = f" … and {len(other) - 6} more" if len(other) > 6 else ""
            lines.append(f"{name}: {'; '.join(other[:6])}{more}")
    return "\n".join(lines)


def _nearness(name: str) -> tuple[float, float]:
    """Relative and absolute difference that counts as none; of what is kept the sixth digit is rounded."""
    return (1e-4, 1e-5) if name.endswith("~~") else (1e-5, 1e-7) if name.endswith("~") else (2e-6, 1e-9)


def _differ(then: Any, now: Any, near: tuple[float, float], at: str = "") -> Iterator[str]:
    """Places with another value: `[3] 0.5 -> 0.7`."""
    if isinstance(then, dict) and isinstance(now, dict) and then.keys() == now.keys():
        for key in then:
            yield from _differ(then[key], now[key], near, f"{at}.{key}")
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for place, (old, new) in enumerate(zip(then, now, strict=True)):
            yield from _differ(old, new, near, f"{at}[{place}]")
    elif not _same(then, now, near):
        yield f"{at} {json.dumps(then)[:80]} -> {json.dumps(now)[:80]}".strip()


def _same(then: Any, now: Any, near: tuple[float, float]) -> bool:
    if all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in (then, now)):
        return math.isclose(then, now, rel_tol=near[0], abs_tol=near[1])
    return type(then) is type(now) and bool(then == now)


def write(file: Path, cases: Mapping[str, Case], rows: int | None = None) -> None:
    """The file again; prints what changed."""
    then = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    now = {name: found(case, rows) for name, case in cases.items()}
    for name in [*now, *(name for name in then if name not in now)]:
        if name not in then or name not in now:
            print(f"{name}: {'new' if name in now else 'gone'}")
        elif other := list(_differ(then[name], now[name], _nearness(name))):
            print(f"{name}: {'; '.join(other[:3])}")
    lines = [f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in now.items()]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
