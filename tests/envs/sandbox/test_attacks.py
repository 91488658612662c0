"""Programs that try to get out, to stay, to look around or to bring the caller down. Each must end as one outcome.

Most run without the screen, so that what is tested is the lock and not the list of words.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from palaestra.envs.sandbox import CallOutcome, Limits, run_program, run_table
from palaestra.envs.sandbox import process as process_module

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing untrusted runs elsewhere")

SHORT = Limits(cpu=2, wall=0.4, memory=64 * 2**20, values=100, output=2**20)
PATIENT = replace(SHORT, wall=30.0)
"""For what ends by itself, which on a busy machine may take longer than 0.4 s."""
SECRET = "hunter2-the-key-of-the-house"


def workers(directory: Path) -> set[int]:
    """Processes that still run with a scratch directory below this one, whoever their parent is now."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if bytes(directory) in command and state != "Z":
                found.add(int(entry.name))
    return found


@pytest.fixture(autouse=True)
def nobody_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PALAESTRA_TEST_KEY", SECRET)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "canary").write_text(SECRET)
    tmp_path.chmod(0o755)
    yield
    assert not workers(tmp_path), "a worker is left behind"
    assert [path.name for path in tmp_path.iterdir()] == ["canary"], "a file is left behind"
    assert (tmp_path / "canary").read_text() == SECRET


def attack(body: str, *, screened: bool = False, limits: Limits = PATIENT) -> CallOutcome:
    source = "def reward():\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ")
    outcome = run_program(source, "reward", limits=limits, screened=screened)
    assert SECRET not in repr(outcome)
    assert (outcome.error is None) or outcome.value is None
    return outcome


def alive() -> None:
    """The caller goes on."""
    assert run_program("def reward(x): return x + 1", "reward", [1]).value == 2.0


