"""How much the tests see: flips one default, sign, comparison or number at a time, and runs the tests for it.

    python tools/mutants.py                     200 mutants of seed 0, in two processes
    python tools/mutants.py --count 20 --seed 3 --only credit
    python tools/mutants.py --log verdicts.txt  goes on where it was stopped

Every mutant is made in a copy of the sources, so the checkout stays as it is. Printed are the survivors, with file and
line, and the share that was killed; exit code 1 if it is below 95 %. A survivor is a test that is missing, or a change
that nobody can observe: look at each.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "palaestra"
PACKAGES = ("algebra", "credit", "rewards", "evaluation", "learning")
LEFT_OUT = ("__init__.py", "logs", "files.py", "registry.py", "checkpoints.py", "journal.py", "progress.py")
"""Files whose changes these tests are not for: readers and files have faults injected on purpose."""
NO_TESTS = 5
"""What pytest says where nothing was collected."""
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


class Mutant(NamedTuple):
    """One change: columns from `start` to `end` of a line become `now`."""

    path: Path
    line: int
    start: int
    end: int
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.was.strip()} -> {self.now.strip()}"


def mutants_of(path: Path) -> list[Mutant]:
    """Every change of a file that this script knows how to make."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    found: list[Mutant] = []

    def add(line: int, start: int, end: int, now: str) -> None:
        raw = lines[line - 1].encode()
        was = raw[start:end].decode()
        if was.strip() and was.strip() != now.strip():
            found.append(Mutant(path, line, start, end, was, now))

    def between(left: ast.expr, right: ast.expr, was: type, now: type) -> None:
        if left.end_lineno == right.lineno and left.end_col_offset is not None:
            gap = lines[right.lineno - 1].encode()[left.end_col_offset : right.col_offset].decode()
            if gap.count(SPELLED[was]) == 1:
                changed = gap.replace(SPELLED[was], SPELLED[now])
                add(right.lineno, left.end_col_offset, right.col_offset, changed)

    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
            between(node.left, node.comparators[0], type(node.ops[0]), COMPARISONS[type(node.ops[0])])
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            if not any(
                isinstance(each, ast.Constant) and isinstance(each.value, str) for each in (node.left, node.right)
            ):
                between(node.left, node.right, type(node.op), OPERATORS[type(node.op)])
        elif isinstance(node, ast.FunctionDef):
            defaults = [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]
            for default in defaults:
                if isinstance(default, ast.Constant) and default.end_col_offset is not None:
                    now = changed_default(default.value)
                    if now is not None and default.lineno == default.end_lineno:
                        add(default.lineno, default.col_offset, default.end_col_offset, now)
    return found


def changed_default(value: object) -> str | None:
    """Another default: the other truth value, one more, ten times as much."""
    if isinstance(value, bool):
        return str(not value)
    if isinstance(value, int):
        return str(value + 1)
    if isinstance(value, float):
        return repr(value * 10 if value else 1.0)
    return None


def tests_for(path: Path) -> list[list[str]]:
    """What may notice, the nearest first: the mirrored file; the snapshot of the API, the folder, what holds of all."""
    inner = path.relative_to(SOURCE)
    folder = ROOT / "tests" / inner.parent
    while not folder.exists():
        folder = folder.parent
    mirrored = ROOT / "tests" / inner.parent / f"test_{inner.stem}.py"
    others = [each for each in sorted(folder.glob("test_*.py")) if each != mirrored]
    if inner.parts[0] in ("credit", "rewards") and (every := ROOT / "tests/credit/test_invariants.py") not in others:
        others.append(every)
    near = [str(mirrored.relative_to(ROOT))] if mirrored.exists() else []
    return [
        [*near, f"src/palaestra/{inner}"],
        ["tests/test_public_api.py", *(str(each.relative_to(ROOT)) for each in others)],
    ]


def killed(mutant: Mutant, copy: Path) -> bool:
    """Whether a test fails when the change is made in this copy of the project."""
    target = copy / mutant.path.relative_to(ROOT)
    original = target.read_bytes()
    rows = original.splitlines(keepends=True)
    row = rows[mutant.line - 1]
    rows[mutant.line - 1] = row[: mutant.start] + mutant.now.encode() + row[mutant.end :]
    target.write_bytes(b"".join(rows))
    environment = os.environ | {"PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        for tests in filter(None, tests_for(mutant.path)):
            command = [sys.executable, "-m", "pytest", "-x", "-q", *tests]
            done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=900)
            if done.returncode not in (0, 1, 2, NO_TESTS):
                raise RuntimeError(f"{mutant}: pytest ended with {done.returncode}: {done.stdout.decode()[-500:]}")
            if done.returncode in (1, 2):
                return True
    except subprocess.TimeoutExpired:
        return True  # it hangs, which nobody would overlook
    finally:
        target.write_bytes(original)
    return False


def main() -> int:
    """Draw, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="one package, or the part of a path")
    parser.add_argument("--log", type=Path, help="a file for the verdicts; those it holds already are kept")
    given = parser.parse_args()
    lines = given.log.read_text(encoding="utf-8").splitlines() if given.log and given.log.exists() else []
    known = {line[9:]: line.startswith("killed") for line in lines}
    files = [path for package in PACKAGES for path in sorted((SOURCE / package).rglob("*.py"))]
    files = [path for path in files if not any(part in LEFT_OUT for part in path.parts) and given.only in str(path)]
    every = [mutant for path in files for mutant in mutants_of(path)]
    drawn = random.Random(given.seed).sample(every, min(given.count, len(every)))
    print(f"{len(drawn)} of {len(every)} mutants in {len(files)} files", flush=True)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        copies = []
        for number in range(given.jobs):
            copies.append(Path(folder) / str(number))
            copies[-1].mkdir()
            for part in ("src", "tests", "pyproject.toml", "benchmarks", "examples", "docs", "README.md"):
                put = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
                put(ROOT / part, copies[-1] / part)

        def work(number: int) -> list[tuple[Mutant, bool]]:
            found = []
            for mutant in drawn[number :: given.jobs]:
                found.append((mutant, known[str(mutant)] if str(mutant) in known else killed(mutant, copies[number])))
                line = f"{'killed  ' if found[-1][1] else 'SURVIVED'} {mutant}"
                print(line, flush=True)
                if given.log and str(mutant) not in known:
                    with given.log.open("a", encoding="utf-8") as log:
                        log.write(line + "\n")
            return found

        results = [each for part in pool.map(work, range(given.jobs)) for each in part]
    survivors = [mutant for mutant, dead in results if not dead]
    share = 1 - len(survivors) / max(len(results), 1)
    print(f"\nkilled {share:.1%} of {len(results)}; survivors:")
    for mutant in sorted(survivors):
        print(f"  {mutant}")
    return int(share < 0.95)


if __name__ == "__main__":
    sys.exit(main())
