"""[6] A survey of self-evolving agents (arXiv 2507.21046): every loop says what evolves, when and by which signal.

A survey claims nothing that could be measured; what is checked is that declarations are whole and agree with what runs
change, and the numbers that the survey asks of an evaluation. Left out: the prose, and its fields of application.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from unittest.mock import patch

import polars as pl

from palaestra.evaluation.lifelong import lifelong
from palaestra.runs import loops as module
from palaestra.runs.loops import AXES, Loop, describe, loop_of, loops, observe
from palaestra.runs.recipe import Recipe, load, override
from palaestra_atlas.pipelines import evolution
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

EMPTY = {"tool"}
"""Values at which the library has no loop."""
KNOWN = {
    ("learner", "policy_gradient"): ("weights", "between", "scalar"),
    ("learner", "generations"): ("weights", "between", "population"),
    ("stage", "experience"): ("memory", "between", "text"),
    ("stage", "guidance"): ("prompt", "between", "text"),
    ("stage", "failure_tasks"): ("task", "between", "scalar"),
    ("stage", "goal_memory"): ("memory", "between", "demonstration"),
    ("workflow", "stage_beam"): ("memory", "within", "scalar"),
    ("matchmaking", "psro"): ("team", "between", "population"),
}  # fmt: skip
"""Loops whose place the survey's words leave no doubt of."""
LINES = {"prompt": 178, "task": 179, "population": 108, "within": 190, "demonstration": 64}
"""A line of the family at a value, by its id."""
PLAY = {"policies": {"answerer": {"kind": "random", "options": {}}}, "learn": {"kind": "play"}}
SMALL = {"train": {"groups": 4, "group_size": 4}, "evaluation": {"controls": {}}}


@exact
def all_declared() -> None:
    """No loop is without a declaration; without one of them the table is a row shorter and the name is told."""
    found, missing = loops()
    assert not missing, missing
    assert {key: tuple(loop_of(*key) or ()) for key in KNOWN} == KNOWN
    rows = {kind: dict(names) for kind, names in module.LOOPS.items()}
    del rows["stage"]["goal_memory"]
    with patch.object(module, "LOOPS", rows):
        fewer, named = loops()
    assert (len(found) - len(fewer), named) == (1, ["stage goal_memory"])


@exact
def retention() -> None:
    """A task that falls from .9 to .4 retains -.5; a flat curve has slope 0, and a rising one what it rises by.

    Retention counts from the task's own stage, the second one of d, and drift from the first share of violations.
    """
    rows = pl.DataFrame({
        "stage": [0, 1, 2] * 4, "task": [*"aaabbbcccddd"], "score": [.9, .6, .4, .3, .3, .3, .2, .4, .6, .1, .8, .7],
        "trained": [0, 0, 0, 1, 1, 1, None, None, None, 1, 1, 1], "cost": [1.0, 2.0, 1.0] * 4,
        "violations": [.0, .1, .3] * 3 + [.2, .4, .1],
    })  # fmt: skip
    a, b, c, d, whole = lifelong(rows).to_dicts()
    assert abs(a["retention"] + 0.5) < 1e-12, a
    assert (b["retention"], b["adaptivity"], c["retention"]) == (0.0, 0.0, None)
    assert abs(c["adaptivity"] - 0.2) < 1e-12
    assert abs(c["generalisation"] - 0.4) < 1e-12
    assert abs(c["efficiency"] - 0.1) < 1e-12
    assert abs(a["drift"] - 0.3) < 1e-12
    assert abs(d["retention"] + 0.1) < 1e-12
    assert abs(d["drift"] + 0.1) < 1e-12
    assert whole["task"] is None
    assert abs(whole["retention"] + 0.2) < 1e-12


@exact
def every_value() -> None:
    """Each value of each axis has a loop and a recipe or line that can be run, but those that nothing evolves."""
    rows = evolution().to_dicts()
    assert [(row["axis"], row["value"]) for row in rows] == [(a, v) for a, values in AXES.items() for v in values]
    assert {row["value"] for row in rows if not row["loops"]} == EMPTY
    assert {row["value"] for row in rows if not (row["recipes"] or row["ids"])} == EMPTY
    ids = {row["value"]: row["ids"] for row in rows}
    assert all(number in ids[value] for value, number in LINES.items()), ids


def examples() -> list[Recipe]:
    """Recipes with and without weights, memory, tasks and opponents that change."""
    plain = override(load("answers"), SMALL)
    return [
        plain,
        override(plain, {"stages": ["accumulate()"], **PLAY}),
        override(plain, {"stages": ["accumulate()", "task_table()"]}),
        override(plain, {"stages": ["critic()", "keep('success')"]}),
        override(plain, PLAY),
        load("codes", ["train.groups=4"]),
        load("routing", ["train.groups=4"]),
    ]


def agrees(recipe: Recipe, seed: int) -> bool:
    """Whether a run changes the team iff a learner's weights are declared, and exactly the stages that are declared."""
    found, changed = describe(recipe), observe(recipe, seed=seed)
    weights = any(each.kind == "learner" and each.row.evolves == "weights" for each in found)
    return weights == changed.weights and sorted(each.name for each in found if each.kind == "stage") == changed.stages


@reproduction(
    6,
    claim="Declarations of loops agree with runs: what is declared changes, and nothing else does.",
    baseline="fingerprints of the team and of every stage before and after two iterations",
    criterion="in every run the team changes iff a learner declares weights, and the stages that change are those that "
    "declare a loop (exact)",
    seeds=(0, 1),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Play the examples; count values with something that can be run."""
    agreed = [agrees(recipe, seed) for seed in seeds for recipe in examples()]
    rows = evolution().filter(pl.col("axis") != "missing").to_dicts()
    filled = sum(bool(row["recipes"] or row["ids"]) for row in rows)
    measured = {
        "loops": float(len(loops()[0])), "played": float(len(agreed)), "agreed": float(sum(agreed)),
        "values": float(len(rows)), "filled": float(filled),
    }  # fmt: skip
    return Outcome(measured, all(agreed))


def placed_loops() -> Measure:
    """1 if no loop lacks its declaration, known loops and lines stand at their values, and empty values are shown."""

    def measured(left: Left) -> list[float]:
        rows = [row for row in json.loads(left.stdout) if "axis" in row]
        at = {(row["axis"], row["value"]): row for row in rows}
        known = all(
            name in at.get((axis, value), {}).get("loops", ())
            for (_, name), row in KNOWN.items()
            for axis, value in zip(Loop._fields, row)
        )
        lines = {row["value"]: row["ids"] for row in rows}
        shown = all(number in lines.get(value, ()) for value, number in LINES.items()) and set(lines) >= EMPTY
        return [float(known and shown and not any(row["axis"] == "missing" for row in rows))]

    return measured
