"""`palaestra audit-judge`: can this scorer be trusted?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from palaestra.algebra.files import plain
from palaestra.errors import InputError
from palaestra.interface.cli.app import Json, app, hint, naming, out, say, show

if TYPE_CHECKING:
    import polars as pl

    from palaestra.evaluation.audits.finding import Finding

STYLES = {"pass": "green", "warn": "yellow", "fail": "red", "cannot tell": "dim"}


@app.command(name="audit-judge", short_help="Can this judge or reward model be trusted?")
def audit_judge(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…",
            help="verdicts (item, value, …), scores (group, score, correct), a curve (step, reward, truth), or what "
            "RewardBench 2 and RewardMATH write",
        ),
    ],
    truth: Annotated[str, typer.Option(metavar="COLUMN", help="the column with the right value")] = "truth",
    nuisance: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="what the score should not follow [default: length]")
    ] = None,
    match: Annotated[
        str,
        typer.Option(
            metavar="COLUMN,COLUMN…",
            help="what makes two rows alike in content [default: content, else group and truth]",
        ),
    ] = "",
    steps: Annotated[
        str, typer.Option(help="how step scores of a process model become one: min, product, mean …")
    ] = "min",
    seed: Annotated[int, typer.Option(help="of the bootstraps")] = 0,
    page: Annotated[Path | None, typer.Option("--out", metavar="OUT.html", help="write a page with the curve")] = None,
    as_json: Json = False,
) -> None:
    """Say of each file what is wrong with its scorer, why, and what to do; a finding is no error, so exit 0."""
    from palaestra.evaluation.audits.judges import WORDS
    from palaestra.evaluation.audits.judges import audit_judge as run

    names = tuple(nuisance or ("length",))
    same = tuple(name.strip() for name in match.split(",") if name.strip())
    found: list[dict[str, Any]] = []
    pages: list[tuple[str, pl.DataFrame, list[dict[str, Any]], list[Finding]]] = []
    for file in files:
        with naming([file]):
            rows, tables = _read(file, steps, seed)
            findings = run(rows, truth=truth, nuisances=names, match=same, seed=seed)
        found.append(
            {
                "file": str(file),
                "scores": tables,
                "findings": [f.to_dict() | {"word": WORDS[f.verdict]} for f in findings],
            }
        )
        pages.append((str(file), rows, tables, findings))
    if as_json:
        show(found)
    else:
        for name, rows, tables, findings in pages:
            _print(name, len(rows), tables, findings, WORDS)
    if page is not None:
        from palaestra.interface.report.judges import write_judge_audit

        hint(f"report: {write_judge_audit(page, pages, truth=truth)}")


def _read(file: Path, steps: str, seed: int) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """The rows of a file, and the scores of its benchmark's protocols if they are of one."""
    from palaestra.evaluation.scorers import comparisons, domain_scores, protocols, read_scores
    from palaestra.evaluation.studies import table

    rows = read_scores(file, steps=steps)  # type: ignore[arg-type]
    benchmark = rows is not None
    rows = table(file) if rows is None else rows
    if not len(rows):
        raise InputError("the table is empty")
    if "domain" in rows.columns and benchmark:
        tables = plain(domain_scores(rows, seed=seed).to_dicts())
        return rows.filter(rows["domain"].str.to_lowercase() != "ties"), tables  # a tie is right there
    if {"group", "score", "correct"} <= set(rows.columns):
        return rows, plain(protocols(rows).to_dicts())
    if benchmark:
        return rows, plain(comparisons(rows).to_dicts())
    return rows, []


def _print(name: str, size: int, tables: list[dict[str, Any]], findings: list[Finding], words: dict[str, str]) -> None:
    say(f"{name}: {size:,} rows")
    if tables:
        shown = Table(*tables[0], box=None)
        for row in tables:
            shown.add_row(*("–" if x is None else f"{x:.4f}" if isinstance(x, float) else str(x) for x in row.values()))
        out.print(shown)
    for one in findings:
        out.print(f"{words[one.verdict]:>12}", style=STYLES[one.verdict], end="  ", soft_wrap=True)
        say(f"{one.audit}: {one.sentence}")
        if one.fix and one.verdict != "pass":
            say(f"{'':14}→ {one.fix}")
