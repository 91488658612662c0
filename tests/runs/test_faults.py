"""What a whole run must survive, injected: killed processes, broken worlds, blocked files, an endpoint that talks."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import Popen
from typing import Any

import polars as pl
import pytest
import torch
import yaml
from forked import fork
from quick import QUICK, go_on, start, validate

from palaestra.algebra.turns import Turns
from palaestra.errors import PalaestraError, StorageError
from palaestra.interface import library
from palaestra.learning import checkpoints
from palaestra.runs import jobs as run
from palaestra.runs.recipe import Recipe, alone, override
from palaestra.runs.seed import run_seed
from palaestra.runs.summary import summarise


def quick(**changes: Any) -> Recipe:
    return override(alone(validate(QUICK | {"seeds": 1})), changes)


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


# -- kill -9 ----------------------------------------------------------------------------------------------------------

MODEL = {"kind": "tiny", "options": {"hidden": 16, "layers": 1, "heads": 2, "vocabulary": 280, "max_new_tokens": 3}}
KILLED = {
    "policies": {"guide": MODEL},
    "warm_start": {"steps": 30, "lr": 0.02, "batch": 32},
    "learn": {"lr": {"guide": 0.01, "seeker": 0.2}, "terms": ["surrogate()", "kl(0.01)"], "minibatch": 16},
    "train": {"iterations": 6, "checkpoint_every": 2, "evaluate_every": 3, "save_turns": "all"},
}


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")


def below(pid: int) -> list[int]:
    """Processes that it has started, of those that Python's multiprocessing starts."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(pid) for pid in children if b"multiprocessing" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return []


def workers(process: Popen[str]) -> list[int]:
    """Processes in which the seeds of a run are trained; they are forked from one that does nothing else."""
    return [worker for server in below(process.pid) for worker in below(server)]


