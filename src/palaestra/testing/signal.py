"""The conformance test of signals: rewards, credit, metrics, yours and ours.

What a signal promises: one value per turn (or token) that is finite where the table is; the same one whenever it is
asked, in whatever order the rows come, however groups and episodes are numbered, whatever other runs and iterations are
in the table; a text that says what it is; and an error that names the column it misses. Left out: whether it is any
good.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import Signal, Value, short, walk
from palaestra.algebra.turns import SCOPE, Ragged, Turns
from palaestra.errors import ExpressionError, MissingColumnError
from palaestra.foundation.scalars import float_or_zero
from palaestra.testing.columns import made

Promise = Literal["shift", "scale", "linear", "constant", "unscored"]
"""More that a signal may promise about the column it is made from; see `check_signal`."""

TOLERANCE = 1e-9


def check_signal(
    signal: Signal,
    *,
    promises: Collection[Promise] = (),
    column: str = "reward",
    complete: bool = True,
    numbered: bool = False,
    tables: Mapping[str, Turns] | None = None,
    seed: int = 0,
) -> None:
    """Check a signal on awkward tables; raises AssertionError at the first promise that it breaks.

    Args:
        signal: what to check. Columns outside the schema are filled as in `testing.columns`, else with random numbers.
        promises: what holds if `column` is changed. `shift`: adding a constant changes nothing. `scale`: nor does
            multiplying by a positive one (to 1e-3, because of eps). `linear`: multiplying multiplies the signal.
            `constant`: where the column is one number the signal is 0, also with noise of 1e-8. `unscored`: episodes
            without a value, whatever else they hold, change nothing for the others.
        column: the column those are about.
        complete: no value is missing where none of the table's is.
        numbered: numbers of episodes and groups, and names of agents, may matter, e.g. where the first of equals wins.
        tables: your own instead of `sample_tables`, by name.
        seed: of the tables.

    Raises:
        AssertionError: one sentence with the promise, the table and the row.
    """
    _check_text(signal)
    rng = np.random.default_rng(seed)
    given = sample_tables(seed) if tables is None else dict(tables)
    for number, (name, turns) in enumerate(given.items()):
        turns = _with_needed(signal, turns, rng)
        where = f"{short(signal)} on the table {name!r}"
        value = signal.evaluate(turns)
        _check_shape(value, turns, complete, where)
        _check_repeated(signal, turns, value, where)
        _check_order(signal, turns, value, rng, where)
        if not numbered:
            _check_numbering(signal, turns, value, rng, where)
        _check_neighbours(signal, turns, value, rng, where)
        _check_columns(signal, turns, value, numbered, where)
        if number == 0:
            _check_needs(signal, turns, where)
        for promise in promises:
            _PROMISES[promise](signal, turns, value, column, rng, where)


# -- tables -----------------------------------------------------------------------------------------------------------


def sample_tables(seed: int = 0) -> dict[str, Turns]:
    """Dict of small random tables of turns with awkward cases for credit, by the name of the case."""
    return dict(_sample_tables(seed))


@functools.cache
def _sample_tables(seed: int) -> dict[str, Turns]:
    rng = np.random.default_rng(seed)
    return {
        "no rows": sample_turns(rng, groups=()),
        "one row": sample_turns(rng, groups=(1,), agents=("a",), longest=1),
        "one turn each": sample_turns(rng, groups=(4, 4), agents=("a",), longest=1),
        "unequal groups": sample_turns(rng, groups=(1, 2, 5, 3)),
        "equal rewards": sample_turns(rng, groups=(4, 3), reward=lambda n: np.full(n, 0.35)),
        "simultaneous turns": sample_turns(rng, groups=(3, 4), simultaneous=True),
        "unsorted rows": shuffled(sample_turns(rng, groups=(2, 4), agents=("a", "b", "c")), rng),
        "an agent that hardly acts": sample_turns(rng, groups=(3, 2), agents=("a", "b", "idle"), idle="idle"),
        "unscored rows": sample_turns(rng, groups=(4, 3, 2, 1), missing=0.4),
        "two iterations": Turns.concat(
            [sample_turns(rng, groups=(3, 1)), sample_turns(rng, groups=(2, 4), iteration=1, agents=("b", "c"))]
        ),
    }


def sample_turns(
    rng: np.random.Generator,
    *,
    groups: Collection[int] = (4, 4),
    agents: Collection[str] = ("a", "b"),
    longest: int = 6,
    simultaneous: bool = False,
    idle: str | None = None,
    missing: float = 0.0,
    iteration: int = 0,
    reward: Callable[[int], np.ndarray] | None = None,
) -> Turns:
    """Random `Turns` table with every column of the schema that a rollout fills.

    Args:
        rng: where randomness comes from.
        groups: episodes of each group.
        agents: who acts, in turns.
        longest: turns of the longest episode; lengths are drawn from 1 to it.
        simultaneous: everybody acts at every turn.
        idle: an agent that only acts in the first episode of a group.
        missing: share of rewards that are missing; then one episode has none, and one failed before anyone acted.
        iteration: its number.
        reward: rewards from the number of rows; default: normal ones, rounded so that there are ties.
    """
    names, rows = list(agents), []
    for group, size in enumerate(groups):
        for episode in range(size):
            present = [name for name in names if name != idle or episode == 0]
            for turn in range(int(rng.integers(1, longest + 1))):
                acting = present if simultaneous else [present[turn % len(present)]]
                rows += [(group, episode, turn, agent) for agent in acting]
    keys = pl.DataFrame(rows, schema=["group", "episode", "turn", "agent"], orient="row")
    n = len(keys)
    score = np.round(rng.normal(size=n), 1) if reward is None else reward(n)
    tokens = rng.integers(0 if missing else 1, 4, size=n)
    per_token = [list(rng.random(count)) for count in tokens]
    frame = keys.with_columns(
        iteration=pl.lit(iteration),
        policy=pl.col("agent"),
        state=pl.Series(rng.integers(0, 4, n).astype(np.uint64)),
        observation=pl.Series([f"seen {i}" for i in rng.integers(0, 4, n)], dtype=pl.String),
        action=pl.Series([f"did {i}" for i in rng.integers(0, 3, n)], dtype=pl.String),
        valid=pl.Series(rng.random(n) < 0.8),
        reward=pl.Series(score, dtype=pl.Float64),
        terminated=pl.lit(True),
        truncated=pl.lit(False),
        error=pl.lit(None, dtype=pl.String),
        success=pl.lit(pl.Series(rng.random(n) < 0.5)).first().over("group", "episode"),
        task=pl.format("task-{}", "group"),
        prompt_ids=pl.Series([[1, 2]] * n, dtype=pl.List(pl.Int32)),
        action_ids=pl.Series([list(range(count)) for count in tokens], dtype=pl.List(pl.Int32)),
        logprobs=pl.Series([[-v for v in values] for values in per_token], dtype=pl.List(pl.Float32)),
        entropies=pl.Series(per_token, dtype=pl.List(pl.Float32)),
        finish=pl.when(pl.Series(tokens) == 3).then(pl.lit("length")).otherwise(pl.lit("stop")),
        tokens_in=pl.lit(2),
        tokens_out=pl.Series(tokens),
        cost=pl.Series(np.round(rng.random(n), 2)),
        duration=pl.Series(rng.random(n) + 0.1),
        seed=pl.col("group").cast(pl.UInt64),
    )
    if missing and n:
        unscored = pl.Series(rng.random(n) < missing) | ((pl.col("group") == 0) & (pl.col("episode") == 0))
        frame = frame.with_columns(reward=pl.when(unscored).then(None).otherwise("reward"))
        failed = {"iteration": iteration, "group": 0, "episode": max(groups), "turn": 0, "error": "env: ValueError: no"}
        frame = pl.concat([frame, pl.DataFrame([failed])], how="diagonal_relaxed")
    return Turns(frame)


@functools.cache
def _strangers(number: int) -> Turns:
    """One of some tables that have nothing to do with the others."""
    return sample_turns(np.random.default_rng(number), groups=(3,))


def shuffled(turns: Turns, rng: np.random.Generator) -> Turns:
    """A copy of the table with its rows in random order; one without the column `turn` is returned as it is."""
    return Turns(turns.frame[rng.permutation(len(turns))]) if "turn" in turns.columns else turns


def _with_needed(signal: Signal, turns: Turns, rng: np.random.Generator) -> Turns:
    missing = sorted(signal.needs() - set(turns.columns))
    return turns.with_column(**{name: made(name, turns, rng) for name in missing}) if missing else turns


# -- checks -----------------------------------------------------------------------------------------------------------


def _check_text(signal: Signal) -> None:
    if any(node.op == "expr" for node in walk(signal)):
        return  # polars expressions cannot be written in a recipe
    try:
        again = parse(signal.text, columns=signal.needs())
    except ExpressionError as error:
        raise AssertionError(f"{short(signal)}: its text cannot be parsed: {error}") from error
    if again.text != signal.text:
        raise AssertionError(f"{short(signal)}: its text is parsed as another signal, {again}")


def _check_shape(value: Value, turns: Turns, complete: bool, where: str) -> None:
    flat = _flat(value)
    if isinstance(value, Ragged):
        _require(len(value.lengths) == len(turns), f"{where}: {len(value.lengths)} lists for {len(turns)} rows")
        _require(len(flat) == value.lengths.sum(), f"{where}: {len(flat)} tokens for {value.lengths.sum()}")
    else:
        _require(len(flat) == len(turns), f"{where}: {len(flat)} values for {len(turns)} rows")
    _require(not np.isinf(flat).any(), f"{where}: infinite at {_places(np.isinf(flat))}")
    whole = complete and not turns.frame.select(pl.any_horizontal(pl.col(_relevant(turns)).is_null().any())).item()
    _require(
        not whole or not np.isnan(flat).any(), f"{where}: missing at {_places(np.isnan(flat))}; nothing is missing"
    )


def _check_repeated(signal: Signal, turns: Turns, value: Value, where: str) -> None:
    again = _flat(signal.evaluate(Turns(turns.frame)))
    _require(np.array_equal(_flat(value), again, equal_nan=True), f"{where}: evaluated twice, it gives two answers")


def _check_order(signal: Signal, turns: Turns, value: Value, rng: np.random.Generator, where: str) -> None:
    numbered = turns.with_column(__row=np.arange(len(turns)))
    other = shuffled(numbered, rng)
    _same(
        _rows(value), _rows(signal.evaluate(other)), other["__row"].to_numpy(), f"{where}: depends on the order of rows"
    )


def _check_numbering(signal: Signal, turns: Turns, value: Value, rng: np.random.Generator, where: str) -> None:
    for name in ("group", "episode"):
        if name in turns.columns and len(turns):
            new = rng.permutation(int(float_or_zero(turns[name].max())) + 5)
            other = turns.with_column(**{name: new[turns[name].to_numpy()]})
            rows = np.arange(len(turns))
            _same(_rows(value), _rows(signal.evaluate(other)), rows, f"{where}: depends on how {name}s are numbered")


def _check_neighbours(signal: Signal, turns: Turns, value: Value, rng: np.random.Generator, where: str) -> None:
    for name, one, other in (("run", "0", "1"), ("iteration", 7, 8)):
        alien = _with_needed(signal, _strangers(int(rng.integers(8))), rng).with_column(**{name: pl.lit(other)})
        own = (
            turns if name == "iteration" and "iteration" in turns.columns else turns.with_column(**{name: pl.lit(one)})
        )
        both = Turns.concat([own, alien])
        rows = _rows(signal.evaluate(both))[: len(turns)]
        _same(_rows(value), rows, np.arange(len(turns)), f"{where}: mixes {name}s")


def _check_columns(signal: Signal, turns: Turns, value: Value, numbered: bool, where: str) -> None:
    needs = signal.needs() | ({"episode", "agent"} if numbered else set())  # who is first of equals
    keep = [name for name in turns.columns if name in needs | {*SCOPE, "group", "turn"}]
    try:
        bare = signal.evaluate(Turns(turns.frame.select(keep)))
    except MissingColumnError as error:
        raise AssertionError(f"{where}: needs() does not tell of a column: {error}") from error
    _same(_rows(value), _rows(bare), np.arange(len(turns)), f"{where}: uses columns that needs() does not tell of")


def _check_needs(signal: Signal, turns: Turns, where: str) -> None:
    for name in signal.needs():
        try:
            signal.evaluate(Turns(turns.frame.drop(name)))
        except MissingColumnError as error:
            _require(repr(name) in str(error), f"{where}: without the column {name!r} its error names another: {error}")
        else:
            raise AssertionError(f"{where}: needs() names {name!r}, but it can do without")


# -- promises ---------------------------------------------------------------------------------------------------------


def _changed(signal: Signal, turns: Turns, column: str, change: pl.Expr) -> np.ndarray:
    return _flat(signal.evaluate(turns.with_column(**{column: change})))


def _shift(signal: Signal, turns: Turns, value: Value, column: str, rng: np.random.Generator, where: str) -> None:
    other = _changed(signal, turns, column, pl.col(column) + 3.0)
    _close(_flat(value), other, f"{where}: changes when a constant is added to {column}", 1e-6)


def _scale(signal: Signal, turns: Turns, value: Value, column: str, rng: np.random.Generator, where: str) -> None:
    other = _changed(signal, turns, column, pl.col(column) * 3.0)
    _close(_flat(value), other, f"{where}: changes when {column} is multiplied", 1e-3)


def _linear(signal: Signal, turns: Turns, value: Value, column: str, rng: np.random.Generator, where: str) -> None:
    other = _changed(signal, turns, column, pl.col(column) * 3.0)
    _close(3.0 * _flat(value), other, f"{where}: is not multiplied when {column} is", 1e-6)


def _constant(signal: Signal, turns: Turns, value: Value, column: str, rng: np.random.Generator, where: str) -> None:
    for level in (0.0, 0.35, -7.0):
        noise = pl.lit(pl.Series(rng.uniform(-1e-8, 1e-8, len(turns))))
        for name, change in (("", pl.lit(level)), (" with noise of 1e-8", level + noise)):
            flat = _changed(signal, turns, column, pl.when(pl.col(column).is_null()).then(None).otherwise(change))
            wrong = np.abs(np.nan_to_num(flat)) > 1e-6
            _require(not wrong.any(), f"{where}: not 0 but {flat[wrong][:3]} where {column} is {level}{name}")


def _unscored(signal: Signal, turns: Turns, value: Value, column: str, rng: np.random.Generator, where: str) -> None:
    if not len(turns):
        return
    free = sorted(
        signal.needs() - {*SCOPE, "group", "episode", "turn", "agent", column}
    )  # what else they hold is their own
    other = pl.Series(rng.permutation(len(turns)))
    drawn = [pl.col(name).gather(other) for name in free]
    more = turns.frame.with_columns(pl.col("episode") + turns["episode"].max() + 1, pl.lit(None).alias(column), *drawn)
    both = signal.evaluate(Turns.concat([turns, Turns(more)]))
    _same(_rows(value), _rows(both)[: len(turns)], np.arange(len(turns)), f"{where}: counts rows without a {column}")


_PROMISES: dict[Promise, Callable[[Signal, Turns, Value, str, np.random.Generator, str], None]] = {
    "shift": _shift,
    "scale": _scale,
    "linear": _linear,
    "constant": _constant,
    "unscored": _unscored,
}


# -- comparing --------------------------------------------------------------------------------------------------------


def _relevant(turns: Turns) -> list[str]:
    return [name for name in turns.columns if name not in ("error", "run", "metadata", "features", "legal")]


def _flat(value: Value) -> np.ndarray:
    return np.asarray(value.values if isinstance(value, Ragged) else value, dtype=float)


def _rows(value: Value) -> list[Any]:
    """One float per row, or one array per row."""
    if isinstance(value, Ragged):
        return np.split(value.values, np.cumsum(value.lengths)[:-1]) if len(value.lengths) else []
    return list(_flat(value))


def _same(one: list[Any], other: list[Any], rows: np.ndarray, message: str) -> None:
    """other[i] is the value of row rows[i]."""
    expected = [np.asarray(one[row], dtype=float) for row in rows]
    alike = len(other) == len(expected) and all(np.shape(b) == a.shape for a, b in zip(expected, other, strict=True))
    if alike and (not other or _near(np.hstack(expected), np.hstack(other))):
        return  # row by row only to say which: a call for each would be most of a test
    for row, a, b in zip(rows, expected, other, strict=True):
        if np.shape(b) != a.shape or not _near(a, b):
            raise AssertionError(f"{message}: row {row} has {a} and then {b}")


def _near(one: np.ndarray, other: Any) -> bool:
    return bool(np.allclose(one, other, TOLERANCE, TOLERANCE, equal_nan=True))


def _close(one: np.ndarray, other: np.ndarray, message: str, tolerance: float) -> None:
    wrong = ~np.isclose(one, other, tolerance, tolerance, equal_nan=True)
    _require(not wrong.any(), f"{message}: {one[wrong][:3]} and then {other[wrong][:3]} at {_places(wrong)}")


def _places(mask: np.ndarray) -> str:
    return f"{np.flatnonzero(mask)[:5].tolist()}"


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)
