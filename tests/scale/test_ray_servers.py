"""Servers of a policy on a Ray cluster: one machine, and a stand-in for vLLM that answers with a tiny model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="extra 'ray'; `make scale-test` has it")

import torch  # noqa: E402
from tests.agents.test_served import ask, fake_server, move, rows  # noqa: E402
from tests.play.test_served_workers import PLAN, shown, slow  # noqa: E402

from palaestra.agents import LMPolicy, ServedPolicy, Team  # noqa: E402
from palaestra.agents.backends import ray_servers  # noqa: E402
from palaestra.agents.backends.ray_servers import RayServer  # noqa: E402
from palaestra.errors import InputError, PolicyError  # noqa: E402
from palaestra.learning.pipelining import play  # noqa: E402
from palaestra.play.cluster import Ray, RayBackend  # noqa: E402
from palaestra.play.executors import Local  # noqa: E402

VLLM = os.environ.get("PALAESTRA_VLLM", "")
STAND_IN = """
import importlib.util, sys, threading
spec = importlib.util.spec_from_file_location("fake_server", {fake!r})
fake = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fake)
given = dict(zip(sys.argv[1:], sys.argv[2:]))
fake.torch.set_num_threads(1)
fake.FakeServer(given["--model"], host=given["--host"], port=int(given["--port"]))
threading.Event().wait()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Ray with room for two servers, in whose Python vLLM is the stand-in; returns a model's folder."""
    torch.set_num_threads(1)
    made = tmp_path_factory.mktemp("vllm")
    folder = made / "vllm" / "entrypoints" / "openai"
    folder.mkdir(parents=True)
    for each in (folder, folder.parent, folder.parent.parent):
        (each / "__init__.py").touch()
    (folder / "api_server.py").write_text(STAND_IN.format(fake=fake_server.__file__))
    with pytest.MonkeyPatch.context() as patch:
        python = made / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH="{made}:$PYTHONPATH" exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        patch.setenv("PALAESTRA_VLLM", str(python))
        patch.setattr(ray_servers, "ROOM", 600.0)  # a busy machine is not a full cluster
        patch.setattr("palaestra.play.cluster.PATIENCE", 600.0)
        ray.init(
            num_cpus=2, object_store_memory=100 * 2**20, logging_level="error", log_to_driver=False,
            include_dashboard=False,
        )  # fmt: skip
        yield fake_server.tiny(made / "tiny")
        ray.shutdown()


def servers(model: Path, **options: Any) -> ServedPolicy:
    given = {"server": "vllm", "cluster": "auto", "max_new_tokens": 5, "name": "lm", "timeout": 30.0} | options
    return ServedPolicy.from_pretrained(model, **given)


def right(served: ServedPolicy) -> bool:
    decisions = ask(served)
    assert [each.error for each in decisions] == [None] * 6
    return served.mismatch(rows(decisions))["mismatch"] < 1e-4


def comes_back(served: ServedPolicy, place: int) -> bool:
    """Whether a server has the weights of now at last; all answers until then are right."""
    began = time.monotonic()
    while served.servers[place].digest != served.fingerprint() and time.monotonic() - began < 120:
        time.sleep(0.2)
        assert right(served)
    return served.servers[place].digest == served.fingerprint()


