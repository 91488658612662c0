"""`palaestra evaluate`: success, score and paired differences of anybody's play."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from palaestra.errors import InputError, nearest
from palaestra.interface.cli.app import Json, app, err, out, show

_SHOWN = 10


@app.command(short_help="Success and paired differences of any logs.")
def evaluate(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH…", help="logs, tables of turns, folders of them, or a run; NAME=PATH names the system"
        ),
    ],
    baseline: Annotated[str | None, typer.Option(help="system that the others are compared with")] = None,
    agent: Annotated[
        list[str] | None, typer.Option(help="whose play is judged; say it for zero-sum games [default: everybody's]")
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(
            help="compare this score (a column `score.NAME` or any other; larger is better) instead of success"
        ),
    ] = None,
    format: Annotated[str | None, typer.Option(help="read the files as this format, whatever they look like")] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="what tasks have in common (a passage, a template): the units of all intervals"
        ),
    ] = None,
    errors: Annotated[
        str, typer.Option(help="errors of env, endpoint, judge or reward: exclude them, or count them as failures")
    ] = "exclude",
    report: Annotated[Path | None, typer.Option(metavar="OUT.html", help="write a page with plots")] = None,
    as_json: Json = False,
) -> None:
    """Success, score, pass@k and paired differences of any logs: two paths, two systems."""
    rows = _run_of_ours(paths, baseline) if not (agent or score or format or cluster or errors != "exclude") else None
    measured: dict[str, Any] = {}
    if rows is None:
        rows, measured = _compare(read(paths, format), baseline, agent, score, cluster, errors)
    if report is not None:
        from palaestra.interface.report.evaluation import origin_of, write_evaluation

        origin = origin_of(paths, measured.pop("unread", ()))
        page = write_evaluation(report, rows=rows, origin=origin, **measured)
        err.print(f"report: {page}", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        show(rows)
        return
    shown = Table("system", "tasks × trials", "success", "score", "errors", box=None)
    for row in rows:
        size = f"{row['tasks']} × {row['trials']}"
        errors = str(sum(row["errors"].values()))
        shown.add_row(row["system"], size, _interval(row["success"], 100, " %"), _interval(row["score"]), errors)
    out.print(shown)
    for row in rows:
        print(f"{row['system']}: {row['verdict']}")


def evaluation_page(paths: list[str], page: Path) -> Path:
    """Write the page of any logs."""
    from palaestra.interface.report.evaluation import origin_of, write_evaluation

    rows, measured = _compare(read(paths, None))
    origin = origin_of(paths, measured.pop("unread"))
    return write_evaluation(page, rows=rows, origin=origin, **measured)


def _run_of_ours(paths: list[str], baseline: str | None) -> list[dict[str, Any]] | None:
    """A run or comparison knows its own measure and whose play counts."""
    path = Path(paths[0])
    if len(paths) > 1 or not any((path / name).exists() for name in ("recipe.yaml", "comparison.json")):
        return None
    from palaestra.runs.proof import evaluate as compare_systems

    return compare_systems(path, baseline)


def _compare(
    logs: Any,
    baseline: str | None = None,
    agents: list[str] | None = None,
    score: str | None = None,
    cluster: str | None = None,
    errors: Any = "exclude",
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows, and the trials and turns that they are made of."""
    import polars as pl

    from palaestra.evaluation import comparison_table, trials, verdict
    from palaestra.runs.proof import value_of

    turns, where = logs.turns, None
    if agents:
        seats = turns["agent"].cast(pl.String).unique().drop_nulls().to_list() if "agent" in turns.columns else []
        for each in agents:
            if each not in seats:
                raise InputError(f"--agent {each!r}: nobody of that name{nearest(each, seats)}")
        where = pl.col("agent").cast(pl.String).is_in(agents)
    if score is not None and score not in turns.columns:
        score = f"score.{score}" if f"score.{score}" in turns.columns else score
    table = trials(turns, where=where, score=score, cluster=cluster, errors=errors)
    value = "score" if score is not None else value_of("success", table)
    several = "agent" in turns.columns and turns["agent"].drop_nulls().n_unique() > 1
    if value == "score" and where is None and several and table["score"].abs().max() == 0:
        hint = "every score is 0 on average over the agents, as in zero-sum games: say whose counts with --agent"
        err.print(hint, soft_wrap=True)
    systems = turns["system"].unique(maintain_order=True).to_list()  # the first path comes first
    if baseline is None:
        baseline = "before" if "before" in systems else systems[0]
    if baseline not in systems:
        raise InputError(f"--baseline {baseline!r}: no such system{nearest(baseline, systems)}")
    if table["success"].null_count() == table["score"].null_count() == len(table):
        hint = "no trial says success, score or reward: nothing was measured; name a column of numbers with --score"
        err.print(hint, soft_wrap=True)
    rows = comparison_table(table, baseline=baseline, value=value)
    measured = {"trials": table, "turns": turns, "unread": logs.problems, "cluster": cluster}
    return [row.to_dict() | {"verdict": verdict(row)} for row in rows], measured


def read(paths: list[str], format: str | None) -> Any:
    """The logs of all paths; what could not be read is named on stderr."""
    from palaestra.evaluation.logs import read_logs

    logs = read_logs(*paths, format=format)
    for problem in logs.problems[:_SHOWN]:
        err.print(f"not read: {problem}", markup=False, highlight=False, soft_wrap=True)
    if len(logs.problems) > _SHOWN:
        err.print(f"not read: {len(logs.problems) - _SHOWN} more of this kind; {len(logs.problems)} in all")
    return logs


def _interval(estimate: dict[str, Any], scale: float = 1.0, unit: str = "") -> str:
    if estimate["mean"] is None:
        return "–"
    mean, low, high = (
        f"{scale * estimate[key]:.3g}" if estimate[key] is not None else "?" for key in ("mean", "low", "high")
    )
    return f"{mean}{unit} [{low}, {high}]"