CANARY = "{canary}"
LOCKED = {
    "read a file": (f"return len(open('{CANARY}').read())", "Permission|No such file|Too many"),
    "read a file after closing one": (
        "import os\nos.close(0)\nreturn len(open('/etc/passwd').read())",
        "Permission|No such file",
    ),
    "read a password file": ("import os\nreturn os.open('/etc/passwd', 0)", "Permission|No such file|Too many"),
    "write a file": (f"open('{CANARY}', 'w').write('owned')", "Permission|No such file|Too many"),
    "delete a file": (f"import os\nos.remove('{CANARY}')", "Permission|No such file"),
    "write into the scratch directory": ("open('notes', 'w').write('x')", "Permission|Too many"),
    "follow a link": (f"import os\nos.symlink('{CANARY}', 'link')\nopen('link').read()", "Permission|Too many"),
    "list the root": ("import os\nos.listdir('/')", "Permission|Too many"),
    "climb out of the root": (
        "import os\nos.mkdir('x')\nos.chroot('x')\nfor _ in range(9): os.chdir('..')\nos.chroot('.')",
        "Permission",
    ),
    "read the caller's environment": (
        "import os\nreturn len(open(f'/proc/{os.getppid()}/environ').read())",
        "Permission|No such file|Too many",
    ),
    "read its own environment": ("import os\nraise ValueError(sorted(os.environ))", "ValueError.*PYTHONHASHSEED"),
    "read /proc/self/maps": ("open('/proc/self/maps').read()", "Permission|No such file|Too many"),
    "open a socket": ("import socket\nsocket.socket()", "Permission|Too many"),
    "open a socket after closing a file": (
        "import os, socket\nos.close(0)\nsocket.socket().connect(('127.0.0.1', 22))",
        "Permission|Network is unreachable",
    ),
    "fork": ("import os\nos.fork()", "Permission|temporarily unavailable"),
    "fork bomb": ("import os\nwhile True: os.fork()", "Permission|temporarily unavailable"),
    "fork and leave the group": (
        "import os\nif os.fork() == 0:\n    os.setsid()\n    while True: pass",
        "Permission|temporarily unavailable",
    ),
    "start a program": ("import subprocess\nsubprocess.run(['/bin/sh'])", "Permission|temporarily|Too many"),
    "become a program": ("import os\nos.execv('/bin/sh', ['sh'])", "Permission|No such file"),
    "start a thread": ("import threading\nthreading.Thread(target=print).start()", "can't start new thread"),
    "kill the caller": ("import os\nos.kill(os.getppid(), 9)", "Permission|No such process"),
    "kill everybody": ("import os\nos.kill(-1, 9)", "Permission|No such process"),
    "raise its own limits": (
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (10**6, 10**6))",
        "Permission|not allowed|exceed",
    ),
    "become root": ("import os\nos.setresuid(0, 0, 0)", "Permission"),
    "call the kernel": (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nassert libc.syscall(41, 2, 1, 0) >= 0",
        "AssertionError",
    ),
    "make a file in memory": ("import os\nos.memfd_create('x')", "Permission|Too many"),
    "pipe to itself": ("import os\nos.pipe()", "Permission|Too many"),
}
ENDLESS = {
    "loop": "while True: pass",
    "sleep": "import time\ntime.sleep(1000)",
    "refuse to be stopped": """
        import signal
        for number in range(1, 65):
            try: signal.signal(number, lambda *a: None)
            except (OSError, ValueError): pass
        while True: pass
    """,
    "swallow every exception": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "wait for input": "import sys\nimport time\nwhile True: sys.stdin.read(), time.sleep(.01)",
    "catastrophic regular expression": "import re\nreturn re.match('(a+)+$', 'a' * 40 + 'b')",
    "huge integer": "return 7 ** (10 ** 9)",
    "sort for ever": "return sorted(range(10**9), key=lambda x: -x)",
}
FATAL = {
    "memory": ("return [bytearray(2**20) for _ in range(10**6)]", "Memory|died|killed"),
    "memory at once": ("return len('x' * 2**40)", "Memory"),
    "integer too long for a number": ("return 10 ** 5000", "OverflowError"),
    "deep recursion": ("def f(): return f()\nreturn f()", "RecursionError"),
    "recursion without a limit": (
        "import sys\nsys.setrecursionlimit(10**9)\nf = lambda: f()\nreturn f()",
        "died: signal 11|Memory|RecursionError|time",
    ),
    "close every file": (
        "import os\nfor i in range(99):\n    try: os.close(i)\n    except OSError: pass",
        "died: exit",
    ),
    "close the pipe to the worker": ("import os, time\nos.close(4)\ntime.sleep(99)", "^died: closed its pipe"),
    "leave": ("import os\nos._exit(0)", "died: exit code 0"),
    "raise SystemExit": ("raise SystemExit(0)", "SystemExit"),
    "crash": ("import ctypes\nctypes.string_at(0)", "died: signal"),
    "forge the answer with text": (
        "import os\nos.write(1, b'all is well\\n')\nos.write(4, b'.')\nos._exit(0)",
        "answer is not one",
    ),
    "forge the answer with depth": (
        "import os\nos.write(1, b'[' * 100000 + b'\\n')\nos.write(4, b'.')\nos._exit(0)",
        "answer is not one",
    ),
    "forge the answer with an object": (
        'import os\nos.write(1, b\'[{"a": 1}, null, ""]\\n\')\nos.write(4, b".")\nos._exit(0)',
        "not a number",
    ),
    "forge infinity": (
        "import os\nos.write(1, b'[1e999, null, \"\"]\\n')\nos.write(4, b'.')\nos._exit(0)",
        "NaN or infinite",
    ),
    "answer with a pickle": (
        "import os, pickle\nos.write(1, pickle.dumps(print) + b'\\n')\nos.write(4, b'.')\nos._exit(0)",
        "answer is not one",
    ),
    "drip bytes": ("import os, time\nfor _ in range(99):\n    os.write(1, b' ')\n    time.sleep(.05)", "^time"),
    "answer with a huge line": (
        "import os\nos.write(1, b'[[' + b'1.5,' * 10**5 + b'1.5], null, \"\"]\\n')\nos.write(4, b'.')\nos._exit(0)",
        "answer is not one",
    ),
    "write beyond the end": ("import os\nos.lseek(1, 2**40, 0)\nos.write(1, b'x')", "died|File too large"),
    "load what opens a window": ("import antigravity", "ModuleNotFoundError|Operation not permitted"),
    "an old way into the kernel": (
        """
        import ctypes, mmap
        code = mmap.mmap(-1, 4096, prot=7)
        code.write(bytes.fromhex('b814000000cd80c3'))  # getpid of i386
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
        """,
        "died: signal",
    ),
    "share memory with nobody": (
        "import mmap\nreturn len([mmap.mmap(-1, 2**24) for _ in range(99)])",
        "Memory|Cannot allocate",
    ),
    "stop instead of ending": ("import os\nos.kill(os.getpid(), 19)", "Permission"),
    "fill the disk": ("import os\nwhile True: os.write(1, b'x' * 2**16)", "File too large|died|not one"),
    "return nan": ("return float('nan')", "NaN or infinite"),
    "return infinity in a list": ("return [1.0, float('inf')]", "NaN or infinite"),
    "return an object": ("return object()", "returned object"),
    "return text": ("return '1.0'", "returned str"),
    "return a huge list": ("return [0.0] * 10**6", "limit is 100"),
    "return nested lists": ("return [[1.0]]", "list with list"),
    "return a lying list": (
        """
        class L(list):
            def __len__(self): return 1
            def __iter__(self):
                while True: yield 1.0
        return L()
        """,
        "time|Memory|killed",
    ),
    "raise an error that cannot be shown": (
        "class E(Exception):\n    def __str__(self): raise self\nraise E()",
        r"E: \?",
    ),
}


