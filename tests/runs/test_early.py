"""What can be known of a recipe without playing is said when it is read, with the field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from palaestra.errors import RecipeError
from palaestra.runs.build import check_columns, resolve
from palaestra.runs.recipe import Recipe, load

PLAIN: dict[str, Any] = {
    "name": "plain",
    "env": {"make": "native/corridor"},
    "policies": {"one": {"kind": "tabular"}},
    "team": {"*": "one"},
}


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("env.make=native/coridor", "env.make: there is no env 'native/coridor'; did you mean 'native/corridor'"),
        ("env.options.cels=3", "env.options: unknown option 'cels'; did you mean 'cells'"),
        ("env.options.cells=far", "env.options.cells: expected int, found 'far' (str)"),
        ("env={make: openspiel/kuhn_poker, options: {ilegal: 1}}", "env.options: unknown option 'ilegal'; did you"),
        ("env={make: reasoning_gym, roles: [a], pipeline: {acept: x}}", "env.pipeline: unknown option 'acept'; did"),
        ("env.workflow=self_sumary()", "env.workflow: unknown workflow 'self_sumary'; did you mean 'self_summary'"),
        ("env.workflow=plan_and_execute(5, x=1)", "env.workflow: unknown workflow 'plan_and_execute'"),
        ("policies.one.options.capasity=1", "policies.one.options: unknown option 'capasity'; did"),
        ("policies.one={kind: tiny, options: {hidden: big}}", "policies.one.options.hidden: expected int, found 'big'"),
        ("policies.one={kind: tiny, options: {temperature: true}}", "policies.one.options.temperature: expected float"),
        ("policies.one={kind: lm, options: {model: x, loar: {}}}", "policies.one.options: unknown option 'loar'; did"),
        ("policies.one={kind: lm, options: {model: x, max_new_tokens: 1.5}}", "policies.one.options.max_new_tokens: "),
        ("policies.one={kind: lm}", "policies.one: kind 'lm' needs options.model"),
        ("policies.one={kind: chat, options: {model: x, retries: '3'}}", "policies.one.options.retries: expected int"),
        ("policies.one={kind: script, options: {script: nimm}}", "policies.one.options: unknown script 'nimm'; did"),
        ("policies.one={kind: script, options: {script: nim, skil: 1}}", "policies.one.options of 'nim': unknown opt"),
        ("warm_start.script=kuhnn", "warm_start.script: unknown script 'kuhnn'; did you mean 'kuhn'"),
        ("warm_start={script: kuhn, options: {slop: 1}}", "warm_start.script of 'kuhn': unknown option 'slop'; did"),
        ("evaluation.controls.c={script: kuhn, options: {slope: x}}", "evaluation.controls.c.script of 'kuhn'.slope"),
        ("evaluation.controls.c={policies: {one: {kind: mlp, options: {hid: 1}}}}", "evaluation.controls.c.policies."),
        ("evaluation={metrics: [exploitablity]}", "evaluation.metrics: unknown measure 'exploitablity'; did you mean"),
        ("stages=replay(kk=1)", "stages: 'replay(kk=1)'"),
        ("learn.kind=policy_gradiant", "learn.kind: unknown learner 'policy_gradiant'; did you"),
        ("play.executor=threads(wrkers=3)", "play.executor: 'threads': unknown option 'wrkers'; did you"),
    ],
)  # fmt: skip
def test_it_is_said_when_the_recipe_is_read(override: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(PLAIN))
    with pytest.raises(RecipeError) as caught:
        load(path, [override])
    assert str(caught.value).removeprefix(f"{path}: ").startswith(said)
    assert "\n" not in str(caught.value)


def test_null_and_whole_numbers_are_taken_where_they_may_stand(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(PLAIN))
    options = "{model: x, api_key_env: null, temperature: 1, max_tokens: null, seed: false}"
    read = load(path, [f"policies.one={{kind: chat, options: {options}}}"])
    assert isinstance(read, Recipe)
    assert read.policies["one"].options["temperature"] == 1


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (['stages=[\'running_scale("novelty")\', \'rnd()\']'],
         "stages: running_scale(\"novelty\") needs column 'novelty', which stages: rnd() gives later: move that stage"),
        (["reward=col('value')", "stages=['critic()']"],
         "needs column 'value', which stages: critic() gives later and from the reward"),
        (["credit=gae()"], "credit: gae() needs column 'value', which nothing here gives; add critic()"),
    ],
)  # fmt: skip
def test_a_stage_that_stands_too_late_is_not_called_missing(overrides: list[str], said: str) -> None:
    setup = resolve(load("corridor", overrides))
    with pytest.raises(RecipeError) as caught:
        check_columns(setup)
    assert said in str(caught.value)
