"""`palaestra rank`: from matches to an order, with intervals of scores and of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from palaestra.errors import InputError
from palaestra.foundation.files import plain
from palaestra.interface.cli.app import Json, app, hint, out, prefix_errors, say, show, table_of


@app.command(short_help="Rank systems from pairwise matches.")
def rank(
    matches: Annotated[
        Path,
        typer.Argument(
            metavar="MATCHES",
            help=".csv, .tsv, .json, .jsonl or .parquet: who met, who won (a name or tie), task if known; or contests: "
            "contest, system, rank or score",
        ),
    ],
    method: Annotated[
        str,
        typer.Option(
            help="auto (Bradley-Terry unless a cycle is significant), elo, elo_mmr (contests), alpha_rank, nash …"
        ),
    ] = "auto",
    a: Annotated[str | None, typer.Option("--a", metavar="COLUMN", help="the first of the two")] = None,
    b: Annotated[str | None, typer.Option("--b", metavar="COLUMN", help="the second")] = None,
    winner: Annotated[str | None, typer.Option(metavar="COLUMN", help="who won: a name, a, b, tie")] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="what matches have in common: a passage, a template")
    ] = None,
    resamples: Annotated[int, typer.Option(min=100, help="bootstrap draws")] = 2000,
    seed: Annotated[int, typer.Option(help="of the bootstrap")] = 0,
    report: Annotated[Path | None, typer.Option(metavar="OUT.html", help="write a page with plots")] = None,
    as_json: Json = False,
) -> None:
    """Rank systems from a file of pairwise matches or of contests, and print whether there is an order at all."""
    from palaestra.evaluation import ranking

    if report is not None:
        from palaestra.interface.report.plots import need_matplotlib

        need_matplotlib()
    with prefix_errors([matches]):
        contests = None if (a or b or winner or cluster) else ranking.read_contests(matches)
        if contests is not None:
            played = contests.matches()
            found = ranking.rank_contests(contests, method, resamples=resamples, seed=seed)
        elif method == "elo_mmr":
            raise InputError("elo_mmr rates contests; give a file with contest, system, and rank or score")
        else:
            played = ranking.read_matches(matches, a=a, b=b, winner=winner, cluster=cluster)
            found = ranking.rank(played, method, resamples=resamples, seed=seed)
    if report is not None:
        from palaestra.interface.report.evaluation import origin_of, write_evaluation

        dropped = [f"{matches}: {played.counts}"] if played.counts and played.counts.used < played.counts.rows else []
        origin = origin_of([str(matches)], dropped)
        page = write_evaluation(report, ranking=found, matches=played, title="Ranking", origin=origin)
        hint(f"report: {page}")
    if as_json:
        test = {**vars(found.transitivity), "cycle": [_name(found, i) for i in found.transitivity.cycle]}
        show(
            {
                "rows": vars(played.counts) if played.counts else None,
                "method": found.method,
                "note": found.note,
                "transitivity": test,
                "ranking": plain(found.table.to_dicts()),
            }
        )
        return
    if played.counts:
        say(str(played.counts))
    extra = [name for name in ("contests", "gold", "silver", "bronze") if name in found.table.columns]
    table = table_of("rank", "system", "score", "95 % interval", "matches", "won", "lost", "drawn", *extra)
    digits = ".0f" if found.method in ("bradley_terry", "davidson", "elo", "elo_mmr") else ".3f"
    for row in found.table.to_dicts():
        places = f"{row['rank_low']}-{row['rank_high']}" if row["rank_low"] < row["rank_high"] else str(row["rank_low"])
        interval = f"{row['low']:{digits}} to {row['high']:{digits}}"
        counts = (f"{row[name]:g}" for name in ("n", "wins", "losses", "draws", *extra))
        table.add_row(places, row["system"], f"{row['score']:{digits}}", interval, *counts)
    out.print(table)
    say(found.note)
    if found.transitivity.cycle:
        cycle = [_name(found, i) for i in found.transitivity.cycle]
        say(f"strongest cycle: {' > '.join([*cycle, cycle[0]])} (p = {found.transitivity.cycle_p:.2g})")


def _name(found: Any, index: int) -> str:
    return str(sorted(found.table["system"].to_list())[index])
