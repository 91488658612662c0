"""Trackers get every iteration's numbers, can be read back by their own readers, and never stop a run."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from palaestra.errors import InputError, MissingExtraError
from palaestra.learning.trackers import Tracked, Tracker, Trackers, build, check, finite_numbers

LINE = {
    "iteration": 3, "reward": 0.5, "success": None, "errors": {"env": 2}, "alarms": ["x"], "evaluation": None,
    "policies": {"solver": {"entropy": 1.25, "loss": math.nan, "frozen": True}},
}  # fmt: skip
NUMBERS = {"reward": 0.5, "errors/env": 2.0, "policies/solver/entropy": 1.25}


class Recorder:
    """Of one's own, named by `module:name`."""

    def __init__(self, run: Tracked, *, fails_at: int = 0) -> None:
        self.run, self.fails_at = run, fails_at
        self.told: list[tuple[int, dict[str, float]]] = []
        self.closed = False

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        if iteration == self.fails_at:
            raise ConnectionError("no route to host\nat all")
        self.told.append((iteration, dict(metrics)))

    def close(self) -> None:
        self.closed = True


def run(directory: Path, since: int = 0) -> Tracked:
    return Tracked(directory, "duel seed 0", "duel", {"learn": {"lr": 0.1}}, since)


def test_numbers_of_a_line_by_their_path() -> None:
    assert finite_numbers(LINE) == NUMBERS


def test_one_of_your_own_that_fails_is_not_asked_again(tmp_path: Path) -> None:
    sound, broken = build([f"{__name__}:Recorder()", f"{__name__}:Recorder(fails_at=2)"], run(tmp_path))
    assert isinstance(sound, Recorder)
    assert isinstance(broken, Recorder)
    trackers = Trackers([sound, broken])
    trackers.log(LINE | {"iteration": 1})
    with pytest.warns(UserWarning, match=r"^tracker Recorder: ConnectionError: no route to host; the run goes on"):
        trackers.log(LINE | {"iteration": 2})
    trackers.log(LINE)
    trackers.close()
    assert sound.told == [(iteration, NUMBERS) for iteration in (1, 2, 3)]
    assert broken.told == [(1, NUMBERS)]
    assert (sound.closed, broken.closed) == (True, False)


def test_what_cannot_be_made_is_said_before_anything_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="unknown tracker 'tensorbord'; did you mean 'tensorboard'"):
        check(["tensorbord"])
    with pytest.raises(InputError, match=r"wandb\(projekt='x'\): .*projekt"):
        check(["wandb(projekt='x')"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in ("tensorboard", "wandb", "mlflow"):
        with pytest.raises(MissingExtraError, match=rf"{name} is not installed: pip install 'palaestra\[{name}\]'"):
            check([name])


def test_a_service_that_is_down_does_not_stop_the_run(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"^tracker .*Recorder\(nonsense=1\): TypeError"):
        assert build([f"{__name__}:Recorder(nonsense=1)"], run(tmp_path)) == []
    with pytest.warns(UserWarning, match="^tracker wandb"):
        assert build(["wandb(project="], run(tmp_path)) == []


def told(tracker: Tracker, *iterations: int) -> None:
    for iteration in iterations:
        tracker.log(iteration, NUMBERS | {"reward": iteration / 10})
    tracker.close()


def test_tensorboard_reads_what_was_told_also_after_a_resume(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    told(build(["tensorboard"], run(tmp_path))[0], 1, 2, 3)
    told(build(["tensorboard()"], run(tmp_path, since=2))[0], 3, 4)
    events: Any = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == set(NUMBERS)
    read = [(event.step, event.value) for event in events.Scalars("reward")]
    assert read == [(step, pytest.approx(step / 10)) for step in (1, 2, 3, 4)], "what is told again counts once"


WANDB = """
import sys
from pathlib import Path
from palaestra.learning.trackers import Tracked, build

run = Tracked(Path(sys.argv[1]), "duel seed 0", "duel", {"learn": {"lr": 0.1}})
[tracker] = build(["wandb(mode='offline', project='games')"], run)
tracker.log(1, {"reward": 0.125, "policies/solver/entropy": 1.25})
tracker.close()
"""


def test_weights_and_biases_offline(tmp_path: Path) -> None:
    """In a process of its own, whose output it may take hold of."""
    pytest.importorskip("wandb")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", WANDB, str(tmp_path)], check=True, capture_output=True, env=environment)
    kept = next(tmp_path.glob("wandb/offline-run-*/*.wandb")).read_bytes()  # a log of records that are not compressed
    for said in (b"games", b"duel seed 0", b"policies/solver/entropy", b"0.125"):
        assert said in kept


def test_mlflow_in_a_file(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    told(build(["mlflow"], run(tmp_path))[0], 1, 2)
    told(build(["mlflow(experiment='duel')"], run(tmp_path, since=2))[0], 3)
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    [kept] = client.search_runs([client.get_experiment_by_name("duel").experiment_id])
    assert kept.info.run_name == "duel seed 0"
    assert kept.data.params["learn/lr"] == "0.1"
    read = [(point.step, point.value) for point in client.get_metric_history(kept.info.run_id, "reward")]
    assert sorted(read) == [(1, 0.1), (2, 0.2), (3, 0.3)]
