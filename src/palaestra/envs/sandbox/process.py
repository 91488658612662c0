"""The calling side: start a worker, give it the calls, wait, kill it, and make an outcome of everything that it did.

Arguments and answers go through files, not pipes: there is nothing that a worker could block, fill or keep open. A
worker that dies takes the call that it died in with it; a new one goes on with the next call.
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
from dataclasses import dataclass
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
"""Seconds that a worker has to start, imports included."""
LONGEST_PROBLEM = 1000
LOADED = {*MODULES, *sys.stdlib_module_names} - {"antigravity"}
"""What may be imported before the door is locked: nothing that does something else when it is imported."""

Value = float | list[float | None] | None


@dataclass(frozen=True)
class Limits:
    """What a program may use.

    cpu: seconds of a worker in all (whole ones). wall: seconds of one call. memory: bytes beyond an idle worker's.
    values: longest list that may be returned. printed: characters of output that are kept. output: bytes of all
    answers. deaths: after so many workers that died, the calls that are left fail.
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
class Outcome:
    """What one call came to: a value (None: not scored), or an error; never both. printed: what it printed."""

    value: Value = None
    error: str | None = None
    printed: str = ""

    @property
    def blocked(self) -> bool:
        """Whether the sandbox caused the error, not the program."""
        return self.error is not None and self.error.startswith("sandbox: ")


def run_program(
    source: str, function: str, arguments: Sequence[Any] = (), *, limits: Limits | None = None, screened: bool = True
) -> Outcome:
    """Call a function of an untrusted program once; whatever it does becomes an outcome.

    Args:
        source: the program. function: which of its functions. arguments: plain values (JSON).
        screened: look at the syntax first, and run with few builtins. Without it only the process is locked in: for
            programs that need more of the language or of the standard library, and for testing the lock. Such a one
            could find the calls that come later in the memory of its process.

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
    chunk: int = 100_000,
    screened: bool = True,
) -> list[Outcome]:
    """Call a function once for each list of arguments, in one process for up to `chunk` calls.

    keys: one per call (an episode, say): the function gets a further argument, a dict that it may write to and that is
    new whenever the key changes. Calls of one key stand together; if the worker dies, the key's other calls fail too.

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
            return [Outcome(error=problem)] * len(calls)
    job = _job(source, function, limits, keys is not None, screened)
    done: list[Outcome] = []
    deaths = 0
    while len(done) < len(calls):
        start = len(done)
        if deaths >= limits.deaths:
            return done + [Outcome(error=f"given up after {deaths} workers died")] * (len(calls) - start)
        stop = _whole_keys(keys, start + chunk, len(calls))
        found, death = _work(job, _lines(calls, keys, start, stop), stop - start, limits)
        done += found
        if death is not None and len(done) < stop:
            deaths += 1
            done.append(Outcome(error=death))
            for _ in range(len(done), _whole_keys(keys, len(done), len(calls))):
                done.append(Outcome(error=f"not called: the worker died in this key ({death})"))
    return done


def containment() -> dict[str, bool]:
    """Which layers hold on this machine; without seccomp no program is run.

    >>> sorted(containment())
    ['namespaces', 'seccomp']
    """
    with tempfile.TemporaryDirectory(prefix="palaestra-", ignore_cleanup_errors=True) as directory:
        _, header, _ = _run(_job("", "", Limits(), False, False), (), 0, Path(directory), Limits())
    return {layer: bool(header.get(layer)) for layer in LAYERS}


def _job(source: str, function: str, limits: Limits, fold: bool, screened: bool) -> dict[str, Any]:
    numpy = importlib.util.find_spec("numpy")
    path = [str(Path(numpy.origin).parents[1])] if numpy and numpy.origin else []
    own = {"cpu": limits.cpu, "memory": limits.memory, "output": limits.output}
    modules = [name for name in imported(source) if name in LOADED]
    return {
        "source": source, "function": function, "modules": modules, "path": path,
        "layers": LAYERS, "needs": NEEDED, "limits": own, "values": limits.values, "printed": limits.printed,
        "fold": fold, "screened": screened,
    }  # fmt: skip


def _whole_keys(keys: Sequence[Hashable] | None, stop: int, total: int) -> int:
    """The end of the key in which call `stop - 1` is."""
    stop = min(stop, total)
    while keys is not None and 0 < stop < total and keys[stop] == keys[stop - 1]:
        stop += 1
    return stop


