"""Starting and ending a server, with a stand-in for vLLM: what it is given, and that nothing of it stays."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from palaestra.agents.backends.dialects import VLLM
from palaestra.agents.backends.launch import ServerProcess
from palaestra.agents.backends.server import Client, ServerError
from palaestra.errors import InputError

STAND_IN = """
import http.server, json, os, subprocess, sys
given = sys.argv[1:]
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
note = {"given": given, "worker": worker.pid, "dev": os.environ.get("VLLM_SERVER_DEV_MODE"),
        "apart": os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING"), "path": os.environ.get("PYTHONPATH", ""),
        "insecure": os.environ.get("VLLM_ALLOW_INSECURE_SERIALIZATION"),
        "cores": os.environ.get("VLLM_CPU_OMP_THREADS_BIND"), "threads": os.environ.get("OMP_NUM_THREADS")}
open(os.environ["STAND_IN_NOTE"], "w").write(json.dumps(note))
if "--dtype" in given and given[given.index("--dtype") + 1] == "bad":
    raise ValueError("there is no dtype bad")
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'{"data": [{"id": "policy"}]}')
http.server.HTTPServer(("127.0.0.1", int(given[given.index("--port") + 1])), Handler).serve_forever()
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[ServerProcess, dict[str, Any]]]:
    folder = tmp_path / "vllm" / "entrypoints" / "openai"
    folder.mkdir(parents=True)
    for each in (folder, folder.parent, folder.parent.parent):
        (each / "__init__.py").touch()
    (folder / "api_server.py").write_text(STAND_IN)
    about = tmp_path / "torch-9.0+cpu.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.0+cpu\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PALAESTRA_VLLM", sys.executable)
    monkeypatch.setenv("STAND_IN_NOTE", str(tmp_path / "note.json"))

    def make(**options: Any) -> tuple[ServerProcess, dict[str, Any]]:
        child = ServerProcess("/some/folder", model="policy", log=tmp_path / "log", **options)
        until(lambda: (tmp_path / "note.json").exists() and (tmp_path / "note.json").stat().st_size > 0)
        return child, json.loads((tmp_path / "note.json").read_text())

    return make


def until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds
        time.sleep(0.02)


def gone(pid: int) -> bool:
    with contextlib.suppress(OSError):  # a process that ended and that nobody has asked for yet is a zombie
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def answers(child: ServerProcess) -> bool:
    try:
        return VLLM().models(Client(child.url)) == ["policy"]
    except ServerError:
        return False


