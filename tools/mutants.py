"""How much the tests see: flips one default, sign, comparison or number at a time, and runs the tests that execute it.

    python tools/mutants.py                     200 mutants of seed 0, in two processes
    python tools/mutants.py --count 20 --seed 3 --only credit
    python tools/mutants.py --log verdicts.txt  goes on where it was stopped
    python tools/mutants.py --seen seen.json    remembers which test executes which function

First the tests of these packages and the quick worked numbers of the atlas run once, unchanged; those that fail then
kill nothing. Every mutant is made in a copy of the sources, in a fork of this process, which has imported all but the
sources, and meets the tests that execute its function, the cheapest first, until one fails or 40 seconds of tests have
passed. Printed are the survivors, with file and line, and the share that was killed; exit code 1 if it is below 95 %. A
survivor is a test that is missing, or a change that nobody can observe: those stand in `equivalent.txt`, with the
reason, and do not count.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import hashlib
import itertools
import json
import os
import py_compile
import shutil
import signal
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "palaestra"
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
PACKAGES = (
    "foundation", "algebra", "credit", "rewards", "envs", "agents", "play", "evaluation", "teams", "judges", "learning",
    "runs", "interface", "testing",
)  # fmt: skip
LEFT_OUT = ("__init__.py", "logs", "files.py", "registry.py", "checkpoints.py", "journal.py", "progress.py")
"""Files whose changes these tests are not for: readers and files have faults injected on purpose."""
SIGNATURES = "tests/test_public_api.py"
"""The one test that sees a default without calling what has it."""
NUMBERS = "tests/atlas/reproductions/test_reproductions.py"
"""The worked numbers of the rows of the atlas, of which only quick ones are asked: they play most worlds."""
QUICK, LIMIT = 3.0, 40.0
"""Seconds of the checks of a row that is quick, by its evidence, and of all the tests that one mutant meets."""
FIRST = "test_frozen.py"
"""Files of tests that see most, and are asked before all others."""
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
}  # fmt: skip
SPELLED: dict[type, str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/",
}  # fmt: skip
Seen = dict[str, dict[str, Any]]
"""Of each file of tests its `hash`, what it executes before any test (`shared`), and of each test `[seconds, what]`."""


class Mutant(NamedTuple):
    """One change in a function: columns from `start` to `end` of a line become `now`."""

    path: str
    line: int
    start: int
    end: int
    was: str
    now: str
    function: str
    text: str

    def lot(self, seed: int) -> bytes:
        """Its place in the draw: its own, so that a seed draws the same again whatever is written around it."""
        what = f"{seed} {self.path} {self.function} {self.text} {self.was.strip()} {self.now.strip()} {self.start}"
        return hashlib.blake2b(what.encode(), digest_size=16).digest()

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.start}: {self.was.strip()} -> {self.now.strip()} | {self.text}"


def mutants_of(path: Path) -> list[Mutant]:
    """Every change of a file that this script knows how to make."""
    lines = path.read_bytes().splitlines()
    found: list[Mutant] = []

    def add(node: ast.expr, start: int, end: int, now: str, function: str) -> None:
        row = lines[node.lineno - 1]
        was = row[start:end].decode()
        if was.strip() != now.strip():
            name = str(path.relative_to(ROOT))
            found.append(Mutant(name, node.lineno, start, end, was, now, function, row.decode().strip()))

    def between(left: ast.expr, right: ast.expr, was: type, now: type, function: str) -> None:
        if left.end_lineno == right.lineno and left.end_col_offset is not None:
            gap = lines[right.lineno - 1][left.end_col_offset : right.col_offset].decode()
            if gap.count(SPELLED[was]) == 1:
                changed = gap.replace(SPELLED[was], SPELLED[now])
                add(right, left.end_col_offset, right.col_offset, changed, function)

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.Compare) and of_a_draw(node):
            pass  # a drawn number is never equal to another
        elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
            between(node.left, node.comparators[0], type(node.ops[0]), COMPARISONS[type(node.ops[0])], function)
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            sides = (node.left, node.right)
            if not any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in sides):
                between(*sides, type(node.op), OPERATORS[type(node.op)], function)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
            for default in [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]:
                if isinstance(default, ast.Constant) and default.end_col_offset is not None:
                    now = changed_default(default.value)
                    if now is not None and default.lineno == default.end_lineno:
                        add(default, default.col_offset, default.end_col_offset, now, function)
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(ast.parse(path.read_bytes()), "")
    return found


def of_a_draw(node: ast.Compare) -> bool:
    """Whether a side of a comparison is `rng.random(…)`."""
    calls = [each.func for each in (node.left, *node.comparators) if isinstance(each, ast.Call)]
    return any(isinstance(each, ast.Attribute) and each.attr == "random" for each in calls)


def changed_default(value: object) -> str | None:
    """Another default: the other truth value, one more, ten times as much."""
    if isinstance(value, bool):
        return str(not value)
    if isinstance(value, int):
        return str(value + 1)
    if isinstance(value, float):
        return repr(value * 10 if value else 1.0)
    return None


def test_files() -> list[str]:
    """The tests of these packages, and the examples in their docstrings."""
    found = [SIGNATURES, NUMBERS]
    for package in PACKAGES:
        for folder, pattern in ((ROOT / "tests" / package, "test_*.py"), (SOURCE / package, "*.py")):
            every = [path for path in folder.rglob(pattern) if "logs" not in path.parts]
            found += sorted(
                str(p.relative_to(ROOT)) for p in every if folder.parent != SOURCE or b">>> " in p.read_bytes()
            )
    return found


def quick_rows() -> list[str]:
    """The tests of worked numbers whose evidence says that they take less than `QUICK` seconds."""
    found = []
    for path in sorted((ROOT / "atlas" / "src" / "palaestra_atlas" / "evidence").glob("*.json")):
        checks = json.loads(path.read_text(encoding="utf-8"))["checks"]
        seconds = [check["seconds"] for check in checks if not check["seeds"]]
        if seconds and sum(seconds) < QUICK:
            found.append(f"{NUMBERS}::test_its_worked_numbers_hold[{int(path.stem)}]")
    return found


class Watch:
    """A plugin of pytest: which test executes which function of the sources, and how long it takes."""

    def __init__(self, copy: Path) -> None:
        self.root = f"{copy / 'src' / 'palaestra'}/"
        self.seen: Seen = defaultdict(lambda: {"shared": set(), "tests": {}})
        self.called: set[tuple[str, str]] = set()
        self._begin()

    def _begin(self) -> None:
        """Envs are played in threads, so those are watched too."""
        sys.settrace(self._trace)
        threading.settrace(self._trace)

    def _trace(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(self.root):
            self.called.add((code.co_filename, code.co_name))

    def _taken(self) -> set[str]:
        called = self.called.copy()
        self.called.clear()
        self._begin()  # somebody may have taken it away
        return {f"src/palaestra/{path[len(self.root) :]}::{name}" for path, name in called}

    def pytest_itemcollected(self, item: Any) -> None:
        """What its file executed until now belongs to all of its tests."""
        self.seen[item.nodeid.split("::")[0]]["shared"] |= self._taken()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """What a fixture executed belongs to all tests of the file, for it may be theirs too."""
        found = self.seen[report.nodeid.split("::")[0]]
        if report.when == "setup":
            found["shared"] |= self._taken()
            found["tests"][report.nodeid] = [0.0, set(), report.passed]
        test = found["tests"][report.nodeid]
        test[0] += report.duration
        test[1] |= self._taken()
        test[2] = test[2] and report.passed


def in_fork(copy: Path, task: Callable[[], int]) -> int:
    """Its process, in a copy of the project; what it prints is thrown away."""
    if child := os.fork():
        return child
    code = 70
    try:
        os.chdir(copy)
        folders = [str(copy / part) for part in ("", "src", "atlas/src")]
        sys.path[:0] = folders
        os.environ["PYTHONPATH"] = os.pathsep.join(folders[1:])
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        code = task()
    finally:
        os._exit(code)


def watch(copy: Path, files: list[str], to: Path) -> int:
    """Run these files unchanged and write what their tests execute."""
    import pytest

    plugin = Watch(copy)
    rows = quick_rows() if NUMBERS in files else []
    pytest.main(["-q", *(path for path in files if path != NUMBERS), *rows], plugins=[plugin])
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]
    for found in plugin.seen.values():
        found["shared"] = sorted(found["shared"])
        found["tests"] = {name: [t, sorted(what)] for name, (t, what, passed) in found["tests"].items() if passed}
    to.write_text(json.dumps(plugin.seen), encoding="utf-8")
    return 0


def collect(files: list[str]) -> int:
    """Import these tests once."""
    import pytest

    return int(pytest.main(["-q", "--collect-only", *files]))


def look(copies: list[Path], known: Seen) -> Seen:
    """What is known of files that are still the same, and what running the others shows."""
    hashes = {path: hashlib.sha256((ROOT / path).read_bytes()).hexdigest() for path in test_files()}
    hashes[NUMBERS] = hashlib.sha256(" ".join(quick_rows()).encode()).hexdigest()
    found = {path: known[path] for path in hashes if known.get(path, {}).get("hash") == hashes[path]}
    new = [path for path in hashes if path not in found]
    parts = [copy / "seen.json" for copy in copies]
    children = []
    for i, copy in enumerate(copies):
        if mine := new[i :: len(copies)]:
            children.append(in_fork(copy, lambda: watch(copy, mine, parts[i])))  # noqa: B023 (it runs here and now)
    for child in children:
        os.waitpid(child, 0)
    first = [path for path in hashes if path.endswith(FIRST)]
    for copy in copies:  # so that no fork compiles these again
        os.waitpid(in_fork(copy, lambda: collect(first)), 0)
    for path in filter(Path.exists, parts):
        found |= json.loads(path.read_text(encoding="utf-8"))
    return {path: found.get(path, {"shared": [], "tests": {}}) | {"hash": hashes[path]} for path in hashes}


def tests_for(mutant: Mutant, seen: Seen) -> list[list[tuple[float, str]]]:
    """The tests that execute the function, the likeliest files first; what is outside of one concerns them all."""
    place = f"{mutant.path}::{mutant.function}"
    found: dict[tuple[int, str], list[tuple[float, str]]] = defaultdict(list)
    if mutant.was[-1:].isalnum():
        found[0, ""] = [(0.0, name) for name in seen[SIGNATURES]["tests"]]
    for path, file in seen.items():
        shared = not mutant.function or place in file["shared"]
        near = len({*path.split("/")} & {*mutant.path.split("/")})
        step = (1, f"{9 - near}{path}") if path.endswith(FIRST) else (2, "")
        found[step] += [(seconds, name) for name, (seconds, what) in file["tests"].items() if shared or place in what]
    steps, left = [], LIMIT
    for step in sorted(found):
        tests = sorted(found[step])
        spent = list(itertools.accumulate(seconds for seconds, _ in tests))
        if asked := [test for test, until in zip(tests, spent, strict=True) if until <= left or test is tests[0]]:
            steps.append(asked)
            left -= spent[len(asked) - 1]
    return steps


def try_to_kill(mutant: Mutant, copy: Path, steps: list[list[tuple[float, str]]]) -> int:
    """The exit code of the tests with the change made; this runs in a fork."""
    import pytest

    sys.dont_write_bytecode = True  # what is on disk is of the sources before the change
    target = copy / mutant.path
    rows = target.read_bytes().splitlines(keepends=True)
    row = rows[mutant.line - 1]
    rows[mutant.line - 1] = row[: mutant.start] + mutant.now.encode() + row[mutant.end :]
    target.write_bytes(b"".join(rows))
    for tests in steps:
        signal.alarm(int(60 + 4 * sum(seconds for seconds, _ in tests)))
        names = [name for _, name in tests]
        code = pytest.main(["-x", "-q", *names])
        if code == pytest.ExitCode.USAGE_ERROR:  # a name of a test that is made from the sources
            code = pytest.main(["-x", "-q", *dict.fromkeys(name.split("::")[0] for name in names)])
        if code:
            return int(code)
    return 0


def run(drawn: list[Mutant], copies: list[Path], seen: Seen, say: Callable[[Mutant, bool], None]) -> None:
    """All of them, as many at once as there are copies."""
    free, left = list(copies), list(drawn)
    busy: dict[int, tuple[Mutant, Path, bytes]] = {}
    while left or busy:
        if left and free:
            mutant, copy = left.pop(0), free.pop()
            tests, before = tests_for(mutant, seen), (copy / mutant.path).read_bytes()
            child = in_fork(copy, lambda: try_to_kill(mutant, copy, tests))  # noqa: B023 (it runs here and now)
            busy[child] = (mutant, copy, before)
            continue
        child, status = os.wait()
        mutant, copy, before = busy.pop(child)
        (copy / mutant.path).write_bytes(before)
        free.append(copy)
        hung = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM  # which nobody would overlook
        if not hung and (not os.WIFEXITED(status) or os.WEXITSTATUS(status) not in (0, 1, 2)):
            raise RuntimeError(f"{mutant}: pytest ended with {status}")
        say(mutant, hung or os.WEXITSTATUS(status) != 0)


def equivalents() -> dict[tuple[str, str, str], str]:
    """Path, source line, change, reason, separated by ` | `: what nobody can observe, and why."""
    found = {}
    for line in filter(None, EQUIVALENT.read_text(encoding="utf-8").splitlines()):
        path, rest = line.split(" | ", 1)
        text, change, reason = rest.rsplit(" | ", 2)
        found[path, text, change] = reason
    return found


def main() -> int:
    """Draw, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="one package, or the part of a path")
    parser.add_argument("--log", type=Path, help="a file for the verdicts; those it holds already are kept")
    parser.add_argument(
        "--seen", type=Path, help="a file for what tests execute; only changed tests are looked at anew"
    )
    given = parser.parse_args()
    lines = given.log.read_text(encoding="utf-8").splitlines() if given.log and given.log.exists() else []
    verdicts = {line[9:]: line.startswith("killed") for line in lines}
    files = [path for package in PACKAGES for path in sorted((SOURCE / package).rglob("*.py"))]
    files = [path for path in files if not any(part in LEFT_OUT for part in path.parts) and given.only in str(path)]
    every = [mutant for path in files for mutant in mutants_of(path)]
    drawn = sorted(every, key=lambda mutant: mutant.lot(given.seed))[: given.count]
    print(f"{len(drawn)} of {len(every)} mutants in {len(files)} files", flush=True)

    def say(mutant: Mutant, dead: bool) -> None:
        verdicts[str(mutant)] = dead
        line = f"{'killed  ' if dead else 'SURVIVED'} {mutant}"
        print(line, flush=True)
        if given.log:
            with given.log.open("a", encoding="utf-8") as log:
                log.write(line + "\n")

    os.environ["OMP_NUM_THREADS"] = "1"
    for name in ("numpy", "scipy.stats", "scipy.optimize", "torch", "pytest", "hypothesis", "networkx"):
        import_module(name)  # every fork has them; polars starts threads, which a fork would not have

    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(folder) / str(number) for number in range(given.jobs)]
        for copy in copies:
            copy.mkdir()
            for part in ("src", "atlas", "tests", "pyproject.toml", "benchmarks", "examples", "docs", "README.md"):
                put = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
                put(ROOT / part, copy / part)
            compiled = py_compile.PycInvalidationMode.CHECKED_HASH  # a change of one character may keep size and time
            for part in ("src", "atlas/src"):
                compileall.compile_dir(copy / part, quiet=1, invalidation_mode=compiled)
        known = json.loads(given.seen.read_text(encoding="utf-8")) if given.seen and given.seen.exists() else {}
        seen = look(copies, known)
        if given.seen:
            given.seen.write_text(json.dumps(seen), encoding="utf-8")
        run([mutant for mutant in drawn if str(mutant) not in verdicts], copies, seen, say)

    alive = sorted(mutant for mutant in drawn if not verdicts[str(mutant)])
    reasons = equivalents()
    excused = {
        m: reasons[key] for m in alive if (key := (m.path, m.text, f"{m.was.strip()} -> {m.now.strip()}")) in reasons
    }
    survivors = [mutant for mutant in alive if mutant not in excused]
    share = 1 - len(survivors) / max(len(drawn) - len(excused), 1)
    print(f"\nnobody can observe {len(excused)}:")
    for mutant, reason in excused.items():
        print(f"  {mutant}: {reason}")
    every_share = 1 - len(alive) / max(len(drawn), 1)
    print(f"killed {share:.1%} of {len(drawn) - len(excused)} ({every_share:.1%} of all {len(drawn)}); survivors:")
    for mutant in survivors:
        print(f"  {mutant}")
    return int(share < 0.95)


if __name__ == "__main__":
    sys.exit(main())
