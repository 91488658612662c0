"""Recipes as steps: kinds are read off what stages are, and steps make the same recipe again."""

from __future__ import annotations

import json
from typing import ClassVar

import pytest

from palaestra.errors import InputError, RecipeError
from palaestra.interface import cli
from palaestra.learning.stages.stage import STAGES, Stage
from palaestra.runs.recipe import load, names, override
from palaestra.runs.steps import KINDS, fit_of, fits_in_order, kind_of_stage, recipe_of, row_of, steps_of

ANSWERS = load("answers")


def test_every_stage_has_a_kind() -> None:
    found = {name: kind_of_stage(name) for name in STAGES}
    assert set(found.values()) == {"construct", "filter", "relabel", "fit"}
    assert {name for name, kind in found.items() if kind == "filter"} == {
        "dynamic_sampling", "keep", "pairs", "preferences", "sibling_pairs",
    }  # fmt: skip


def test_a_stage_from_outside_may_say_its_kind() -> None:
    @STAGES.register("drop_all")
    class drop_all(Stage):
        step = "filter"

    @STAGES.register("odd")
    class odd(Stage):
        step: ClassVar[str] = "sieve"

    try:
        assert kind_of_stage("drop_all()") == "filter"
        with pytest.raises(InputError, match="stage odd: step='sieve'; it is one of construct"):
            kind_of_stage("odd")
    finally:
        STAGES.remove("drop_all")
        STAGES.remove("odd")


def test_shipped_recipes_read_back() -> None:
    for name in names():
        recipe = load(name)
        steps = steps_of(recipe)
        assert recipe_of(steps) == recipe
        assert {step.kind for step in steps} <= set(KINDS)


def test_a_step_that_is_gone_is_named() -> None:
    steps = [step for step in steps_of(ANSWERS) if step.field != "team"]
    with pytest.raises(RecipeError, match="team: this field is required"):
        recipe_of(steps)


def test_what_is_fitted() -> None:
    def terms(*named: str) -> str:
        return fit_of(override(ANSWERS, {"learn": {"terms": list(named)}}))

    assert terms("surrogate()", "kl(.1)") == "reward"
    assert terms("clone()") == "imitation"
    assert terms("clone(column='advantage')") == "reward"
    assert terms("dpo()") == "preference"
    assert terms("clone()", "dpo()") == "imitation+preference"
    assert fit_of(override(ANSWERS, {"learn": {"freeze": ["answerer"]}})) == "none"
    assert fits_in_order(load("kuhn-selfplay"), 2) == ["imitation", "reward", "reward"]


def test_who_judges_a_filter() -> None:
    rows = row_of(override(ANSWERS, {"stages": ["critic()", "keep('value')", "keep('reward')", "keep('turn')"]}))
    assert rows["filter"] == ["keep (model)", "keep (environment)", "keep (rule)"]
    assert rows["signals"] == ["critic"]


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["recipes", "from-nothing", "--steps", "--json"])
    assert done.value.code == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["differs"] == []
    assert "native/backward (proposer)" in row["construct"]
    with pytest.raises(SystemExit):
        cli.main(["recipes", "--steps"])
    assert "alternating" not in capsys.readouterr().out
