"""`palaestra triage`: which episodes of any log to read first, why, and a page to read them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from palaestra.interface.cli.app import Json, app, hint, out, prefix_errors, say, show
from palaestra.interface.cli.evaluate import Format, Paths, Success, System, Task, read

_SHOWN = 20


@app.command(short_help="Choose the episodes most worth reading.")
def triage(
    paths: Paths,
    budget: Annotated[int, typer.Option(min=1, help="episodes that somebody will read")] = 100,
    directory: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="where triage.parquet, .jsonl and .html go")
    ] = Path("triage"),
    random: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="share of the budget drawn blindly: it shows what signals miss")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="of ties and of what is drawn blindly")] = 0,
    format: Format = None,
    system: System = None,
    task: Task = None,
    success: Success = None,
    as_json: Json = False,
) -> None:
    """Choose the episodes of log files that are most worth reading, say why, and write a page to read them."""
    from palaestra.evaluation.logs import Names
    from palaestra.evaluation.triage.select import because
    from palaestra.evaluation.triage.survey import survey
    from palaestra.interface.report.triage import write_triage

    names = Names(system, task, success)
    with prefix_errors(paths):
        chosen, turns, detections, total, kinds, logs = survey(
            partial(read, paths, format, names), budget, format=format, names=names, random=random, seed=seed
        )
    not_read = [str(problem) for problem in logs.not_read()]
    page = write_triage(directory, turns, chosen, detections, not_read=not_read, of_all=(total, kinds))
    rows = chosen.drop("episode_code").to_dicts()
    if as_json:
        show(rows)
    else:
        table = Table("score", "system", "episode", "turns", "quality", Column("why", min_width=24), box=None)
        for row in rows[:_SHOWN]:
            episode = row.get("episode_name") or f"#{row['episode']}"
            name = f"{row.get('task') or '–'} {episode}" + (f" ({row['alike']} alike)" if row["alike"] > 1 else "")
            cells = (
                f"{row['score']:.1f}",
                str(row.get("system") or "–"),
                name,
                str(row["turns"]),
                f"{row['quality']:.0f}",
            )
            table.add_row(*cells, because(row))
        out.print(table)
        if len(rows) > _SHOWN:
            say(f"… and {len(rows) - _SHOWN} more")
        quiet = sum(row["score"] == 0 and row["outcome"] not in ("failed", "regressed") for row in rows)
        counts = {each: sum(row["outcome"] == each for row in rows) for each in ("regressed", "failed")}
        known = [f"{n} {said}" for n, said in zip(counts.values(), ("of tasks that were right before", "failed")) if n]
        failures = f"; {', '.join(known)}" if known else ""
        blind = f"; {sum(row['drawn'] == 'random' for row in rows)} drawn without looking" if random else ""
        say(f"{len(rows)} of {total} episodes chosen{failures}; {quiet} show no sign of anything{blind}")
    hint(f"to read: {page}")
