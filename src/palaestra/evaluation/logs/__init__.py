"""Logs in: anybody's files of agents' play become `Turns`, so that every statistic here works on them.

Read: Inspect AI, HAL, lm-evaluation-harness, Claw-Eval, chat messages, TRL completions, rollouts of verl, verifiers,
ART and rLLM, AgencyBench, AgentsNet, Magentic Marketplace, and tables of our own (Parquet, CSV, JSONL). The format is
seen from the content. A damaged file or line is named and counted, the rest is read. Nothing from a log is ever run or
unpickled. A format more is one file and one registration (`readers`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, SchemaError, nearest
from palaestra.evaluation.logs import (  # every one registers its format
    agencybench,
    agentsnet,
    art,
    chat,
    claw_eval,
    hal,
    inspect_ai,
    langfuse,
    langsmith,
    lm_eval,
    marketplace,
    openai_agents,
    otlp,
    otlp_protobuf,
    rllm,
    tables,
    verifiers,
    verl,
)
from palaestra.evaluation.logs.columns import RECOGNISED, Names
from palaestra.evaluation.logs.copies import once, shared
from palaestra.evaluation.logs.detect import SUFFIXES, read_file
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import COPIES, SOLVER, Problem, Rows
from palaestra.evaluation.logs.systems import by_column
from palaestra.evaluation.trials import with_groups

__all__ = ["READERS", "LogReader", "Logs", "Names", "Part", "Problem", "Source", "read_logs", "table_of"]
_ = (
    agencybench, agentsnet, art, chat, claw_eval, hal, inspect_ai, langfuse, langsmith, lm_eval, marketplace,
    openai_agents, otlp, otlp_protobuf, rllm, tables, verifiers, verl,
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """Data of one given path of logs that was read: number of files, systems in them, and problems."""

    path: str
    files: int
    systems: tuple[str, ...]
    not_read: tuple[Problem, ...]


@dataclass(frozen=True)
class Logs:
    """Data of logs that were read: all turns as one table, the number of files, and problems with what was not read.

    skipped: files of a folder that are no log. sources: the same by path. columns: of all files, read or not.
    """

    turns: Turns
    problems: tuple[Problem, ...]
    files: int
    skipped: tuple[Problem, ...] = ()
    sources: tuple[Source, ...] = ()
    columns: tuple[str, ...] = ()

    def not_read(self, system: str | None = None) -> list[Problem]:
        """Problems with what was left out, of all paths or of those that hold a system's play."""
        return [p for source in self.sources if system in (None, *source.systems) for p in source.not_read]


@dataclass
class _Given:
    """A path with what came of it."""

    path: Path
    name: str | None
    frames: list[pl.DataFrame]
    problems: list[Problem]
    skipped: list[Problem]
    columns: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """Reduction that `read_logs` applies to each file: columns to read, and a function that replaces its table.

    So memory holds one file at a time.

    columns: all that anybody will look at; other columns of a table are not read. reduce: what a file's table is
    replaced by, with its columns `system` and `group` and a row per episode or fewer. It is told the file, or None of
    several whose episodes may go on from one to the other, because nothing says their groups.
    """

    columns: Collection[str]
    reduce: Callable[[pl.DataFrame, Path | None], pl.DataFrame]


def read_logs(
    *paths: str | Path,
    format: str | None = None,
    system: str | None = None,
    task: str | None = None,
    success: str | None = None,
    part: Part | None = None,
) -> Logs:
    """Reads all log files, of any known format, as one table of turns (`Logs`); a folder stands for every log below it.

    A path may be `NAME=PATH`: then NAME is the system. Otherwise a system is called what its log calls it (the model,
    the agent), or, if the log does not say or two paths would be one system, after the path. A trial that stands in
    several logs of a path, as when an evaluation was retried, counts once, as the latest of them has it.

    format: a name in `READERS`, where the content does not say it. system, task, success: the column of a table, or
    the field of a record, that says it, where it has another name; several columns of system or task with commas
    between them. part: keep this of each file and nothing else.

    Raises:
        InputError: a path is absent or given twice under one name, the format is unknown, nothing in a path could be
            read, or it has no column `system`.
    """
    if format is not None and format not in READERS:
        raise InputError(f"no log format {format!r}{nearest(format, READERS)}")
    read: list[_Given] = []
    known: set[tuple[str | None, Path]] = set()
    for given in paths:
        name, path = _name(str(given))
        if (name, path.resolve()) in known:
            raise InputError(
                f"{given}: given twice; its trials would count twice (NAME=PATH makes another system of it)"
            )
        known.add((name, path.resolve()))
        new = _read_path(path, name, format, Names(system, task, success), part)
        if not new.frames:
            found = [*new.problems, *new.skipped]
            why = str(found[0]) if found else f"{path}: no log in this folder"
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            raise InputError(f"nothing could be read: {why}{more}")
        read.append(new)
    files = sum(len(each.frames) for each in read)
    for each in read:
        each.frames, copied = once(each.frames, str(each.path))
        each.problems += copied
        each.frames = each.frames if system is not None else _by_solver(each.frames)
    for number, each in enumerate(read):
        for other in read[:number]:
            if each.name is other.name is None and (both := shared(each.frames, other.frames)):
                why = (
                    f"{both} of its trials are of the same evaluation as in {other.path} (a retry or a copy), compared "
                    "here as another system; give the folder of both to count each once"
                )
                each.problems.append(Problem(str(each.path), "", why))
    frames = [(each.path, each.name, frame) for each in read for frame in each.frames]
    named = _named(frames)
    sources = []
    for each in read:
        own = [
            frame
            for (path, name, _), frame in zip(frames, named, strict=True)
            if (path, name) == (each.path, each.name)
        ]
        systems = dict.fromkeys(system for frame in own for system in frame["system"].unique(maintain_order=True))
        sources.append(Source(str(each.path), len(own), tuple(systems), (*each.problems, *each.skipped)))
    return Logs(
        _together(named, paths, part),
        tuple(p for each in read for p in each.problems),
        files,
        tuple(p for each in read for p in each.skipped),
        tuple(sources),
        tuple(dict.fromkeys(name for each in read for name in each.columns)),
    )


