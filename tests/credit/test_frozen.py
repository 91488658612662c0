"""Every registered signal, with each of its parameters changed, gives the numbers it gave, row by row.

What those numbers should be is proved elsewhere: worked numbers, parity with the released code, properties. A case of
`frozen.json` is named by its expression; see `tests.frozen_values`.
"""

from __future__ import annotations

import inspect
import re
import zlib
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import polars as pl
import pytest
from tests.frozen_values import differences, write

import palaestra  # noqa: F401  (registers everything)
from palaestra.algebra.parse import parse
from palaestra.algebra.signals import REGISTRY, Signal
from palaestra.algebra.turns import Turns
from palaestra.errors import PalaestraError
from palaestra.testing.columns import COLUMNS, made
from palaestra.testing.examples import ELSEWHERE, example
from palaestra.testing.signal import sample_turns

FROZEN = Path(__file__).with_name("frozen.json")
NAMES = sorted(n for n, f in REGISTRY.items() if f.__module__.startswith("palaestra.") and n not in ELSEWHERE)
INSTEAD = {
    "over": ("'episode'", "'agent'", "('group', 'agent')"), "unit": ("'agent'",), "where": ("valid",),
    "at": ("'turn'",), "baseline": ("'group'",),
    "score": ("cost",), "advantage": ("reward",), "reward": ("cost",),
    "value": ("cost",), "limit": ("0.25",), "top": ("0.5", "2.0"), "cap": ("2",),
    "low": ("-0.25",), "high": ("0.25",), "fill": ("0",),
    "gamma": ("0.5",), "key": ("state",), "state": ("'action'",), "seat": ("'turn'",), "terminal": ("cost",),
    "bootstrap": ("cost",), "first": ("0.5",), "scale": ("0.25",), "form": ("'inv'", "'linear'"), "otherwise": ("0",),
    "teams": ("team()",), "parent": ("'state'",), "stratum": ("'agent'",), "global_key": ("state",),
    "n": ("1", "3"), "weight": ("cost",), "metric": ("cost",), "local": ("cost",), "entropy": ("cost",),
    "outcome": ("cost",), "step": ("cost",), "episode": ("cost",), "target": ("reward",), "item": ("cost",),
    "executed": ("valid",), "phi": ("cost",), "depends_on": ("success", "(success, cost > 0.5)"), "scope": ("'run'",),
    "edges": ("(0.25, 0.5, 0.75, 1.0)",), "levels": ("(1.0, 0.75, 0.5, 0.25)",), "view": ("'view'",),
    "weights": ("(0.25, 2.0)", "(0.25, 2.0, 0.5)"), "clicks": ("('open', 'click')",),
}  # fmt: skip
"""What to write for a parameter whose default is a name, a key or nothing."""


def flipped(hint: Any, name: str, default: Any) -> list[str]:
    """Other values of a parameter: each other choice, the other truth value, numbers around it."""
    choices = [c for each in (hint, *get_args(hint)) if get_origin(each) is Literal for c in get_args(each)]
    if choices:
        return [repr(choice) for choice in choices if choice != default]
    if isinstance(default, bool):
        return [str(not default)]
    if isinstance(default, int):
        return [str(default + 1), str(default + 2)]
    if isinstance(default, float) and 0 < default < 1e-3:  # of six digits a value as small as it shows nothing
        return ["0.5", "0.125"]
    if isinstance(default, float):
        return [repr(default * 2 if default else 1.0), repr(default / 2 if default else 0.25)]
    return [value for value in INSTEAD.get(name, ()) if value != repr(default)]


def texts(name: str) -> list[str]:
    """The example of a signal, and one more for each change of a parameter that it does not give."""
    text, function = example(name), REGISTRY[name]
    hints, found = get_type_hints(function), [text]
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is parameter.empty or f"{parameter.name}=" in text:
            continue
        for value in flipped(hints.get(parameter.name), parameter.name, parameter.default):
            gap = "" if text.endswith("()") else ", "
            found.append(f"{text[:-1]}{gap}{parameter.name}={value})")
    return found


def together(name: str) -> list[str]:
    """Each other choice or truth value, with all numbers changed: a weight of 1 hides what is done with it."""
    hints, found = get_type_hints(REGISTRY[name]), []
    defaults = {p.name: p.default for p in inspect.signature(REGISTRY[name]).parameters.values()}
    given = [(key, default) for key, default, _ in numeric(name) if isinstance(default, (int, float))]
    numbers = {key: flipped(hints.get(key), key, default)[-1] for key, default in given}
    for key, default in defaults.items():
        way = isinstance(default, (bool, str)) or key == "flavour"
        for value in (
            flipped(hints.get(key), key, default) if way and numbers and f"{key}=" not in example(name) else ()
        ):
            text = with_value(example(name), key, value)
            for parameter, number in numbers.items():
                text = with_value(text, parameter, number)
            found.append(text)
    return found


def numeric(name: str) -> Iterator[tuple[str, Any, bool]]:
    """The parameters of a signal that take a number or some: name, default, whether it is a whole one."""
    hints = get_type_hints(REGISTRY[name])
    for parameter in inspect.signature(REGISTRY[name]).parameters.values():
        hint, default = hints.get(parameter.name), parameter.default
        some = isinstance(default, tuple) and len(default) > 0 and all(isinstance(each, float) for each in default)
        number = isinstance(default, (int, float)) and not isinstance(default, bool)
        if some or number or ({int, float} & {hint, *get_args(hint)} and Signal not in get_args(hint)):
            yield parameter.name, default, hint is not float and float not in get_args(hint) and not some


