"""The verdict on a row of a small package of its own: it works as written, and each fault is noticed."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from palaestra_atlas.reproductions import _modules
from palaestra_atlas.rows import Use, read_mechanism, read_rows
from palaestra_atlas.verification import uses
from palaestra_atlas.verification.evidence import Evidence
from palaestra_atlas.verification.verify import _code_of, note_of, verify

METHOD = '''
"""A mean with two parts: weights, and a shift."""

import numpy as np
import polars as pl


def weighted_mean(x, weights, shift=1.0):
    weights = weights / weights.sum()
    return float((x * weights).sum()) + shift


def unused(x):
    return x


def broken():
    return lambda left: pl.DataFrame({"seed": [1]}).group_by("trial").first()
'''
ROW = """
id: 7
name: Weighted mean
title: A mean with weights
kind: decide
where: [small_atlas.method.weighted_mean]
verified: text
use: {line: palaestra evaluate a=a.csv --json, without: palaestra evaluate b=b.csv --json,
      data: "small_atlas.catalog.family.s007_mean:data", measure: 'printed("0.success.mean")',
      direction: higher, least: 0.4}
note: "Mean {experiment.mean:.1f} of {experiment.seeds} seeds; the use gains {use.difference:.2f}."
---
paper:
  use: take a mean
  effect: {measure: mean, with: weights, without: none, direction: higher, size: unknown}
parts:
- part: weights
  neutral: equal weights
  red: 2.75 becomes 2.5
  out: {at: "small_atlas.method:weighted_mean", replace: weights / weights.sum(), by: 1.0 / len(x)}
  checks: [worked]
- part: shift
  neutral: no shift
  red: "2.75 becomes 1.75"
  out: {at: "small_atlas.method:weighted_mean", default: {shift: 0.0}}
  checks: [experiment]
"""
SHIFT = """  out: {at: "small_atlas.method:weighted_mean", default: {shift: 0.0}}
  checks: [experiment]
"""
CHECKS = """
import numpy as np

from palaestra_atlas.reproductions import Outcome, exact, reproduction
from small_atlas.method import weighted_mean


def data(seed, folder):
    for system in "ab":
        lines = [f"t{n},{system == 'a' or n < 2}" for n in range(8)]
        (folder / f"{system}.csv").write_text("task,success\\n" + "\\n".join(lines) + "\\n")


@exact
def worked():
    assert weighted_mean(np.array([1.0, 2.0]), np.array([1.0, 3.0])) == 2.75


@reproduction(7, claim="c", baseline="b", criterion="mean above 0.9", seeds=(0, 1))
def measure(seeds):
    draws = [np.random.default_rng(seed).normal(size=1000) for seed in seeds]
    found = float(np.mean([weighted_mean(x, np.ones(1000)) for x in draws]))
    return Outcome({"mean": found}, found > 0.9)
"""
USE = """use: {line: palaestra evaluate a=a.csv --json, without: palaestra evaluate b=b.csv --json,
      data: "small_atlas.catalog.family.s007_mean:data", measure: 'printed("0.success.mean")',
      direction: higher, least: 0.4}