def test_a_replica_on_a_cpu_has_as_many_threads_as_cores(
    start: Callable[..., tuple[ServerProcess, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them would wait for each other by spinning, on a core that they share."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    child, note = start(place=1, replicas=2)
    try:
        cores = note["cores"].split(",")
        assert note["threads"] == str(len(cores)) == str(max(1, len(os.sched_getaffinity(0)) // 2))
    finally:
        child.end()


def test_it_is_started_with_what_was_asked_for_and_ended(start: Any) -> None:
    child, note = start(options={"max_model_len": 64, "enforce_eager": True, "enable_prefix_caching": False})
    until(lambda: answers(child))
    given = " ".join(note["given"])
    assert "--model /some/folder --host 127.0.0.1 --port" in given
    assert "--served-model-name policy" in given
    assert "--logprobs-mode processed_logprobs --generation-config vllm" in given
    assert (
        "--dtype float32 --stream-interval 32 --no-enable-chunked-prefill --max-model-len 64 --enforce-eager "
        "--no-enable-prefix-caching" in given
    )
    assert "lora" not in given
    assert note["dev"] == "1"
    assert child.alive
    child.end()
    assert not child.alive
    until(lambda: gone(child.pid) and gone(note["worker"]))
    child.end()  # twice is once


@pytest.mark.parametrize(("workers", "wish", "apart"), [(1, None, "0"), (2, None, None), (1, "1", "1")])
def test_on_a_cpu_the_scheduler_of_one_worker_takes_no_core_of_its_own(
    workers: int, wish: str | None, apart: str | None, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits by spinning. Whoever sets the variable has what he set."""
    monkeypatch.delenv("VLLM_ENABLE_V1_MULTIPROCESSING", raising=False)
    if wish is not None:
        monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", wish)
    child, note = start(options={"tensor_parallel_size": workers})
    child.end()
    assert note["apart"] == apart


def test_adapters_get_the_next_rank_that_there_is(start: Any) -> None:
    child, note = start(rank=5, options={"dtype": "bfloat16", "enable_chunked_prefill": True})
    child.end()
    assert "--enable-lora --max-lora-rank 8 --dtype bfloat16 --stream-interval 32 --enable-chunked-prefill" in " ".join(
        note["given"]
    )


def with_transfers(folder: Path) -> None:
    for each in ("distributed/weight_transfer/clients.py", "entrypoints/rl/online/api_router.py"):
        (folder / "vllm" / each).parent.mkdir(parents=True)
        (folder / "vllm" / each).touch()


def test_shared_memory_needs_an_engine_of_ours_that_workers_import(start: Any, tmp_path: Path) -> None:
    with_transfers(tmp_path)
    child, note = start(transfer="palaestra_shared_memory")
    assert child.transfers
    given = dict(pairwise(note["given"]))
    assert json.loads(given["--weight-transfer-config"]) == {"backend": "palaestra_shared_memory"}
    module, _, name = given["--worker-extension-cls"].partition(".")
    mine, folder = note["path"].split(os.pathsep)
    assert mine == str(tmp_path)
    assert f"class {name}:" in (Path(folder) / f"{module}.py").read_text()
    assert [each.name for each in Path(folder).glob("*.py")] == [f"{module}.py"]  # it is on vLLM's path
    assert note["insecure"] is None
    child.end()


def test_handles_of_cuda_memory_are_unpickled_by_the_server(start: Any, tmp_path: Path) -> None:
    with_transfers(tmp_path)
    child, note = start(transfer="ipc")
    assert json.loads(dict(pairwise(note["given"]))["--weight-transfer-config"]) == {"backend": "ipc"}
    assert "--worker-extension-cls" not in note["given"]
    assert note["insecure"] == "1"
    child.end()


def test_a_vllm_without_transfers_is_started_as_ever(start: Any) -> None:
    child, note = start(transfer="palaestra_shared_memory")
    assert not child.transfers
    assert "--weight-transfer-config" not in note["given"]
    child.end()


def test_a_killed_server_takes_its_workers_along(start: Any) -> None:
    child, note = start()
    until(lambda: answers(child))
    os.kill(child.pid, signal.SIGKILL)
    until(lambda: not child.alive)
    until(lambda: gone(note["worker"]))


def test_a_server_whose_keeper_is_killed_ends(start: Any) -> None:
    child, note = start()
    child._keeper.kill()
    until(lambda: gone(child.pid))
    os.kill(note["worker"], signal.SIGKILL)  # vLLM's own workers end with it
    assert not child.alive


def test_a_killed_parent_leaves_nothing(start: Any, tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from palaestra.agents.backends.launch import ServerProcess\n"
        f"child = ServerProcess('x', model='policy', log=Path({str(tmp_path / 'log')!r}))\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)"
    )
    path = os.pathsep.join([os.environ["PYTHONPATH"], *sys.path])
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    until(lambda: (tmp_path / "note.json").exists() and (tmp_path / "note.json").stat().st_size > 0)
    worker = json.loads((tmp_path / "note.json").read_text())["worker"]
    parent.kill()
    parent.wait()
    until(lambda: gone(pid) and gone(worker))


def test_one_that_dies_says_why(start: Any) -> None:
    child, _ = start(options={"dtype": "bad"})
    until(lambda: not child.alive)
    assert "the vLLM server ended by itself: ValueError: there is no dtype bad" in str(child.died())
    assert "\n" not in str(child.died())


def test_only_options_that_name_no_code(start: Any) -> None:
    for name in ("trust_remote_code", "tool_parser_plugin", "model"):
        with pytest.raises(InputError, match=f"engine: no option '{name}'"):
            start(options={name: "x"})
