"""Numbers that were right once, kept: `changed` compares one number per case with a file beside the test.

For what worked numbers and properties leave out: a default, a sign, a tie at a threshold. A case that changes is a
change of behaviour; `python -m tests.evaluation.test_frozen` (and the like) writes the file again and says which.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.errors import PalaestraError

Case = Callable[[], Any]


def texts(listed: str) -> list[str]:
    """What stands between bars."""
    return " ".join(listed.split()).split(" | ")


def leaves(value: Any) -> Iterator[float]:
    """Every number in it, in order; words as numbers of their own; missing, infinite and empty are told apart."""
    if isinstance(value, pl.DataFrame):
        yield from leaves([*value.columns, *value.iter_rows()])
    elif isinstance(value, pl.Series):
        yield from leaves(value.to_list())
    elif is_dataclass(value) and not isinstance(value, type):
        yield from leaves([getattr(value, each.name) for each in fields(value)])
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves([str(key), each])
    elif isinstance(value, np.ndarray):
        yield from leaves([list(value.shape), *value.ravel().tolist()])
    elif isinstance(value, (list, tuple)):
        yield float(len(value))
        for each in value:
            yield from leaves(each)
    elif value is None or isinstance(value, (str, bytes)):
        yield 1 + zlib.crc32(repr(value).encode()) / 2**32
    else:
        number = float(value)
        yield 7.7 if math.isnan(number) else math.copysign(99.9, number) if math.isinf(number) else math.asinh(number)


def digest(value: Any) -> float:
    """One number for all of it: a sum with weights that tell the places apart."""
    numbers = np.fromiter(leaves(value), float)
    return float(np.random.default_rng(len(numbers)).uniform(1, 2, len(numbers)) @ numbers)


def found(case: Case) -> float | str:
    """What a case gives: a number, or the name of an error that says what is wrong."""
    try:
        return float(f"{digest(case()):.12g}")
    except PalaestraError as error:
        return type(error).__name__


@cache
def _read(file: Path) -> dict[str, float | str]:
    return dict(json.loads(file.read_text(encoding="utf-8")))


def kinds(cases: Iterable[str]) -> list[str]:
    """The first words of the names: a test of each."""
    return list(dict.fromkeys(name.split()[0] for name in cases))


def changed(
    file: Path, cases: Mapping[str, Case], kind: str
) -> dict[str, tuple[float | str | None, float | str | None]]:
    """Cases of this kind that are others than the file says, or that only one of both has: what each was, and is.

    Names that end in ~ come from iterations, in ~~ from single precision: those are kept to 1e-6 and 1e-4.
    """
    then = {name: value for name, value in _read(file).items() if name.split()[0] == kind}
    now = {name: found(case) for name, case in cases.items() if name.split()[0] == kind}
    both = {name: (then.get(name), now.get(name)) for name in then | now}
    return {name: values for name, values in both.items() if not _same(name, *values)}


def _same(name: str, then: float | str | None, now: float | str | None) -> bool:
    if not (isinstance(then, float | int) and isinstance(now, float | int)):
        return then == now
    near = 1e-4 if name.endswith("~~") else 1e-6 if name.endswith("~") else 1e-9
    return bool(now == pytest.approx(then, near))


def write(file: Path, cases: Mapping[str, Case]) -> None:
    """The file again; prints what changed."""
    then = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    now = {name: found(case) for name, case in cases.items()}
    for name in sorted(then.keys() | now.keys()):
        if then.get(name) != now.get(name):
            print(f"{name}: {then.get(name)} -> {now.get(name)}")
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in now.items()]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
