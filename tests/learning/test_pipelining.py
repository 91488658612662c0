"""Playing ahead equals the rule, simulated in one process, to the last bit."""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path
from typing import Any

import overlapping
import pytest
import torch
from forked import fork
from overlapping import ITERATIONS, same, simulate, state_of, trainer

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.alarms import alarms
from palaestra.learning.stages.stage import Context, Stage
from palaestra.play.executors import Local, Plan


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def check(lag: int, executor: str) -> list[dict[str, Any]]:
    """Train as the executor does it, and compare parameters and every table with the simulation."""
    expected, tables = simulate(lag)
    played: list[Turns] = []
    made = trainer(lag=lag, executor=executor, on_turns=lambda iteration, turns: played.append(turns))
    lines = made.run()
    made.executor.close()
    for one, other in zip(played, tables, strict=True):
        assert one.frame.drop("duration").equals(other.frame.drop("duration"))
    assert same(state_of(made.team), expected)
    assert not same(expected, state_of(overlapping.players())), "nothing was learned"
    return lines


@pytest.mark.parametrize("executor", ["local", "threads"])
@pytest.mark.parametrize("lag", [0, 1, 2])
def test_ahead_is_what_the_rule_says(lag: int, executor: str) -> None:
    lines = check(lag, executor)
    assert [line["version_lag"] for line in lines] == [min(lag, i) for i in range(ITERATIONS)]
    assert all(line["waiting_seconds"] >= 0 for line in lines)


def test_processes_play_ahead_by_the_same_rule() -> None:
    check(1, f"processes(workers=2, shards={overlapping.SHARDS})")


def test_kill_9_and_resume_replay_what_was_under_way(tmp_path: Path) -> None:
    process = fork(overlapping.slowly, tmp_path, 2, said=tmp_path / "said.txt")
    deadline, metrics = time.monotonic() + 120, tmp_path / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_text().count("\n") >= 3):
        assert process.is_alive(), (tmp_path / "said.txt").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.join()
    done = metrics.read_text().count("\n")
    resumed = trainer(tmp_path, lag=2, iterations=done + 4)
    lines = resumed.run(resume=True)
    expected, _ = simulate(2, done + 4)
    assert same(state_of(resumed.team), expected)
    assert [line["version_lag"] for line in lines] == [min(2, i) for i in range(done + 4)]


def test_a_finished_run_goes_on_as_if_it_had_been_longer(tmp_path: Path) -> None:
    trainer(tmp_path, lag=2, iterations=4).run()
    longer = trainer(tmp_path, lag=2, iterations=6)
    longer.run(resume=True)
    assert same(state_of(longer.team), simulate(2, 6)[0])
    with pytest.raises(InputError, match="made with lag=2, not 1"):
        trainer(tmp_path, lag=1).run(resume=True)


