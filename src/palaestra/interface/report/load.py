"""Reads a run directory into memory: only what the report shows, only the columns it needs.

Every file is optional (a run may have been stopped); one that is there but damaged is a `StorageError` with its name.
Left out on purpose: checkpoints, and all training turns but the newest file of each seed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from palaestra.errors import InputError, StorageError
from palaestra.foundation.checksums import check, check_signed
from palaestra.foundation.files import parse_object, read_object, read_text

TURN_COLUMNS = (
    "system", "iteration", "group", "episode", "turn", "agent", "policy", "observation", "action", "valid", "reward",
    "terminated", "truncated", "error", "success", "task", "expected", "state", "advantage",
)  # fmt: skip
"""What is read of a table of turns, and whatever begins with `r_`: the components of the reward."""


@dataclass(frozen=True)
class Interval:
    """Data of an estimate in the report: a number and its 95 % interval; the ends are None if there is none."""

    mean: float
    low: float | None = None
    high: float | None = None

    @staticmethod
    def read(value: Any, where: str) -> Interval | None:
        """An `Interval` from `{"mean", "low", "high"}` or a number; None if absent or not finite.

        Raises:
            StorageError: `value` is something else; `where` names the file and the field.
        """
        if value is None:
            return None
        fields = value if isinstance(value, Mapping) else {"mean": value}
        numbers = [fields.get(key) for key in ("mean", "low", "high")]
        if any(isinstance(n, bool) or not isinstance(n, int | float | None) for n in numbers):
            raise StorageError(f"{where}: expected {{mean, low, high}} as numbers, found {value!r}")
        mean, low, high = (float(n) if n is not None and math.isfinite(n) else None for n in numbers)
        return None if mean is None else Interval(mean, low, high)


@dataclass(frozen=True)
class SeedRun:
    """Data loaded from the files of one seed of a run: metrics, turns and contributions.

    `torn`: its last line of metrics was cut off in the middle of a write.

    metrics: one object per iteration, in order; training, evaluation: the columns of `TURN_COLUMNS` that exist.
    start: means of the look before training, of `value`, which is compared, and of `score`; those that are on file.
    components: by iteration, total absolute value of each `r_…`, of the turns that were kept where metrics lack it.
    """

    name: str
    metrics: list[dict[str, Any]]
    torn: bool
    training: pl.DataFrame | None
    evaluation: pl.DataFrame | None
    contributions: dict[str, float]
    components: dict[int, dict[str, float]] = field(default_factory=dict)
    start: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """Data loaded from a run directory; `summary` is None if the run was stopped before the final comparison."""

    path: Path
    recipe: str | None
    environment: dict[str, Any]
    summary: dict[str, Any] | None
    seeds: tuple[SeedRun, ...]


def load_run(path: Path) -> Run:
    """Load the run directory `path` for the report, as a `Run`.

    Raises:
        InputError: there is no such directory, or nothing in it looks like a run.
        StorageError: a file is damaged.
    """
    path = Path(path)
    if not path.is_dir():
        raise InputError(f"{path}: no such run directory; give the directory that `palaestra train --out` wrote")
    folders = sorted(
        (p for p in path.glob("seed-*") if p.is_dir()), key=lambda p: (len(p.name), p.name)
    )  # seed-10 after seed-9
    if not folders and not any((path / name).exists() for name in ("recipe.yaml", "summary.json")):
        raise InputError(f"{path}: not a run directory: it has neither recipe.yaml nor summary.json nor seed-*")
    summary = read_object(path / "summary.json")
    if summary is not None:
        check_signed(summary, path / "summary.json", "let `palaestra train … --resume` write it again")
        summary.pop("checksum", None)
    return Run(
        path=path,
        recipe=read_text(path / "recipe.yaml"),
        environment=read_object(path / "environment.json") or {},
        summary=summary,
        seeds=tuple(_load_seed(folder) for folder in folders),
    )


def _load_seed(folder: Path) -> SeedRun:
    result = read_object(folder / "result.json") or {}
    if isinstance(files := result.get("files"), dict):
        check(folder, files, "result.json", f"delete {folder} and let --resume train it again")
    metrics, torn = load_metrics(folder / "metrics.jsonl")
    newest = max(folder.glob("turns/iteration-*.parquet"), key=lambda p: (len(p.name), p.name), default=None)
    shares = read_object(folder / "contributions.json") or {}
    for term, share in shares.items():
        if not isinstance(share, int | float):
            raise StorageError(f"{folder / 'contributions.json'}: the share of {term!r} is {share!r}, not a number")
    return SeedRun(
        name=folder.name.removeprefix("seed-"),
        metrics=metrics,
        torn=torn,
        training=_load_turns(newest) if newest else None,
        evaluation=_load_turns(folder / "evaluation.parquet"),
        contributions=shares,
        components={} if any(row.get("components") for row in metrics) else _load_components(folder / "turns"),
        start=_load_start(folder / "look-000000.parquet"),
    )


def _load_start(path: Path) -> dict[str, float]:
    if not path.exists():
        return {}
    try:
        look = pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise StorageError(f"{path}: not a whole Parquet file: {str(error).splitlines()[0]}") from error
    means = {name: look[name].mean() for name in ("value", "score") if name in look.columns}
    return {name: float(x) for name, x in means.items() if isinstance(x, int | float) and math.isfinite(x)}


def _load_components(folder: Path) -> dict[int, dict[str, float]]:
    found = {}
    for path in sorted(folder.glob("iteration-*.parquet")):
        number = path.stem.removeprefix("iteration-")
        if not number.isdigit():
            continue
        try:
            table = pl.scan_parquet(path, glob=False)
            names = _components(table.collect_schema())
            if not names:
                return {}
            found[int(number)] = table.select(pl.col(names).cast(pl.Float64).abs().sum()).collect().to_dicts()[0]
        except (pl.exceptions.PolarsError, OSError) as error:
            raise StorageError(f"{path}: not a whole Parquet file: {str(error).splitlines()[0]}") from error
    return found


def _components(schema: pl.Schema) -> list[str]:
    return [n for n, t in schema.items() if n.startswith("r_") and (t.is_numeric() or t == pl.Boolean)]


def load_metrics(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """(metrics dicts in order of iteration, whether the last line is torn) of a file; later repetitions count."""
    text = read_text(path) or ""
    lines = text.removesuffix("\n").split("\n") if text else []
    torn = False
    if lines and not text.endswith("\n"):  # killed while writing: the last line may be half a line, and only that one
        try:
            json.loads(lines[-1])
        except json.JSONDecodeError:
            torn = True
            lines.pop()
    rows: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        row = parse_object(line, f"{path}, line {number}")
        if not isinstance(row.get("iteration"), int):
            raise StorageError(f"{path}, line {number}: no integer 'iteration'")
        for part in ("policies", "metrics", "errors"):
            row[part] = row.get(part) or {}
            if not isinstance(row[part], dict):
                raise StorageError(f"{path}, line {number}: {part!r} is not an object")
        rows[row["iteration"]] = row
    return [rows[i] for i in sorted(rows)], torn


def _load_turns(path: Path) -> pl.DataFrame | None:
    if not path.exists():
        return None
    try:
        table = pl.scan_parquet(path, glob=False)
        schema = table.collect_schema()
        wanted = [name for name in TURN_COLUMNS if name in schema] + _components(schema)
        frame = table.select(wanted).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise StorageError(f"{path}: not a whole Parquet file: {str(error).splitlines()[0]}") from error
    needed = ["group", "episode", "turn", "agent"]
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        raise StorageError(f"{path}: columns {', '.join(map(repr, missing))} are missing; is it a table of turns?")
    text = [name for name in ("system", "agent", "policy") if name in frame.columns]
    frame = frame.with_columns(pl.col(text).cast(pl.String))
    if isinstance(frame.schema.get("advantage"), pl.List):  # credit per token: a turn shows its mean
        frame = frame.with_columns(pl.col("advantage").list.mean())
    return frame
