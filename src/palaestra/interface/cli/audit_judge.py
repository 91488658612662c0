"""`palaestra audit-judge`: can this scorer be trusted?"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palaestra.errors import InputError
from palaestra.foundation.files import plain
from palaestra.interface.cli.app import Json, app, hint, out, prefix_errors, say, show, table_of

if TYPE_CHECKING:
    import polars as pl

    from palaestra.evaluation.audits.finding import Finding

    Page = tuple[str, pl.DataFrame, list[dict[str, Any]], list[Finding]]

_ROWS = 10
"""Rows of a finding that are printed."""
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
    """Print of each file of verdicts what is wrong with its scorer, why, and what to do; exit 1 if an audit fails.

    Two files of verdicts on the same items are also compared: agreement, lenience, and where they differ.
    """
    from palaestra.evaluation.audits.judges import audit_judge as run

    if page is not None:
        from palaestra.interface.report.plots import need_matplotlib

        need_matplotlib()
    names = tuple(nuisance or ("length",))
    same = tuple(name.strip() for name in match.split(",") if name.strip())
    pages: list[Page] = []
    for file in files:
        with prefix_errors([file]):
            rows, tables = _read(file, steps, seed)
            findings = run(rows, truth=truth, nuisances=names, match=same, seed=seed)
        pages.append((str(file), rows, tables, findings))
    pages += _compared(pages, seed)
    found = [
        {"file": name, "scores": tables, "findings": [f.to_dict() for f in findings]}
        for name, _, tables, findings in pages
    ]
    if as_json:
        show(found)
    else:
        for name, rows, tables, findings in pages:
            _print(name, len(rows), tables, findings)
    if page is not None:
        from palaestra.interface.report.judges import write_judge_audit

        hint(f"report: {write_judge_audit(page, pages, truth=truth)}")
    if any(one.verdict == "fail" for _, _, _, findings in pages for one in findings):
        raise typer.Exit(1)


def _compared(pages: list[Page], seed: int) -> list[Page]:
    """Every two files of verdicts beside each other; what they share is the table of such a part."""
    from palaestra.evaluation.audits.judges import compare_judges

    judged = [(name, rows) for name, rows, *_ in pages if {"item", "value"} <= set(rows.columns)]
    found: list[Page] = []
    for (one, a), (other, b) in combinations(judged, 2):
        with prefix_errors([Path(one), Path(other)]):
            found.append((f"{one} (a) and {other} (b)", a, [], [compare_judges(a, b, seed=seed)]))
    return found


def _read(file: Path, steps: str, seed: int) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """The rows of a file, and the scores of its benchmark's protocols if they are of one."""
    from palaestra.evaluation.analyses import table
    from palaestra.evaluation.scorers import comparisons, domain_scores, protocols, read_scores

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


def _print(name: str, size: int, tables: list[dict[str, Any]], findings: list[Finding]) -> None:
    say(f"{name}: {size:,} rows")
    if tables:
        shown = table_of(*tables[0])
        for row in tables:
            shown.add_row(*("–" if x is None else f"{x:.4f}" if isinstance(x, float) else str(x) for x in row.values()))
        out.print(shown)
    for one in findings:
        out.print(f"{one.verdict:>12}", style=STYLES[one.verdict], end="  ", soft_wrap=True)
        say(f"{one.audit}: {one.sentence}")
        if one.fix and one.verdict != "pass":
            say(f"{'':14}→ {one.fix}")
        for proof in one.rows[:_ROWS]:
            told = ", ".join(f"{key} {x:.3g}" if isinstance(x, float) else f"{key} {x}" for key, x in proof.items())
            say(f"{'':14}{told}")
        if len(one.rows) > _ROWS:
            say(f"{'':14}… and more; --json lists the {len(one.rows)} that differ most")
