"""A vLLM server as a child of this process, on 127.0.0.1, gone when this process is.

A small process stands between: it starts the server in a session of its own, and ends all of that session when its
standard input closes, which happens however this process ends, or when the server dies and leaves workers behind.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from palaestra.errors import InputError, PolicyError, nearest

PYTHON = "PALAESTRA_VLLM"
"""The environment variable that says which Python has vLLM; default: the one that runs this."""

ENGINE = (
    "block_size", "data_parallel_size", "dtype", "enable_chunked_prefill", "enable_prefix_caching", "enforce_eager",
    "gpu_memory_utilization", "kv_cache_memory_bytes", "max_loras", "max_model_len", "max_num_batched_tokens",
    "max_num_seqs", "stream_interval", "tensor_parallel_size",
)  # fmt: skip
"""vLLM's own options that may be set; none of them names code or a file."""

INTERVAL = 32
"""Tokens of an answer that a server keeps until it sends them: what is asked again, at most, if it is killed."""


ENGINE_FOLDER = Path(__file__).with_name("in_vllm")
"""Folder of the engine for shared memory, which vLLM's workers import."""

_FIND = """
import importlib.metadata, importlib.util, os, sys
found = importlib.util.find_spec('vllm')
print(importlib.metadata.version('torch'))
if found is None:
    sys.exit(1)
at = os.path.dirname(found.origin or '')
print(*(os.path.exists(os.path.join(at, *each)) for each in (
    ('distributed', 'weight_transfer', 'clients.py'), ('entrypoints', 'rl', 'online', 'api_router.py'))))
"""

_KEEPER = """
import ctypes, os, signal, subprocess, sys, threading, time
signal.signal(signal.SIGTERM, lambda *_: None)
def tied():  # ended when this process is killed, as Ray kills the children of an actor
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=tied)
def end():
    os.killpg(0, signal.SIGTERM)
    for _ in range(100):
        if server.poll() is not None: break
        time.sleep(.1)
    os.killpg(0, signal.SIGKILL)
def watch():
    sys.stdin.buffer.read()
    end()
threading.Thread(target=watch, daemon=True).start()
print(server.pid, flush=True)
server.wait()
end()
"""


