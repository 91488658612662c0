"""Results of an attack: the intact team, the team with an untrained and with a trained attacker, on the same tasks.

A member that plays at random does harm, too; so the loss is split into that of an untrained attacker and what training
added to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import as_signal, highest
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.evaluation import comparison_table, holm, paired_difference, trials, verdict
from palaestra.evaluation.difference import Difference
from palaestra.evaluation.intervals import unit_scale
from palaestra.evaluation.trials import episode_outcomes
from palaestra.runs.recipe import Recipe
from palaestra.runs.summary import ALPHA, counted_agents, value_of

INTACT, UNTRAINED, TRAINED = "intact", "untrained", "trained"
SYSTEMS = {"before": UNTRAINED, "after": TRAINED, INTACT: INTACT}
"""Systems of the training, and what they are in an attack."""

PAIRS = {"loss": (INTACT, TRAINED), "untrained": (INTACT, UNTRAINED), "added": (UNTRAINED, TRAINED)}
"""What the team loses: to the trained attacker, to the untrained one, and to its training."""

WORST = 6
"""Episodes that the page shows."""


def summarise(training: Path, recipe: Recipe, *, seat: str, target: str | None) -> dict[str, Any]:
    """Summary dict of an attack by `seat` from training folder, recipe, `target`: estimates, differences, verdict.

    The worst episodes are in it, too.

    The intervals of the differences hold simultaneously.

    Args:
        training: the run in which the attacker was trained.
        recipe: of that run.
        seat: of the attacker.
        target: of the attacker, if it has one.

    Returns:
        `measure, n_tasks, trials, systems, differences, table, verdict, worst`, and with a target
        `target_systems, target_differences`: how often it happens. Differences are losses of the team, or gains in how
        often the target happens.

    Raises:
        InputError: the training has left no evaluation.
    """
    frame = _evaluations(training)
    table = trials(frame, where=counted_agents(recipe.evaluation))
    measure = value_of(recipe.evaluation.measure, table)
    rows = comparison_table(table, baseline=INTACT, value=measure)
    found: dict[str, Any] = {
        "measure": measure,
        "n_tasks": rows[0].tasks,
        "trials": rows[0].trials,
        "systems": {row.system: (row.success if measure == "success" else row.score).to_dict() for row in rows},
        "differences": _differences(table, measure, PAIRS),
        "table": [row.to_dict() | {"verdict": verdict(row)} for row in rows],
    }
    said = [_sentence(seat, found["systems"], found["differences"], measure)]
    outcomes, sign = episode_outcomes(frame, where=counted_agents(recipe.evaluation)), 1
    if target is not None:
        happened = _happened(frame, target)
        hits = trials(happened)
        found["target_systems"] = {
            row.system: row.success.to_dict() for row in comparison_table(hits, baseline=INTACT, value="success")
        }
        found["target_differences"] = _differences(hits, "success", {k: (b, a) for k, (a, b) in PAIRS.items()})
        said.insert(0, _target_sentence(found["target_systems"], found["target_differences"]))
        outcomes, sign = episode_outcomes(happened), -1
    value = "success" if target is not None else measure
    return found | {"verdict": " ".join(said), "worst": _worst(outcomes, value, sign)}


def _evaluations(training: Path) -> pl.DataFrame:
    files = sorted(training.glob("seed-*/evaluation.parquet"))
    if not files:
        raise InputError(f"{training}: the attacker's training has no evaluation yet; run the same command again")
    frame = Turns.concat(Turns.load(file) for file in files).frame
    return frame.with_columns(pl.col("system").cast(pl.String).replace(SYSTEMS))


def _happened(frame: pl.DataFrame, target: str) -> pl.DataFrame:
    """The rows with `success` true in every row of an episode in which the target happened."""
    parts = []
    for part in frame.partition_by("system", "run", maintain_order=True):
        turns = Turns(part)
        hit = highest(1.0 * as_signal(parse(target, columns=turns.columns)), over="episode").evaluate(turns)
        if not isinstance(hit, np.ndarray):
            raise InputError(f"--target {target!r}: a value per token; give one per turn, e.g. per_turn(…)")
        parts.append(part.with_columns(success=pl.Series(np.greater(hit, 0.0), dtype=pl.Boolean)))
    return pl.concat(parts)


def _differences(table: pl.DataFrame, value: str, pairs: Mapping[str, tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Paired differences by name, first system minus second, with intervals that hold together and Holm's p."""
    scale = unit_scale(table["score"]) if value == "score" else None
    found = {
        name: paired_difference(table, a, b, value=value, scale=scale, comparisons=len(pairs))
        for name, (a, b) in pairs.items()
    }
    corrected = holm([each.p for each in found.values()])
    return {
        name: replace(each, p=p).to_dict() | {"clear": _clear(each, p)}
        for (name, each), p in zip(found.items(), corrected, strict=True)
    }


