"""Rows of turns that every reader fills, episode by episode, and a list of what could not be read.

A value of a wrong type is named and left out; the rest of its row stays. What a source does not say is null, never 0.
Nothing here knows a format.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from palaestra.algebra.schema import unless_none
from palaestra.algebra.turns import SCHEMA, clean

EXTRA: dict[str, Any] = {
    "system": pl.String, "variation": pl.Int32, "limit": pl.String, "tool": pl.String, "arguments": pl.String,
    "status": pl.Int32, "tool_error": pl.String, "recipient": pl.List(pl.String), "confidence": pl.Float64,
    "tokens_cached": pl.Int32, "tokens_cache_write": pl.Int32, "tool_duration": pl.Float64,
    "heard": pl.List(pl.String), "heard_turn": pl.List(pl.Int64), "heard_source": pl.String,
}  # fmt: skip
"""Columns of logs beyond those of `Turns`. tool, arguments: what the turn called; status: HTTP-like, of that call.

tool_duration: seconds of that call. heard, heard_turn: agents whose turns this one heard, and which turns, as
`algebra.messages` takes them; heard_source: how that is known, see `logs.heard`.
"""

EPISODE = (
    "system", "run", "iteration", "task", "seed", "variation", "success", "error", "terminated", "truncated", "limit",
    "_trial", "_when", "_solver",
)  # fmt: skip
COPIES = {"_trial": pl.String, "_when": pl.String}
"""Of a trial that may stand in several logs: which one, and when the log was written; gone from what is read."""
SOLVER = {"_solver": pl.String}
"""Column with the solver of a log, which tells systems of one model apart; dropped from what is read."""
TURN = (
    "turn", "agent", "policy", "observation", "action", "valid", "reward", "tokens_in", "tokens_cached",
    "tokens_cache_write", "tokens_out", "cost", "duration", "tool", "arguments", "status", "tool_error", "recipient",
    "confidence", "metadata", "tool_duration", "heard", "heard_turn", "heard_source",
)  # fmt: skip
_TURN = frozenset(TURN)
_KNOWN = {name: column.dtype for name, column in SCHEMA.items()} | EXTRA | COPIES | SOLVER
COLUMNS = {name: _KNOWN[name] for name in EPISODE + TURN}
ALWAYS = ("system", "task", "success", "reward", "error", "turn", "agent")
"""Columns that every log has; another one that is null throughout is left away."""
MOST = 1e100
"""A score or measurement beyond it is damaged: its square would be infinite, and every mean with it."""
MOST_SCORES = 200
"""Scores per file that get a column of their own; a log with more is more likely damaged than rich."""


@dataclass(frozen=True)
class Problem:
    """Data of what could not be read in a log: file, place in it (`where`; empty for the whole file), and why."""

    file: str
    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.file}{', ' * bool(self.where)}{self.where}: {self.why}"


@dataclass
class Rows:
    """Collector of one log file's turns: a reader calls `episode` per play-through, `problem` for what it cannot read.

    system, task, success: the columns that say it, if somebody named them. foreign: it was recognised as no log at all.
    companion: it belongs to a log beside it. columns: all that anybody will look at, where a file can be read by
    columns; None: every one. names: all columns of such a file.
    """

    file: str
    problems: list[Problem] = field(default_factory=list)
    system: str | None = None
    task: str | None = None
    success: str | None = None
    foreign: bool = False
    companion: bool = False
    columns: Collection[str] | None = None
    names: tuple[str, ...] = ()
    _rows: list[dict[str, Any]] = field(default_factory=list)
    _scores: dict[str, None] = field(default_factory=dict)
    _grades: dict[str, list[Any]] = field(default_factory=dict)

    def problem(self, where: str, why: str | Exception) -> None:
        """Records something that could not be read; does not raise, reading goes on."""
        text = (why if isinstance(why, str) else f"{type(why).__name__}: {why}").strip()
        self.problems.append(Problem(self.file, where, text.splitlines()[0][:300] if text else "unreadable"))

    def episode(
        self,
        where: str,
        turns: Sequence[Mapping[str, Any]] = (),
        *,
        score: Any = None,
        scores: Mapping[str, Any] | None = None,
        cost: Any = None,
        **values: Any,
    ) -> None:
        """Adds one play-through: a row per turn (one empty row if the log has none), all with the episode's `values`.

        score: on the last row, as its reward. scores: more of them, each on the last row in a column `score.NAME`.
        cost: of the episode, where the cost of a turn is not known; spread over its turns by their tokens.
        success: if the log does not say it, it is score = 1, provided that every score of the file is 0 or 1; of tasks
        `BENCHMARK/NAME`, every score of the benchmark. error: see `NO_ERROR`.
        """
        common = {name: self._check(where, name, values[name]) for name in EPISODE if values.get(name) is not None}
        first = len(self._rows)
        for position, turn in enumerate(turns or ({},)):
            row = dict(common, _episode=first)
            for name, value in turn.items():
                if value is not None and name in _TURN:
                    row[name] = self._check(where, name, value)
            if row.get("turn") is None:
                row["turn"] = position
            row["agent"] = row.get("agent") or "agent"
            if "scores" in turn:
                for name, value in (turn["scores"] or {}).items():
                    self._score(row, where, name, value)
            self._rows.append(row)
        last = self._rows[-1]
        for name, value in (scores or {}).items():
            self._score(last, where, name, value)
        if score is not None:
            last["reward"] = self._check(where, "reward", score)
        if cost is not None:
            _spread(self._check(where, "cost", cost), self._rows[first:])
        if common.get("success") is None:
            benchmark, named, _ = (common.get("task") or "").partition("/")
            grades = self._grades.setdefault(benchmark if named else "", [])
            grades.append((first, len(self._rows), last.get("reward")))

    def _score(self, row: dict[str, Any], where: str, name: str, value: Any) -> None:
        column = f"score.{text(name)}"
        if len(self._scores) < MOST_SCORES or column in self._scores:
            self._scores[column] = None
            row[column] = self._check(where, "reward", value)

    def _check(self, where: str, name: str, value: Any) -> Any:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return None
        try:
            return _CHECK_OF[name](value)
        except (ValueError, TypeError, RecursionError, OverflowError) as error:
            self.problem(where, f"{name}: {error}")
            return None

    def frame(self) -> pl.DataFrame:
        """All rows as a DataFrame. `group` numbers the tasks, `episode` the play-throughs of each."""
        for grades in self._grades.values():
            known = [reward for _, _, reward in grades if reward is not None]
            if known and all(reward in (0.0, 1.0) for reward in known):
                for start, stop, reward in grades:
                    for row in self._rows[start:stop]:
                        row["success"] = None if reward is None else reward == 1.0
        schema = {"_episode": pl.Int64, **COLUMNS, **dict.fromkeys(self._scores, pl.Float64)}
        frame = pl.DataFrame(self._rows, schema=schema, infer_schema_length=None)
        group = pl.col("task").rank("dense").fill_null(0)
        frame = frame.with_columns(group=group.cast(pl.Int32)).with_columns(
            unless_none("error"),
            unless_none("limit"),
            unless_none("tool_error"),
            episode=(pl.col("_episode").rank("dense").over("group") - 1).cast(pl.Int32),
        )
        empty = [name for name in frame.columns if name not in ALWAYS and frame[name].null_count() == len(frame)]
        return frame.drop("_episode", *empty)


def in_range(frame: pl.DataFrame, rows: Rows) -> pl.DataFrame:
    """The table with numbers that are infinite or beyond ±`MOST` as null; each such column is a problem in a `Rows`."""
    for name, dtype in frame.schema.items():
        if not dtype.is_float():
            continue
        wide = (frame[name].abs() > MOST).fill_null(False) & frame[name].is_not_nan().fill_null(False)
        if wide.any():
            at = int(wide.arg_max() or 0)
            rows.problem(
                f"row {at + 1}",
                f"{name}: {frame[name][at]:g} is out of range of a score or a measurement (±{MOST:g})"
                + (f"; {wide.sum()} such rows" if wide.sum() > 1 else ""),
            )
            frame = frame.with_columns(pl.when(~wide).then(pl.col(name)).alias(name))
    return frame


def _spread(cost: float | None, rows: list[dict[str, Any]]) -> None:
    """By tokens; without any, the last row has it all."""
    if cost is None:
        return
    used = [(row.get("tokens_in") or 0) + (row.get("tokens_out") or 0) for row in rows]
    total = sum(used)
    for row, tokens in zip(rows, used, strict=True):
        if tokens:
            row["cost"] = cost * tokens / total
    if not total:
        rows[-1]["cost"] = cost


# -- values -----------------------------------------------------------------------------------------------------------


def text(value: Any) -> str:
    """The value as text that a table can hold: strings cleaned, other values as JSON."""
    return clean(value if isinstance(value, str) else dump(value))


def dump(value: Any) -> str:
    """The value as JSON text; NaN and infinity become null."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def mapping(value: Any) -> Mapping[str, Any]:
    """The value itself if it is a mapping (JSON object), else an empty mapping."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> Sequence[Any]:
    """The value itself if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def rest(record: Mapping[str, Any], known: Iterable[str]) -> str | None:
    """The fields of a record outside `known`, as JSON for the column `metadata`; None if there are none."""
    unknown = {key: value for key, value in record.items() if key not in known and value is not None}
    return dump(unknown) if unknown else None


