"""Logs in: anybody's files of agents' play become `Turns`, so that every statistic here works on them.

Read: Inspect AI, HAL, lm-evaluation-harness, Claw-Eval, chat messages, TRL completions, verl rollouts, AgencyBench,
AgentsNet, Magentic Marketplace, and tables of our own (Parquet, CSV, JSONL). The format is seen from the content. A
damaged file or line is named and counted, the rest is read. Nothing from a log is ever run or unpickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, SchemaError, nearest
from palaestra.evaluation.logs.detect import FORMATS, SUFFIXES, read_file
from palaestra.evaluation.logs.rows import Problem, Rows

__all__ = ["FORMATS", "Logs", "Problem", "read_logs"]


@dataclass(frozen=True)
class Logs:
    """What was read. files: how many gave rows. problems: what was not read, and why."""

    turns: Turns
    problems: tuple[Problem, ...]
    files: int


def read_logs(*paths: str | Path, format: str | None = None) -> Logs:
    """Turns of all files; a folder stands for every log below it.

    A path may be `NAME=PATH`: then NAME is the system. Otherwise a system is called what its log calls it (the model,
    the agent), or, if the log does not say or two paths would be one system, after the path.

    format: one of `FORMATS`, where the content does not say it.

    Raises:
        InputError: a path is absent or given twice under one name, the format is unknown, or nothing in a
            path could be read.
    """
    if format is not None and format not in FORMATS:
        raise InputError(f"no log format {format!r}{nearest(format, FORMATS)}")
    frames: list[tuple[Path, str | None, pl.DataFrame]] = []
    problems: list[Problem] = []
    files = 0
    known: set[tuple[str | None, Path]] = set()
    for given in paths:
        name, path = _name(str(given))
        if (name, path.resolve()) in known:
            raise InputError(
                f"{given}: given twice; its trials would count twice (NAME=PATH makes another system of it)"
            )
        known.add((name, path.resolve()))
        read, found = _read_path(path, format)
        problems += found
        if not read:
            why = str(found[0]) if found else f"{path}: no log in this folder"
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            raise InputError(f"nothing could be read: {why}{more}")
        files += len(read)
        frames += [(path, name, frame) for frame in read]
    return Logs(_together(_named(frames)), tuple(problems), files)


def _name(given: str) -> tuple[str | None, Path]:
    name, equals, path = given.partition("=")
    return (name, Path(path)) if equals and name and not Path(given).exists() else (None, Path(given))


def _read_path(path: Path, format: str | None) -> tuple[list[pl.DataFrame], list[Problem]]:
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    files = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file()) if path.is_dir() else [path]
    if path.is_dir() and any(path.glob("seed-*/evaluation.parquet")):  # a run of ours: its play, not its training
        files = sorted(path.glob("seed-*/evaluation.parquet"))
    elif path.is_dir() and (path / "evaluation.parquet").exists():  # one seed of it
        files = [path / "evaluation.parquet"]
    frames, problems = [], []
    for file in files:
        rows = Rows(str(file))
        frame = read_file(file, format, rows, in_folder=path.is_dir())
        frame = rows.frame() if frame is None else frame
        problems += rows.problems
        if len(frame):
            frames.append(frame)
        elif not rows.problems and not path.is_dir():
            problems.append(Problem(str(file), "", "no episode in it"))
    return frames, problems


def _named(frames: list[tuple[Path, str | None, pl.DataFrame]]) -> list[pl.DataFrame]:
    """Frames with `system`; what two paths would share is told apart by the path."""
    stems = {path: path.name if path.is_dir() else path.stem for path, _, _ in frames}
    if len(set(stems.values())) < len(stems):
        stems = {path: str(path) for path in stems}
    owners: dict[str, set[Path]] = {}
    labelled = []
    for path, name, frame in frames:
        label = pl.col("system").cast(pl.String) if "system" in frame.columns else pl.lit(None, pl.String)
        frame = frame.with_columns(system=label.fill_null(stems[path]))
        several = frame["system"].n_unique() > 1
        if name is not None:
            frame = frame.with_columns(system=pl.format("{}/{}", pl.lit(name), "system") if several else pl.lit(name))
        for system in frame["system"].unique():
            owners.setdefault(system, set()).add(path)
        labelled.append((path, name, frame))
    shared = [system for system, paths in owners.items() if len(paths) > 1]
    told = []
    for path, name, frame in labelled:
        if shared and name is None:
            apart = pl.format("{} ({})", "system", pl.lit(stems[path]))
            frame = frame.with_columns(system=pl.when(pl.col("system").is_in(shared)).then(apart).otherwise("system"))
        told.append(frame)
    return told


def _together(frames: list[pl.DataFrame]) -> Turns:
    """One table; groups are numbered on, so that no two files share one."""
    offset, tables = 0, []
    for frame in frames:
        if "group" in frame.columns and len(frames) > 1:
            frame = frame.with_columns(pl.col("group") + offset)
            offset = 1 + int(frame["group"].max() or 0)  # type: ignore[arg-type]
        tables.append(Turns(frame))
    try:
        return Turns.concat(tables)
    except SchemaError as error:
        raise InputError(f"these logs do not fit into one table: {error}") from error
