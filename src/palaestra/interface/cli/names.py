"""`palaestra names`: what recipes and expressions may name, by kind, with one line on each."""

from __future__ import annotations

import importlib
from typing import Annotated

import typer
from rich.table import Table

from palaestra.errors import InputError, MissingExtraError, missing_extra, nearest
from palaestra.foundation.registry import REGISTRIES
from palaestra.interface.cli.app import Json, app, err, out, show

HOMES = (
    "palaestra.algebra.tree",
    "palaestra.learning.stages.stage",
    "palaestra.learning.objective",
    "palaestra.learning.protocol",
    "palaestra.learning.reward_models.reward_model",
    "palaestra.judges.planning",
    "palaestra.envs",
    "palaestra.envs.tool_calls",
    "palaestra.envs.tools",
    "palaestra.teams",
    "palaestra.runs.policies",
    "palaestra.runs.scripts",
    "palaestra.runs.measures",
    "palaestra.play.executors",
    "palaestra.evaluation.logs",
    "palaestra.evaluation.analyses",
    "palaestra.evaluation.games.solvers",
    "palaestra.learning.trackers",
    "palaestra.interface.report.panels",
)
"""Modules that make the registries."""


def registered_names(kind: str | None = None) -> dict[str, dict[str, str]]:
    """Dict kind -> name -> first sentence of the docstring, of all registered names; `reward`: signals of that package.

    Those of plugins too.

    Without torch, kinds of which the module needs it are left out, with a line on standard error.

    Raises:
        InputError: there is no such kind.
        MissingExtraError: nothing is listed because the module of this kind needs torch.
    """
    without = _import_homes()
    found = {}
    for name, registry in REGISTRIES.items():
        try:
            found[name] = {each: registry.doc(each) for each in registry}
        except MissingExtraError:
            without.append(name)
    signals = REGISTRIES["signal"]
    found["reward"] = {name: text for name, text in found["signal"].items() if ".rewards" in signals[name].__module__}
    if kind is None:
        if without:
            err.print(f"not listed without torch: {', '.join(without)} (pip install 'palaestra[train]')")
        return found
    if kind not in found and without:
        raise missing_extra("torch", "train")
    if kind not in found:
        raise InputError(f"names: there is no kind {kind!r}{nearest(kind, found)} (`palaestra names` lists all)")
    return {kind: found[kind]}


def _import_homes() -> list[str]:
    """Import the modules of all kinds; return those that cannot be imported because torch is missing."""
    without = []
    for home in HOMES:
        try:
            importlib.import_module(home)
        except ModuleNotFoundError as error:
            without.append(_torch_only(error, home))
    return without


def _torch_only(error: ModuleNotFoundError, what: str) -> str:
    """`what`, if torch is all that is missing; else the error is raised."""
    if error.name != "torch":
        raise error
    return what


@app.command(short_help="What recipes and expressions may name.")
def names(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="signal, reward, stage, term, env, policy …")
    ] = None,
    as_json: Json = False,
) -> None:
    """List what recipes and expressions may name, with one line on each; `names KIND` lists one kind."""
    found = registered_names(kind)
    if as_json:
        show(found)
        return
    for each, entries in found.items():
        table = Table(each, "", box=None, pad_edge=False)
        for name, text in sorted(entries.items()):
            table.add_row(name, text)
        out.print(table)
        out.print()
