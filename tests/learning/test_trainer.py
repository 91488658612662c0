"""The loop: what it writes, and what it survives."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matching
import polars as pl
import pytest
import torch
from forked import fork

from palaestra.agents import Team
from palaestra.algebra.turns import Turns
from palaestra.credit import col, grpo, where
from palaestra.errors import EnvError, InputError, LearnerError, RewardError, StorageError
from palaestra.learning import PolicyGradient, Trainer, checkpoints, folder, run_lock
from palaestra.learning.alarms import Line, alarms
from palaestra.play.executors import Local


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # as in what is killed: the order of sums must be the same


def parameters(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {
        f"{policy} {name}": tensor.clone()
        for policy, state in trainer.team.state_dict().items()
        for name, tensor in state.items()
    }


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, torch.Tensor]]:
    directory = tmp_path_factory.mktemp("uninterrupted")
    trainer = matching.trainer(directory)
    trainer.run()
    return directory, parameters(trainer)


def test_what_is_written(uninterrupted: tuple[Path, dict[str, torch.Tensor]]) -> None:
    directory, _ = uninterrupted
    written = lines(directory)
    assert [line["iteration"] for line in written] == list(range(1, 13))
    line = written[-1]
    assert {"wall_seconds", "cpu_seconds", "episodes", "turns", "errors", "reward", "success", "policies", "evaluation",
            "metrics", "alarms"} <= line.keys()  # fmt: skip
    assert (line["episodes"], line["turns"], line["errors"]) == (24, 48, {})
    for policy in ("asker", "answerer"):
        assert {"loss", "kl", "entropy", "grad_norm", "clip_fraction", "zero_credit", "illegal", "distinct_actions",
                "rows"} <= line["policies"][policy].keys()  # fmt: skip
        assert line["policies"][policy]["rows"] == 24
    times = [line["cpu_seconds"] for line in written]
    assert times == sorted(times)
    assert times[0] > 0
    stored = sorted(path.name for path in (directory / "checkpoints").iterdir())
    assert stored == ["iteration-000000", "iteration-000009", "iteration-000012"]
    assert [path.name for path in (directory / "turns").iterdir()] == ["iteration-000012.parquet"]
    turns = Turns.load(directory / "turns")
    assert turns["advantage"].null_count() == 0
    # the line's means are those of the table
    assert line["reward"] == pytest.approx(turns.filter(pl.col("agent") == "asker")["reward"].mean())
    assert line["success"] == turns["success"].mean()
    assert sum(json.loads((directory / "contributions.json").read_text()).values()) == pytest.approx(1)


def test_a_run_is_determined_by_its_seed(uninterrupted: tuple[Path, dict[str, torch.Tensor]]) -> None:
    again, other = matching.trainer(None), matching.trainer(None, seed=4)
    history = again.run()
    other.run()
    assert equal(parameters(again), uninterrupted[1])
    assert not equal(parameters(other), uninterrupted[1])
    timeless = [{k: v for k, v in line.items() if not k.endswith("_seconds") and k != "speed"} for line in history]
    for line in timeless:
        for metrics in line["policies"].values():
            metrics.pop("seconds")
    stored = lines(uninterrupted[0])
    for line in stored:
        for metrics in line["policies"].values():
            metrics.pop("seconds")
        line.pop("wall_seconds")
        line.pop("cpu_seconds")
        line.pop("waiting_seconds")
        line.pop("speed")
    assert timeless == stored


def test_it_learns() -> None:
    """Two independent tables have to agree on a code for three digits; one pair in three is right by chance."""
    trainer = matching.trainer(None, tables=True, iterations=60, groups=16, seed=0)
    trainer.learner = PolicyGradient(trainer.team, lr=0.1)
    history = trainer.run()
    assert history[0]["success"] < 0.6
    assert sum(line["success"] for line in history[-5:]) / 5 > 0.9


def test_kill_9_and_resume_give_the_same_parameters_to_the_bit(
    tmp_path: Path, uninterrupted: tuple[Path, dict[str, torch.Tensor]]
) -> None:
    process = fork(matching.slowly, tmp_path, said=tmp_path / "said.txt")
    deadline = time.monotonic() + 60
    metrics = tmp_path / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_text().count("\n") >= 8):
        assert process.is_alive(), (tmp_path / "said.txt").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    killed_at = len(lines(tmp_path))
    assert 8 <= killed_at < 12
    with metrics.open("a") as file:
        file.write('{"iteration": 9, "half a li')

    trainer = matching.trainer(tmp_path)
    history = trainer.run(resume=True)
    assert equal(parameters(trainer), uninterrupted[1])
    assert [line["iteration"] for line in lines(tmp_path)] == list(range(1, 13))
    assert history == lines(tmp_path)
    cpu = [line["cpu_seconds"] for line in history]
    assert cpu == sorted(cpu)
    assert (
        Turns.load(tmp_path / "turns")
        .frame.drop("duration")
        .equals(Turns.load(uninterrupted[0] / "turns").frame.drop("duration"))
    )


def test_a_run_that_is_over_is_not_run_again(tmp_path: Path) -> None:
    first = matching.trainer(tmp_path, iterations=2)
    first.run()
    again = matching.trainer(tmp_path, iterations=2)
    assert len(again.run(resume=True)) == 2
    assert equal(parameters(first), parameters(again))
    assert len(matching.trainer(tmp_path, iterations=3).run(resume=True)) == 3


def test_a_second_run_without_a_directory_has_lines_of_its_own() -> None:
    seen: list[list[int]] = []

    def stop(lines: Sequence[Line]) -> bool:
        seen.append([line["iteration"] for line in lines])
        return False

    trainer = matching.trainer(None, tables=True, iterations=2, should_stop=stop)
    first = trainer.run()
    second = trainer.run()
    assert [[line["iteration"] for line in lines] for lines in (first, second)] == [[1, 2], [1, 2]]
    assert seen == [[1], [1, 2]] * 2


def test_who_is_told_the_metrics_is_asked_with_what_stays_and_only_if_something_comes(tmp_path: Path) -> None:
    asked: list[int] = []

    def track(last: int) -> Sequence[Any]:
        asked.append(last)
        return ()

    for resume, iterations in ((False, 2), (True, 2), (True, 3)):
        matching.trainer(tmp_path, tables=True, iterations=iterations, track=track).run(resume=resume)
    assert asked == [0, 2]


class Clocked(Local):
    """Says that its workers spend 1000 seconds on each iteration, and that the thread that asks has them."""

    own = threading.local()

    @property
    def cpu_seconds(self) -> float:
        return getattr(self.own, "spent", 7.0)

    def play(self, env: Any, team: Team, plan: Any) -> Turns:
        self.own.spent = self.cpu_seconds + 1000.0
        return super().play(env, team, plan)


@pytest.mark.parametrize("lag", [0, 1])
def test_seconds_of_workers_count_and_waiting_is_part_of_the_time(lag: int) -> None:
    history = matching.trainer(None, tables=True, iterations=2, lag=lag, executor=Clocked()).run()
    assert [line["cpu_seconds"] // 1000 for line in history] == [1, 2]
    assert all(0 <= line["waiting_seconds"] <= line["wall_seconds"] < 60 for line in history)


def test_room_is_looked_for_also_for_the_weights_with_which_one_plays_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(folder.RunFolder, "begin", lambda self, size, resume: asked.append(size))
    monkeypatch.setattr(folder.RunFolder, "write_checkpoint", lambda self, iteration, state: None)
    for lag in (0, 1, 2):
        trainer = matching.trainer(tmp_path, tables=True, lag=lag)
        trainer._begin(resume=False)
    policies = checkpoints.size_of({name: each.state_dict() for name, each in trainer.learner.policies.items()})
    assert policies > 0
    assert asked[2] - asked[1] == policies  # the rest of what is kept is as large
    assert asked[1] > asked[0] > policies


def test_a_run_ends_with_the_iteration_that_is_enough(
    tmp_path: Path, uninterrupted: tuple[Path, dict[str, torch.Tensor]]
) -> None:
    """It is looked at, kept, and not gone on from; what was learned until then is the same."""
    seen: list[int] = []

    def should_stop(told: Sequence[dict[str, Any]]) -> bool:
        return sum(line["turns"] for line in told) >= 4 * told[0]["turns"]

    def start(**options: Any) -> Trainer:
        return matching.trainer(
            tmp_path / "run", should_stop=should_stop, evaluate=lambda team, iteration: seen.append(iteration),
            evaluate_every=3, **options,
        )  # fmt: skip

    assert len(start().run()) == 4
    assert seen == [3, 4]
    assert checkpoints.iteration_of(checkpoints.latest(tmp_path / "run" / "checkpoints")) == 4
    assert [line["success"] for line in lines(tmp_path / "run")] == [
        line["success"] for line in lines(uninterrupted[0])[:4]
    ]
    assert len(start().run(resume=True)) == 4, "it was enough before"
    with pytest.raises(InputError, match="take lag=0"):
        start(lag=1)


def test_directories_with_another_run_are_refused(tmp_path: Path) -> None:
    matching.trainer(tmp_path, iterations=1).run()
    with pytest.raises(InputError, match=r"holds a run already .iteration-000001.: resume it"):
        matching.trainer(tmp_path).run()
    with pytest.raises(InputError, match="seed=3, not 5"):
        matching.trainer(tmp_path, seed=5).run(resume=True)
    with pytest.raises(InputError, match="credit="):
        matching.trainer(tmp_path, credit=grpo(eps=0.1)).run(resume=True)
    with pytest.raises(InputError, match="directory"):
        matching.trainer(None).run(resume=True)
    with pytest.raises(InputError, match="group_size=0"):
        matching.trainer(None, group_size=0)


def test_metrics_without_a_checkpoint_are_not_wiped(tmp_path: Path) -> None:
    matching.trainer(tmp_path, iterations=2).run()
    shutil.rmtree(tmp_path / "checkpoints")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"}
    for resume in (False, True):
        with pytest.raises(InputError, match=r"holds metrics\.jsonl, but no whole checkpoint.*restore .* or delete"):
            matching.trainer(tmp_path).run(resume=resume)
    (tmp_path / "metrics.jsonl").unlink()
    with pytest.raises(InputError, match=r"holds turns/iteration-000002\.parquet, but no whole checkpoint"):
        matching.trainer(tmp_path).run()
    del before[tmp_path / "metrics.jsonl"]
    assert {path: path.read_bytes() for path in before} == before


def test_a_directory_has_one_trainer_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lock, "PATIENCE", 0.0)
    refused: list[str] = []

    def intrude(iteration: int, turns: Turns) -> None:
        def another() -> None:
            try:
                matching.trainer(tmp_path, iterations=2).run(resume=True)
            except InputError as error:
                refused.append(str(error))

        thread = threading.Thread(target=another)
        thread.start()
        thread.join()

    assert len(matching.trainer(tmp_path, iterations=2, on_turns=intrude).run()) == 2
    assert len(lines(tmp_path)) == 2
    assert len(refused) == 2
    assert all(f"{tmp_path} is in use by process {os.getpid()} on" in each for each in refused)


def test_a_start_that_failed_is_in_nobodys_way(
    tmp_path: Path, uninterrupted: tuple[Path, dict[str, torch.Tensor]]
) -> None:
    with pytest.raises(EnvError, match="no episode of the first iteration"):
        matching.trainer(tmp_path, failing=1.0).run()
    trainer = matching.trainer(tmp_path)
    trainer.run()
    assert equal(parameters(trainer), uninterrupted[1])


def test_a_trainer_whose_first_iteration_failed_begins_again_at_its_start(tmp_path: Path) -> None:
    def look(team: Team, iteration: int) -> None:
        if not looked:
            looked.append(iteration)
            raise OSError("no network")

    def started(name: str) -> dict[str, Any]:
        state = checkpoints.load(tmp_path / name / "checkpoints" / "iteration-000000")
        assert state["wall"] == state["cpu"] == 0
        return {policy: {key: each.tolist() for key, each in of.items()} for policy, of in state["policies"].items()}

    looked: list[int] = []
    made = {"tables": True, "iterations": 2, "evaluate": look, "evaluate_every": 1}
    trainer = matching.trainer(tmp_path / "again", **made)
    with pytest.raises(OSError, match="no network"):
        trainer.run()
    assert trainer.learner.updates
    trainer.run()
    whole = matching.trainer(tmp_path / "whole", **made)
    whole.run()
    assert started("again") == started("whole")
    assert trainer.learner.updates == whole.learner.updates
    assert equal(parameters(trainer), parameters(whole))


def test_a_damaged_checkpoint_is_passed_over(
    tmp_path: Path, uninterrupted: tuple[Path, dict[str, torch.Tensor]]
) -> None:
    matching.trainer(tmp_path, iterations=9).run()
    with (tmp_path / "checkpoints/iteration-000009/tensors.safetensors").open("r+b") as file:
        file.write(b"damage")
    trainer = matching.trainer(tmp_path)
    with pytest.warns(UserWarning, match="iteration-000009"):
        trainer.run(resume=True)
    assert equal(parameters(trainer), uninterrupted[1])


def test_a_damaged_checkpoint_is_none_of_those_that_are_kept(tmp_path: Path) -> None:
    def stop(iteration: int, turns: Turns) -> None:
        if iteration == 3:
            raise KeyboardInterrupt

    kept = {"tables": True, "iterations": 3, "checkpoint_every": 2, "keep": 1}
    matching.trainer(tmp_path, **kept).run()
    with (tmp_path / "checkpoints/iteration-000003/tensors.safetensors").open("r+b") as file:
        file.write(b"damage")
    with pytest.warns(UserWarning, match="iteration-000003"), pytest.raises(KeyboardInterrupt):
        matching.trainer(tmp_path, **kept, on_turns=stop).run(resume=True)
    assert checkpoints.latest(tmp_path / "checkpoints") == tmp_path / "checkpoints" / "iteration-000002"


def test_a_disk_that_fills_up_leaves_the_checkpoint_before(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    uninterrupted: tuple[Path, dict[str, torch.Tensor]],
) -> None:
    real = checkpoints.write

    def full(path: Path, data: bytes) -> None:
        if "iteration-000006" in str(path) and path.name == "state.json":
            path.write_bytes(data[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write", full)
        with pytest.raises(StorageError, match=r"iteration-000006.*No space left"):
            matching.trainer(tmp_path).run()
    found = checkpoints.latest(tmp_path / "checkpoints")
    assert found is not None
    assert found.name == "iteration-000003"
    trainer = matching.trainer(tmp_path)
    trainer.run(resume=True)
    assert equal(parameters(trainer), uninterrupted[1])


def test_an_unusable_directory_stops_the_run_before_anything_is_played(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    trainer = matching.trainer(tmp_path / "file" / "run")
    trainer.env = None
    with pytest.raises(StorageError, match=r"cannot write to .*file/run"):
        trainer.run()


def test_an_env_that_breaks_in_5_percent_of_steps(tmp_path: Path) -> None:
    trainer = matching.trainer(tmp_path, failing=0.05, groups=10, save_turns="all", executor=Local(timeout=None))
    seen: list[pl.DataFrame] = []
    update = trainer.learner.update

    def spy(turns: Turns, **options: Any) -> Any:
        seen.append(turns.frame)
        return update(turns, **options)

    trainer.learner.update = spy
    history = trainer.run()
    assert len(history) == 12
    failures = sum(line["errors"].get("env", 0) for line in history)
    dropped = sum(line["incomplete_groups"] for line in history)
    assert failures > 20  # 720 episodes of two steps
    assert 0 < dropped <= failures
    for iteration, (line, trained) in enumerate(zip(history, seen, strict=True), start=1):
        assert trained["error"].null_count() == trained.height
        assert set(trained.group_by("group").agg(pl.col("episode").n_unique())["episode"]) <= {6}
        assert trained["group"].n_unique() == 10 - line["incomplete_groups"]
        stored = Turns.load(tmp_path / f"turns/iteration-{iteration:06d}.parquet").frame
        assert stored.filter(pl.col("error").is_not_null())["episode"].len() >= line["errors"].get("env", 0)
        assert stored.select(pl.struct("group", "episode").n_unique()).item() == 60
        assert stored.filter(pl.col("advantage").is_not_null()).height == trained.height
    assert any("groups lack episodes (" in alarm for line in history for alarm in line["alarms"])


def test_incomplete_groups_can_be_kept_without_their_failed_episodes() -> None:
    trainer = matching.trainer(None, failing=0.2, iterations=2, incomplete="keep", executor=Local(timeout=None))
    for line in trainer.run():
        failed = sum(line["errors"].values())
        assert failed > 0
        assert line["policies"]["answerer"]["rows"] == 24 - failed


def test_a_run_in_which_everything_fails_ends_and_says_so(tmp_path: Path) -> None:
    trainer = matching.trainer(tmp_path, failing=1.0, iterations=3)
    before = parameters(trainer)
    with pytest.raises(EnvError, match=r"no episode of the first iteration could be played: env: .* of \d+ episodes\)"):
        trainer.run()
    assert all(
        torch.equal(tensor, parameters(trainer)[name]) for name, tensor in before.items() if "states" not in name
    )


def test_rewards_that_are_not_finite_stop_the_run_and_leave_the_checkpoint(tmp_path: Path) -> None:
    late = pl.when((pl.col("iteration") == 5) & (pl.col("group") == 2)).then(float("nan")).otherwise(pl.col("reward"))
    trainer = matching.trainer(tmp_path, reward=where(col("reward") >= 0, late, 0.0))
    with pytest.raises((RewardError, LearnerError)) as caught:
        trainer.run()
    assert "not" in str(caught.value)
    found = checkpoints.latest(tmp_path / "checkpoints")
    assert found is not None
    assert found.name == "iteration-000003"
    assert len(lines(tmp_path)) == 4


def test_looks_and_hooks_come_when_they_should() -> None:
    looks: list[int] = []

    def evaluate(team: Team, iteration: int) -> dict[str, Any]:
        looks.append(iteration)
        return {"success": float("nan"), "n": 4}

    trainer = matching.trainer(
        None, iterations=5, evaluate=evaluate, evaluate_every=2, after_iteration=lambda i, team: {"twice": 2.0 * i}
    )
    trainer.learner = PolicyGradient(trainer.team, lr=0.02)  # without the pull that would measure it at each update
    history = trainer.run()
    assert looks == [2, 4, 5]
    assert [line["evaluation"] for line in history] == [None, (look := {"success": None, "n": 4}), None, look, look]
    assert [line["metrics"] for line in history] == [{"twice": 2.0 * i} for i in range(1, 6)]
    kl = [line["policies"]["asker"]["kl"] for line in history]
    assert [k is None for k in kl] == [True, False, True, False, False]
    assert kl[-1] > kl[1] > 0


@pytest.mark.parametrize(("mode", "files"), [("none", 0), ("last", 1), ("all", 4)])
def test_turns_are_kept_as_told(tmp_path: Path, mode: str, files: int) -> None:
    matching.trainer(tmp_path, iterations=4, save_turns=mode).run()
    assert len(list(tmp_path.glob("turns/*.parquet"))) == files


def test_progress_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    matching.trainer(None, iterations=1, progress=True, failing=0.5).run()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "nothing was learned" in captured.err


def line_of(**policy: Any) -> dict[str, Any]:
    healthy = {"entropy": 1.0, "distinct_actions": 0.5, "zero_credit": 0.1, "illegal": 0.05, "kl": 0.1}
    return {
        "errors": {},
        "reward": 0.5,
        "turns": 8,
        "groups": 4,
        "incomplete_groups": 0,
        "policies": {"p": healthy | policy},
    }


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        ({"entropy": 0.05}, "entropy is 0.05 nats, 5% of its start"),
        ({"distinct_actions": 0.02}, "distinct actions is 2.00%"),
        ({"zero_credit": 0.97}, "97% of its rows have no credit"),
        ({"illegal": 0.3}, "30% of its actions are illegal, at the start 5%"),
        ({"kl": 4.0}, "4 nats per token from its start"),
    ],
)
def test_each_alarm_is_one_sentence(now: dict[str, Any], sentence: str) -> None:
    found = alarms(line_of(**now), [line_of()])
    assert len(found) == 1
    assert found[0].startswith("policy 'p': ")
    assert sentence in found[0]
    assert "\n" not in found[0]


def test_distinct_actions_are_compared_with_as_many_rows() -> None:
    """128 rows of the same few actions have a lower share of distinct ones than 8."""
    small, large = line_of(rows=8), line_of(rows=128, distinct_actions=0.04)
    assert alarms(large, [small]) == []
    (said,) = alarms(line_of(rows=130, distinct_actions=0.004), [small, large])
    assert "distinct actions is 0.40%, it was 4.00%" in said


def test_no_alarm_without_a_reason() -> None:
    assert alarms(line_of(), []) == []
    assert alarms(line_of(illegal=0.4), [line_of(illegal=0.6)]) == []  # it falls


def test_a_model_whose_answers_nobody_can_read_is_told_so_and_not_that_tasks_are_too_easy() -> None:
    """An untrained model: every answer is illegal, every group agrees on failure."""
    (said,) = alarms(line_of(illegal=1.0, zero_credit=1.0), [])
    assert "100% of its actions are illegal, at the start 100%" in said
    assert "teach the format first (warm_start" in said
    first, second = alarms(line_of(illegal=0.3, zero_credit=1.0), [line_of()])
    assert "30% of its actions are illegal" in first
    assert "have no credit" in second
    assert alarms(line_of(entropy=None, kl=None, zero_credit=None, illegal=None), [line_of()]) == []


def test_rewards_that_are_all_missing_raise_an_alarm() -> None:
    assert alarms(line_of() | {"reward": None}, [line_of()]) == [
        "no turn of those who learn was scored: every reward is null; nothing can be learned from it"
    ]
