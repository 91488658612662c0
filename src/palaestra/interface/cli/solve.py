"""`palaestra solve`: an equilibrium of a game, its gap, and the intervals of both where payoffs were estimated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from palaestra.foundation.files import plain
from palaestra.interface.cli.app import Json, app, out, prefix_errors, say, show, table_of, turns_at

_SHOWN = 24
"""Information sets of a tree that are printed; JSON has all."""


@app.command(short_help="Solve a game: matrix, OpenSpiel game, or who met whom in turns.")
def solve(
    game: Annotated[
        str,
        typer.Argument(
            metavar="GAME", help="payoffs (.csv, .json, .npz), turns (a folder or .parquet), or e.g. leduc_poker"
        ),
    ],
    by: Annotated[
        str, typer.Option(help="nash, cce, 'cfr(vad)', replicator, 'risk_averse(.1)', 'qre(2.)' …; `names solver`")
    ] = "nash",
    column: Annotated[str, typer.Option(metavar="COLUMN", help="of turns: what a strategy is")] = "policy",
    draws: Annotated[int, typer.Option(min=0, help="games drawn for intervals of estimated payoffs")] = 100,
    seed: Annotated[int, typer.Option(help="of the draws")] = 0,
    as_json: Json = False,
) -> None:
    """Solve a game, by its name or from a file; print the strategies, and how much a deviator could still gain."""
    from palaestra.evaluation import games

    games.read_solver(by)  # a wrong name is no fault of the file
    with prefix_errors([game]):
        source = turns_at(Path(game)) if Path(game).exists() else game
        found = games.solve(games.read_game(source, column), by, draws=draws, seed=seed)
    if as_json:
        show(plain(_data(found, by)))
        return
    rows = found.table()
    tree = "state" in rows.columns
    table = table_of(*(["player", "state", "action", "probability"] if tree else _heads(found)))
    states = rows["state"].unique(maintain_order=True).to_list() if tree else []
    for row in rows.to_dicts():
        if tree and row["state"] in states[_SHOWN:]:
            continue
        cells = [row["player"], row["state"], row["action"]] if tree else [row["player"], row["strategy"]]
        interval = [] if row.get("low") is None else [f"{row['low']:.3f} to {row['high']:.3f}"]
        table.add_row(*(" ".join(cell.split()) for cell in cells), f"{row['probability']:.4f}", *interval)
    out.print(table)
    if len(states) > _SHOWN:
        say(f"… {len(states) - _SHOWN} more information sets; --json has all")
    for i, who in enumerate(found.game.players):
        risk = "" if found.risk is None else f", variance {found.risk[i]:.4g}"
        say(f"{who}: value {found.value[i]:.6g}, best deviation gains {found.regret[i]:.3g}{risk}")
    line = f"{'CCE gap' if found.correlated else 'exploitability'} {found.gap:.3g}"
    if found.gap_interval is not None:
        low, high = found.gap_interval
        line += f"; 95 % interval {low:.3g} to {high:.3g} ({found.draws} games drawn from the cells' errors)"
    say(line)


def _heads(found: Any) -> list[str]:
    heads = ["player", "strategy", "probability"]
    return heads if found.mixture_intervals is None else [*heads, "95 % interval"]


def _data(found: Any, by: str) -> dict[str, Any]:
    """JSON of a solution: the profile in long form, values, regrets, gap and intervals."""
    return {
        "by": by,
        "players": list(found.game.players),
        "profile": found.table().to_dicts(),
        "joint": found.profile.tolist() if found.correlated else None,
        "value": found.value.tolist(),
        "regret": found.regret.tolist(),
        "risk": None if found.risk is None else found.risk.tolist(),
        "gap": found.gap,
        "gap_kind": "cce" if found.correlated else "exploitability",
        "gap_interval": found.gap_interval,
        "draws": found.draws,
    }
