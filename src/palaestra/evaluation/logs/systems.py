"""Whose play a row of a table is, where no column is called `system`: two systems are never pooled without a word."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from palaestra.algebra.schema import whole
from palaestra.errors import InputError, nearest
from palaestra.evaluation.logs.rows import Rows

NAMES = (
    "model", "model_name", "model_id", "agent", "agent_name", "policy", "policy_name", "run_name", "system_name",
    "method", "algorithm", "variant", "checkpoint", "experiment", "engine", "llm", "solver", "scaffold",
)  # fmt: skip
"""What tables call the system, the likeliest first."""
SEATS = ("agent", "policy")
"""In a table of turns these say who acted, and only a difference between whole episodes is one of systems."""
_EPISODE = ("run", "iteration", "group", "episode")


def with_system(frame: pl.DataFrame, rows: Rows) -> pl.DataFrame:
    """A table with `system` from a usual column, unless it or `rows` (`Rows`) names one; raises if several disagree.

    Raises:
        InputError: several of them could, and they disagree.
    """
    if rows.system or ("system" in frame.columns and frame["system"].null_count() < len(frame)):
        return frame
    chosen = system_column(frame, rows.file)
    if chosen is not None:
        return frame.with_columns(system=frame[chosen].cast(pl.String))
    structs = [name for name, kind in frame.schema.items() if isinstance(kind, pl.Struct)]
    said = system_of(frame.select(structs).to_dicts(), rows) if structs else []
    return frame.with_columns(system=pl.Series(said, dtype=pl.String)) if any(said) else frame


def system_of(records: Sequence[Mapping[str, Any]], rows: Rows) -> list[str | None]:
    """System of each record (a list of JSON objects): its `system`, else a usual field such as the model's; else None.

    Each of these objects is an episode.

    What an object within the object says counts where the object itself says nothing: a `config`, or a model's `name`.

    Raises:
        InputError: see `with_system`.
    """
    if rows.system or any(record.get("system") is not None for record in records):
        return [_text(record.get("system")) for record in records]
    for each in (records, [_within(record) for record in records]):
        named = [{plain(name): _name(value) for name, value in record.items()} for record in each]
        table = [{name: record.get(name) for name in NAMES} for record in named]
        frame = pl.DataFrame(table, schema=dict.fromkeys(NAMES, pl.String))
        if (chosen := system_column(frame, rows.file)) is not None:
            return frame[chosen].to_list()
    return [None] * len(records)


def _within(record: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the objects nested in a record."""
    inner = [value for value in record.values() if isinstance(value, Mapping)]
    return {name: value for each in reversed(inner) for name, value in each.items()}


def _name(value: Any) -> str | None:
    """A name, or the one in an object."""
    if isinstance(value, Mapping):
        value = next((value[key] for key in ("name", "id", "model", "model_name") if value.get(key)), None)
    return _text(value)


def plain(name: str) -> str:
    """Column name normalised for comparison: `Model Name` becomes `model_name`."""
    return "_".join(re.findall(r"[^\W_]+", name.casefold()))


def system_column(frame: pl.DataFrame, file: str) -> str | None:
    """Name of the column of a table that names the system, or None; raises InputError if several disagree."""
    columns = {plain(name): name for name in reversed(frame.columns)}
    found = [columns[name] for name in NAMES if name in columns]
    found = [name for name in found if not frame[name].dtype.is_nested() and frame[name].null_count() < len(frame)]
    keys = [name for name in _EPISODE if name in frame.columns]
    if "episode" in keys:
        found = [name for name in found if plain(name) not in SEATS or _of_episodes(frame, name, keys)]
    several = [name for name in found if frame[name].n_unique() > 1]
    if len(several) > 1:
        kinds = frame.select(several).n_unique()
        if any(frame[name].n_unique() < kinds for name in several):
            said = ", ".join(f"{name} ({frame[name].n_unique()} values)" for name in several)
            raise InputError(
                f"{file}: which column names the system? {said}; say --system {several[0]}, or --system "
                f"{','.join(several)} for each combination"
            )
    return next(iter(several or found), None)


def by_column(frame: pl.DataFrame, wanted: str, file: str) -> pl.DataFrame:
    """The table with `system` set from the columns named in `wanted`, joined by commas; `metadata` fields count too.

    Raises:
        InputError: there is no such column.
    """
    parts = [_column(frame, name.strip(), file) for name in wanted.split(",")]
    joined = pl.DataFrame([part.alias(str(n)) for n, part in enumerate(parts)])
    return frame.with_columns(system=joined.select(pl.concat_str(pl.all().fill_null("?"), separator=", ")).to_series())


def _column(frame: pl.DataFrame, name: str, file: str) -> pl.Series:
    columns = {each.casefold(): each for each in reversed(frame.columns)}
    if name.casefold() in columns:
        return whole(frame[columns[name.casefold()]]).cast(pl.String)
    said = [] if "metadata" not in frame.columns else [_object(text) for text in frame["metadata"].to_list()]
    fields = {key for record in said for key in record}
    if name not in fields:
        known = [each for each in (*frame.columns, *sorted(fields)) if not each.startswith("_")]
        raise InputError(f"{file}: --system {name}: there is no such column{nearest(name, known)}")
    values = pl.Series("value", [_text(record.get(name)) for record in said], dtype=pl.String)
    keys = [key for key in _EPISODE if key in frame.columns]
    filled = frame.select(keys).with_columns(values)
    return filled.select(pl.col("value").drop_nulls().first().over(keys) if keys else "value").to_series()


def _of_episodes(frame: pl.DataFrame, name: str, keys: Sequence[str]) -> bool:
    """Whether each episode has one, and not all the same."""
    if frame[name].n_unique() < 2:
        return False
    return frame.select(*keys, name).n_unique() == frame.select(keys).n_unique()


def _object(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return None if value is None or isinstance(value, dict | list) else str(value)