def child(served: ServedPolicy, place: int) -> RayServer:
    found = served.servers[place].child
    assert isinstance(found, RayServer)
    return found


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_two_servers_get_weights_through_the_object_store_and_one_is_killed(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = servers(cluster, replicas=2)
    try:
        for _ in range(3):
            assert right(served)
            move(served)
        assert served.syncs == 6
        assert child(served, 0).pid != child(served, 1).pid
        assert child(served, 0).node == child(served, 1).node
        kept = child(served, 0).there(served._folder / (served.servers[0].digest or "")).parent
        assert kept != served._folder
        assert len(list(kept.glob("*/"))) == 1  # the last
        monkeypatch.setattr(child(served, 0), "_put", lambda folder: {"no/such": b""})
        with pytest.raises(PolicyError, match="node could not write the weights: FileNotFoundError"):
            child(served, 0).there(served._folder / "none")
        monkeypatch.undo()
        killed = child(served, 1).pid
        os.kill(killed, signal.SIGKILL)
        with pytest.warns(UserWarning, match="the vLLM server on a Ray cluster ended"):
            assert comes_back(served, 1)
        assert child(served, 1).pid != killed
        pids = [child(served, place).pid for place in (0, 1)]
    finally:
        served.close()
    began = time.monotonic()
    while not all(map(gone, pids)) and time.monotonic() - began < 20:
        time.sleep(0.1)
    assert all(map(gone, pids))
    assert not kept.exists()


def test_an_actor_that_is_lost_takes_its_server_along_and_is_replaced(cluster: Path) -> None:
    served = servers(cluster)
    try:
        assert right(served)
        lost = child(served, 0)
        ray.kill(lost._actor)
        with pytest.warns(UserWarning, match="on a Ray cluster ended: .*it is started again"):
            assert right(served)
        assert child(served, 0).pid != lost.pid
        began = time.monotonic()
        while not gone(lost.pid) and time.monotonic() - began < 20:
            time.sleep(0.1)
        assert gone(lost.pid)
    finally:
        served.close()


DRIVER = """
import sys
from palaestra.agents import ServedPolicy
served = ServedPolicy.from_pretrained(sys.argv[1], server="vllm", cluster=sys.argv[2])
served.sync(0)
print(served.servers[0].child.there(served._folder / served.servers[0].digest).parent)
"""


def test_a_driver_that_exits_leaves_no_files_on_the_node(cluster: Path) -> None:
    command = [sys.executable, "-c", DRIVER, str(cluster), ray.get_runtime_context().gcs_address]
    found = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert found.returncode == 0, found.stderr
    kept = Path(found.stdout.split()[-1])
    assert kept.name.startswith("palaestra-served-")
    assert not kept.exists()


@pytest.mark.skipif("PALAESTRA_VLLM" not in os.environ, reason="no vLLM: PALAESTRA_VLLM is not set")
def test_a_real_vllm_in_an_actor(cluster: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    LMPolicy.tiny(hidden=64, heads=2, name="lm").save(tmp_path / "model")  # heads of a width that its CPU build takes
    monkeypatch.setenv("PALAESTRA_VLLM", VLLM)
    engine = {"enforce_eager": True, "max_model_len": 64, "max_num_seqs": 16, "kv_cache_memory_bytes": 2**28}
    served = servers(tmp_path / "model", engine=engine)
    try:
        for _ in range(2):
            assert right(served)
            move(served)
        assert right(served)
    finally:
        served.close()


@pytest.mark.skipif("PALAESTRA_VLLM" not in os.environ, reason="no vLLM: PALAESTRA_VLLM is not set")
def test_a_worker_asks_a_real_vllm(cluster: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    LMPolicy.tiny(hidden=64, heads=2, name="lm").save(tmp_path / "model")
    monkeypatch.setenv("PALAESTRA_VLLM", VLLM)
    engine = {"enforce_eager": True, "max_model_len": 64, "max_num_seqs": 16, "kv_cache_memory_bytes": 2**28}
    team = Team.made(team_of, str(tmp_path / "model"), engine=engine, timeout=300.0)
    served, executor = team["a"], Ray(workers=1, shards=4)
    assert isinstance(served, ServedPolicy)
    try:
        for _ in range(2):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                turns, mismatch = play(executor, slow, team, PLAN)
            assert turns["error"].null_count() == len(turns)
            assert mismatch["lm"]["mismatch"] < 1e-4
            move(served)
        assert served.syncs == 2
    finally:
        executor.close()
        served.close()


def test_a_cluster_without_room(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_servers, "ROOM", 1.0)
    holds = ray.remote(lambda: time.sleep(60)).options(num_cpus=2).remote()
    served = servers(cluster, patience=0.5)
    try:
        began = time.monotonic()
        with pytest.raises(PolicyError, match="the Ray cluster had no room for it in 1 s"):
            served.sync(0)
        assert time.monotonic() - began < 30  # it is not asked to end, which it would answer when there is room
    finally:
        ray.cancel(holds, force=True)
        served.close()


def test_clusters_that_cannot_be(cluster: Path) -> None:
    with pytest.raises(InputError, match="cluster is 'auto': the address of a Ray cluster, for server='vllm'"):
        servers(cluster, server=None, url="http://127.0.0.1:1/v1")


def team_of(folder: str, **options: Any) -> Team:
    return Team(a=servers(Path(folder), **options))


def test_envs_play_on_workers_of_the_cluster_while_its_servers_answer(cluster: Path) -> None:
    """One place of the two is a server's, one a worker's; the worker is killed, and what it had is played again."""
    team = Team.made(team_of, str(cluster), timeout=200.0)
    served, executor = team["a"], Ray(workers=1, shards=4)
    assert isinstance(served, ServedPolicy)
    backend = executor.pool.backend
    assert isinstance(backend, RayBackend)
    try:
        expected, _ = play(Local(shards=4), slow, team, PLAN)
        for moved in range(2):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                turns, mismatch = play(executor, slow, team, PLAN)
            assert turns["error"].null_count() == len(turns)
            assert shown(turns.frame).equals(shown(expected.frame)) is (moved == 0)
            assert mismatch["lm"]["mismatch"] < 1e-4
            move(served)
        expected, _ = play(Local(shards=4), slow, team, PLAN)
        pid = ray.get(backend.actors()[0].pid.remote())
        threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
        turns, _ = play(executor, slow, team, PLAN)
        assert executor.pool.lost == 1
        assert shown(turns.frame).equals(shown(expected.frame))
    finally:
        executor.close()
        served.close()
