"""Mutated logs: nothing may crash without naming the file. `python tests/evaluation/logs/fuzz.py 10000` runs them."""

from __future__ import annotations

import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from palaestra.errors import InputError
from palaestra.evaluation import trials
from palaestra.evaluation.logs import read_logs

BITS = (b"null", b"-1", b"1e999", b"NaN", b"{}", b"[]", b'""', b'"\\ud800"', b"9" * 400, b"\x00", b"\xff", b"[" * 3000)


@dataclass
class Done:
    """read: files that gave rows; named: files of which something was named as unreadable."""

    read: int = 0
    named: int = 0
    crashes: list[str] = field(default_factory=list)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """A few changes of the kind that disks, networks, editors and other versions make."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(len(changed) + 1)
        length = min(rng.choice((1, 2, 8, 64, 512)), len(changed) - at)
        kind = rng.randrange(7)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[at : at + length]
        elif kind == 2:
            changed[at:at] = changed[at : at + length]
        elif kind == 3:
            changed[at : at + length] = rng.randbytes(length)
        elif kind == 4:
            changed[at:at] = rng.choice(BITS)
        elif kind == 5:
            del changed[at:]
        else:  # one value of JSON by another
            end = next((i for i in range(at, min(at + 200, len(changed))) if changed[i] in b",}]"), at)
            start = max(changed.rfind(b":", 0, at), changed.rfind(b",", 0, at), 0) + 1
            changed[start : max(end, start)] = rng.choice(BITS)
    return bytes(changed)


def replace_somewhere(value: Any, draw: Callable[[int], int], by: Any) -> None:
    """Put `by` in the place of one value inside nested lists and dicts."""
    while True:
        keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = keys[draw(len(keys))]
        inner = value[key]
        if not isinstance(inner, dict | list) or not inner or draw(4) == 0:
            value[key] = by
            return
        value = inner


def read_or_name(path: Path) -> tuple[bool, bool]:
    """(were rows read, was something named); every problem must name the file, every error too."""
    try:
        logs = read_logs(path)
    except InputError as error:
        if path.name not in str(error):
            raise AssertionError(f"an error that does not name the file: {error}") from error
        return False, True
    assert all(problem.file == str(path) and problem.why for problem in logs.problems)
    if {"task", "episode", "success"} <= set(logs.turns.columns):
        trials(logs.turns)
    return True, bool(logs.problems)


def try_mutants(files: dict[str, Path], number: int, folder: Path, *, seed: int) -> Done:
    """Mutate the files in turn and read each."""
    rng, done = random.Random(seed), Done()
    originals = [(name, path, path.read_bytes()) for name, path in files.items()]
    for index in range(number):
        name, path, data = originals[index % len(originals)]
        target = folder / f"mutant{path.suffix}"
        target.write_bytes(mutate(data, rng))
        try:
            read, named = read_or_name(target)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            kept = target.rename(folder / f"crash-{name}-{index}{path.suffix}")
            where = traceback.extract_tb(error.__traceback__)[-1]
            done.crashes.append(f"{kept}: {type(error).__name__}: {str(error)[:200]} ({where.filename}:{where.lineno})")
            continue
        done.read += read
        done.named += named
    return done


def main(number: int) -> int:
    """All formats, the real tools' own files included."""
    from real_tools import inspect_log, lm_eval_logs
    from samples import write_all

    folder = Path(tempfile.mkdtemp(prefix="palaestra-fuzz-"))
    files = write_all(folder / "samples") if (folder / "samples").mkdir() is None else {}
    files["inspect"] = inspect_log(folder / "inspect", "eval")
    files["inspect-json"] = inspect_log(folder / "inspect", "json")
    files["lm-eval"] = next(lm_eval_logs(folder).rglob("samples_*.jsonl"))
    began = time.perf_counter()
    done = try_mutants(files, number, folder, seed=7)
    print(*done.crashes[:20], sep="\n")
    seconds = time.perf_counter() - began
    found = f"{done.read} gave rows, {done.named} named something, {len(done.crashes)} crashed"
    print(f"{number} mutants of {len(files)} files in {seconds:.0f} s: {found} ({folder})")
    return 1 if done.crashes else 0


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent))
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
