"""What editors, type checkers and notebooks know of the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import palaestra as pa
from palaestra.errors import InputError, nearest
from palaestra.evaluation import comparison_table, trials

OTHERS = (
    "torch", "polars", "numpy", "pydantic", "pydantic_core", "rich", "typer", "scipy", "transformers", "pyarrow",
    "tokenizers", "openai", "tenacity", "jinja2", "matplotlib", "statsmodels", "peft", "yaml", "safetensors",
)  # fmt: skip
"""Packages whose types do not matter here and take minutes to read."""
OURS = ("atlas", "credit", "envs.worlds", "evaluation", "interface.report", "judges", "rewards", "teams", "testing")
"""Packages of ours that none of the names below comes from."""


def test_a_type_checker_knows_the_classes_and_finds_slips(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "mine.py").write_text(
        "import palaestra as pa\nfrom palaestra import agents, learning\n"
        "reveal_type(pa.LMPolicy)\nreveal_type(pa.Trainer)\nreveal_type(pa.envs.make)\nreveal_type(pa.train)\n"
        "pa.Trianer(3)\nagents.LMPolciy()\nlearning.Trianer()\n"
    )
    (tmp_path / "mypy.ini").write_text(
        f"[mypy]\ncache_dir = {tmp_path}\n[mypy-{','.join(f'{each}.*' for each in OTHERS)}]\nfollow_imports = skip\n"
        "ignore_missing_imports = true\n[mypy-palaestra.*]\nfollow_imports = silent\n"
        f"[mypy-{','.join(f'palaestra.{each}.*' for each in OURS)}]\nfollow_imports = skip\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "mine.py"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300).stdout.splitlines()
    revealed = [line for line in said if "Revealed type" in line]
    assert len(revealed) == 4
    for line, expected in zip(revealed, ("lm.LMPolicy", "trainer.Trainer", "def () ->", "dict[str, Any]"), strict=True):
        assert expected in line
        assert 'type is "Any"' not in line
    slips = [line for line in said if ": error:" in line]
    assert [line.split(":")[1] for line in slips] == ["7", "8", "9"], said
    assert 'has no attribute "Trianer"; maybe "Trainer"?' in slips[0]


def test_dir_lists_the_public_names_and_all_of_them() -> None:
    assert dir(pa) == sorted(pa.__all__)
    assert {"Trainer", "LMPolicy", "train", "Turns"} <= set(dir(pa))
    assert not {"kernels", "importlib", "annotations", "TYPE_CHECKING"} & set(dir(pa))
    for name in dir(pa):
        assert getattr(pa, name) is not None


HOSTILE = "<script>alert(1)</script>"


def test_notebooks_show_tables_and_escape_them() -> None:
    turns = pa.Turns({"episode": [0, 1], "observation": [HOSTILE, "b"], "reward": [1.0, 0.0]})
    signal = pa.where(pa.col("observation") == HOSTILE, 1.0)
    rows = [{"system": s, "task": str(n), "success": n < 3} for s in (HOSTILE, "b") for n in range(6)]
    found = comparison_table(trials(pa.Turns(pl.DataFrame(rows).with_columns(episode=pl.int_range(12)))), baseline="b")
    for each, seen in ((turns, "2 turns"), (signal, "where"), (found, "the baseline"), (found[1], "success")):
        shown = each._repr_html_()
        assert seen in shown
        assert "<script>" not in shown
        assert "&lt;script&gt;" in shown
    assert found._repr_html_().count("<tr>") == 3


def test_no_message_lists_everything() -> None:
    with pytest.raises(InputError) as caught:
        pa.parse("zzzzqqqq()")
    assert len(str(caught.value)) < 300
    assert "`palaestra names signal` lists all" in str(caught.value)
    many = [f"name{n}" for n in range(200)]
    assert len(nearest("", many)) < 120
    assert nearest("nme7", many) == "; did you mean 'name7' or 'name97' or 'name87'?"
    assert nearest("zz", ["a", "b"]) == "; known: a, b"