def _number(value: Any) -> float | None:
    try:
        number = float(value if isinstance(value, int | float | str) else "")  # decimals are texts in JSON
    except ValueError:
        raise ValueError(f"{str(value)[:40]!r} is not a number") from None
    if math.isinf(number):
        raise ValueError("infinity is not a score or a measurement")
    if abs(number) > MOST:
        raise ValueError(f"{number:g} is beyond ±{MOST:g}, out of range of a score or a measurement")
    return None if math.isnan(number) else number


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
            raise ValueError(f"{str(value)[:40]!r} is not a whole number")
        if not low <= value < high:
            raise ValueError(f"{str(value)[:40]} is out of range")
        return int(value)

    return check


def _truth(value: Any) -> bool:
    if isinstance(value, bool) or (isinstance(value, int | float) and value in (0, 1)):
        return bool(value)
    raise ValueError(f"{str(value)[:40]!r} is neither true nor false")


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [text(value)]
    if not isinstance(value, list | tuple):
        raise ValueError(f"{str(value)[:40]!r} is not a list of names")
    return [text(each) for each in value]


def _numbers(value: Any) -> list[int]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, int) for each in value):
        raise ValueError(f"{str(value)[:40]!r} is not a list of whole numbers")
    return list(value)


_CHECKS: dict[Any, Callable[[Any], Any]] = {
    pl.String: text,
    pl.Categorical: text,
    pl.Float64: _number,
    pl.Int32: _whole(0, 2**31),
    pl.UInt64: _whole(0, 2**64),
    pl.Boolean: _truth,
    pl.List(pl.String): _texts,
    pl.List(pl.Int64): _numbers,
}
_CHECK_OF = {name: _CHECKS[dtype] for name, dtype in COLUMNS.items()}
