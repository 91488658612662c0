"""Training lines of the atlas as steps and loops."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palaestra.interface import cli
from palaestra_atlas import system
from palaestra_atlas.pipelines import of_lines, pipelines, recipe_of


def test_a_line_is_its_recipe_and_leaves_no_folder() -> None:
    here = Path.cwd()
    with recipe_of(system("179")) as recipe:
        assert recipe is not None
        assert recipe.stages[0].startswith("failure_tasks")
        assert Path("web.yaml").is_file()
    assert Path.cwd() == here
    with recipe_of(system("189")) as nothing:
        assert nothing is None


def test_lines_of_the_family_read_back() -> None:
    rows = pipelines()
    assert {22, 64, 81, 179} <= {row["id"] for row in rows}
    assert all(row["differs"] == [] for row in rows)
    assert of_lines(lambda recipe: recipe.name, "no such family") == {}


def test_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for option, name in (("--evolves", "axis"), ("--steps", "system")):
        with pytest.raises(SystemExit) as done:
            cli.main(["systems", option, "--json"])
        assert done.value.code == 0
        assert all(name in row for row in json.loads(capsys.readouterr().out))
    with pytest.raises(SystemExit):
        cli.main(["systems", "--steps"])
    assert "CoMAS" in capsys.readouterr().out
    with pytest.raises(SystemExit) as done:
        cli.main(["systems", "18", "--steps"])
    assert done.value.code == 2
    assert "stands alone" in capsys.readouterr().err
