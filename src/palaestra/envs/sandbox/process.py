"""The calling side: start a worker, give it the calls, wait, and make an outcome of every answer.

The worker (`worker.py`) runs each call in a child of its own. Arguments and answers go through files, not pipes: there
is nothing that a program could block, fill or keep open.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from palaestra.algebra.turns import clean
from palaestra.envs.sandbox.screen import MODULES, imported, screen
from palaestra.errors import InputError

WORKER = Path(__file__).with_name("worker.py")
LAYERS = ("namespaces", "seccomp")
"""What a worker tries to lock itself in with."""
NEEDED = ("seccomp",)
"""One of these must hold, or nothing is run."""
STARTING = 30.0
"""Seconds that a worker has to start, imports included, and to go on after a call."""
LONGEST_PROBLEM = 1000
UNLOCKED = "sandbox: there is no seccomp on this machine (Linux on x86-64 or ARM64), so nothing is run"
LOADED = {*MODULES, *sys.stdlib_module_names} - {"antigravity"}
"""What may be imported before the door is locked: nothing that does something else when it is imported."""

ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

Value = float | list[float | None] | None


@dataclass(frozen=True)
class Limits:
    """Settings of a sandbox's resource limits: CPU and wall time, memory, output, returned values and deaths.

    Attributes:
        cpu: Seconds of CPU time of one call, or of all calls of one key, which share a process (whole ones).
        wall: Seconds of one call.
        memory: Bytes beyond those of an idle process.
        values: Longest list that may be returned.
        printed: Characters of output that are kept of a call.
        output: Bytes of all answers.
        deaths: After so many processes that died, the calls that are left fail.
    """

    cpu: int = 30
    wall: float = 5.0
    memory: int = 512 * 2**20
    values: int = 10_000
    printed: int = 2000
    output: int = 64 * 2**20
    deaths: int = 3

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0 or (name != "wall" and not isinstance(value, int)):
                raise InputError(f"Limits: {name}={value!r} must be above 0" + ", and whole" * (name != "wall"))


@dataclass(frozen=True)
class CallOutcome:
    """Data of one sandboxed call: returned value (None: not scored), or an error text; and the printed output."""

    value: Value = None
    error: str | None = None
    printed: str = ""

    @property
    def blocked(self) -> bool:
        """Whether the sandbox caused the error, not the program."""
        return self.error is not None and self.error.startswith("sandbox: ")


def run_program(
    source: str, function: str, arguments: Sequence[Any] = (), *, limits: Limits | None = None, screened: bool = True
) -> CallOutcome:
    """Calls a function of an untrusted program once in the sandbox and returns a `CallOutcome`; errors are in it.

    Args:
        source: the program.
        function: which of its functions.
        arguments: plain values (JSON).
        limits: of time, memory and output; default: `Limits()`.
        screened: look at the syntax first, and run with few builtins. Without it only the process is locked in: for
            programs that need more of the language or of the standard library, and for testing the lock.

    Raises:
        InputError: the arguments are not plain values.

    >>> run_program("def reward(turn): return 2 * turn['gold']", "reward", [{"gold": 3}]).value
    6.0
    >>> run_program("import os", "reward").error
    "screen: line 1: import of 'os' is not allowed; ...
    """
    return run_table(source, function, [arguments], limits=limits, screened=screened)[0]


def run_table(
    source: str,
    function: str,
    calls: Sequence[Sequence[Any]],
    *,
    keys: Sequence[Hashable] | None = None,
    limits: Limits | None = None,
    screened: bool = True,
) -> list[CallOutcome]:
    """Calls a function of an untrusted program once per argument list in the sandbox; list of `CallOutcome`s.

    Each call runs in a process of its own, or calls of one key share one.

    Args:
        source: The program.
        function: Which of its functions.
        calls: Arguments of each call, plain values (JSON).
        keys: One per call (an episode, say). The function gets a further argument, a dict that it may write to and
            that is new whenever the key changes. Calls of one key stand together and share a process, which gets the
            next call once it answered the one before. If it dies, the key's other calls fail, too.
        limits: What the calls may use.
        screened: As in `run_program`.

    Raises:
        InputError: the arguments are not plain values, or there is not one key per call.
    """
    limits = Limits() if limits is None else limits
    if keys is not None and len(keys) != len(calls):
        raise InputError(f"run_table: {len(keys)} keys for {len(calls)} calls; give one per call")
    if screened:
        given = None if not calls else len(calls[0]) + (keys is not None)
        findings = screen(source, function, parameters=given)
        if findings:
            problem = "screen: " + "; ".join(map(str, findings[:5]))
            return [CallOutcome(error=problem)] * len(calls)
    if not calls:
        return []
    _, outcomes, rest = _run(_job(source, function, limits, keys is not None, screened), _rows(calls, keys), limits)
    return outcomes + [rest] * (len(calls) - len(outcomes))


def containment() -> dict[str, bool]:
    """Whether each sandbox layer works on this machine, {"namespaces": bool, "seccomp": bool}.

    Without seccomp no program is run.

    >>> sorted(containment())
    ['namespaces', 'seccomp']
    """
    header, *_ = _run(_job("", "", Limits(), False, False), (), Limits())
    return {layer: bool(header.get(layer)) for layer in LAYERS}


def _job(source: str, function: str, limits: Limits, fold: bool, screened: bool) -> dict[str, Any]:
    numpy = importlib.util.find_spec("numpy")
    path = [str(Path(numpy.origin).parents[1])] if numpy and numpy.origin else []
    return {
        "source": source, "function": function, "modules": [name for name in imported(source) if name in LOADED],
        "path": path, "layers": LAYERS, "needs": NEEDED, "limits": asdict(limits), "fold": fold, "screened": screened,
        "longest": 30 * limits.values + 12 * (limits.printed + LONGEST_PROBLEM),
    }  # fmt: skip


def _rows(calls: Sequence[Sequence[Any]], keys: Sequence[Hashable] | None) -> Iterator[bytes]:
    for row, arguments in enumerate(calls):
        fresh = keys is None or row == 0 or keys[row] != keys[row - 1]
        try:
            yield _record("+" if fresh else ".", json.dumps(list(arguments), allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"run_table: the arguments of call {row} are not plain values: {error}") from error


def _record(kind: str, text: str) -> bytes:
    return f"{kind}{len(text):15d}{text}".encode()  # JSON in ASCII: as many bytes as characters


def _run(
    job: dict[str, Any], rows: Iterable[bytes], limits: Limits
) -> tuple[dict[str, Any], list[CallOutcome], CallOutcome]:
    """Run a worker to its end.

    Returns:
        Which layers hold, the outcome of each row, and the outcome of rows that are left if there are too few.
    """
    if sys.platform != "linux":
        return {}, [], CallOutcome(error=UNLOCKED)
    with tempfile.TemporaryDirectory(prefix="palaestra-", ignore_cleanup_errors=True) as directory:
        scratch, asked, given = (Path(directory) / name for name in ("scratch", "calls", "answers"))
        scratch.mkdir(mode=0o700)
        with asked.open("wb") as file:
            file.write(_record("j", json.dumps(job)))
            file.writelines(rows)
        with asked.open("rb") as calls, given.open("wb") as answers:
            process = subprocess.Popen(
                [sys.executable, "-s", "-S", "-P", "-B", "-W", "ignore", str(WORKER), str(scratch)],
                stdin=calls,
                stdout=answers,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={"PYTHONHASHSEED": "0"} | dict.fromkeys(ONE_THREAD, "1"),
            )
            end = _wait(process, answers, limits)
        with given.open("rb") as file:
            return _read_all(file, limits, end)


def _read_all(file: BinaryIO, limits: Limits, end: str) -> tuple[dict[str, Any], list[CallOutcome], CallOutcome]:
    """The worker's records, which it wrote itself but for what is in an answer."""
    header: dict[str, Any] = {}
    outcomes: list[CallOutcome] = []
    rest = f"sandbox: the worker ended early: {end}"
    while len(head := file.read(16)) == 16:
        kind, text = head[:1], file.read(int(head[1:]))
        if kind == b"h":
            header = json.loads(text)
            rest = rest if any(header[layer] for layer in NEEDED) else UNLOCKED
        elif kind == b"e":
            rest = text.decode()
        else:
            outcomes.append(_read(text, limits) if kind == b"a" else CallOutcome(error=text.decode()))
    return header, outcomes, CallOutcome(error=rest)