def _name(given: str) -> tuple[str | None, Path]:
    name, equals, path = given.partition("=")
    return (name, Path(path)) if equals and name and not Path(given).exists() else (None, Path(given))


def _read_path(path: Path, name: str | None, format: str | None, names: Names, part: Part | None) -> _Given:
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    given = _Given(path, name, [], [], [])
    files = [path]
    if path.is_dir():
        files, given.skipped = _files(path)
    for file in files:
        frame, rows = table_of(file, format, names, part)
        if rows.foreign and path.is_dir():
            given.skipped += [] if rows.companion else rows.problems
            continue
        given.problems += rows.problems
        given.columns |= dict.fromkeys((*rows.names, *frame.columns))
        if len(frame):
            given.frames.append(part.reduce(frame, file) if part and _whole_groups(frame) else frame)
        elif not rows.problems:
            given.problems.append(Problem(str(file), "", "no episode in it"))
    return given


def table_of(
    file: Path, format: str | None = None, names: Names = RECOGNISED, part: Part | None = None
) -> tuple[pl.DataFrame, Rows]:
    """(table, `Rows` that collected it) of one log file; with `part`, only the columns that it names."""
    system, asked = names.system, {"metadata", *names.parts} if names.parts else set()
    columns = {"system", "group", *part.columns, *asked} if part else None
    rows = Rows(str(file), system=system, task=names.task, success=names.success, columns=columns)
    frame = read_file(file, format, rows)
    frame = rows.frame() if frame is None else frame
    if system is not None and len(frame):
        frame = by_column(frame, system, str(file))
    if part and "system" not in frame.columns:
        frame = frame.with_columns(system=pl.lit(None, pl.String))
    return frame, rows


def _whole_groups(frame: pl.DataFrame) -> bool:
    """Whether no episode of this table goes on in another file: groups are numbered on from file to file."""
    return "group" in frame.columns and not frame["group"].null_count()


def _files(folder: Path) -> tuple[list[Path], list[Problem]]:
    """The files below a folder that may be logs, and one line for all others."""
    own = sorted(folder.glob("seed-*/evaluation.parquet"))  # a run of ours: its play, not its training
    if own or (folder / "evaluation.parquet").exists():  # or one seed of it
        return own or [folder / "evaluation.parquet"], []
    there = sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))
    kinds = [(p, Path(p.stem).suffix if p.suffix == ".gz" else p.suffix) for p in there]
    others = Counter(p.suffix or p.name for p, kind in kinds if kind not in SUFFIXES)
    said = ", ".join(f"{count} × {kind}" for kind, count in others.most_common(6))
    why = f"files of other kinds are not looked at: {said}{', …' * (len(others) > 6)}"
    skipped = [Problem(str(folder), "", why)] if others else []
    return [p for p, kind in kinds if kind in SUFFIXES], skipped


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
        told.append(frame.drop(*COPIES, *SOLVER, strict=False))
    return told


def _by_solver(frames: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """Frames of a path in which what one system played with several solvers is a system `SYSTEM/SOLVER` of each."""
    parts = [
        frame.select(pl.col("system", "task").cast(pl.String), "_solver").unique()
        for frame in frames
        if {"system", "task", "_solver"} <= set(frame.columns)
    ]
    if not parts:
        return frames
    played = pl.concat(parts).group_by("system", "task").agg(solvers=pl.col("_solver").n_unique())
    mixed = played.filter(pl.col("solvers") > 1)["system"].unique().implode()
    name = pl.concat_str("system", "_solver", separator="/")
    return [
        frame.with_columns(
            system=pl.when(pl.col("system").is_in(mixed)).then(name.fill_null("system")).otherwise("system")
        )
        if "_solver" in frame.columns
        else frame
        for frame in frames
    ]


def _together(frames: list[pl.DataFrame], paths: Iterable[str | Path], part: Part | None) -> Turns:
    """One table; groups are numbered on, so that no two files share one."""
    offset = 0
    tables: list[Turns] = []
    loose: list[Turns] = []
    for frame in frames:
        if "group" in frame.columns and len(frames) > 1:
            frame = frame.with_columns(pl.col("group") + offset)
            offset = 1 + int(frame["group"].fill_null(0).to_numpy().max(initial=0))
        (tables if _whole_groups(frame) else loose).append(Turns(frame))
    try:
        if loose:
            frame = with_groups(Turns.concat(loose).frame)
            if _whole_groups(frame):
                frame = frame.with_columns(pl.col("group") + offset)
            tables.append(Turns(part.reduce(frame, None) if part else frame))
        return Turns.concat(tables)
    except SchemaError as error:
        named = ", ".join(map(str, paths))
        raise InputError(f"{named}: these logs do not fit into one table: {error}") from error
