"""The atlas in a terminal: a table of systems, and one system's page, as `rich` prints them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import polars as pl
from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from palaestra_atlas import System
from palaestra_atlas.reproductions import all_ids
from palaestra_atlas.verification import evidence
from palaestra_atlas.verification.verify import note_of

STYLES = {"works": "bold green", "partly": "yellow", "unverified": "magenta", "planned": "dim"}
SOURCES = {
    "code run": "checked beside the authors' code, run on the same input",
    "code read": "as read in the authors' code",
    "text": "as in the text of the paper",
    "secondary text": "as others describe the paper",
    "reconstruction": "reconstructed from what is public",
}


def status_of(row: System) -> evidence.Status:
    """The computed status of a system; `unverified` where nobody has looked yet."""
    found = evidence.read(row.id)
    return "planned" if not row.where else found.status if found else "unverified"


def plain(row: System) -> dict[str, Any]:
    """A system as `palaestra systems --json` prints it."""
    return {
        "id": row.id,
        "name": row.name,
        "family": row.family,
        "status": status_of(row),
        "where": list(row.where),
        "use": row.use.line if row.use else None,
        "reproduce": f"palaestra reproduce {row.id}" if row.id in all_ids() else None,
    }


def table(rows: Sequence[System], width: int = 80) -> Table:
    """One line per system, in 80 columns; `where` is shown without the leading `palaestra.`. Narrower, names break."""
    statuses = {row.id: status_of(row) for row in rows}
    counts: Counter[str] = Counter(statuses.values())
    caption = " · ".join(f"{counts[status]} {status}" for status in STYLES if counts[status])
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    shown.add_column("id", justify="right", style="cyan", no_wrap=True, min_width=3)
    for name, style in (("name", ""), ("family", "dim"), ("status", "")):
        shown.add_column(name, style=style, no_wrap=width >= 80, overflow="ellipsis" if width >= 80 else "fold")
    shown.add_column("where", overflow="fold")
    for row in rows:
        where = "\n".join(name.removeprefix("palaestra.") for name in row.where)
        status = Text(statuses[row.id], STYLES[statuses[row.id]])
        shown.add_row(str(row.id), Text(row.name), row.family, status, Text(where))
    return shown


def parts(placed: pl.DataFrame) -> RenderableType:
    """A survey's headings with the systems below them."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("part", "heading", "systems"):
        shown.add_column(name, overflow="fold")
    for row in placed.iter_rows(named=True):
        shown.add_row(row["part"], row["heading"], " ".join(map(str, row["ids"])) or Text("no system", "yellow"))
    return shown


def lists(rows: Sequence[Mapping[str, Any]], leave_out: Collection[str] = ()) -> RenderableType:
    """Rows of plain values and lists; an empty list is said to be one."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    names = [name for name in rows[0] if name not in leave_out]
    for name in names:
        shown.add_column(name, overflow="fold")
    for row in rows:
        values = (", ".join(map(str, x)) or "-" if isinstance(x := row[name], list) else str(x) for name in names)
        shown.add_row(*(Text(value) for value in values))
    return shown


def _measured(check: evidence.CheckResult) -> str:
    numbers = ", ".join(f"{name} {'-' if value is None else f'{value:.3g}'}" for name, value in check.measured.items())
    verdict = "holds" if check.holds else "does not hold"
    return f"{verdict} on seeds {check.seeds[0]} to {check.seeds[-1]}: {numbers}"


def page(entry: System) -> RenderableType:
    """Everything about one system: what it is, where it lives, how to write it, how to check it."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("paper", Text(entry.title))
    if entry.arxiv:
        address = f"https://arxiv.org/abs/{entry.arxiv}"
        facts.add_row("arXiv", Text(entry.arxiv, style=f"cyan link {address}"))
    facts.add_row("family", entry.family)
    found = evidence.read(entry.id)
    status = status_of(entry)
    facts.add_row("status", Text(status, STYLES[status]))
    for reason in found.reasons if found else ():
        facts.add_row("", Text(reason, "yellow"))
    for repeat in found.repeats if found else ():
        why = f": {repeat.reasons[0]}" if repeat.reasons else ""
        facts.add_row("", Text(f"again on seeds from {repeat.fresh}: {repeat.status}{why}", STYLES[repeat.status]))
    for name in entry.where:
        facts.add_row("where", Text(name, "cyan"))
    if entry.verified:
        checked = entry.verified if isinstance(entry.verified, dict) else {"": entry.verified}
        for flavour, how in checked.items():
            facts.add_row("mechanism" + (f" ({flavour})" if flavour else ""), SOURCES[how])
    if entry.use:
        facts.add_row("use", Text(entry.use.line))
    if entry.note:
        facts.add_row("note", Text(note_of(entry, found)))
    for check in found.checks if found else ():
        if check.seeds:
            facts.add_row(check.name, Text(_measured(check)))
    parts: list[RenderableType] = [facts]
    if entry.expression:
        call = f"{entry.where[0].rpartition('.')[2]}()"
        parts += [Text("\nin one expression", "dim"), Text(f"{call} = {entry.expression}", "bold")]
        apply = f'palaestra apply "{call}" TURNS.parquet -o OUT.parquet'
        parts += [Text("\nadd it to any table of turns", "dim"), Text(apply, "cyan")]
    if entry.where:
        checks = [f"palaestra verify {entry.id}"]
        if entry.id in all_ids():
            checks.insert(0, f"palaestra reproduce {entry.id}")
        parts += [Text("\ncheck it yourself", "dim"), *(Text(line, "cyan") for line in checks)]
    else:
        parts.append(Text("\nNot built yet. CONTRIBUTING.md shows how to add a system.", "dim"))
    title = Text.assemble((f"[{entry.id}] ", "cyan"), (entry.name, "bold"))
    return Panel(Group(*parts), title=title, title_align="left", box=box.ROUNDED, padding=(1, 2), width=100)
