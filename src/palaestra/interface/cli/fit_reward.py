"""`palaestra fit-reward`: from pairs, verdicts or labels in a file to a reward model in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palaestra.interface.cli.app import Json, Modules, app, import_modules, prefix_errors, say, show


@app.command("fit-reward", short_help="Train a reward model on pairs, verdicts or labels.")
def fit_reward(
    pairs: Annotated[
        Path, typer.Argument(metavar="PAIRS|VERDICTS", help="prompt, chosen, rejected; our pairs or verdicts; labels")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="folder of the model")],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="e.g. 'sequence(\"PATH\")', pairwise, 'head(layers=2)'; `names reward_model` "
            "[default: head with --features, else a tiny sequence]",
        ),
    ] = None,
    features: Annotated[str | None, typer.Option(metavar="COLUMN", help="numbers that heads read")] = None,
    rows: Annotated[Path | None, typer.Option(metavar="TABLE", help="what pairs or verdicts are about")] = None,
    pairing: Annotated[
        str | None, typer.Option(metavar="PAIRING", help="makes pairs of the file's rows; `names pairing`")
    ] = None,
    target: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="labels; several: several heads")] = None,
    loss: Annotated[
        str | None, typer.Option(help="bt; regression, binary; ranknet, listnet, ce inside groups [default: by model]")
    ] = None,
    margin: Annotated[str | None, typer.Option(metavar="COLUMN", help="by how much chosen should lead")] = None,
    weight: Annotated[str | None, typer.Option(metavar="COLUMN", help="of a pair or row")] = None,
    key: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="held out together [default: group, prompt]")
    ] = None,
    centre: Annotated[float, typer.Option(help="weight of (r_chosen + r_rejected)²")] = 0.0,
    alpha: Annotated[float | None, typer.Option(help="of distill: share of the teacher's soft order")] = None,
    epochs: Annotated[int | None, typer.Option(min=1)] = None,
    lr: Annotated[float | None, typer.Option(help="learning rate, which falls to 0")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="pairs, rows or groups of a step")] = None,
    weight_decay: Annotated[float, typer.Option()] = 0.0,
    held_out: Annotated[float, typer.Option(help="share of keys that are not learned from")] = 0.1,
    every: Annotated[int, typer.Option(min=1, help="steps between checkpoints")] = 100,
    seed: Annotated[int, typer.Option()] = 0,
    modules: Modules = None,
    as_json: Json = False,
) -> None:
    """Train a reward model on a file of pairs, verdicts or labels, print its accuracy on held-out ones, and write it.

    The same command again goes on after an interruption. `sequence` writes what transformers and TRL load.
    """
    from palaestra.learning import need_torch

    need_torch()
    from palaestra.learning.reward_models.trained import fit_reward as work

    import_modules(modules)
    with prefix_errors([pairs, *([rows] if rows else [])]):
        found = work(
            pairs, out, model, features=features, rows=rows, pairing=pairing, target=target or (), loss=loss,
            margin=margin, weight=weight, key=key, centre=centre, alpha=alpha, epochs=epochs, lr=lr, batch=batch,
            weight_decay=weight_decay, held_out=held_out, every=every, seed=seed, progress=True,
        )  # fmt: skip
    if as_json:
        show(found)
        return
    kind, fit = found["learned"], found["fit"]
    reasons = ", ".join(f"{count} {reason}" for reason, count in kind["left_out"].items())
    left_out = f"; left out {sum(kind['left_out'].values())}: {reasons}" if reasons else ""
    say(f"learned from {kind['rows']} {kind['what']}, held out {kind['held_out']} ({_keys(kind['keys'])}){left_out}")
    if (right := found["accuracy"]) is not None and right["mean"] is None:
        say("right on held-out pairs: unknown: no two held-out answers of one key can be compared")
    elif right is not None:
        ends = "" if right["low"] is None else f" (95 %: {100 * right['low']:.1f} to {100 * right['high']:.1f})"
        count = f"{right['n']} pairs of {_keys(right['clusters'])}"
        alone = "; pairs of one key are not independent, so there is no interval" if right["clusters"] == 1 else ""
        say(f"right on held-out pairs: {100 * right['mean']:.1f} %{ends}, {count}{alone}")
    for number, share in enumerate(found["explained"] or ()):
        say(f"head {number}: R² {'unknown' if share is None else format(share, '.3f')} on held-out labels")
    if "steps" in fit:
        say(f"{fit['steps']:.0f} steps, loss {fit['loss']:.4f}, padding {100 * fit['padding']:.1f} % of the tokens")
    say(f"written: {out}; it scores as 'reward_model(\"{out}\")'")


def _keys(count: int) -> str:
    return f"{count} key{'s' * (count != 1)}"