def alive(pid: int) -> bool:
    """Not gone, and not a zombie that waits for somebody to take notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def begin(recipe: Recipe, folder: Path) -> tuple[Popen[str], int]:
    """A run in `folder/run`, new or resumed, and the process of its seed, which has begun."""
    (folder / "recipe.yaml").write_text(recipe.dump())
    process = start("train", "recipe.yaml", "--trust", "--out", "run", "--jobs", "1", "--resume", cwd=folder)
    until(lambda: (workers(process) and (folder / "run" / "seed-0").exists()) or process.poll() is not None)
    return process, workers(process)[0]


@needs_proc
def test_an_interrupted_run_leaves_nothing_running_and_says_how_to_go_on(tmp_path: Path) -> None:
    process, worker = begin(quick(env={"options": {"pace": 0.01}}), tmp_path)
    servers = below(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (130, "")
    assert stderr.splitlines()[-1].startswith("interrupted; "), stderr
    assert "--resume" in stderr
    assert "Traceback" not in stderr
    until(lambda: not any(map(alive, (worker, *servers))))


@needs_proc
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """First the process of the seed, then the parent, which must take the seed with it; no bit is different."""
    recipe = quick(**KILLED, env={"options": {"pace": 0.003}})
    directory = tmp_path / "run" / "seed-0"

    def wait_for(iteration: int) -> None:
        until((directory / "checkpoints" / f"iteration-{iteration:06d}").exists)

    def kill_the_seed() -> None:
        wait_for(2)
        (seed,) = set(multiprocessing.active_children()) - others
        seed.kill()

    others = set(multiprocessing.active_children())
    with ThreadPoolExecutor(1) as killer:
        done = killer.submit(kill_the_seed)
        with pytest.raises(PalaestraError, match=r"^the process of a seed was killed .* go on .* with --resume"):
            library.train(recipe, tmp_path / "run", jobs=1)
        done.result()

    process = fork(go_on, recipe.dump(), tmp_path / "run", said=tmp_path / "said")
    server = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1])
    there = {*below(server)}
    wait_for(4)
    (worker,) = {*below(server), *below(process.pid)} - there
    process.kill()
    try:
        until(lambda: not alive(worker))
    finally:
        if alive(worker):
            os.kill(worker, signal.SIGKILL)  # the test has failed, but leaves nothing behind
    assert not (directory / "result.json").exists(), "it was killed in the middle"

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the processes: the order of sums must be the same
    resumed = run_seed(recipe, 0, directory, resume=True)
    run_seed(quick(**KILLED), 0, tmp_path / "whole")
    torch.set_num_threads(threads)

    def final(folder: Path) -> dict[str, Any]:
        return checkpoints.load(folder / "checkpoints" / "iteration-000006")

    one, other = final(directory), final(tmp_path / "whole")
    assert sum(tensor.numel() for tensor in one["policies"]["guide"].values()) > 5000
    assert _equal(one["policies"], other["policies"])
    assert _equal(one["learner"], other["learner"]), "optimisers and the start as well"
    assert resumed["cpu_seconds"] > 0
    for name in ("policies", "reward", "success", "evaluation", "errors", "episodes"):
        assert [_untimed(line[name]) for line in lines(directory)] == [
            _untimed(line[name]) for line in lines(tmp_path / "whole")
        ]
    said = ["run", "iteration", "group", "episode", "turn", "agent", "observation", "action", "logprobs", "reward"]
    for name in ("turns", "evaluation.parquet"):
        played = [Turns.load(folder / name).frame.select(said) for folder in (directory, tmp_path / "whole")]
        assert played[0].equals(played[1]), name
    assert not list(directory.rglob("*.tmp")), "what a killed process left half-written is gone"


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return bool(one == other)


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _untimed(item) for key, item in value.items() if key != "seconds"}
    return value


# -- worlds that break ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "boundary"),
    [({"failing": 0.05}, "env"), ({"hanging": 0.02}, "env-timeout"), ({"nan": 0.05}, "reward")],
)
def test_a_world_that_breaks(fault: dict[str, float], boundary: str, tmp_path: Path) -> None:
    """The run ends, every episode is in the tables, and what went wrong is counted where a person looks."""
    part = {"save_turns": "all", "iterations": 8, "checkpoint_every": 8}
    limit = 0.1 if "hanging" in fault else 30.0  # a busy machine may stand still for a tenth of a second
    recipe = quick(env={"options": fault}, train=part, warm_start={"steps": 0}, play={"timeout": limit})
    result = run_seed(recipe, 0, tmp_path / "seed-0")
    assert result["errors"].keys() == {boundary}
    turns = Turns.load(tmp_path / "seed-0" / "turns").frame
    failed = turns.filter(pl.col("error").is_not_null()).unique(["iteration", "group", "episode"])
    assert failed.height == result["errors"][boundary] > 0
    assert failed["error"].str.starts_with(f"{boundary}: ").all()
    episodes = turns.unique(["iteration", "group", "episode"])
    retried = episodes.filter(pl.col("episode") >= 4).height
    assert episodes.height == 8 * 8 * 4 + retried == sum(line["episodes"] for line in lines(tmp_path / "seed-0"))
    trained = turns.filter(pl.col("advantage").is_not_null())
    assert trained["error"].null_count() == trained.height, "nobody learns from a failure"
    summary = summarise(recipe, tmp_path, [result])
    assert summary["training_errors"] == result["errors"]
    played = Turns.load(tmp_path / "seed-0" / "evaluation.parquet").frame.unique(["system", "group", "episode"])
    assert played.height == 2 * 12 * 2, "every system has every trial, the failed ones included"
    counted = sum(sum(row["errors"].values()) for row in summary["table"])
    assert counted == played.height - played["error"].null_count()
    state = checkpoints.load(tmp_path / "seed-0" / "checkpoints" / "iteration-000008")
    assert all(bool(policy["logits"].isfinite().all()) for policy in state["policies"].values())


def test_a_world_that_always_breaks_is_said_and_not_trained_on(tmp_path: Path) -> None:
    recipe = quick(env={"options": {"failing": 1.0}}, warm_start={"steps": 0}, train={"iterations": 2})
    with pytest.raises(
        PalaestraError, match=r"no episode of the first iteration could be played: env: .* of 64 episodes"
    ):
        run_seed(recipe, 0, tmp_path / "seed-0")
    assert not (tmp_path / "seed-0" / "metrics.jsonl").exists()
    with pytest.raises(PalaestraError, match="every scripted episode failed"):
        run_seed(quick(env={"options": {"failing": 1.0}}), 0, tmp_path / "seed-1")


def test_a_reward_that_is_not_a_number_stops_the_run_and_names_rows(tmp_path: Path) -> None:
    with pytest.raises(PalaestraError, match=r"rows.*\[") as caught:
        run_seed(quick(reward="reward / (reward - reward)"), 0, tmp_path / "seed-0")
    assert "\n" not in str(caught.value)
    start = checkpoints.latest(tmp_path / "seed-0" / "checkpoints")
    assert start is not None
    assert start.name == "iteration-000000", "nothing was updated"


# -- files that are in the way ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["metrics.jsonl", "evaluation.parquet", "clock.json", "look-000000.parquet", "contributions.json", "tables.jsonl"],
)
def test_a_directory_where_a_file_is_expected(name: str, tmp_path: Path) -> None:
    (tmp_path / "seed-0" / name).mkdir(parents=True)
    with pytest.raises(StorageError, match=name.replace(".", r"\.")) as caught:
        run_seed(quick(train={"iterations": 1}, warm_start={"steps": 0}), 0, tmp_path / "seed-0")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["seed-0", "seed-0/start", "seed-0/checkpoints", "seed-0/turns"])
def test_a_file_where_a_directory_is_expected(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    with pytest.raises(StorageError, match=name) as caught:
        run_seed(quick(train={"iterations": 1}, warm_start={"steps": 0}), 0, tmp_path / "seed-0")
    assert "\n" not in str(caught.value)


# -- an endpoint as an opponent ---------------------------------------------------------------------------------------

KEY = "sk-this-must-never-be-written-down-4711"


class Endpoint(BaseHTTPRequestHandler):
    """Answers, now and then refuses, and then repeats the key that it was sent."""

    asked: list[str | None]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        key = self.headers["Authorization"]
        self.server.asked.append(key)  # type: ignore[attr-defined]
        if len(self.server.asked) % 7 == 3:  # type: ignore[attr-defined]
            return self._send(400, {"error": {"message": f"no credit left for {key}", "type": key}})
        said = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "green"}}
        usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
        answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [said], "usage": usage}
        return self._send(200, answer)

    def _send(self, status: int, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Be quiet."""


