"""Reading and refusing `--learner` without Ray; runs in actors are in tests/scale/test_ray_learner.py."""

from __future__ import annotations

import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from quick import QUICK, validate
from rich.console import Console

from palaestra.errors import MissingExtraError, RecipeError
from palaestra.foundation.progress import Bars
from palaestra.interface.library import train
from palaestra.runs.seed_jobs import LOG, SeedJob, WatchedSeed


def test_places_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError, match=r"--learner 'slurm\(\)': expected 'ray' or 'ray\(cpus=2, gpus=1\)'"):
        train(validate(QUICK), tmp_path / "run", learner="slurm()")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match="palaestra\\[ray\\]"):
        train(validate(QUICK), tmp_path / "run", learner="ray")
    assert not (tmp_path / "run").exists()


def test_what_an_actor_says_is_printed_once(tmp_path: Path) -> None:
    said = tmp_path / "said"
    log = tmp_path / LOG
    log.write_text("of the last run\n")
    running: Future[Any] = Future()
    running.set_running_or_notify_cancel()
    with said.open("w") as file, Bars(Console(file=file)) as bars:
        seed = WatchedSeed(SeedJob(validate(QUICK), 0, tmp_path, "seed 0"), bars)
        for more in ("a warning", ", whole\nhalf", ""):
            with log.open("a") as end:
                end.write(more)
            seed.show(running)
    lines = said.read_text().splitlines()
    assert "a warning, whole" in lines
    assert not any("last run" in line or "half" in line for line in lines)


def test_what_is_over_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaestra.foundation.progress.EVERY", 0.0)
    said = tmp_path / "said"
    finished: Future[Any] = Future()
    finished.set_result(None)
    with said.open("w") as file, Bars(Console(file=file)) as bars:
        seed = WatchedSeed(SeedJob(validate(QUICK), 0, tmp_path, "seed 0"), bars)
        for _ in range(3):
            seed.show(finished)
    assert len(said.read_text().splitlines()) == 1
