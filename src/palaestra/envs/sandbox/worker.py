"""Parent of the processes in which reward programs run: `python worker.py SCRATCH`, calls on stdin, answers on stdout.

The worker imports what the program may import, then forks one child for each call (for each key, if there is a
memory). Rows and answers pass from file to file inside the kernel (`sendfile`): the worker never holds them, so no
child can find another's row in its memory, and nothing that a child does reaches the answers to other rows.

A record on stdin is a head of 16 characters, its kind and its size, then its bytes. The first is the job, the others
are rows: `+` in a new child, `.` in the same child as the row before. Records on stdout have the same form: `h` (which
layers hold), then for each row `a` (a child's answer, to be trusted in nothing) or `d` (how the child died), and `e`
(why the rows that are left are not called).
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import runpy
import select
import signal
import sys
import time
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
INPUT, OUTPUT, ERRORS, GO, DONE = range(5)
"""Files of a child."""
ENDING = 500
"""Milliseconds that a child has to end after it closed its pipe."""


class RowProcess:
    """Forked child process that answers the calls of one key, a row of arguments at a time, in `cpu` CPU seconds.

    Attributes:
        pid: Its number.
        given: File in which it finds a row.
        answered: File in which it writes its answers.
        taken: Bytes of `answered` that belong to earlier rows.
        death: How it died; empty if that is only known once it was waited for, None as long as it answers.
    """

    def __init__(self, run: Any, cpu: int) -> None:
        self.given, self.answered = os.memfd_create("given"), os.memfd_create("answered")
        (go, self._go), (self._done, done) = os.pipe(), os.pipe()
        self.taken = 0
        self.death: str | None = None
        self.pid = os.fork()
        if not self.pid:
            try:
                keep(self.given, self.answered, go, done)
                run(cpu)
            finally:
                os._exit(1)
        os.close(go)
        os.close(done)

    def call(self, size: int, wall: float) -> int | None:
        """Hand over the next `size` bytes of stdin as a row and wait for the answer.

        Returns:
            Size of the answer in bytes, None if the child died or took longer than `wall` seconds.
        """
        os.ftruncate(self.given, 0)
        os.lseek(self.given, 0, os.SEEK_SET)
        send(self.given, 0, size)
        with contextlib.suppress(BrokenPipeError):
            os.write(self._go, b".")
        late = not select.select([self._done], [], [], wall)[0]
        if late or not os.read(self._done, 1):
            self.death = f"time: no answer within {wall:g} s" if late else ""
            return None
        return max(os.fstat(self.answered).st_size - self.taken, 0)

    def take(self, size: int) -> None:
        """Copy the latest answer of `size` bytes to stdout."""
        send(1, self.answered, size, self.taken)
        self.taken += size

    def stop(self, cpu: int) -> None:
        """End the child; one that closed its pipe gets time to exit, so that its exit code is known."""
        for _ in range(ENDING if self.death == "" else 0):
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                break
            time.sleep(0.001)
        else:
            self.death = self.death if self.death != "" else "died: closed its pipe to the worker"
        os.kill(self.pid, signal.SIGKILL)  # not waited for yet, so its number is still its own
        _, status = os.waitpid(self.pid, 0)
        self.death = self.death or _described(os.waitstatus_to_exitcode(status), cpu)
        for file in (self.given, self.answered, self._go, self._done):
            os.close(file)


def _described(code: int, cpu: int) -> str:
    if code in (-signal.SIGKILL, -signal.SIGXCPU):
        return f"killed: more than {cpu} s of CPU time, or more memory than the machine has"
    return f"died: signal {-code}" if code < 0 else f"died: exit code {code} without an answer"


def keep(*files: int) -> None:
    """Moves four file descriptors to the child's input, output, GO and DONE, and closes all others but stderr."""
    high = [os.dup2(file, 64 + number) for number, file in enumerate(files)]
    for file, place in zip(high, (INPUT, OUTPUT, GO, DONE), strict=True):
        os.dup2(file, place)
    os.closerange(DONE + 1, 256)


def send(to: int, source: int, size: int, offset: int | None = None) -> None:
    """Copies `size` bytes from one file descriptor to another in the kernel; EOFError if the source ends early."""
    while size:
        sent = os.sendfile(to, source, offset, size)
        if not sent:
            raise EOFError("a file of the sandbox is shorter than it should be")
        size, offset = size - sent, None if offset is None else offset + sent


def read(size: int) -> bytes:
    """Reads exactly `size` bytes of stdin, unbuffered; fewer at its end."""
    found = b""
    while len(found) < size and (more := os.read(0, size - len(found))):
        found += more
    return found


def tell(kind: str, text: str) -> None:
    """Writes a record (header with kind and length, then text) to stdout, which the caller reads."""
    record = text.encode()
    record = f"{kind}{len(record):15d}".encode() + record
    while record:
        record = record[os.write(1, record) :]


def main() -> None:
    """Entry point of the sandbox's worker process: reads the job from stdin, drops its rights, answers the calls."""
    job = json.loads(read(int(read(16)[1:])))
    sys.path += job["path"]
    sys.stdout = sys.stderr = io.StringIO()  # whatever a module prints when it is imported is no answer
    confine = runpy.run_path(os.path.join(HERE, "confine.py"))
    offered = runpy.run_path(os.path.join(HERE, "offers.py"))["offer"](job["modules"])
    program = runpy.run_path(os.path.join(HERE, "program.py"))
    limits, layers = job["limits"], tuple(job["layers"])
    memory = confine["address_space"]() + limits["memory"]
    namespaces = confine["enter"](sys.argv[1], layers=layers)

    def lock(cpu: int) -> bool:
        return bool(confine["lock"](cpu=cpu, memory=memory, output=limits["output"], layers=layers))

    holds = {"namespaces": namespaces, "seccomp": _try(lock)}
    tell("h", json.dumps(holds))
    if any(holds[layer] for layer in job["needs"]):
        gc.freeze()  # a child copies no page only because it counted references there
        serve(job, lambda cpu: program["run"](job, offered, lambda: lock(cpu)))


def _try(lock: Any) -> bool:
    """Whether seccomp holds in a child."""
    pid = os.fork()
    if not pid:
        os._exit(not lock(1))
    return os.waitpid(pid, 0)[1] == 0


def serve(job: dict[str, Any], run: Any) -> None:
    """Answers all calls of a job from stdin, with one forked child process per key, until stdin ends."""
    limits = job["limits"]
    cpu, output, longest = limits["cpu"], limits["output"], job["longest"]
    child: RowProcess | None = None
    dead: str | None = None
    deaths, written = 0, 0
    while head := read(16):
        kind, size = head[:1], int(head[1:])
        if kind == b"+":
            if child:
                child.stop(cpu)
            child, dead = None, None
        if dead is not None:
            os.lseek(0, size, os.SEEK_CUR)
            tell("d", f"not called: the worker died in this key ({dead})")
            continue
        if deaths >= limits["deaths"]:
            tell("e", f"given up after {deaths} workers died")
            break
        child = child or RowProcess(run, cpu)
        answer = child.call(size, limits["wall"])
        if answer is None:
            child.stop(cpu)
            dead, child, deaths = child.death, None, deaths + 1
            tell("d", dead or "")
        elif answer > longest:
            tell("a", "")
            child.taken += answer
        elif written + answer > output:
            tell("e", f"output: more than {output} bytes of answers")
            break
        else:
            os.write(1, f"a{answer:15d}".encode())
            child.take(answer)
            written += answer
    if child:
        child.stop(cpu)


if __name__ == "__main__":
    main()
