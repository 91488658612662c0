"""`palaestra fit-prior` and `palaestra fuse`: a prior learned from samples, and what several sources make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from palaestra.foundation.files import plain
from palaestra.interface.cli.app import Json, app, out, prefix_errors, say, show, table_of


@app.command("fit-prior", short_help="Learn what rows of numbers are like, for `fuse`.")
def fit_prior(
    samples: Annotated[Path, typer.Argument(metavar="SAMPLES", help="a table; its columns of numbers are learned")],
    folder: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="folder of the prior")],
    kind: Annotated[str, typer.Option(help="network, or gaussian: mean and covariance")] = "network",
    hidden: Annotated[int, typer.Option(min=1, help="width of both hidden layers")] = 128,
    steps: Annotated[int, typer.Option(min=1, help="most steps of the fit")] = 3000,
    batch: Annotated[int, typer.Option(min=1)] = 256,
    lr: Annotated[float, typer.Option(help="learning rate")] = 2e-3,
    draws: Annotated[int | None, typer.Option(min=1, help="fixed noise draws per sample [default: new ones]")] = None,
    held_out: Annotated[float, typer.Option(help="share of samples that say when to stop; 0: never")] = 0.2,
    patience: Annotated[int, typer.Option(min=1, help="looks without improvement before it stops")] = 10,
    kernel: Annotated[bool, typer.Option("--kernel", help="compare the fit with kernel regression")] = False,
    seed: Annotated[int, typer.Option()] = 0,
    as_json: Json = False,
) -> None:
    """Fit a score model of a table's rows by denoising, with early stopping, and write it as a prior to a folder."""
    from palaestra.learning import need_torch

    need_torch()
    from palaestra.learning.score_models.files import fit_prior as work

    fitting: dict[str, Any] = {
        "kind": kind,
        "kernel": kernel,
        "steps": steps,
        "batch": batch,
        "lr": lr,
        "draws": draws,
        "held_out": held_out,
        "patience": patience,
    }
    with prefix_errors([samples]):
        found = work(samples, folder, hidden=(hidden, hidden), seed=seed, **fitting)
    if as_json:
        show(plain(found))
        return
    say(f"learned from {found['rows']} rows of {len(found['columns'])} columns")
    if "steps" in found:
        loss = "" if found["least"] is None else f", held-out loss {found['least']:.4f}, at the end {found['last']:.4f}"
        say(f"{found['steps']} steps, kept those of step {found['kept']}{loss}")
    if kernel:
        say(f"gradient descent is {100 * found['kernel_distance']:.1f} % from its kernel regression")
    say(f"written: {folder}; `palaestra fuse {folder} READINGS` reads it")


@app.command(short_help="Fuse the readings of several sources with a prior.")
def fuse(
    prior: Annotated[Path, typer.Argument(metavar="PRIOR", help="folder that fit-prior wrote")],
    readings: Annotated[Path, typer.Argument(metavar="READINGS", help="reads, value, noise; item, source, weight")],
    only: Annotated[list[str] | None, typer.Option(metavar="SOURCE", help="leave all other sources out")] = None,
    samples: Annotated[int, typer.Option(min=2, help="samples of what is believed")] = 200,
    steps: Annotated[int, typer.Option(min=1, help="noise levels")] = 100,
    level: Annotated[float, typer.Option(help="of the interval")] = 0.9,
    seed: Annotated[int, typer.Option()] = 0,
    as_json: Json = False,
) -> None:
    """Print posterior mean, sd, interval by item and column, sampled from a prior's folder given a file of readings.

    A reading is of the mean of the columns in `reads`, parted by blanks. Sources come and go without another fit.
    """
    from palaestra.learning import need_torch

    need_torch()
    from palaestra.learning.score_models.files import fuse_readings

    with prefix_errors([readings]):
        rows = fuse_readings(
            prior, readings, only=only or (), samples=samples, steps=steps, level=level, seed=seed
        ).to_dicts()
    if as_json:
        show(plain(rows))
        return
    shown = table_of(*rows[0] if rows else ["nothing"])
    for row in rows:
        shown.add_row(*(f"{each:.4g}" if isinstance(each, float) else str(each) for each in row.values()))
    out.print(shown)
