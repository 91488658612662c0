"""Recipes of earlier versions, as they shipped: they run, or one line says what to write now, and then they do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from palaestra.errors import RecipeError
from palaestra.runs import build
from palaestra.runs.recipe import load

OLD = sorted(Path(__file__).parent.joinpath("old").glob("*.yaml"))
RUN_AS_THEY_ARE = {"solver-checker"}


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_it_runs_or_says_what_to_write_now(path: Path, tmp_path: Path) -> None:
    data, said = yaml.safe_load(path.read_text()), []
    mine = tmp_path / "mine.yaml"
    for _ in range(6):
        mine.write_text(yaml.safe_dump(data))
        try:
            recipe = load(mine)
            break
        except RecipeError as error:
            line = str(error).removeprefix(f"{mine}: ")
        assert "\n" not in line
        said.append(line)
        if match := re.fullmatch(
            r"learn: (?P<old>[\w, ]+): these are terms now; write learn\.terms: (?P<new>.*)", line
        ):
            for each in match["old"].split(", "):
                del data["learn"][each]
            data["learn"]["terms"] = match["new"]
        elif match := re.fullmatch(r"(?P<field>[\w.]+): .* is .* now: write \1: (?P<new>.*)", line):
            *parents, last = match["field"].split(".")
            part = data
            for parent in parents:
                part = part[parent]
            part[last] = match["new"]
        elif match := re.fullmatch(r"credit: .*: the first argument is the reward, (.*) is none; write (.*)", line):
            data["credit"] = data["credit"].replace(f"({match[1]})", f"({match[2]})")
        else:
            pytest.fail(line)
    assert bool(said) == (path.stem not in RUN_AS_THEY_ARE), said
    build.check_columns(build.resolve(recipe))


def test_there_are_some() -> None:
    assert len(OLD) >= 6
