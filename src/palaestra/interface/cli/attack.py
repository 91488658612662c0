"""`palaestra attack`: what a trained team loses when one of its seats is played by a trained adversary."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palaestra.interface.cli.app import Jobs, Json, Overrides, Trust, app, err, say, show
from palaestra.interface.cli.train import modules_of


@app.command(short_help="Train an adversary in a seat of a trained team.")
def attack(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="what `train` wrote")],
    overrides: Overrides = None,
    seat: Annotated[str, typer.Option("--seat", metavar="NAME", help="the agent that the attacker plays")] = "",
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="EXPR", help="above 0 in a turn where the targeted behaviour happened"),
    ] = None,
    influence: Annotated[
        float | None,
        typer.Option("--influence", min=0.0, help="weight of a bonus for turning the others to target actions"),
    ] = None,
    observations: Annotated[
        str | None,
        typer.Option(
            "--observations",
            metavar="epsilon=X",
            help="shift what the seat's own policy sees, so that it shows --target",
        ),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="of the attacker's policy [default: as the seat's]")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option("--iterations", min=1, help="of its training [default: as the run]")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="attackers [default: one for each trained seed]")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="folder [default: RUN/attacks/NAME]")] = None,
    jobs: Jobs = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Train a new policy in one seat of a run's team against the other, frozen members; say what the team loses to it.

    It is paid minus the team's reward, or 1 for each episode with the targeted behaviour. The loss is compared with
    that to an untrained policy in the same seat. The same command again goes on where it was interrupted.
    """
    from palaestra.learning import need_torch

    modules_of(overrides, trust)
    need_torch()
    from palaestra.interface.library import attack as run_attack
    from palaestra.runs.attacks import folder_of

    directory = out or folder_of(run, seat)
    summary = run_attack(
        run, seat, target=target, influence=influence, observations=observations, kind=kind,
        iterations=iterations, seeds=seeds, overrides=overrides or (), directory=directory,
        jobs=jobs, console=err, trust=trust,
    )  # fmt: skip
    if as_json:
        show(summary)
        return
    say(summary["verdict"])
    say(f"report: {directory / 'report.html'}")