class ServerProcess:
    """Starts a vLLM server as child process for a model folder or hub id; InputError if vLLM is not installed.

    options: of `ENGINE`. rank: of the adapters that it will be given, 0 for none. log: where what it says is kept.
    place, replicas: which of several servers it is; each gets GPUs, or cores, of its own (`share`). pid: of the server.
    host: address on which it listens.
    transfer: vLLM's name of the engine by which it will be sent weights; None: by a folder. transfers: whether it can.
    """

    def __init__(
        self,
        folder: str,
        *,
        model: str,
        log: Path,
        rank: int = 0,
        options: Mapping[str, Any] | None = None,
        place: int = 0,
        replicas: int = 1,
        transfer: str | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        check_options(options or {})
        python = os.environ.get(PYTHON, sys.executable)
        safe = {**os.environ, "PYTHONSAFEPATH": "1"}
        ask = functools.partial(subprocess.run, [python, "-c", _FIND], capture_output=True, text=True, env=safe)
        found = ask() if os.path.exists(python) else None
        if found is None or found.returncode:
            raise InputError(
                f"ServedPolicy: server 'vllm' needs a Python that has vLLM, {python} has none: set {PYTHON} to one, "
                "or start a server yourself and give its url"
            )
        port, self.log = _free_port(host), log
        self.url = f"http://{host}:{port}"
        command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", folder]
        command += ["--host", host, "--port", str(port), "--served-model-name", model]
        command += ["--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"]
        command += ["--disable-uvicorn-access-log"]
        command += ["--enable-lora", "--max-lora-rank", str(_rank(rank))] if rank else []
        self.transfers = transfer is not None and "False" not in found.stdout
        if self.transfers:
            command += ["--weight-transfer-config", json.dumps({"backend": transfer})]
        usual: dict[str, Any] = {"dtype": "float32", "stream_interval": INTERVAL}
        env, own = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_NO_USAGE_STATS": "1"}, dict[str, str]()
        cpu = "+cpu" in found.stdout
        if replicas > 1 and cpu:
            cores = share(place, replicas, sorted(os.sched_getaffinity(0)))
            own["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(cores)
            own["OMP_NUM_THREADS"] = str(len(cores))  # else as many threads as the machine has cores wait by spinning
        elif replicas > 1:
            own["CUDA_VISIBLE_DEVICES"] = ",".join(share(place, replicas, _devices(), devices_of(options or {})))
        if cpu:
            usual["enable_chunked_prefill"] = False  # a prompt that is read in two parts under a seed ends the engine
            if devices_of(options or {}) == 1:
                # a scheduler apart from its only worker waits by spinning, and takes one core from it
                env["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        for name, value in (usual | dict(options or {})).items():
            flag = "--" + name.replace("_", "-")
            command += [flag.replace("--", "--no-", 1)] if value is False else [flag] * (value is True)
            command += [] if isinstance(value, bool) else [flag, str(value)]
        if self.transfers and transfer == "ipc":
            own["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
        elif self.transfers and transfer == "palaestra_shared_memory":
            command += ["--worker-extension-cls", "palaestra_shared_memory.Extension"]
            own["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ENGINE_FOLDER)]))
        env |= {**safe, "VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"} | own
        with log.open("ab") as output:
            self._keeper = subprocess.Popen(
                [sys.executable, "-P", "-c", _KEEPER, *command],
                env=env,
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
            )
        assert self._keeper.stdout is not None
        self.pid = int(self._keeper.stdout.readline() or 0)
        self.end = weakref.finalize(self, _end, self._keeper)

    @property
    def alive(self) -> bool:
        """Whether the server still runs."""
        return self._keeper.poll() is None

    @staticmethod
    def there(folder: Path) -> Path:
        """Path by which the server reads a folder of here."""
        return folder

    def died(self) -> PolicyError:
        """Error that says why the server ended: the last line of its log that names an error."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        causes = [line for line in lines if re.search(r"Error: |Error$", line) and "EngineDeadError" not in line]
        said = causes[-1] if causes else lines[-1] if lines else "it said nothing"
        return PolicyError(f"the vLLM server ended by itself: {' '.join(said.split())[-300:]} (all of it: {self.log})")


def check_options(options: Mapping[str, Any]) -> None:
    """Raises InputError for an option that is not one of vLLM's options in `ENGINE`."""
    for name in options:
        if name not in ENGINE:
            raise InputError(f"ServedPolicy: engine: no option {name!r}{nearest(str(name), ENGINE)}")


def share(place: int, replicas: int, there: Sequence[object], each: int | None = None) -> list[str]:
    """List of names of the cores or GPUs of server `place` of `replicas`: `each` of those `there`, or an equal part.

    >>> share(1, 2, [0, 1, 2, 3]), share(1, 2, [4, 5, 6], 1), share(2, 3, [0, 1])
    (['2', '3'], ['5'], ['0'])

    Raises:
        InputError: there are fewer than each needs.
    """
    if each is None:
        each = max(1, len(there) // replicas)
        place %= max(1, len(there) // each)
    elif each * replicas > len(there):
        raise InputError(
            f"ServedPolicy: replicas={replicas} of {each} GPU{'s' * (each > 1)} each, {len(there)} are visible"
        )
    return [str(name) for name in there[place * each : (place + 1) * each]]


def _devices() -> list[object]:
    """Visible GPUs, by the names that CUDA_VISIBLE_DEVICES has for them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [each.strip() for each in named.split(",") if each.strip()]
    import torch

    return list(range(torch.cuda.device_count()))


def devices_of(options: Mapping[str, Any]) -> int:
    """Number of devices that one server needs with these options of vLLM."""
    return int(options.get("tensor_parallel_size", 1)) * int(options.get("data_parallel_size", 1))


def _rank(rank: int) -> int:
    """The smallest that vLLM takes."""
    return next((known for known in (8, 16, 32, 64, 128, 256, 320, 512) if known >= rank), rank)


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _end(keeper: subprocess.Popen[bytes]) -> None:
    """Close what the keeper listens to; should it not end everything within 15 s, do it for it."""
    for pipe in (keeper.stdin, keeper.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    began = time.monotonic()
    while keeper.poll() is None and time.monotonic() - began < 15:
        time.sleep(0.05)
    if keeper.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(keeper.pid, signal.SIGKILL)
        keeper.wait()
