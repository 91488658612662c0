"""[36] A survey of agent optimisation (arXiv 2503.12434): every recipe is a list of its kinds of step, and reads back.

A survey claims nothing that could be measured; what is checked is the vocabulary that is made of it. Left out: the
chapters on data sets and applications.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from palaestra.learning.learner import PolicyGradient
from palaestra.runs.inline import learn
from palaestra.runs.loops import observe
from palaestra.runs.recipe import Recipe, load, override
from palaestra.runs.steps import fits_in_order, has_weights, kind_of_stage, recipe_of, row_of, schedule_of, steps_of
from palaestra_atlas.pipelines import of_lines, pipelines
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

KINDS = {
    "keep('success')": "filter", "pairs('score')": "filter", "dynamic_sampling()": "filter",
    "weights('reward')": "relabel", "splice('bad')": "relabel", "relabel('goal')": "relabel",
    "accumulate()": "construct", "guidance()": "construct", "success_replay()": "construct",
    "critic()": "fit", "judge('fits')": "fit",
}  # fmt: skip
"""Stages whose kind the survey's words leave no doubt of."""
CLONE = {"learn": {"terms": ["clone()"]}}
FILTERED = {81: "keep (environment)", 22: "sibling_pairs (rule)"}
"""Filters of the family's lines, by id."""
PLAY = {"policies": {"answerer": {"kind": "random", "options": {}}}, "learn": {"kind": "play"}}
"""Play of a team that cannot learn."""
SMALL = {"train": {"groups": 2, "group_size": 2}, "evaluation": {"controls": {}}}


def small(*phases: dict[str, Any], **changes: Any) -> Recipe:
    """A recipe of a toy world with these phases and fields."""
    return override(load("answers"), {**SMALL, "phases": list(phases), **changes})


@exact
def filter_shows() -> None:
    """A filter that is added changes the row under filter, and nothing else of it; kinds come from what stages are."""
    plain, kept = row_of(small()), row_of(small(stages=["keep('success')"]))
    assert kept["filter"] == ["keep (environment)"], kept["filter"]
    assert {name for name in plain if plain[name] != kept[name]} == {"filter", "steps"}
    found = {text: kind_of_stage(text) for text in KINDS}
    assert found == KINDS, found


@exact
def reads_back() -> None:
    """Recipes come back from their steps; a step with another value is another recipe, by exactly that field."""
    alternating = {"alternate": [{"name": "a", "until": 1, **CLONE}, {"name": "b", "until": 1}]}
    for recipe in (small(alternating), load("kuhn-selfplay"), load("cooper"), load("leduc-psro")):
        steps = steps_of(recipe)
        again = recipe_of(steps)
        assert again == recipe, [
            name for name in type(recipe).model_fields if getattr(again, name) != getattr(recipe, name)
        ]
        assert row_of(recipe)["differs"] == []
        other = [replace(step, value="rloo()") if step.field == "credit" else step for step in steps]
        assert recipe_of(other) == recipe.model_copy(update={"credit": "rloo()"})
    whole = load("kuhn-selfplay")
    for field in ("credit", "learn", "train", "warm_start"):
        assert recipe_of([step for step in steps_of(whole) if step.field != field]) != whole, field


@exact
def schedules() -> None:
    """Imitation and then rewards is a sequence, both in turn are not; the fits come in the order of the phases."""
    one, two = {"name": "a", "until": 2, **CLONE}, {"name": "b", "until": 1}
    turns = small({"alternate": [one, two]})
    found = [schedule_of(each) for each in (small(), small(one, {"name": "b"}), turns, load("kuhn-selfplay"))]
    assert found == ["single", "sequential", "alternating", "sequential"], found
    assert row_of(turns)["fit"] == ["imitation", "reward"]
    assert fits_in_order(turns, 4) == ["imitation", "reward", "imitation", "reward"]


