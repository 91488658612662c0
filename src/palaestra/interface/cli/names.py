"""`palaestra names`: what recipes and expressions may name, by kind, with one line on each."""

from __future__ import annotations

import importlib
from typing import Annotated

import typer
from rich.table import Table

from palaestra.algebra.registry import REGISTRIES
from palaestra.errors import InputError, nearest
from palaestra.interface.cli.app import Json, app, out, show

HOMES = (
    "palaestra.algebra.tree",
    "palaestra.learning.stages.base",
    "palaestra.learning.terms",
    "palaestra.learning.protocol",
    "palaestra.learning.reward_models.base",
    "palaestra.judges.planning",
    "palaestra.envs",
    "palaestra.envs.tool_calls",
    "palaestra.teams",
    "palaestra.runs.policies",
    "palaestra.runs.teachers",
    "palaestra.runs.measures",
    "palaestra.play.executors",
    "palaestra.evaluation.logs",
    "palaestra.evaluation.studies",
    "palaestra.learning.trackers",
    "palaestra.interface.report.panels",
)
"""Modules that make the registries."""


def listed(kind: str | None = None) -> dict[str, dict[str, str]]:
    """One line of doc for each name, by kind; `reward` are the signals of the package of rewards and of plugins'.

    Raises:
        InputError: there is no such kind.
    """
    for home in HOMES:
        importlib.import_module(home)
    found = {name: {each: registry.doc(each) for each in registry} for name, registry in REGISTRIES.items()}
    signals = REGISTRIES["signal"]
    found["reward"] = {name: text for name, text in found["signal"].items() if ".rewards" in signals[name].__module__}
    if kind is None:
        return found
    if kind not in found:
        raise InputError(f"names: there is no kind {kind!r}{nearest(kind, found)} (`palaestra names` lists all)")
    return {kind: found[kind]}


@app.command(short_help="What recipes and expressions may name.")
def names(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="signal, reward, stage, term, env, policy …")
    ] = None,
    as_json: Json = False,
) -> None:
    """List what recipes and expressions may name, with one line on each; `names KIND` lists one kind."""
    found = listed(kind)
    if as_json:
        show(found)
        return
    for each, entries in found.items():
        table = Table(each, "", box=None, pad_edge=False)
        for name, text in sorted(entries.items()):
            table.add_row(name, text)
        out.print(table)
        out.print()
