"""What is worse than one killed worker: a lost node, a full store, a killed run. Each test has a cluster of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="extra 'ray'; `make scale-test` has it")

import overlapping  # noqa: E402
import torch  # noqa: E402
from forked import fork  # noqa: E402
from overlapping import SHARDS, players, same, simulate, state_of, trainer  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402
from signalling import Signalling  # noqa: E402
from slowly import Slowly  # noqa: E402

from palaestra.agents import Team  # noqa: E402
from palaestra.errors import StorageError  # noqa: E402
from palaestra.play.cluster import Ray  # noqa: E402
from palaestra.play.executors import Local, Plan  # noqa: E402

PLAN = Plan(groups=24, group_size=4, seed=3, iteration=5, run="r", version=9)
QUIET: dict[str, Any] = {"logging_level": "error", "log_to_driver": False, "include_dashboard": False}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def own() -> dict[str, str]:
    """The environment of a run that finds what this one finds."""
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}


def expected() -> Any:
    return Local(shards=8).play(Signalling, Team.made(players), PLAN).frame.drop("duration")


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    """Three nodes of one place each; that of the driver has none."""
    for left in (2, 1, 0):  # Ray gives each node 30 s, which a busy machine may not keep
        cluster = Cluster(initialize_head=False)
        try:
            cluster.add_node(num_cpus=0, include_dashboard=False)
            for _ in range(3):
                cluster.add_node(num_cpus=1)
            break
        except Exception:
            cluster.shutdown()
            if not left:
                raise
    ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_a_lost_node_costs_nothing(nodes: Cluster) -> None:
    """Tables that only that node had are lost with it, and played again."""
    team, whole, executor = Team.made(players), expected(), Ray(workers=3, shards=8)
    assert executor.play(Signalling, team, PLAN).frame.drop("duration").equals(whole)
    victim = next(iter(nodes.worker_nodes))
    removal = threading.Timer(0.3, nodes.remove_node, (victim,), {"allow_graceful": False})
    removal.start()
    assert executor.play(Slowly, team, PLAN).frame.drop("duration").equals(whole)
    removal.join()
    end = time.monotonic() + 60  # the processes of a lost node may answer until Ray misses it
    while executor.pool.lost < 1 and time.monotonic() < end:
        assert executor.play(Signalling, team, PLAN).frame.drop("duration").equals(whole), "two go on"
    assert executor.pool.lost >= 1
    executor.close()


def test_a_full_object_store_ends_with_the_table_or_a_named_error() -> None:
    ray.init(num_cpus=2, object_store_memory=80 * 2**20, **QUIET)
    held = [ray.put(bytes(30 * 2**20)) for _ in range(2)]
    team, executor = Team.made(players), Ray(workers=2, shards=8)
    try:
        assert executor.play(Signalling, team, PLAN).frame.drop("duration").equals(expected())
    except StorageError as error:
        assert "object store" in str(error)  # noqa: PT017  # either is right
    assert len(held) == 2
    executor.close()
    ray.shutdown()


def test_a_cluster_that_was_started_here_ends_with_the_last_who_uses_it() -> None:
    assert not ray.is_initialized()
    team, whole = Team.made(players), expected()
    first, second = Ray(workers=1, shards=8, cpus=0.5), Ray(workers=2, shards=8, cpus=0.5)
    for executor in (first, second):
        assert executor.play(Signalling, team, PLAN).frame.drop("duration").equals(whole)
    first.close()
    assert second.play(Signalling, team, PLAN).frame.drop("duration").equals(whole), "the other goes on"
    second.close()
    assert not ray.is_initialized()


def test_kill_9_of_a_run_on_ray_and_resume(tmp_path: Path) -> None:
    executor = f"ray(workers=1, shards={SHARDS})"
    said = tmp_path / "said"
    process = fork(overlapping.slowly, tmp_path, 1, executor, said=said, environment=own())
    metrics, deadline = tmp_path / "metrics.jsonl", time.monotonic() + 200
    while not (metrics.exists() and metrics.read_text().count("\n") >= 3):
        assert process.is_alive(), said.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.join()
    done = metrics.read_text().count("\n")
    resumed = trainer(tmp_path, lag=1, executor=executor, iterations=done + 2)
    resumed.run(resume=True)
    resumed.executor.close()
    assert not ray.is_initialized(), "the cluster was its own"
    assert same(state_of(resumed.team), simulate(1, done + 2)[0])


def test_the_command_line_needs_one_word(tmp_path: Path) -> None:
    """`--on ray` and nothing else: the same numbers, and a resume may go on elsewhere."""
    small = ["train.iterations=2", "train.evaluate_every=2", "evaluation.tasks=8", "evaluation.look_tasks=4",
             "warm_start=null", "evaluation.controls={}", "play.shards=4"]  # fmt: skip

    def train(out: str, *more: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "palaestra.interface.cli", "train", "kuhn-selfplay", *small, *more]
        done = subprocess.run(
            [*command, "--out", str(tmp_path / out), "seeds=1"],
            env=own(), capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        lines = (tmp_path / out / "seed-0" / "metrics.jsonl").read_text().splitlines()
        timed = ("wall_seconds", "cpu_seconds", "waiting_seconds", "policies", "speed")
        return [{k: v for k, v in json.loads(line).items() if k not in timed} for line in lines]  # type: ignore[return-value]

    assert train("here") == train("there", "--on", "ray(workers=1)")