@pytest.fixture
def endpoint() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.asked = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_the_key_of_an_endpoint_is_in_no_file_of_the_run(
    endpoint: ThreadingHTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        "model": "m",
        "base_url": f"http://127.0.0.1:{endpoint.server_port}/v1",
        "api_key_env": "PALAESTRA_TEST_KEY",
        "retries": 0,
        "price_in": 1.0,
        "price_out": 2.0,
    }
    monkeypatch.setenv("PALAESTRA_TEST_KEY", KEY)
    part = {"iterations": 2, "groups": 4, "group_size": 2, "save_turns": "all"}
    evaluation = {"tasks": 4, "trials": 1, "look_tasks": 3, "look_trials": 1}
    recipe = quick(policies={"seeker": {"kind": "chat", "options": options}}, train=part, evaluation=evaluation)

    def in_this_process(work: list[run.SeedJob], **options: Any) -> list[dict[str, Any]]:
        return [run_seed(job.recipe, job.seed, job.directory) for job in work]

    monkeypatch.setattr(run, "run_jobs", in_this_process)
    summary = library.train(recipe, tmp_path / "run")
    asked = endpoint.asked  # type: ignore[attr-defined]
    assert set(asked) == {f"Bearer {KEY}"}, "the endpoint was given the key"
    assert summary["training_errors"]["policy"] > 0
    tables = [Turns.load(path).frame for path in (tmp_path / "run").rglob("turns/*.parquet")]
    assert any("no credit left for Bearer ***" in error for table in tables for error in table["error"].drop_nulls())
    assert sum(table["cost"].sum() for table in tables) > 0
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert {".yaml", ".json", ".jsonl", ".html", ".parquet", ".safetensors"} <= {path.suffix for path in files}
    for path in files:
        assert KEY.encode() not in path.read_bytes(), path
        if path.suffix == ".parquet":  # compressed, so it has to be opened
            assert KEY not in pl.read_parquet(path).write_ndjson(), path
    assert "PALAESTRA_TEST_KEY" in (tmp_path / "run" / "recipe.yaml").read_text(), "its name is what is written down"
    assert yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())["policies"]["seeker"]["options"] == options
