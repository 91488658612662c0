"""Every field of a recipe says what it means: on the page, in the schema, and above the fields of a recipe."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel
from quick import QUICK, load

from palaestra.runs import recipe as recipes
from palaestra.runs.field_docs import explain, meanings, schema
from palaestra.runs.recipe import Recipe, look, names

ROOT = Path(__file__).parents[2]
PARTS = [each for each in vars(recipes).values() if isinstance(each, type) and issubclass(each, BaseModel)]


@pytest.mark.parametrize("part", [part for part in PARTS if part.model_fields], ids=lambda part: part.__name__)
def test_every_field_is_described(part: type[BaseModel]) -> None:
    for name, takes, _, meaning in meanings(part):
        assert len(meaning) > 8, f"{part.__name__}.{name}: give it a description"
        assert not re.search(r"typing|Optional|\[|Part", takes), takes


@pytest.mark.parametrize("name", names())
def test_an_explained_recipe_is_that_recipe(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(explain(look(name)), encoding="utf-8")
    assert load(path) == load(name)
    lines = path.read_text().splitlines()
    fields = [number for number, line in enumerate(lines) if line.strip().startswith("iterations:")]
    assert lines[fields[0] - 1].strip() == "# times of play, credit, update (integer; default: 50)"


def test_page_and_schema_are_those_of_the_models() -> None:
    """In a process of its own: other tests register names of theirs."""
    program = (
        "import sys, json; sys.path.insert(0, 'tools'); import recipes;"
        "print(json.dumps([str(path) for path, text in recipes.files().items() if path.read_text() != text]))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [], "run python tools/recipes.py"
    shipped = files("palaestra.runs.recipes").joinpath("recipe.schema.json").read_text(encoding="utf-8")
    assert json.loads(shipped) == schema()


def test_the_schema_takes_what_ships_and_refuses_what_is_misspelt() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    check = jsonschema.Draft202012Validator(schema())
    for name in names():
        data = yaml.safe_load(files("palaestra.runs.recipes").joinpath(f"{name}.yaml").read_text(encoding="utf-8"))
        check.validate(data)
        check.validate(look(name).model_dump(mode="json"))
    check.validate(QUICK | {"stages": "replay(k=1)", "imports": "mine", "seeds": [1, 2], "learn": {"terms": "kl(.1)"}})
    for wrong in ({"teem": {}}, {"train": {"iteration": 3}}, {"seeds": "x"}, {"learn": {"schedule": "lin"}}):
        assert not check.is_valid(QUICK | wrong), wrong
    assert set(schema()["properties"]) == set(Recipe.model_fields)
