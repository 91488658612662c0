"""The page of `palaestra triage`: the chosen episodes, turn by turn, with what the detectors saw beside the turn.

Whatever a log says is text here: everything is escaped, and the page forbids scripts besides. Of a long episode the
turns around a detection are shown, with its beginning and its end; the table has the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.evaluation.triage.select import because
from palaestra.foundation.files import atomic_write
from palaestra.interface.report.episodes import Text
from palaestra.interface.report.page import render, write_page

WHOLE, ENDS, AROUND = 40, 6, 3
"""Turns of an episode that is shown whole; else turns at both ends, and around a detection."""


@dataclass(frozen=True)
class Sign:
    """Data of a detection as the triage page shows it: name, kind, confidence, evidence.

    kind: the first word of its type, which decides the colour.
    """

    name: str
    kind: str
    confidence: float
    evidence: str


@dataclass(frozen=True)
class Line:
    """Data of a line of an episode on the triage page, or, with `skipped`, of that many rows left out."""

    number: int
    who: str
    heard: Text | None
    said: Text | None
    call: Text | None
    signs: tuple[Sign, ...]
    skipped: int = 0


@dataclass(frozen=True)
class Read:
    """Data of a chosen episode on the triage page. outcome: success | failure | error | played."""

    rank: int
    name: str
    system: str
    outcome: str
    score: float
    why: str
    bucket: str
    quality: float
    turns: int
    error: str | None
    lines: tuple[Line, ...]


def write_triage(
    directory: Path,
    turns: Turns,
    chosen: pl.DataFrame,
    detections: pl.DataFrame,
    *,
    not_read: Sequence[str] = (),
    of_all: tuple[int, pl.DataFrame] | None = None,
) -> Path:
    """Write `triage.html`, .parquet, .jsonl of episodes of `Turns`, tables `chosen` and `detections`; the page's path.

    chosen: from `palaestra.evaluation.triage.triage`. detections: from `detect`, on the same table. not_read: what of
    the logs was left out, a line each. of_all: how many episodes there are and the detections in them by kind (`type,
    n, episodes`), where `turns` are those of the chosen ones alone.

    Raises:
        StorageError: the directory cannot be written.
    """
    directory = Path(directory)
    table = chosen.drop("episode_code").with_row_index("rank", 1)
    page = triage_page(turns, chosen, detections, not_read, of_all)
    with atomic_write(directory / "triage.parquet") as temporary:
        table.write_parquet(temporary)
    lines = (json.dumps(row, ensure_ascii=False) for row in table.to_dicts())
    write_page(directory / "triage.jsonl", "".join(f"{line}\n" for line in lines))
    return write_page(directory / "triage.html", page)


def triage_page(
    turns: Turns,
    chosen: pl.DataFrame,
    detections: pl.DataFrame,
    not_read: Sequence[str] = (),
    of_all: tuple[int, pl.DataFrame] | None = None,
) -> str:
    """The HTML triage page as text, of `Turns` and tables `chosen` (episodes) and `detections`; see `write_triage`."""
    read = episodes_to_read(turns, chosen, detections)
    if of_all is None:
        owner = pl.Series(turns.codes("episode").ids[detections["row"].to_numpy()], dtype=pl.Int64)
        of = detections.with_columns(episode=owner).group_by("type")
        of_all = turns.codes("episode").size, of.agg(n=pl.len(), episodes=pl.col("episode").n_unique())
    total, kinds = of_all[0], of_all[1].sort("episodes", "type", descending=[True, False])
    found = [(_name(row["type"]), _kind(row["type"]), row["n"], row["episodes"]) for row in kinds.to_dicts()]
    blind = int((chosen["drawn"] == "random").sum())
    lines = list(not_read)
    return render("triage.html", title="Triage", total=total, read=read, kinds=found, blind=blind, not_read=lines)


def episodes_to_read(turns: Turns, chosen: pl.DataFrame, detections: pl.DataFrame) -> list[Read]:
    """List of `Read` (display form), a row of table `chosen` each, with the turns and rows of table `detections`."""
    signs: dict[int, list[Sign]] = {}
    for row in detections.to_dicts():
        sign = Sign(_name(row["type"]), _kind(row["type"]), row["confidence"], row["evidence"])
        signs.setdefault(row["row"], []).append(sign)
    segments = turns.segments("episode")
    order = np.arange(len(turns)) if segments.order is None else segments.order
    codes = turns.codes("episode").ids
    spans = zip(segments.starts, segments.starts + segments.lengths, strict=True)
    place = {int(codes[order[start]]): (start, stop) for start, stop in spans}
    result = []
    for rank, row in enumerate(chosen.to_dicts(), 1):
        rows = order[slice(*place[row["episode_code"]])].tolist()
        success = row.get("success")
        outcome = "success" if success == 1 else "failure" if success == 0 else "played"
        outcome = "error" if row.get("error") else outcome
        result.append(
            Read(
                rank=rank,
                name=_called(row),
                system=str(row.get("system") or ""),
                outcome=outcome,
                score=row["score"],
                why=because(row),
                bucket=row["bucket"],
                quality=row["quality"],
                turns=row["turns"],
                error=row.get("error"),
                lines=tuple(_lines(turns.frame, rows, signs)),
            )
        )
    return result


def _called(row: Mapping[str, Any]) -> str:
    name = " ".join(str(x) for x in (row.get("task"), row.get("episode_name")) if x) or f"episode {row['episode']}"
    return f"{name} ({row['alike']} alike)" if row.get("alike", 1) > 1 else name


def _lines(frame: pl.DataFrame, rows: Sequence[int], signs: dict[int, list[Sign]]) -> list[Line]:
    shown = set(range(len(rows)))
    if len(rows) > WHOLE:
        near = {j for i, row in enumerate(rows) if row in signs for j in range(i - AROUND, i + AROUND + 1)}
        shown = near | set(range(ENDS)) | set(range(len(rows) - ENDS, len(rows)))
    kept = [i for i in range(len(rows)) if i in shown]
    wanted = [
        n
        for n in ("turn", "agent", "role", "observation", "action", "tool", "arguments", "tool_error")
        if n in frame.columns
    ]
    records = frame.select(wanted)[[rows[i] for i in kept]].to_dicts()
    lines: list[Line] = []
    before = -1
    for i, record in zip(kept, records):
        if i > before + 1:
            lines.append(Line(0, "", None, None, None, (), skipped=i - before - 1))
        before = i
        call = None
        if record.get("tool"):
            failed = f" ✗ {record['tool_error']}" if record.get("tool_error") else ""
            call = f"{record['tool']}({_plain(record.get('arguments'))}){failed}"
        lines.append(
            Line(
                number=int(record["turn"] if record.get("turn") is not None else i),
                who=str(record.get("role") or record.get("agent") or ""),
                heard=_text(record.get("observation")),
                said=_text(record.get("action")),
                call=_text(call),
                signs=tuple(signs.get(rows[i], ())),
            )
        )
    if len(rows) > before + 1:
        lines.append(Line(0, "", None, None, None, (), skipped=len(rows) - before - 1))
    return lines


def _text(value: Any) -> Text | None:
    return Text.of(str(value)) if value not in (None, "") else None


def _plain(value: Any) -> str:
    return "" if value is None else str(value)


def _name(type: str) -> str:
    return type.split(".", 1)[-1].replace(".", ": ").replace("_", " ")


def _kind(type: str) -> str:
    return [*type.split("."), "own"][1]