class Curious(Stage):
    """Plans by what it has learned from: one episode less in every group where that is an odd number."""

    notes = ("_planned",)

    def __init__(self) -> None:
        self.learned: list[int] = []
        self.seen: dict[int, list[int]] = {}
        self._planned: dict[str, Any] = {}

    def plan(self, plan: Plan, context: Context) -> Plan:
        self.seen[plan.iteration] = list(self.learned)
        self._planned = {"iteration": plan.iteration, "updates": context.learner.updates if context.learner else None}
        return dataclasses.replace(plan, group_size=overlapping.SIZE - len(self.learned) % 2)

    def __call__(self, turns: Turns, context: Context) -> Turns:
        assert self._planned["iteration"] == context.iteration, "the word that was left for another iteration"
        assert self._planned["updates"] == turns["policy_version"][0]
        assert context.learner is not None
        assert context.learner.updates == context.iteration - 1
        self.learned.append(context.iteration)
        return turns

    def __repr__(self) -> str:
        return "Curious()"

    def state_dict(self) -> dict[str, Any]:
        return {"learned": list(self.learned)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.learned = list(state["learned"])


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_stages_that_plan_know_what_the_rule_allows(lag: int, tmp_path: Path) -> None:
    stage = Curious()
    whole = trainer(lag=lag, stages=[stage])
    lines = whole.run()
    for iteration in range(1, ITERATIONS + 1):
        assert stage.seen[iteration] == list(range(1, max(0, iteration - 1 - lag) + 1))
    sizes = [line["episodes"] // overlapping.GROUPS for line in lines]
    assert sizes == [overlapping.SIZE - max(0, i - lag) % 2 for i in range(ITERATIONS)]
    trainer(tmp_path, lag=lag, stages=[Curious()], iterations=3, checkpoint_every=1).run()
    resumed = trainer(tmp_path, lag=lag, stages=[Curious()])
    resumed.run(resume=True)
    assert same(state_of(resumed.team), state_of(whole.team))


def test_what_cannot_be_planned_ahead_is_refused() -> None:
    class Silent(Curious):
        notes = None

    refused = "stages: .* plans an iteration from what the one before it brought.*take train.lag=0"
    with pytest.raises(InputError, match=refused):
        trainer(lag=1, stages=[Silent()])
    with pytest.raises(InputError, match=r"stages: asynchronous\(\) plans"):
        trainer(lag=1, stages=["asynchronous()"])
    trainer(lag=0, stages=[Silent()])
    with pytest.raises(InputError, match="lag=-1, expected 0 or more"):
        trainer(lag=-1)


def test_what_playing_ahead_raises_is_raised_when_its_turn_comes() -> None:
    class Failing(Local):
        def play(self, env: Any, team: Any, plan: Plan, **options: Any) -> Turns:
            if plan.iteration == 3:
                raise InputError("no third iteration today")
            return super().play(env, team, plan)

    made = trainer(lag=2)
    made.executor = made.overlap.executor = Failing()  # type: ignore[union-attr]
    with pytest.raises(InputError, match="no third iteration today"):
        made.run()
    assert [line["iteration"] for line in made.journal.lines] == [1, 2]


def test_nothing_is_played_after_a_run_that_was_stopped() -> None:
    """A stopped run waits for the play under way, which would change the weights of servers under the next run."""
    played: list[tuple[str, int]] = []
    stopping = threading.Event()

    class Slow(Local):
        def play(self, env: Any, team: Any, plan: Plan, **options: Any) -> Turns:
            played.append(("begins", plan.iteration))
            if plan.iteration > 1:
                stopping.wait(60)
                time.sleep(0.05)
            played.append(("ends", plan.iteration))
            return super().play(env, team, plan)

    def stop(iteration: int, turns: Turns) -> None:
        deadline = time.monotonic() + 60
        while played[-1][0] != "begins":
            assert time.monotonic() < deadline
            time.sleep(0.001)
        stopping.set()
        raise KeyboardInterrupt

    made = trainer(lag=2, on_turns=stop)
    made.executor = made.overlap.executor = Slow()  # type: ignore[union-attr]
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert played[-1][0] == "ends"
    before = list(played)
    time.sleep(0.1)
    assert played == before


def test_more_than_four_updates_behind_raises_an_alarm() -> None:
    found = [[a for a in line["alarms"] if "updates older" in a] for line in trainer(lag=5, iterations=6).run()]
    assert [len(each) for each in found] == [0, 0, 0, 0, 0, 1]
    line = {"policies": {}, "errors": {}, "incomplete_groups": 0, "groups": 1, "reward": None, "version_lag": 4}
    assert not any("older" in each for each in alarms(line, []))


def test_a_trainer_that_was_stopped_goes_on_itself(tmp_path: Path) -> None:
    """A stopped trainer that resumes in the same process does not learn from tables of its old queue."""

    def stop(iteration: int, turns: Turns) -> None:
        if iteration == 3:
            made.on_turns = None
            raise KeyboardInterrupt

    made = trainer(tmp_path, lag=2, iterations=4, on_turns=stop)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    made.run(resume=True)
    assert same(state_of(made.team), simulate(2, 4)[0])


def test_a_trainer_that_was_stopped_twice_goes_on_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C also while it waits for the play under way, which still lasts when the next run begins."""
    under_way: list[int] = []
    begun, stopped, join = threading.Event(), threading.Event(), threading.Thread.join

    class Slow(Local):
        def play(self, env: Any, team: Any, plan: Plan, **options: Any) -> Turns:
            under_way.append(plan.iteration)
            assert len(under_way) == 1, "two at a time"
            if plan.iteration == 3 and not begun.is_set():
                begun.set()
                stopped.wait(60)
                time.sleep(0.1)
            turns = super().play(env, team, plan)
            under_way.remove(plan.iteration)
            return turns

    def again(self: threading.Thread, timeout: float | None = None) -> None:
        monkeypatch.setattr(threading.Thread, "join", join)
        stopped.set()
        raise KeyboardInterrupt

    def stop(iteration: int, turns: Turns) -> None:
        if iteration == 2:
            made.on_turns = None
            assert begun.wait(60)
            monkeypatch.setattr(threading.Thread, "join", again)
            raise KeyboardInterrupt

    made = trainer(tmp_path, lag=2, iterations=4, on_turns=stop, checkpoint_every=1)
    made.executor = made.overlap.executor = Slow(shards=overlapping.SHARDS)  # type: ignore[union-attr]
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert under_way == [3]
    made.run(resume=True)
    assert same(state_of(made.team), simulate(2, 4)[0])


def test_a_run_that_cannot_begin_leaves_no_thread_behind(tmp_path: Path) -> None:
    def nobody(since: int) -> list[Any]:
        raise InputError("no such tracker")

    trainer(tmp_path, lag=1, iterations=1).run()
    with pytest.raises(InputError, match="no such tracker"):
        trainer(tmp_path, lag=1, iterations=2, track=nobody).run(resume=True)
    assert "palaestra-player" not in [each.name for each in threading.enumerate()]
