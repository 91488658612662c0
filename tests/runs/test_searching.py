"""`evaluation.controls.NAME.search`: the trained team, searching, is a system like any other."""

from __future__ import annotations

import pickle
from pathlib import Path

import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.envs.worlds import Answers
from palaestra.errors import RecipeError
from palaestra.runs.build import check, resolve
from palaestra.runs.recipe import load
from palaestra.runs.searching import searching
from palaestra.runs.seed import run_seed
from palaestra.runs.summary import summarise

SMALL = ("seeds=1", "train.iterations=3", "evaluation.tasks=16", "evaluation.trials=2", "evaluation.look_tasks=4")
JUDGE = (
    "policies.judge={kind: script, options: {script: 'palaestra.judges.scripted:mentions', words: ['answer 1'], "
    "tag: VERDICT}}"
)


def controls(**searches: str) -> str:
    each = ", ".join(f"{name}: {{search: {text!r}}}" for name, text in searches.items()).replace("\\'", "''")
    return f"evaluation.controls={{{each}}}"


@pytest.fixture
def labels(tmp_path: Path) -> str:
    """Which answers are right, as a person might have told."""
    world = Answers()
    rows = [(f"task {task}", choice, float(world.right[task, number]))
            for task in range(8) for number, choice in enumerate(world.choices)]  # fmt: skip
    path = tmp_path / "labels.csv"
    pl.DataFrame(rows, schema=["prompt", "response", "value"], orient="row").write_csv(path)
    return f'labels("{path}", key=["prompt", "response"])'


def test_the_trained_team_searches_within_the_proof(labels: str, tmp_path: Path) -> None:
    searches = controls(
        best=f"best_of({labels}, n=4)",
        judged='best_of(judged(question="1?", policy="judge"), n=3)',
        tree="tree(rollouts=24)",
        beam=f"beam({labels}, width=1, candidates=3)",
    )
    recipe = load("answers", [*SMALL, JUDGE, searches])
    summary = summarise(recipe, tmp_path, [run_seed(recipe, 0, tmp_path / "seed-0")])
    played = pl.read_parquet(tmp_path / "seed-0" / "evaluation.parquet")
    assert played["error"].null_count() == len(played), played["error"].drop_nulls()[0]
    after, found = summary["after"]["mean"], {name: each["mean"] for name, each in summary["controls"].items()}
    assert found["tree"] == 1.0  # all eight answers were tried
    assert found["best"] > after + 0.1
    assert found["beam"] > after + 0.1
    out = dict(played.group_by("system").agg(pl.col("tokens_out").mean()).rows())
    assert (out["after"], out["best"], out["judged"], out["beam"]) == (1, 4, 3, 3)
    one = played.group_by("system").agg((pl.col("action") == "answer 1").mean())
    share = dict(one.rows())
    assert share["judged"] > share["after"]
    assert "worse" in summary["controls"]["tree"]["verdict"]  # the trained team against it


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{best: {search: 'best_off()'}}", r"evaluation\.controls\.best\.search: .*did you mean 'best_of'"),
        ("{best: {search: 'best_of()'}}", "missing a required argument: 'scorer'"),
        ("{best: {search: 'best_of(stub(), n=1)'}}", "n=1 must be at least 2"),
        ("{best: {search: best_of(verifyer())}}", "unknown scorer 'verifyer'"),
        ("{best: {search: tree(), script: random}}", "give one of policies, script, train and search"),
    ],
)
def test_what_is_no_search_is_named_when_the_recipe_is_read(text: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        load("answers", [f"evaluation.controls={text}"])


@pytest.mark.parametrize(
    ("searches", "overrides", "said"),
    [
        ("{judge: tree()}", [], r"controls\.b\.search: the team has no policy 'judge'"),
        ("best_of(judged(question=\"?\", policy=\"jugde\"))", [], "asks the policy 'jugde'"),
        ("refined(\"critc\")", [], "asks the policy 'critc'"),
        ("best_of(verifier(\"reward\"))", [], r"'reward'.*columns prompt and response"),
        ("tree()", ["env.make=native/dilemma", "team={'*': answerer}"], r"b\.search: 2 agents act in Dilemma"),
    ],
)  # fmt: skip
def test_what_cannot_search_is_refused_before_anything_is_played(
    searches: str, overrides: list[str], said: str
) -> None:
    named = searches if searches.startswith("{") else repr(searches)
    recipe = load("answers", [*SMALL, *overrides, f"evaluation.controls={{b: {{search: {named}}}}}"])
    with pytest.raises(RecipeError, match=said):
        check(resolve(recipe))


def test_who_answers_alike_every_time_has_nothing_to_choose_from() -> None:
    policy = ScriptedPolicy(lambda request: "answer 1", name="cold")
    policy.temperature = 0.0  # type: ignore[attr-defined]
    with pytest.raises(RecipeError, match="x: 'cold' answers alike every time"):
        searching({"cold": "best_of(stub())"}, Team(answerer=policy), Answers, {}, seed=0, field="x")


def test_workers_make_a_team_that_searches_again() -> None:
    recipe = load("answers", [*SMALL, controls(tree="tree(rollouts=24)")])
    setup = resolve(recipe)
    _, team = searching("tree(rollouts=24)", setup.team(0, []), setup.test, {}, seed=0, field="x")
    assert team.maker is not None
    again = pickle.loads(pickle.dumps(team.maker))()
    assert (again["answerer"].name, list(again.learnable)) == ("answerer tree of 24", ["answerer"])