def _lines(calls: Sequence[Sequence[Any]], keys: Sequence[Hashable] | None, start: int, stop: int) -> Iterator[bytes]:
    for row in range(start, stop):
        fresh = keys is None or row == start or keys[row] != keys[row - 1]
        try:
            yield json.dumps([list(calls[row]), fresh], allow_nan=False).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"run_table: the arguments of call {row} are not plain values: {error}") from error


def _work(job: dict[str, Any], lines: Iterable[bytes], number: int, limits: Limits) -> tuple[list[Outcome], str | None]:
    """Outcomes of the calls that one worker answered, and how it died if it did not answer all."""
    with tempfile.TemporaryDirectory(prefix="palaestra-", ignore_cleanup_errors=True) as directory:
        death, header, answers = _run(job, lines, number, Path(directory), limits)
        if header and not any(header.get(layer) for layer in NEEDED):
            problem = "sandbox: there is no seccomp on this machine (Linux on x86-64 or ARM64), so nothing is run"
            return [Outcome(error=problem)] * number, None
        outcomes = [_read(line, limits) for line in answers]
        return outcomes, None if len(outcomes) == number else death


def _run(
    job: dict[str, Any], lines: Iterable[bytes], number: int, directory: Path, limits: Limits
) -> tuple[str, dict[str, Any], list[bytes]]:
    """Run a worker to its end: how it ended, its first line, the next `number` whole lines or fewer."""
    scratch, asked, given = directory / "scratch", directory / "calls", directory / "answers"
    scratch.mkdir(mode=0o700)
    with asked.open("wb") as file:
        file.write(json.dumps(job).encode() + b"\n")
        file.writelines(lines)
    with asked.open("rb") as calls, given.open("wb") as answers:
        process = subprocess.Popen(
            [sys.executable, "-s", "-S", "-P", "-B", "-W", "ignore", str(WORKER), str(scratch)],
            stdin=calls, stdout=answers, stderr=subprocess.DEVNULL, start_new_session=True,
            env={"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )  # fmt: skip
        death = _wait(process, answers, number, limits)
    with given.open("rb") as file:
        first, *rest = file.read(limits.output).split(b"\n", number + 1)
    try:
        header = json.loads(first[:LONGEST_PROBLEM])
    except ValueError:
        header = {}
    return death, header if isinstance(header, dict) else {}, rest[:-1]


def _wait(process: subprocess.Popen, answers: BinaryIO, number: int, limits: Limits) -> str:
    """Wait as long as answers come; then kill whatever is left of the worker's process group, and say how it ended."""
    written, since, end, pause, late = 0, time.monotonic(), math.inf, 0.001, False
    try:
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
            size, now = os.fstat(answers.fileno()).st_size, time.monotonic()
            if size > written:
                if not written:  # the first line; whoever drips bytes has no more time than all answers have
                    end = now + max(number, 1) * limits.wall
                written, since = size, now
            if now > end or now - since > (limits.wall if written else STARTING):
                late = True
                break
    finally:  # the leader is not reaped yet, so its number still names this group and no other
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    if late:
        return f"time: no answer within {limits.wall if written else STARTING:g} s"
    if code in (-signal.SIGKILL, -signal.SIGXCPU):
        return f"killed: more than {limits.cpu} s of CPU time, or more memory than the machine has"
    if code < 0:
        return f"died: signal {-code}"
    return f"died: exit code {code} without an answer"


_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def _harmless(text: str) -> str:
    """A program's text for a table, a page or a terminal: what would steer the latter is spelled out."""
    return _CONTROL.sub(lambda sign: sign[0].encode("unicode_escape").decode(), clean(text))


def _read(line: bytes, limits: Limits) -> Outcome:
    """An answer, believed in nothing: the worker may have been made to write anything."""
    if len(line) > 30 * limits.values + 12 * (limits.printed + LONGEST_PROBLEM):
        return Outcome(error="result: the answer is not one")
    try:
        value, error, printed = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return Outcome(error="result: the answer is not one")
    printed = _harmless(printed)[: limits.printed] if isinstance(printed, str) else ""
    if error is not None:
        return Outcome(error=_harmless(str(error))[:LONGEST_PROBLEM], printed=printed)
    items = value if isinstance(value, list) else [value]
    if len(items) > limits.values or not all(item is None or type(item) is float for item in items):
        return Outcome(error="result: not a number, None or a list of them", printed=printed)
    if not all(item is None or math.isfinite(item) for item in items):
        return Outcome(error="result: NaN or infinite; return None where there is no score", printed=printed)
    return Outcome(value, printed=printed)
