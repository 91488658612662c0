from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palaestra.agents import MLPPolicy, TabularPolicy, Team, random_legal
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.errors import PalaestraError
from palaestra.play.executors import EXECUTORS, Local
from palaestra.play.plan import Plan
from palaestra.play.processes import ProcessBackend, Processes


class Steps:
    """Shows arrays; ends the process it is in if a file says so."""

    agents = ("a", "b")
    task = "steps"

    def __init__(self, trap: str | None = None) -> None:
        self.trap = trap

    def reset(self, seed: int) -> Mapping[str, Observation]:
        self.rng, self.turn = np.random.default_rng(seed), 0
        return self.see()

    def see(self) -> dict[str, Observation]:
        array = self.rng.normal(size=5).astype(np.float32)
        return {agent: Observation(f"{array[0]:.1f}", array=array, choices=("x", "y", "z")) for agent in self.agents}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        if self.trap is not None:
            with contextlib.suppress(FileNotFoundError):  # one process finds it
                Path(self.trap).unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        self.turn += 1
        reward = float(actions["a"] == actions["b"])
        rewards = dict.fromkeys(self.agents, reward)
        if self.turn == 3:
            return StepResult({}, rewards, terminated=True, info={"success": bool(reward)})
        return StepResult(self.see(), rewards)


def team() -> Team:
    return Team(a=MLPPolicy(5, 3, name="net", seed=4), b=TabularPolicy(3, name="table"))


def scripts() -> Team:
    return Team(dict.fromkeys("ab", random_legal()))


PLAN = Plan(groups=21, group_size=3, seed=8, iteration=2, run="r", version=6)


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    made = EXECUTORS.build("processes(workers=2, shards=7)")
    assert isinstance(made, Processes)
    yield made
    made.close()


def test_the_table_is_that_of_one_process_to_the_last_bit(processes: Processes) -> None:
    made = Team.made(team)
    expected = Local(shards=7).play(Steps, made, PLAN).frame.drop("duration")
    played = processes.play(Steps, made, PLAN).frame.drop("duration")
    assert played.equals(expected)
    assert played.schema == expected.schema
    assert played["logprobs"].null_count() == 0
    assert set(played["policy_version"]) == {6}
    assert processes.cpu_seconds > 0


def test_frozen_teams_are_played_to_the_last_bit_too(processes: Processes) -> None:
    made = Team.made(team)
    for start in (made.frozen_copy(), made.frozen(["net"]), made):
        expected = Local(shards=7).play(Steps, start, PLAN).frame.drop("duration")
        assert processes.play(Steps, start, PLAN).frame.drop("duration").equals(expected)


def test_a_worker_killed_in_the_middle_costs_nothing_but_time(processes: Processes, tmp_path: Path) -> None:
    made, lost = Team.made(team), processes.pool.lost
    expected = Local(shards=7).play(Steps, made, PLAN).frame.drop("duration")
    hands = processes.pool.backend
    assert isinstance(hands, ProcessBackend)
    hands.start()
    before, trap = set(hands.pids()), tmp_path / "trap"
    trap.touch()
    played = processes.play(functools.partial(Steps, str(trap)), made, PLAN)
    assert played.frame.drop("duration").equals(expected)
    assert processes.pool.lost == lost + 1
    assert len(before & set(hands.pids())) == 1
    assert len(hands.pids()) == 2


def test_a_worker_whose_answer_was_half_read_is_replaced(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C came in between. The other half would be read as the next answer, or as its length."""
    made, reads = Team.made(team), iter([False, True])
    hands, read = processes.pool.backend, Connection._recv  # type: ignore[attr-defined]
    assert isinstance(hands, ProcessBackend)
    hands.start()
    while len(hands.idle()) < 2:
        hands.wait(1.0)
    before = set(hands.pids())

    def interrupted(self: Connection, size: int) -> Any:
        if next(reads, False):
            raise KeyboardInterrupt
        return read(self, size)

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "_recv", interrupted)
        with pytest.raises(KeyboardInterrupt):
            processes.play(Steps, made, PLAN)
    assert len(before & set(hands.pids())) == 1
    expected = Local(shards=7).play(Steps, made, PLAN).frame.drop("duration")
    assert processes.play(Steps, made, PLAN).frame.drop("duration").equals(expected)


def test_workers_go_with_the_executor() -> None:
    executor = Processes(workers=1, shards=2)
    executor.play(Steps, Team.made(scripts), Plan(2))
    hands = executor.pool.backend
    assert isinstance(hands, ProcessBackend)
    (pid,), folder = hands.pids(), Path(hands._folder)
    assert any(folder.iterdir())
    executor.close()
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_workers_that_cannot_begin_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaestra.play.processes._work", os._exit)  # called with two arguments it ends with 1
    executor = Processes(workers=1)
    with pytest.raises(PalaestraError, match=r"3 worker processes ended with 1 before they could play"):
        executor.play(Steps, Team.made(scripts), Plan(2))
    executor.close()


def test_a_module_that_no_worker_finds_is_named_with_the_cure() -> None:
    workers = Processes(workers=1, imports=["no_such_paper"])
    try:
        with pytest.raises(PalaestraError, match=r"play\.executor: imports='no_such_paper': no such module.*--trust"):
            workers.play(Steps, Team.made(scripts), Plan(1))
    finally:
        workers.close()


ABANDONED = """
from palaestra.play.processes import ProcessBackend
if __name__ == "__main__":
    backend = ProcessBackend(2)
    backend.start()
    while len(backend.idle()) < 2:
        backend.wait(1.0)
    print(backend.put(1), flush=True)
    backend.wait(60.0)
"""


def test_a_killed_driver_leaves_no_folder(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(ABANDONED)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        folder = Path(driver.stdout.readline().strip()).parent
        assert folder.is_dir()
        driver.send_signal(signal.SIGTERM)
    end = time.monotonic() + 20
    while folder.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not folder.exists()