@exact
def branches() -> None:
    """Play that keeps experience has no weights to change, nor has a frozen team; whoever learns has."""
    play = small(stages=["accumulate()"], **PLAY)
    frozen = small(learn={"freeze": ["answerer"]})
    assert [has_weights(each) for each in (play, frozen, small(), small(**CLONE))] == [False, False, True, True]
    assert row_of(play)["branch"] == "no weights"


@exact
def lines_read_back() -> None:
    """Every training line of the family is a row that reads back, with the filters that it has."""
    rows = pipelines()
    assert not [row["id"] for row in rows if row["differs"]]
    below = {row["id"]: row["filter"] for row in rows}
    assert all(name in below[number] for number, name in FILTERED.items()), below


@contextmanager
def fitted() -> Iterator[list[str]]:
    """The names of the terms of every update in the block: what a run did fit."""
    seen: list[str] = []
    update = PolicyGradient.update

    def watched(self: PolicyGradient, *given: Any, **options: Any) -> Any:
        seen.append("imitation" if "clone" in self.terms else "reward")
        return update(self, *given, **options)

    with patch.object(PolicyGradient, "update", watched):
        yield seen


def one_iteration(recipe: Recipe) -> bool:
    """Whether a recipe that was read back from its steps plays an iteration."""
    short: dict[str, Any] = {"train": {"iterations": 1}}
    if recipe.warm_start is not None:
        short["warm_start"] = {"steps": min(recipe.warm_start.steps, 2), "groups": min(recipe.warm_start.groups, 16)}
    return len(learn(recipe_of(steps_of(recipe), trust=True), short, trust=True).lines) == 1


@reproduction(
    36,
    claim="A recipe is a list of steps in the survey's vocabulary that says what its run does: what is fitted in which "
    "order, and whether weights change.",
    baseline="runs: the terms of each update, and fingerprints of the team before and after",
    criterion="the order of fits of the run is that of the row, in a sequence and in turn; weights change in the "
    "recipes of the branch with weights and in no other (exact)",
    seeds=(0, 1),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Play sequences and alternations; compare fingerprints."""
    one, two = {"name": "a", "until": 1, **CLONE}, {"name": "b", "until": 1}
    same = agree = asked = 0
    for seed in seeds:
        for recipe in (small(one, {**two, "until": 3}), small({"alternate": [one, two]})):
            with fitted() as seen:
                learn(recipe, {"train": {"iterations": 4}}, seed=seed)
            same += seen == fits_in_order(recipe, 4) if schedule_of(recipe) == "alternating" else seen == [
                "imitation", *["reward"] * 3
            ]  # fmt: skip
        some = [small(), small(**CLONE), small(stages=["accumulate()"], **PLAY), load("routing", ["train.groups=2"])]
        for recipe in some:
            agree += observe(recipe, seed=seed).weights == has_weights(recipe)
            asked += 1
    measured = {"orders": float(same), "agree": float(agree), "asked": float(asked)}
    return Outcome(measured, same == 2 * len(seeds) and agree == asked)


@reproduction(
    36,
    name="lines",
    claim="Every training line of the family, read back from its steps, plays an iteration.",
    baseline="none",
    criterion="all lines of the family (exact)",
    slow=True,
)
def played(seeds: Sequence[int]) -> Outcome:
    """Each line once."""
    found = of_lines(one_iteration)
    return Outcome({"lines": float(len(found)), "played": float(sum(found.values()))}, all(found.values()))


def read_back_share() -> Measure:
    """Share of the printed rows that read back, 0 if a known filter does not stand in its row."""

    def measured(left: Left) -> list[float]:
        rows = json.loads(left.stdout)
        below = {row.get("id"): row for row in rows}
        known = all(name in below.get(number, {}).get("filter", ()) for number, name in FILTERED.items())
        share = sum(row.get("differs") == [] for row in rows) / len(rows)
        return [float(known and share == 1.0)]

    return measured