def _wait(process: subprocess.Popen, answers: BinaryIO, limits: Limits) -> str:
    """Wait as long as answers come, then kill what is left of the worker's process group; how it ended."""
    written, since, pause, late = 0, time.monotonic(), 0.001, False
    try:
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
            size, now = os.fstat(answers.fileno()).st_size, time.monotonic()
            if size > written:
                written, since = size, now
            if now - since > limits.wall + STARTING:  # the worker itself ends a call after `wall` seconds
                late = True
                break
    finally:  # the leader is not reaped yet, so its number still names this group and no other
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    return f"no answer within {limits.wall + STARTING:g} s" if late else f"exit code {code}"


_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def _harmless(text: str) -> str:
    """A program's text for a table, a page or a terminal: what would steer the latter is spelled out."""
    return _CONTROL.sub(lambda sign: sign[0].encode("unicode_escape").decode(), clean(text))


def _read(line: bytes, limits: Limits) -> CallOutcome:
    """An answer, trusted in nothing: the program may have made its process write anything."""
    try:
        value, error, printed = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return CallOutcome(error="result: the answer is not one")
    printed = _harmless(printed)[: limits.printed] if isinstance(printed, str) else ""
    if error is not None:
        return CallOutcome(error=_harmless(str(error))[:LONGEST_PROBLEM], printed=printed)
    items = value if isinstance(value, list) else [value]
    if len(items) > limits.values or not all(item is None or type(item) is float for item in items):
        return CallOutcome(error="result: not a number, None or a list of them", printed=printed)
    if not all(item is None or math.isfinite(item) for item in items):
        return CallOutcome(error="result: NaN or infinite; return None where there is no score", printed=printed)
    return CallOutcome(value, printed=printed)