def _clear(difference: Difference, p: float) -> bool:
    """Whether the difference is told apart from 0."""
    away = difference.low > 0 or difference.high < 0
    return bool(math.isfinite(difference.low) and away and p <= ALPHA)


def _sentence(seat: str, systems: Mapping[str, Any], differences: Mapping[str, Any], measure: str) -> str:
    share = measure == "success"

    def level(name: str) -> str:
        mean = systems[name]["mean"]
        return "unknown" if mean is None else f"{100 * mean:.1f} %" if share else f"{mean:.3g}"

    return (
        f"{measure.capitalize()} {level(INTACT)} of the intact team, {level(UNTRAINED)} with an untrained policy in "
        f"the seat of {seat}, {level(TRAINED)} with the trained attacker. "
        f"{_parts('The team loses', differences, share)}"
    )


def _target_sentence(systems: Mapping[str, Any], differences: Mapping[str, Any]) -> str:
    def level(name: str) -> str:
        mean = systems[name]["mean"]
        return "an unknown share" if mean is None else f"{100 * mean:.1f} %"

    return (
        f"The targeted behaviour happens in {level(INTACT)} of the episodes of the intact team, {level(UNTRAINED)} "
        f"with an untrained attacker, {level(TRAINED)} with the trained one. "
        f"{_parts('The attack adds', differences, True)}"
    )


def _parts(verb: str, differences: Mapping[str, Any], share: bool) -> str:
    """The whole effect with its interval, and how much of it training added."""

    def said(name: str) -> str:
        each = differences[name]
        unit, scale, form = (" points", 100, "+.1f") if share else ("", 1, "+.3g")
        if each["mean"] is None or not math.isfinite(each["mean"]):
            return "an unknown amount"
        mean = f"{scale * each['mean']:{form}}".removeprefix("+").replace("-", "−")
        if each["low"] is None or not math.isfinite(each["low"]):
            return f"{mean}{unit} (no interval)"
        low, high = (f"{scale * each[end]:{form}}".replace("-", "−") for end in ("low", "high"))
        return f"{mean}{unit} ({low} to {high})"

    whole, added = differences["loss"], differences["added"]
    if not whole["clear"]:
        return f"{verb} {said('loss')}, simultaneous 95 % interval: no effect can be told from 0."
    text = f"{verb} {said('loss')}, {said('untrained')} of it without any training"
    if not added["clear"]:
        return f"{text}; what training added cannot be told from 0: {said('added')}."
    part = f", {100 * added['mean'] / whole['mean']:.0f} % of the whole" if added["mean"] * whole["mean"] > 0 else ""
    return f"{text}; training added {said('added')}{part}. Simultaneous 95 % intervals of 3 differences."


def _worst(outcomes: pl.DataFrame, value: str, sign: int) -> list[dict[str, Any]]:
    """Keys of the episodes in which the trained attacker does most harm, beside the same ones of the intact team.

    sign: 1 where a high value is good for the team, -1 where it is the target of the attack.
    """
    keys = ["run", "group", "episode"]
    each = outcomes.select(*keys, "system", "task", value=pl.col(value).cast(pl.Float64)).drop_nulls("value")
    intact, trained = (each.filter(pl.col("system") == name).drop("system") for name in (INTACT, TRAINED))
    both = trained.join(intact.drop("task"), on=keys, suffix="_intact")
    both = both.with_columns(harm=sign * (pl.col("value_intact") - pl.col("value"))).filter(pl.col("harm") > 0)
    both = both.sort("harm", *keys, descending=[True, False, False, False])
    first = both.with_columns(again=pl.int_range(pl.len()).over("task")).sort("again", maintain_order=True)
    return first.head(WORST).select(*keys, "task", "harm").to_dicts()
