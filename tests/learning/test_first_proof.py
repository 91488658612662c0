"""The README's example does what it says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest


def test_the_first_proof_proves(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "first_proof.py"))
    example["main"]()
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("after ")
    assert ": better by +" in last