def with_value(text: str, parameter: str, value: object) -> str:
    """The text with this value of a parameter, which it may give already."""
    given = f"{parameter}={value}"
    changed, found = re.subn(rf"\b{parameter}=-?[\d.]+", given, text)
    return changed if found else f"{text[:-1]}{'' if text.endswith('()') else ', '}{given})"


def at_the_edge(name: str, parameter: str, default: Any) -> list[str]:
    """With numbers that limits are made of, and with those of its other parameters."""
    others = {each for _, each, _ in numeric(name) if isinstance(each, (int, float))}
    values: list[object] = sorted({-1, 0, 1, 2} | others)
    if isinstance(default, tuple):
        places = range(len(default))
        values = [
            (*default[:i], value, *default[i + 1 :]) for i in places for value in (-1.0, 0.0, 1.0, default[i - 1])
        ]
    return [with_value(example(name), parameter, value) for value in values]


def refused(texts: list[str]) -> list[str]:
    """What is said of each, which is nothing if it is a signal."""
    return [signal if isinstance(signal := parsed(text), str) else "" for text in texts]


@cache
def table() -> Turns:
    """Two runs of two iterations in 33 rows: ragged groups, a silent agent, nulls, failed and truncated episodes.

    In the second run every number is a multiple of 1/4, so that thresholds are met exactly.
    """
    rng, parts = np.random.default_rng(4), []
    for run, groups, later in (("0", (1, 3), ()), ("1", (2, 3), (2,))):
        parts.append(sample_turns(rng, groups=groups, agents=("a", "b", "idle"), idle="idle", missing=0.15, longest=3))
        if later:
            options = {"agents": ("b", "c"), "longest": 3, "simultaneous": True, "iteration": 1}
            parts[-1] = Turns.concat([parts[-1], sample_turns(rng, groups=later, **options)])
        parts[-1] = parts[-1].with_column(run=pl.lit(run))
    turns = Turns.concat(parts)
    cut = pl.lit(pl.Series(rng.random(len(turns)) < 0.4)).first().over("run", "iteration", "group", "episode")
    turns = turns.with_column(truncated=cut, terminated=~cut)
    more = {name: made(name, turns, np.random.default_rng(zlib.crc32(name.encode()))) for name in sorted(NEEDED)}
    turns = turns.with_column(**{name: column for name, column in more.items() if name not in turns.columns})

    def rounded(name: str, value: pl.Expr) -> pl.Expr:
        return pl.when(pl.col("run") == "1").then(value).otherwise(pl.col(name))

    real = [name for name, kind in turns.frame.schema.items() if kind.is_float() and name != "cost"]
    lists = [
        name
        for name, kind in turns.frame.schema.items()
        if isinstance(kind, pl.List) and kind.inner.is_float() and name not in ("box", "target_box")  # type: ignore[union-attr]
    ]
    quarter = {name: rounded(name, (pl.col(name) * 4).round() / 4) for name in real}
    quarters = {name: rounded(name, pl.col(name).list.eval((pl.element() * 4).round() / 4)) for name in lists}
    return turns.with_column(**quarter, **quarters, cost=rounded("cost", (pl.col("cost") * 4).ceil() / 4))


def parsed(text: str) -> Signal | str:
    try:
        return parse(text)
    except (PalaestraError, TypeError, ValueError) as error:
        return type(error).__name__


NEEDED = {
    column
    for name in NAMES
    for text in texts(name)
    if isinstance(made_ := parsed(text), Signal)
    for column in made_.needs()
} | set(COLUMNS)


def measured(text: str) -> object:
    """Its value on each row, or on each token; missing is null. Or the error's name."""
    signal = parsed(text)
    if isinstance(signal, str):
        return signal
    value = signal.evaluate(table())
    values = np.asarray(getattr(value, "values", value), float)
    return [None if np.isnan(each) else each for each in values.tolist()]


def defaults(name: str) -> str:
    """Its parameters: a default that is smaller than what six digits show is seen here."""
    parameters = inspect.signature(REGISTRY[name]).parameters.values()
    return ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters)


CASES = {f"{name} parameters": partial(defaults, name) for name in NAMES}
CASES |= {f"{name} {text}": partial(measured, text) for name in NAMES for text in (*texts(name), *together(name))}
for name in NAMES:
    for parameter, default, whole in numeric(name):
        CASES[f"{name} refuses {parameter}"] = partial(refused, at_the_edge(name, parameter, default))
        for value in () if whole or isinstance(default, tuple) else (0.25, 0.5):
            text = with_value(example(name), parameter, value)
            CASES.setdefault(f"{name} {text}", partial(measured, text))


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_gives_the_numbers_it_gave(name: str) -> None:
    other = differences(FROZEN, CASES, name)
    assert not other, f"{name}: {REGISTRY.doc(name)}\n{other}\nRows are those of table() in {Path(__file__).name}."


if __name__ == "__main__":
    write(FROZEN, CASES)
