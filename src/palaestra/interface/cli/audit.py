"""`palaestra audit`: what can be known of a reward before anything is trained on it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from palaestra.errors import InputError
from palaestra.interface.cli.app import Json, Modules, app, import_modules, out, show, turns_at

STYLES = {"pass": "green", "warn": "yellow", "fail": "red", "cannot tell": "dim"}


@app.command(short_help="Can this reward be farmed?")
def audit(
    turns: Annotated[Path, typer.Argument(metavar="TURNS", exists=True, help="table of turns, or a directory of them")],
    reward: Annotated[
        str | None,
        typer.Option(
            help="the reward, e.g. \"delta(col('score'))\" [default: the sum of the columns r_<name> if that is the "
            "column reward, else that column]"
        ),
    ] = None,
    against: Annotated[
        list[str] | None, typer.Option(help="another reward, or several: how far apart are they?")
    ] = None,
    canonical: Annotated[
        bool, typer.Option(help="with --against: ignore shaping; --no-canonical compares rewards as they are")
    ] = True,
    gamma: Annotated[float, typer.Option(min=0.0, max=1.0, help="discount of the return, and so of shaping")] = 1.0,
    only: Annotated[str, typer.Option(metavar="NAME,NAME…", help="these audits alone")] = "",
    modules: Modules = None,
    as_json: Json = False,
) -> None:
    """Print for each audit whether the reward of a table of turns can be farmed, with proof; exit 1 if one fails."""
    import palaestra.rewards  # noqa: F401  their signals must be registered
    from palaestra import Turns, parse
    from palaestra.evaluation.audits import LOOKED_AT, component_sum
    from palaestra.evaluation.audits import audit as run
    from palaestra.evaluation.audits.components import is_component

    import_modules(modules)
    known = Turns.columns_of(turns_at(turns))
    signal = None if reward is None else parse(reward, columns=known)
    others = tuple(parse(each, columns=known) for each in against or ())
    needed = {name for each in (signal, *others) if each is not None for name in each.needs()}
    table = Turns.load(turns, {*known[:1], *LOOKED_AT, *filter(is_component, known), *needed})
    if not len(table):
        raise InputError(f"{turns}: the table is empty; give it at least one episode")
    signal = component_sum(table) if signal is None else signal
    names = tuple(name.strip() for name in only.split(",") if name.strip())
    findings = run(table, signal, gamma=gamma, only=names, against=others, canonical=canonical)
    if as_json:
        show([finding.to_dict() for finding in findings])
    else:
        say = partial(out.print, soft_wrap=True)
        say(f"{reward or signal} on {len(table):,} turns")
        for finding in findings:
            say(f"{finding.verdict:>11}", style=STYLES[finding.verdict], end="  ")
            say(f"{finding.audit}: {finding.sentence}")
            for row in finding.rows:
                say(f"{'':13}{_row(row)}")
    if any(finding.verdict == "fail" for finding in findings):
        raise typer.Exit(1)


def _row(row: Any) -> str:
    """`row 3: episode=0 turn=3 action='repeat' reward=0.9`, long texts cut."""
    shown = [
        f"{k}={v:g}" if isinstance(v, float) else f"{k}={v!r}"
        for k, v in row.items()
        if k not in ("row", "state") and v is not None
    ]
    cut = [text if len(text) <= 60 else f"{text[:57]}…'" for text in shown]
    return f"row {row['row']}: {' '.join(cut)}"
