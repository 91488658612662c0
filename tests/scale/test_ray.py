"""Ray for real, on one machine and on simulated nodes: the same table, whatever is lost. `make scale-test`."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="extra 'ray'; `make scale-test` has it")

import torch  # noqa: E402
from overlapping import SHARDS, players, same, simulate, state_of, trainer  # noqa: E402
from signalling import Signalling  # noqa: E402
from slowly import Slowly  # noqa: E402

from palaestra.agents import Team  # noqa: E402
from palaestra.errors import PalaestraError, StorageError  # noqa: E402
from palaestra.play.cluster import Ray, RayBackend  # noqa: E402
from palaestra.play.executors import EXECUTORS, Local, Plan  # noqa: E402

PLAN = Plan(groups=24, group_size=4, seed=3, iteration=5, run="r", version=9)
QUIET: dict[str, Any] = {"logging_level": "error", "log_to_driver": False, "include_dashboard": False}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def machine() -> Iterator[None]:
    """One node, as on a laptop, with as many places as the tests need."""
    for left in (2, 1, 0):  # Ray gives itself 30 s, which a busy machine may not keep
        try:
            ray.init(num_cpus=3, object_store_memory=200 * 2**20, **QUIET)
            break
        except Exception:
            ray.shutdown()
            if not left:
                raise
    yield
    ray.shutdown()


def expected(env: Any = Signalling, plan: Plan = PLAN) -> Any:
    return Local(shards=8).play(env, Team.made(players), plan).frame.drop("duration")


def hands_of(executor: Ray) -> RayBackend:
    hands = executor.pool.backend
    assert isinstance(hands, RayBackend)
    return hands


def test_one_two_and_three_workers_play_the_same_table_to_the_last_bit(machine: None) -> None:
    team, whole = Team.made(players), expected()
    for workers in (1, 2, 3):
        executor = Ray(workers=workers, shards=8)
        assert executor.play(Signalling, team, PLAN).frame.drop("duration").equals(whole)
        put = executor.pool.put
        executor.play(Signalling, team, PLAN)
        assert (put, executor.pool.put) == (4, 4), "env, team and two policies are put once"
        executor.close()
        assert ray.is_initialized(), "whose cluster it is ends it"
    processes = EXECUTORS.build("processes(workers=2, shards=8)")
    assert processes.play(Signalling, team, PLAN).frame.drop("duration").equals(whole)
    processes.close()


def test_a_killed_worker_costs_nothing(machine: None) -> None:
    team, whole, executor = Team.made(players), expected(), Ray(workers=2, shards=8)
    executor.play(Signalling, team, PLAN)
    pid = ray.get(hands_of(executor).actors()[0].pid.remote())
    threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
    assert executor.play(Slowly, team, PLAN).frame.drop("duration").equals(whole)
    assert executor.pool.lost == 1
    executor.close()


def test_a_slow_worker_is_helped(machine: None) -> None:
    """A worker that stands still does not answer; somebody else plays its shard."""
    team, whole, executor = Team.made(players), expected(), Ray(workers=2, shards=8)
    executor.play(Signalling, team, PLAN)
    pid = ray.get(hands_of(executor).actors()[0].pid.remote())
    threading.Timer(0.2, os.kill, (pid, signal.SIGSTOP)).start()
    try:
        assert executor.play(Slowly, team, PLAN).frame.drop("duration").equals(whole)
        assert executor.pool.doubled >= 1
        assert executor.play(Signalling, team, PLAN).frame.drop("duration").equals(whole), "one goes on"
    finally:
        os.kill(pid, signal.SIGCONT)
        executor.close()


def test_weights_that_do_not_fit_are_named(machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(value: object) -> None:
        raise ray.exceptions.ObjectStoreFullError("no room")

    monkeypatch.setattr(ray, "put", full)
    executor = Ray(workers=1)
    with pytest.raises(StorageError, match=r"no room for the weights in the object store.*object_store_memory"):
        executor.play(Signalling, Team.made(players), PLAN)
    executor.close()


def test_no_place_for_a_worker_is_named(machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaestra.play.cluster.PATIENCE", 2.0)
    executor = Ray(workers=1, cpus=64)
    with pytest.raises(PalaestraError, match=r"no worker found a place in 2 s: the cluster has 3 CPUs, of which \d"):
        executor.play(Signalling, Team.made(players), PLAN)
    executor.close()


def test_functions_inside_functions_can_be_sent(machine: None) -> None:
    executor = Ray(workers=1, shards=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert executor.play(lambda: Signalling(), Team.made(players), PLAN).frame.drop("duration").equals(expected())
    executor.close()


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_ahead_on_ray_is_what_the_rule_says(lag: int, machine: None) -> None:
    made = trainer(lag=lag, executor=f"ray(workers=2, shards={SHARDS})")
    made.run()
    assert same(state_of(made.team), simulate(lag)[0])
    made.executor.close()