@pytest.mark.parametrize("name", list(LOCKED))
def test_the_lock_refuses(name: str, tmp_path: Path) -> None:
    body, expected = LOCKED[name]
    outcome = attack(body.replace(CANARY, str(tmp_path / "canary")))
    assert outcome.error is not None
    assert re.search(expected, outcome.error), outcome


@pytest.mark.parametrize("layer", ["namespaces", "seccomp"])
@pytest.mark.parametrize(
    "name",
    [
        "read a file after closing one",
        "delete a file",
        "open a socket after closing a file",
        "fork",
        "climb out of the root",
    ],
)
def test_each_layer_alone_keeps_from_files_network_and_processes(
    name: str, layer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not process_module.containment()[layer]:
        pytest.skip(f"{layer}: not on this machine")
    monkeypatch.setattr(process_module, "LAYERS", (layer,))
    monkeypatch.setattr(process_module, "NEEDED", (layer,))
    test_the_lock_refuses(name, tmp_path)


@pytest.mark.parametrize("name", list(ENDLESS))
def test_the_endless_end(name: str) -> None:
    start = time.monotonic()
    outcome = attack(ENDLESS[name], limits=SHORT)
    assert outcome.error is not None
    assert outcome.error.startswith(("time:", "killed:", "Memory")), outcome
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("name", list(FATAL))
def test_what_is_fatal_is_an_error_row(name: str) -> None:
    body, expected = FATAL[name]
    outcome = attack(body, limits=SHORT if "time" in expected else PATIENT)
    assert outcome.error is not None
    assert re.search(expected, outcome.error), outcome


def test_cpu_time_is_limited_whatever_the_clock_says() -> None:
    outcome = attack("while True: pass", limits=Limits(cpu=1, wall=30.0))
    assert outcome.error == "killed: more than 1 s of CPU time, or more memory than the machine has"


def test_printing_for_ever_keeps_a_little() -> None:
    source = "def reward():\n    for i in range(10**5): print('x' * 100)\n    return 1.0"
    outcome = run_program(source, "reward", limits=Limits(printed=50))
    assert (outcome.value, outcome.printed) == (1.0, "x" * 50)


def test_lines_without_number_cost_the_caller_little_more_than_their_bytes() -> None:
    body = "import os\nfor _ in range(64): os.write(1, b'ab\\n' * 2**18)\nos.write(4, b'.')\nos._exit(0)"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert attack(body, limits=Limits(cpu=5)).error == "result: the answer is not one"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 250 * 1024, "kilobytes"


def test_half_characters_stay_out_of_tables() -> None:
    assert attack("raise ValueError('\\ud800!')", screened=True).error == "ValueError: ?! (line 2)"
    assert attack("print('\\ud800!')\nreturn 1.0", screened=True) == CallOutcome(1.0, printed="?!\n")


LOOK = """
import ctypes, gc, os, sys
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_void_p
def memory_at(start):
    # 256 KiB, page by page through a file: the kernel refuses a page that is not there, where a read would be the end
    found = []
    for page in range(start & ~4095, (start & ~4095) + 2**18, 4096):
        os.lseek(0, 0, 0)
        if libc.write(0, ctypes.c_void_p(page), 4096) == 4096:
            os.lseek(0, 0, 0)
            found.append(os.read(0, 4096))
    return b"".join(found).decode("latin-1")
def reward(text):
    os.lseek(0, 0, 0)
    found = [os.read(0, 10**6).decode(), repr(sys.stdin.read()), repr(gc.get_objects())]
    frame = sys._getframe()
    while frame:
        found.append(repr(frame.f_locals))
        frame = frame.f_back
    heaps = [memory_at(libc.sbrk(0) - 2**18), memory_at(id(text) - 2**17)]  # of C and of Python
    assert len(heaps[0]) > 2**16 and text in heaps[1]
    return [float(f"row {n} " + "of the table" in " ".join(found + heaps)) for n in range(3)]
"""


def test_a_program_finds_no_row_but_its_own_in_its_whole_process() -> None:
    """Unscreened, so that it needs no way around the screen to look into memory."""
    calls = [[f"row {n} of the table"] for n in range(3)]
    found = run_table(LOOK, "reward", calls, screened=False, limits=Limits(printed=10))
    assert [outcome.value for outcome in found] == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


def test_a_call_of_a_key_is_not_there_before_the_call_before_was_answered() -> None:
    calls = [[f"row {n} of the table"] for n in range(3)]
    source = LOOK.replace("reward(text)", "reward(text, memory)")
    found = run_table(source, "reward", calls, keys=[0, 0, 0], screened=False)
    seen = [outcome.value for outcome in found]
    assert [row[n] for n, row in enumerate(seen)] == [1.0, 1.0, 1.0]
    assert [row[n + 1 :] for n, row in enumerate(seen)] == [[0.0, 0.0], [0.0], []]


@pytest.mark.parametrize("keys", [None, [0, 1, 2]])
def test_a_program_that_rewrites_its_process_does_not_answer_other_rows(keys: list[int] | None) -> None:
    source = """
import json, os, sys
def reward(x, *memory):
    if x == 0:
        json.JSONEncoder.encode = lambda *a: "[9.0, null, 'forged']"
        json.dumps = lambda *a: '[9.0, null, ""]'
        sys._getframe(1).f_globals["plain"] = lambda *a: 9.0
        for _ in range(3):
            os.write(1, b'[9.0, null, ""]\\n')
            os.write(4, b".")
        while True: pass
    return x
"""
    found = run_table(source, "reward", [[0], [1], [2]], keys=keys, screened=False, limits=SHORT)
    assert found[1:] == [CallOutcome(1.0), CallOutcome(2.0)]


def test_a_terminal_is_not_steered() -> None:
    body = "raise ValueError('\\x1b]0;owned\\x07\\u202e\\x9b31m')"
    assert attack(body, screened=True).error == r"ValueError: \x1b]0;owned\x07\u202e\x9b31m (line 2)"
    assert attack("print('\\x1b[2J\\tx')\nreturn 1.0", screened=True).printed == "\\x1b[2J\tx\n"


@pytest.mark.parametrize("screened", [True, False])
def test_what_is_printed_is_no_answer(screened: bool) -> None:
    """Not even where it looks like one, or is more than fits into a buffer."""
    source = "def reward(x):\n    print('[9.0, null, \"\"]\\n' * 1000)\n    return x"
    found = run_table(source, "reward", [[0], [1], [2]], limits=Limits(printed=3), screened=screened)
    assert found == [CallOutcome(value, printed="[9.") for value in (0.0, 1.0, 2.0)]


def test_a_hostile_text_warns_nobody(recwarn: pytest.WarningsRecorder) -> None:
    """Python warns, once for each, of what is odd in a text that it parses; that is the caller's stderr."""
    assert run_program("x = [" + "1if 1else 0, " * 500 + "]\ndef reward(): return 1 is 1", "reward").value == 1.0
    assert not recwarn


def test_the_caller_goes_on() -> None:
    for body in (FATAL["crash"][0], LOCKED["fork bomb"][0], ENDLESS["refuse to be stopped"]):
        attack(body)
        alive()


def test_without_seccomp_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "LAYERS", ("namespaces",))
    found = run_table("def reward(x): return x", "reward", [[1.0], [2.0]])
    assert [outcome.value for outcome in found] == [None, None]
    assert found[0].error is not None
    assert found[0].error.startswith("sandbox: there is no seccomp")
    assert found[0].blocked


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_ordinary_user_is_as_safe() -> None:
    """The same worker, started by a user without rights."""
    code = textwrap.dedent("""
        import sys, types
        package = types.ModuleType("palaestra"); package.__path__ = [sys.argv[1]]
        sys.modules["palaestra"] = package  # the package itself takes a second to import
        from palaestra.envs.sandbox import containment, run_program
        print(containment())
        for body in ("open('/etc/passwd')", "import os; os.fork()", "import socket; socket.socket()"):
            print(run_program(f"def r():\\n  {body}", "r", screened=False).error)
        print(run_program("def r(): return 1.0", "r"))
    """)
    package = str(process_module.WORKER.parents[1])
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, package], user=12345, group=12345, extra_groups=[], cwd="/", text=True,
            capture_output=True, env={"TMPDIR": "/tmp", "OMP_NUM_THREADS": "1"}, check=False,
        )  # fmt: skip
    except PermissionError:
        pytest.skip("this Python lies where only root can run it")
    assert done.returncode == 0, done.stderr
    layers, *errors, last = done.stdout.splitlines()
    assert "True" in layers
    assert all("Errno" in error for error in errors), done.stdout
    assert last == "Outcome(value=1.0, error=None, printed='')"
