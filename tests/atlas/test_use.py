"""Every `use:` of the atlas is executed: what trains does so for two iterations, what reads files reads them.

Rows take turns; see `tests.atlas.rotation`.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.atlas.rotation import skip_unless_due

from palaestra.errors import MissingExtraError
from palaestra.foundation.registry import load_object
from palaestra.interface import cli
from palaestra.runs.inline import learn
from palaestra.runs.recipe import load
from palaestra_atlas import System, systems

USED = [row for row in systems() if row.use]
SHORT = ("train.iterations=2", "evaluation.controls={}", "seeds=1")
DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("row", USED, ids=lambda row: f"{row.id} {row.name}")
def test_what_the_atlas_says_one_can_do(
    row: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_unless_due(row.id)
    program, command, *words = shlex.split(row.use.line)
    assert program == "palaestra"
    if row.use.data is not None:
        load_object(row.use.data, "data")(0, tmp_path)
    else:
        (tmp_path / "data").symlink_to(DATA)
    monkeypatch.chdir(tmp_path)
    if command == "train":
        trust = "--trust" in words
        if trust:  # the command line puts the folder of the recipe on the path of imports
            monkeypatch.syspath_prepend(str(tmp_path))
        recipe = load(words[0], [*(word for word in words[1:] if word != "--trust"), *SHORT], trust=trust)
        try:
            learned = learn(recipe)
        except MissingExtraError as error:
            pytest.skip(str(error))
        assert len(learned.lines) == 2
        assert all(line["turns"] > 0 for line in learned.lines)
        rows = [policy["rows"] for line in learned.lines for policy in line["policies"].values()]
        assert any(rows) or recipe.learn.kind == "play", "nobody learned"
        return
    with pytest.raises(SystemExit) as done:
        cli.main([command, *words])
    assert done.value.code == 0, capsys.readouterr().err
    assert capsys.readouterr().out.strip()
