"""The recipes of the classics train by every method that they name, on games of other packages."""

from __future__ import annotations

from typing import Any

import pytest

from palaestra.play.executors import Local
from palaestra.runs import build
from palaestra.runs.recipe import Recipe, alone, load, override
from palaestra.runs.trainers import trainer_of

PACKAGES = {
    "spread": "mpe2",
    "reference": "mpe2",
    "foraging": "lbforaging",
    "hanabi": "pyspiel",
    "overcooked": "overcooked_ai_py",
}
SHORT: dict[str, dict[str, Any]] = {
    "spread": {"max_cycles": 5},
    "reference": {"max_cycles": 5},
    "overcooked": {"horizon": 10},
}
NAMES = {"mappo", "separate", "ippo", "iql", "vdn", "qmix", "coma"}


def cases() -> list[tuple[str, str | None]]:
    return [(name, method) for name in PACKAGES for method in (None, *load(name).evaluation.controls)]


def with_method(name: str, method: str | None) -> Recipe:
    """The recipe of one method, and two iterations of a few short games."""
    recipe = load(name)
    changes = {} if method is None else recipe.evaluation.controls[method].train
    quick = {"env": {"options": SHORT.get(name, {})}, "train": {"iterations": 2, "groups": 4}}
    return override(alone(override(recipe, changes or {})), quick)


@pytest.mark.parametrize(("recipe", "method"), cases())
def test_every_method_changes_what_it_learns(recipe: str, method: str | None) -> None:
    pytest.importorskip(PACKAGES[recipe])
    setup = build.resolve(with_method(recipe, method))
    team = setup.team(0, ())
    players = {policy.name: policy for policy in map(team.for_agent, setup.agents)}
    before = {name: values(policy) for name, policy in players.items()}
    trainer_of(setup, team, setup.learner(team), Local(), seed=0, corpus=()).run()
    for name, policy in players.items():
        assert values(policy) != before[name], f"{name} stayed as it was"
    assert len(players) == (len(setup.agents) if method == "separate" else 1)


def values(policy: Any) -> list[Any]:
    """The numbers of its network."""
    return [each.tolist() for each in policy.module.parameters()]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_recipe_has_all_methods(name: str) -> None:
    main = {"foraging": "vdn"}.get(name, "mappo")
    assert {main, *load(name).evaluation.controls} >= NAMES
