"""Learning in several processes: at ten million parameters, through the command line, with ranks that die or hang."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import large
import pytest
import torch
import yaml
from quick import QUICK
from several import apart, launch

CORES = {"OMP_NUM_THREADS": "1"}


def test_ten_million_parameters_learn_in_two_processes_as_in_one(tmp_path: Path) -> None:
    processes = launch(Path(large.__file__), str(tmp_path))
    said = [process.communicate(timeout=900)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    one = large.trained("one")
    assert sum(value.numel() for value in one["weights"].values()) > 9e6
    for kind in ("ddp", "fsdp"):
        two = torch.load(tmp_path / f"{kind}.pt", weights_only=False)
        assert apart(one["weights"], two["weights"]) < 1e-4
        assert two["metrics"]["kl"] == pytest.approx(one["metrics"]["kl"], abs=1e-5)
        assert two["metrics"]["grad_norm"] == pytest.approx(one["metrics"]["grad_norm"], rel=1e-4)


# -- through the command line -----------------------------------------------------------------------------------------

SLOW: dict[str, Any] = QUICK | {
    "seeds": 1,
    "learn": {"lr": 0.2, "devices": "ddp", "timeout": 15},
    "train": QUICK["train"] | {"iterations": 60, "checkpoint_every": 1, "evaluate_every": 60},
    "evaluation": QUICK["evaluation"] | {"controls": {}},
}


def start(folder: Path, *arguments: str, launcher: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    (folder / "slow.yaml").write_text(yaml.safe_dump(SLOW))
    command = [*(launcher or (sys.executable,)), "-m", "palaestra", "train", "slow.yaml", "--trust", *arguments]
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        command, cwd=folder, env=os.environ | CORES | paths, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def ranks_of(process: subprocess.Popen[str]) -> dict[int, int]:
    """The process ids of both ranks. What was forked is called as its parent is, and rank 1 comes last."""
    found: list[int] = []
    waiting = [process.pid]
    while waiting:
        parent = waiting.pop(0)
        for task in Path(f"/proc/{parent}/task").glob("*"):
            for child in map(int, (task / "children").read_text().split()):
                waiting.append(child)
                one, other = (Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (child, parent))
                if b"multiprocessing" in one and one == other:
                    found.append(child)
    return {0: found[0], 1: found[-1]}


def wait_for(path: Path, lines: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 240
    while time.monotonic() < end and process.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") >= lines:
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} has not {lines} lines: {process.communicate(timeout=60)[0]}")


def gone(pid: int) -> bool:
    """Whether a process is gone within a minute: who is killed waits for its parent to look."""
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.1)
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(("signal_", "words"), [
    (signal.SIGKILL, r"rank 1 of 2 \(process \d+ on \S+\) is gone"),
    (signal.SIGSTOP, r"rank 1 of 2 \(process \d+ on \S+\) is gone"),
])  # fmt: skip
def test_a_rank_that_dies_or_hangs_is_named_and_the_run_goes_on_from_its_checkpoint(
    tmp_path: Path, signal_: signal.Signals, words: str
) -> None:
    process = start(tmp_path, "--ranks", "2", "--out", "run")
    metrics = tmp_path / "run" / "seed-0" / "metrics.jsonl"
    wait_for(metrics, 3, process)
    other = ranks_of(process)[1]
    os.kill(other, signal_)
    begun = time.monotonic()
    said = process.communicate(timeout=120)[0]
    assert gone(other), "one that hangs is ended as well"
    assert process.returncode == 1
    assert time.monotonic() - begun < 15 + 60
    assert re.search(words, said), said
    again = start(tmp_path, "--ranks", "2", "--out", "run", "--resume")
    assert again.communicate(timeout=400)[0]
    whole = start(tmp_path, "--ranks", "2", "--out", "whole")
    assert whole.communicate(timeout=400)[0]
    assert (again.returncode, whole.returncode) == (0, 0)
    one, two = (weights(tmp_path / name) for name in ("run", "whole"))
    assert all(torch.equal(one[name], two[name]) for name in two)


def test_when_the_first_rank_is_killed_the_others_end(tmp_path: Path) -> None:
    process = start(tmp_path, "--ranks", "2", "--out", "run")
    wait_for(tmp_path / "run" / "seed-0" / "metrics.jsonl", 3, process)
    ranks = ranks_of(process)
    os.kill(ranks[0], signal.SIGKILL)
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 1
    assert gone(ranks[1])
    assert "palaestra, rank 1: rank 0 of 2" in said


def test_torchrun_trains_as_one_process_does(tmp_path: Path) -> None:
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
    together = start(tmp_path, "train.iterations=5", "--out", "two", launcher=torchrun)
    said = together.communicate(timeout=400)[0]
    assert together.returncode == 0, said
    alone = start(tmp_path, "train.iterations=5", "--out", "one")
    assert alone.communicate(timeout=400)[0]
    # Adam makes of a gradient that cancels to 0 here and to 1e-9 there a step of a tenth of the learning rate, so the
    # first update itself is compared; the weights after one are in tests/learning/test_devices.py
    first = [json.loads((tmp_path / name / "seed-0" / "metrics.jsonl").read_text().splitlines()[0])["policies"]
             for name in ("one", "two")]  # fmt: skip
    assert first[0].keys() == first[1].keys()
    for name, one in first[0].items():
        for metric in ("loss", "grad_norm", "rows", "tokens"):
            assert first[1][name][metric] == pytest.approx(one[metric], rel=1e-5, abs=1e-7), (name, metric)
    assert said.count("report:") == 1
    refused = start(tmp_path, "learn.devices=one", "--ranks", "2", "--out", "three")
    assert "learn.devices: several ranks need 'ddp'" in refused.communicate(timeout=120)[0]
    assert refused.returncode == 2


def weights(run: Path) -> dict[str, torch.Tensor]:
    """At the last checkpoint, rows of tables in the order of their states."""
    from palaestra.learning import checkpoints

    found = checkpoints.latest(run / "seed-0" / "checkpoints")
    assert found is not None
    policies = checkpoints.load(found)["policies"]
    made = {}
    for name, state in policies.items():
        order = state["states"].argsort()
        made[f"{name}.states"], made[f"{name}.logits"] = state["states"][order], state["logits"][: len(order)][order]
    assert json.loads((run / "seed-0" / "result.json").read_text())["seed"] == 0
    return made