"""


@pytest.fixture(scope="module")
def answers() -> dict[object, subprocess.CompletedProcess[str]]:
    """What commands printed, by their words and the files that they read."""
    return {}


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, answers: dict[object, subprocess.CompletedProcess[str]]) -> list[object]:
    """Equal commands on equal files run once for all tests: each of them takes seconds to import. Those asked for."""
    asked: list[object] = []

    def run(process: list[str], *, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
        key = (*process, *((file.name, file.read_text()) for file in sorted(cwd.iterdir())))
        if key not in answers:
            answers[key] = subprocess.run(process, cwd=cwd, **options)
        asked.append(key)
        return answers[key]

    monkeypatch.setattr(uses, "subprocess", SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired))
    return asked


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Evidence]]:
    """Verifies the row after texts in its files were replaced."""
    package = tmp_path / "small_atlas"
    (package / "catalog" / "family").mkdir(parents=True)
    for folder in (package, package / "catalog", package / "catalog" / "family"):
        (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(*changes: tuple[str, str], use: bool = False, fast: bool = False) -> Evidence:
        texts = {"method.py": METHOD, "catalog/family/s007_mean.yaml": ROW, "catalog/family/s007_mean.py": CHECKS}
        if not use:
            row = ROW.replace(USE, "").replace("; the use gains {use.difference:.2f}", "")
            texts["catalog/family/s007_mean.yaml"] = row
        for old, new in changes:
            assert any(old in text for text in texts.values()), old
            texts = {name: text.replace(old, new) for name, text in texts.items()}
        for name, text in texts.items():
            (package / name).write_text(text)
        return verify(7, package="small_atlas", fresh=500, fast=fast)

    try:
        yield run
    finally:
        for name in [name for name in sys.modules if name.startswith("small_atlas")]:
            del sys.modules[name]
        for cached in (_modules, read_rows, read_mechanism):
            cached.cache_clear()
        importlib.invalidate_caches()


def test_a_row_that_works(small: Callable[..., Evidence]) -> None:
    found = small()
    assert found.reasons == ("no use",), "all else holds"
    assert [part.red for part in found.parts] == [("worked",), ("experiment",)]
    assert [check.seeds for check in found.checks] == [(), (0, 1), (500, 501)]
    assert note_of(read_rows("small_atlas")[7], found) == f"Mean {found.checks[1].measured['mean']:.1f} of 2 seeds."


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("(x * weights).sum()", "(x * weights).mean()", "worked does not hold"),
        ("+ shift", "+ 1.0", "part 'shift': green without it: experiment"),
        ("weights / weights.sum()\n", "np.full(len(x), 1.0 / len(x))\n", "worked does not hold"),
        ("replace: weights / weights.sum()", "replace: weights / total", "the edit does not fit"),
        ("by: 1.0 / len(x)", "by: 1.0 / size", "the edit breaks worked: NameError"),
        ("checks: [experiment]", "checks: [nothing]", "none exists and holds"),
        (SHIFT, "", "not bound to code"),
        ("method.weighted_mean]", "method.unused]", "not executed by any check: small_atlas.method.unused"),
        ("found > 0.9", "found > 0.9 and 500 not in seeds", "experiment does not hold on seeds 500 to 501"),
        ("found > 0.9)", "found > 0.9 or 500 in seeds)", "green without it: experiment on some seeds"),
        ("{experiment.mean:.1f}", "{experiment.middle:.1f}", "note: no number 'experiment.middle'"),
        ("@exact\n", "", "no exact check"),
        ("found > 0.9", "np.nan", "experiment"),
    ],
)  # fmt: skip
def test_a_fault_is_noticed(small: Callable[..., Evidence], old: str, new: str, reason: str) -> None:
    found = small((old, new))
    assert found.status == "partly"
    assert any(reason in each for each in found.reasons), found.reasons


def test_a_number_that_no_evidence_has_is_its_name(small: Callable[..., Evidence]) -> None:
    found = small(("{experiment.mean:.1f}", "{experiment.middle:.1f}"))
    row = read_rows("small_atlas")[7]
    assert note_of(row, found) == "Mean <experiment.middle> of 2 seeds."
    assert note_of(row, None) == "Mean <experiment.middle> of <experiment.seeds> seeds."


def test_a_use_may_ask_for_more_seeds(small: Callable[..., Evidence], commands: list[object]) -> None:
    found = small(("least: 0.4", "least: 0.4, seeds: 4"), use=True)
    assert found.use is not None
    assert found.use.seeds == (501, 502, 503, 504)


def test_a_use_is_run_to_its_end_beside_its_absence(small: Callable[..., Evidence], commands: list[object]) -> None:
    found = small(use=True)
    assert len(commands) == 6, "three seeds with and three without"
    assert (found.status, found.reasons) == ("works", ())
    assert found.use is not None
    assert (found.use.seeds, found.use.values, found.use.values_without) == ((501, 502, 503), (1.0,) * 3, (0.25,) * 3)
    assert note_of(read_rows("small_atlas")[7], found).endswith("the use gains 0.75.")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("system == 'a' or n < 2", "n < 2", "is not higher: +0 where 0.4 is asked"),
        ("direction: higher, least: 0.4", "direction: lower", "is not lower"),
        ("evaluate a=a.csv", "evaluate a=no.csv", "use: exit code [2]"),
        ("0.success.mean", "0.success.middle", "no 'middle' on the way"),
        (
            "'printed(\"0.success.mean\")'",
            "'small_atlas.method:broken()'",
            "measure small_atlas.method:broken(): unable to find column",
        ),
        ("measure: 'printed(\"0.success.mean\")',", "", "no effect is declared"),
    ],
)
@pytest.mark.usefixtures("commands")
def test_a_use_without_its_effect_is_noticed(small: Callable[..., Evidence], old: str, new: str, reason: str) -> None:
    found = small((old, new), use=True)
    assert any(reason in each for each in found.reasons), found.reasons


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ((0.9, 0.1, 0.2), "0: +0.4 with a standard error of 0.25 over 3 seeds may be noise"),
        ((0.5, 0.3, 0.4), None),
        ((0.4, 0.4, 0.4), None),
        ((0.2, 0.2, 0.2), "0 is not higher: +0.2 where 0.3 is asked"),
    ],
)
def test_an_effect_is_two_standard_errors(values: tuple[float, ...], problem: str | None) -> None:
    use = Use(line="palaestra x", without="palaestra y", measure="0", direction="higher", least=0.3)
    found = uses._compared(use, uses.UseResult(line=use.line), list(values), [0.0] * 3)
    assert found.problem == problem


@pytest.mark.usefixtures("commands")
def test_what_was_only_looked_at_quickly_is_not_called_working(small: Callable[..., Evidence]) -> None:
    found = small(fast=True, use=True)
    assert (found.status, found.reasons) == ("unverified", ())


def test_other_words_do_not_make_evidence_stale(tmp_path: Path) -> None:
    sources = {
        "code": 'def mean(x):\n    """Mean."""\n    return x + 1\n',
        "words": '"""Means."""\n\n\ndef mean(x):\n    # of x\n    """Mean\n    of x."""\n\n    return x + 1  # one\n',
        "lines": "def mean(\n    x\n):\n    return x + 1\n",
        "other": "def mean(x):\n    return x + 2\n",
        "block": "def mean(x):\n    pass\nreturn_x = 1\n",
    }
    read = {}
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        read[name] = _code_of(tmp_path / f"{name}.py")
    assert read["code"] == read["words"] == read["lines"]
    assert len(set(read.values())) == 3


def test_networks_of_a_check_begin_alike_whatever_ran_before() -> None:
    import torch

    from palaestra_atlas.reproductions import Exact
    from palaestra_atlas.verification.verify import run_check

    drawn: list[float] = []

    def draws() -> None:
        drawn.append(float(torch.rand(())))

    check = Exact("draws", draws)
    assert run_check(check).holds
    torch.rand(7)
    assert run_check(check).holds
    assert drawn[0] == drawn[1]
