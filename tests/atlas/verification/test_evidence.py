"""What notes quote from evidence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from palaestra.interface.cli.app import app
from palaestra_atlas import commands  # noqa: F401 the commands register themselves
from palaestra_atlas.verification import evidence
from palaestra_atlas.verification.evidence import CheckResult, Evidence, origin


@pytest.mark.parametrize("documented", [0, 2000, 3000])
def test_the_first_block_is_the_documented_one_whatever_its_seeds(documented: int) -> None:
    checks = [
        CheckResult(name="experiment", seeds=(first, first + 1), holds=True, measured={"gain": gain}, seconds=1.0)
        for first, gain in ((documented, 0.25), (1000, 0.5))
    ]
    found = Evidence(
        id=1, status="works", digest="", fast=False, fresh=1000, checks=tuple(checks), **origin()
    ).numbers()
    assert (found["experiment"]["gain"], found["fresh"]["experiment"]["gain"]) == (0.25, 0.5)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """`palaestra verify 18` with a judgement that takes no time: `partly` on block 7000."""

    def verify(number: int, *, fresh: int, **_: object) -> Evidence:
        bad = fresh == 7000
        return Evidence(id=number, status="partly" if bad else "works", digest="now", fresh=fresh, reasons=["no"] * bad)

    monkeypatch.setattr("palaestra_atlas.verification.verify.verify", verify)
    monkeypatch.setattr("palaestra_atlas.verification.verify.digest_of", lambda *_: "now")
    return lambda *words: CliRunner().invoke(app, ["verify", "18", "--out", str(tmp_path), *words])


def test_another_block_is_written_beside_the_evidence(judged: Callable[..., Result], tmp_path: Path) -> None:
    assert judged().exit_code == 0
    assert judged("--again", "--seeds", "5000").exit_code == 0
    assert judged("--again", "--seeds", "7000").exit_code == 1, "it did not work there"
    found = evidence.read(18, tmp_path)
    assert found is not None
    assert (found.status, found.fresh) == ("works", 1000)
    assert [(one.fresh, one.status) for one in found.repeats] == [(5000, "works"), (7000, "partly")]
    judged("--force")
    again = evidence.read(18, tmp_path)
    assert again is not None
    assert again.repeats == found.repeats, "a new judgement keeps what other blocks said"


def test_a_repeat_needs_evidence_and_another_block(judged: Callable[..., Result]) -> None:
    assert "run `palaestra verify 18` first" in str(judged("--again", "--seeds", "7000").exception)
    judged()
    assert "another one with --seeds" in str(judged("--again").exception)
    assert "--fast" in str(judged("--again", "--fast").exception)
