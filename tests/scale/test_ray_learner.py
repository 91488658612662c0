"""Seeds that learn in actors of a Ray cluster: the same run, in the same folder, whatever is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="extra 'ray'; `make scale-test` has it")

import torch  # noqa: E402
from quick import QUICK, validate  # noqa: E402
from rich.console import Console  # noqa: E402

from palaestra.errors import InputError, PalaestraError, RecipeError  # noqa: E402
from palaestra.interface.library import compare, train  # noqa: E402
from palaestra.runs import learner_actors  # noqa: E402
from palaestra.runs.config import TunePart  # noqa: E402
from palaestra.runs.recipe import Recipe, alone, override  # noqa: E402

QUIET: dict[str, Any] = {"logging_level": "error", "log_to_driver": False, "include_dashboard": False}
TIMED = ("wall_seconds", "cpu_seconds", "waiting_seconds", "policies", "speed")


@pytest.fixture(scope="module")
def machine() -> Iterator[None]:
    torch.set_num_threads(1)
    ray.init(num_cpus=3, object_store_memory=100 * 2**20, **QUIET)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("palaestra.play.cluster.PATIENCE", 1200.0)  # a busy machine is not a full cluster
        yield
    ray.shutdown()


def small(**changes: Any) -> Recipe:
    parts = {"train": {"iterations": 4}, "warm_start": None, "seeds": 1, "play": {"shards": 4}}
    return override(alone(validate(QUICK)), parts | changes)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    read = map(json.loads, (folder / "seed-0" / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in line.items() if name not in TIMED} for line in read]


def pid_of(folder: Path) -> int:
    """Process that learns: it holds the folder of its seed."""
    return int(re.findall(r"process (\d+)", (folder / "seed-0" / ".lock").read_text())[0])


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_run_in_an_actor_is_the_run_here(machine: None, tmp_path: Path) -> None:
    """Learner and envs in actors; its folder, bars and page are the driver's."""
    console = Console(file=(tmp_path / "said").open("w"))
    here = train(small(), tmp_path / "here")
    there = train(
        small(play={"executor": "ray(workers=1)", "shards": 4}), tmp_path / "there", learner="ray", console=console
    )
    assert lines_of(tmp_path / "there") == lines_of(tmp_path / "here")
    assert there["verdict"] == here["verdict"]
    assert pid_of(tmp_path / "there") != os.getpid()
    assert (tmp_path / "there" / "report.html").exists()
    assert list((tmp_path / "there" / "seed-0" / "checkpoints").iterdir())
    assert "seed 0: training" in (tmp_path / "said").read_text() or "done" in (tmp_path / "said").read_text()


def test_a_lost_actor_ends_the_run_and_resume_goes_on(machine: None, tmp_path: Path) -> None:
    env = {"make": "signalling:Signalling", "options": {"pace": 0.02}}
    slow = small(env=env, train={"iterations": 6, "checkpoint_every": 1})
    metrics = tmp_path / "run" / "seed-0" / "metrics.jsonl"

    def kill() -> None:
        while not (metrics.exists() and metrics.read_text().count("\n") >= 2):
            time.sleep(0.02)
        os.kill(pid_of(tmp_path / "run"), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    with pytest.raises(PalaestraError, match=r"the actor that learns was lost \(.*last checkpoint with --resume"):
        train(slow, tmp_path / "run", learner="ray")
    done = len(lines_of(tmp_path / "run"))
    assert 2 <= done < 6
    train(slow, tmp_path / "run", learner="ray", resume=True)
    assert len(lines_of(tmp_path / "run")) == 6


def test_trials_and_variants_in_actors_are_those_here(machine: None, tmp_path: Path) -> None:
    """A search for settings in each of two variants; what is found, what is learned and the comparison are the same."""
    recipe = tmp_path / "recipe.yaml"
    tune = {"space": {"learn.lr": "log(0.01, 1)"}, "trials": 2, "iterations": 2}
    recipe.write_text(small().model_copy(update={"tune": TunePart(**tune)}).dump())
    asked: dict[str, Any] = {"vary": "credit=grpo(),rloo()", "seeds": 1, "trust": True}
    found = {place: compare(recipe, directory=tmp_path / str(place), learner=place, **asked) for place in (None, "ray")}
    assert found["ray"]["pairs"] == found[None]["pairs"]
    for name in ("variant-0", "variant-1"):
        assert lines_of(tmp_path / "ray" / name) == lines_of(tmp_path / "None" / name)
        here, there = (json.loads((tmp_path / place / name / "tuning.json").read_text()) for place in ("None", "ray"))
        settings = [each["found"]["after"]["found"] for each in (here, there)]
        assert settings[0] == settings[1]
    assert pid_of(tmp_path / "ray" / "variant-0") != os.getpid()
    assert (tmp_path / "ray" / "report.html").exists()


def test_what_cannot_be(machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError, match="credit: "):
        train(small(credit="grpo(of='reward')"), tmp_path / "bad", learner="ray")
    assert not (tmp_path / "bad").exists()
    with pytest.raises(RecipeError, match=r"--learner.*cpu"):
        train(small(), tmp_path / "bad", learner="ray(cpu=1)")
    with monkeypatch.context() as patch:
        patch.setattr("palaestra.play.cluster.PATIENCE", 1.0)
        with pytest.raises(PalaestraError, match="no room on the cluster in 1 s for 64 CPUs and 0 GPUs"):
            train(small(), tmp_path / "bad", learner="ray(cpus=64)")
    monkeypatch.setattr(learner_actors, "_owner", lambda folder: "process 1 on another machine")
    with pytest.raises(InputError, match=r"bad is not seen on the node .* choose --out on a file system"):
        train(small(), tmp_path / "bad", learner="ray")


def test_ctrl_c_ends_the_actor(machine: None, tmp_path: Path) -> None:
    env = {"make": "signalling:Signalling", "options": {"pace": 0.02}}
    metrics, learns = tmp_path / "run" / "seed-0" / "metrics.jsonl", list[int]()

    def interrupt() -> None:
        while not (metrics.exists() and metrics.read_text().count("\n") >= 1):
            time.sleep(0.02)
        learns.append(pid_of(tmp_path / "run"))
        assert alive(learns[0])
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        train(small(env=env, train={"iterations": 500}), tmp_path / "run", learner="ray")
    began = time.monotonic()
    while alive(learns[0]) and time.monotonic() - began < 60:
        time.sleep(0.1)
    assert not alive(learns[0])
