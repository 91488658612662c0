"""Recipes: what is wrong is one line that names the field and the fix; what is right survives being written down."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from quick import QUICK, load, validate

from palaestra.errors import RecipeError
from palaestra.runs.recipe import Recipe, alone, names, override


def wrong(data: dict[str, Any], *overrides: str, tmp_path: Path) -> str:
    """The complaint, which is one line that begins with the file or the override."""
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(RecipeError) as caught:
        load(path, overrides)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400 + len(str(path))
    return message


@pytest.mark.parametrize(
    ("change", "found", "fix"),
    [
        ("polices={}", "polices: unknown field", "'policies'"),
        ("envv.make=x", "envv: unknown field", "'env'"),
        ("env.mak=x", "env.mak: unknown field", "'make'"),
        ("train.iteration=3", "train.iteration: unknown field", "'iterations'"),
        ("learn.term=kl()", "learn.term: unknown field", "'terms'"),
        ("evaluation.task=3", "evaluation.task: unknown field", "'tasks'"),
        ("warm_start.step=3", "warm_start.step: unknown field", "'steps'"),
        ("policies.guide.option={}", "policies.guide.option: unknown field", "'options'"),
        ("policies.guide.hidden=64", "policies.guide.hidden: unknown field", "kind, options"),
        ("evaluation.controls.idle.polcies={}", "evaluation.controls.idle.polcies: unknown field", "'policies'"),
        ("nonsense=1", "nonsense: unknown field", "fields here: name, description"),
    ],
)
def test_wrong_keys_are_named_with_the_nearest(change: str, found: str, fix: str, tmp_path: Path) -> None:
    message = wrong(QUICK, change, tmp_path=tmp_path)
    assert message.startswith(str(tmp_path / "mine.yaml") + ": " + found), message
    assert fix in message


def test_a_misspelt_field_is_not_reported_as_a_missing_one(tmp_path: Path) -> None:
    data = copy.deepcopy(QUICK)
    data["teem"] = data.pop("team")
    message = wrong(data, tmp_path=tmp_path)
    assert "teem: unknown field; did you mean 'team'" in message


@pytest.mark.parametrize("field", ["name", "env", "policies", "team"])
def test_required_fields(field: str, tmp_path: Path) -> None:
    data = {key: value for key, value in QUICK.items() if key != field}
    assert wrong(data, tmp_path=tmp_path).endswith(f"{field}: this field is required")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("train=5", "train: expected a mapping of fields, found 5 (int)"),
        ("policies.guide=tabular", "policies.guide: expected a mapping of fields, found 'tabular' (str)"),
        ("evaluation.controls=[]", "evaluation.controls: expected a mapping of fields, found [] (list)"),
        ("env.make=3", "env.make: expected a valid string, found 3 (int)"),
        ("train.groups=many", "train.groups: expected a valid integer"),
        ("train.groups=0", "train.groups: expected greater than or equal to 1, found 0 (int)"),
        ("train.iterations=1.5", "train.iterations: expected a valid integer"),
        ("play.timeout=.nan", "play.timeout: expected a finite number, found nan (float)"),
        ("play.timeout=0", "play.timeout: expected greater than 0, found 0 (int)"),
        ("learn.lr=fast", "learn.lr: expected float | dict[str, float] | None, found 'fast' (str)"),
        ("learn.lr=-1", "learn.lr: a learning rate is at least 0, found -1.0"),
        ("learn.lr={guide: -1}", "learn.lr: a learning rate is at least 0"),
        (
            "learn.terms=surrogate(clip=[0.1])",
            "learn.terms: surrogate: clip=[0.1] must be a number of at least 0, (low",
        ),
        ("learn.terms=kl(-1)", "learn.terms: kl: weight=-1, expected a number of at least 0"),
        (
            "learn.terms=surrogate(ratio='tokn')",
            "learn.terms: surrogate: ratio='tokn' is unknown; did you mean 'token'?",
        ),
        ("policies.guide.kind=tabula", "policies.guide.kind: no 'tabula' here; did you mean 'tabular'"),
        ("policies.guide.kind=lm", "policies.guide: kind 'lm' needs options.model"),
        ("policies.guide.kind=script", "policies.guide: kind 'script' needs options.script"),
        ("credit=grop", "credit: 'grop': unknown name 'grop'; did you mean"),
        ("credit=grpo(", "credit: cannot read 'grpo('"),
        ("credit=grpo(weigth=1)", "credit: "),
        ("reward=clp(reward, 0, 1)", "reward: "),
        ("team.guide=gide", "team.guide: no policy 'gide'; did you mean 'guide'?"),
        ("evaluation.measure=sucess", "evaluation.measure: unknown measure 'sucess'; did you mean 'success'"),
        ("evaluation.controls.x={}", "evaluation.controls.x: give one of policies, script, train and search"),
        ("evaluation.controls.after.script=random", "evaluation.controls.after: a name of letters"),
        ("evaluation.controls={../x: {script: random}}", "evaluation.controls.../x: a name of letters"),
        ("evaluation.controls.x.policies={gide: {kind: random}}", "evaluation.controls.x.policies: no policy 'gide'"),
        ("seeds=0", "seeds: give at least one seed, each once and none below 0, found []"),
        ("seeds=[1, 1]", "seeds: give at least one seed, each once and none below 0, found [1, 1]"),
        ("seeds=[-1]", "seeds: give at least one seed, each once and none below 0, found [-1]"),
        ("seeds=true", "seeds: expected a list, found True (bool)"),
        ("seeds=x", "seeds: expected a list, found 'x' (str)"),
    ],
)
def test_wrong_types_and_values(change: str, message: str, tmp_path: Path) -> None:
    assert wrong(QUICK, change, tmp_path=tmp_path).startswith(f"{tmp_path / 'mine.yaml'}: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.iterations", "write field=value, e.g. train.iterations=20"),
        ("=3", "write field=value, e.g. train.iterations=20"),
        ("train..iterations=3", "write field=value, e.g. train.iterations=20"),
        ("credit.weight=3", "credit has no fields of its own"),
        ("env.make.name=3", "env.make has no fields of its own"),
        ("train.groups=[1", "the value is not YAML: line 1: "),
        ("description=2020-13-45", "the value is not YAML: month must be in 1..12; put it in quotes"),
    ],
)
def test_wrong_overrides(text: str, message: str, tmp_path: Path) -> None:
    assert wrong(QUICK, text, tmp_path=tmp_path).startswith(f"override {text!r}: {message}")


def test_overrides_reach_what_is_not_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({key: QUICK[key] for key in ("name", "env", "policies", "team")} | {"learn": None}))
    recipe = load(path, ["train.iterations=7", "learn.lr=1e-3", "seeds=[3, 1]", "reward=clip(reward, low=0, high=1)"])
    assert (recipe.train.iterations, recipe.learn.lr, recipe.seeds) == (7, 0.001, (3, 1))
    assert recipe.reward == "clip(reward, low=0, high=1)"


def test_seeds_can_be_counted(tmp_path: Path) -> None:
    assert validate(QUICK | {"seeds": 5}).seeds == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a recipe is a mapping of fields, found an empty file"),
        (b"- a\n- b\n", "a recipe is a mapping of fields, found list"),
        (b"name: [1\nenv: x\n", "not YAML: line 2: "),
        (b"name: a: b\n", "not YAML: line 1: mapping values are not allowed here"),
        (b"name: \xff\xfe\n", "cannot be read: "),
        (b"[" * 3000, "not YAML: "),
    ],
)
def test_files_that_are_no_recipes(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(RecipeError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"nope\.yaml: cannot be read: No such file or directory$"):
        load(tmp_path / "nope.yaml")
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(RecipeError, match=r"folder\.yaml: cannot be read: Is a directory$"):
        load(tmp_path / "folder.yaml")
    with pytest.raises(RecipeError, match="no recipe 'solver-cheker'; did you mean 'solver-checker'"):
        load("solver-cheker")


@pytest.mark.parametrize("name", names())
def test_shipped_recipes_are_valid_and_survive_being_written_down(name: str, tmp_path: Path) -> None:
    recipe = load(name)
    assert recipe.name == name
    path = tmp_path / "again.yaml"
    path.write_text(recipe.dump(), encoding="utf-8")
    assert load(path) == recipe
    assert load(path).dump() == recipe.dump()


def test_what_ships() -> None:
    assert {"solver-checker", "kuhn-selfplay", "hanabi-team", "textarena-duel"} <= set(names())


def test_override_merges_and_takes_seats_away() -> None:
    recipe = alone(validate(QUICK))
    changed = override(
        recipe, {"learn": {"epochs": 2}, "team": {"guide": None, "*": "seeker"}, "policies": {"guide": None}}
    )
    assert (changed.learn.lr, changed.learn.epochs) == (0.2, 2)
    assert changed.team == {"seeker": "seeker", "*": "seeker"}
    assert list(changed.policies) == ["seeker"]
    assert changed.evaluation == recipe.evaluation


def test_override_names_the_place_of_a_mistake() -> None:
    with pytest.raises(RecipeError, match=r"^evaluation\.controls\.x\.train: train\.iteration: unknown field; did you"):
        override(validate(QUICK), {"train": {"iteration": 3}}, "evaluation.controls.x.train")


def test_alone_has_no_controls_and_is_otherwise_the_same() -> None:
    recipe = validate(QUICK)
    without = alone(recipe)
    assert without.evaluation.controls == {}
    assert without.model_dump() | {"evaluation": None} == recipe.model_dump() | {"evaluation": None}
    assert len(recipe.evaluation.controls) == 3


def test_imports_make_names_of_your_own_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_credit.py").write_text(
        "import palaestra as pa\n@pa.register()\ndef my_own_credit():\n    return pa.col('reward') * 2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RecipeError, match="credit: 'my_own_credit': unknown name"):
        validate(QUICK | {"credit": "my_own_credit"})
    recipe = validate(QUICK | {"credit": "my_own_credit", "imports": ["my_credit"]})
    assert isinstance(recipe, Recipe)
    assert validate(QUICK | {"credit": "my_own_credit", "imports": "my_credit"}) == recipe, "one needs no list"
    with pytest.raises(RecipeError, match="imports: cannot import 'no_such_module'"):
        validate(QUICK | {"imports": ["no_such_module"]})
    with pytest.raises(RecipeError, match="imports: expected a list, found 3"):
        validate(QUICK | {"imports": 3})
