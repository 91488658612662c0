"""Runs the line that a person uses, to its end, from the terminal, beside the same line without the method."""

from __future__ import annotations

import math
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import PalaestraError
from palaestra.foundation.registry import load_object
from palaestra_atlas.rows import Use
from palaestra_atlas.verification.evidence import UseResult
from palaestra_atlas.verification.measures import Left, measure

TRAINING = ("train", "compare")
NOISE = 2.0
"""Standard errors of a mean difference over seeds that it has to reach, besides the `least` of its row."""


def run_use(use: Use, seeds: Sequence[int], *, fast: bool = False, timeout: float = 7200.0) -> UseResult:
    """Run a row's line and the same line without the method.

    Args:
        use: the row's use.
        seeds: seeds that took part in no choice; a training gets them as `seeds=`, a command as data of each seed.
        fast: two iterations of the line alone; nothing is judged but that it runs.
        timeout: seconds that one command may take.
    """
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = _judged(use, tuple(seeds[:1] if fast else seeds), Path(folder), fast, timeout)
    return result.model_copy(update={"seconds": round(time.perf_counter() - start, 1)})


def _judged(use: Use, seeds: tuple[int, ...], folder: Path, fast: bool, timeout: float) -> UseResult:
    found = UseResult(line=use.line, without=use.without, seeds=seeds)
    refused = use.direction == "refused"
    left = _run(use.line, use, seeds, folder / "with", fast, timeout)
    if isinstance(left, str):
        return found.model_copy(update={"problem": left})
    codes = {each.code for each in left}
    if codes != ({2} if refused else {0}):
        return found.model_copy(update={"problem": f"exit code {sorted(codes)}: {_last_line(left)}"})
    if not refused and (problem := _columns(use, left)):
        return found.model_copy(update={"problem": problem})
    if fast:
        return found
    if not use.judged:
        return found.model_copy(update={"problem": "no effect is declared: without, measure and direction"})
    other = _run(str(use.without), use, seeds, folder / "without", fast, timeout)
    if isinstance(other, str):
        return found.model_copy(update={"problem": f"without: {other}"})
    if {each.code for each in other} != {0}:
        return found.model_copy(update={"problem": f"without: {_last_line(other)}"})
    if refused:
        return found
    try:
        of = measure(str(use.measure))
        values, without = ([number for each in found for number in of(each)] for found in (left, other))
    except (PalaestraError, pl.exceptions.PolarsError, OSError, ValueError, ArithmeticError) as error:
        return found.model_copy(update={"problem": f"measure {use.measure}: {error}"})
    return _compared(use, found, values, without)


def _compared(use: Use, found: UseResult, values: list[float], without: list[float]) -> UseResult:
    if len(values) != len(without):
        return found.model_copy(update={"problem": f"{len(values)} values with the method, {len(without)} without"})
    differences = np.array(values) - np.array(without)
    error = float(differences.std(ddof=1) / math.sqrt(len(differences))) if len(differences) > 1 else None
    difference = float(differences.mean())
    if use.direction == "found":
        holds = all(value > 0 for value in values) and not any(value > 0 for value in without)
    else:
        towards = difference if use.direction == "higher" else -difference
        holds = math.isfinite(difference) and towards > 0 and towards >= use.least
        if holds and error is not None and towards < NOISE * error * (1 - 1e-9):
            said = f"{difference:+.4g} with a standard error of {error:.2g} over {len(differences)} seeds may be noise"
            found = found.model_copy(update={"problem": f"{use.measure}: {said}"})
    finite = [value for value in (*values, *without) if not math.isfinite(value)]
    problem = found.problem
    if not holds:
        problem = f"{use.measure} is not {use.direction}: {difference:+.4g} where {use.least:g} is asked"
    return found.model_copy(
        update={
            "values": tuple(values) if not finite else (),
            "values_without": tuple(without) if not finite else (),
            "difference": difference if math.isfinite(difference) else None,
            "error": error if error is not None and math.isfinite(error) else None,
            "problem": problem,
        }
    )


def _run(line: str, use: Use, seeds: tuple[int, ...], folder: Path, fast: bool, timeout: float) -> list[Left] | str:
    """What the command left: a training once for all seeds, any other command once per seed; or what went wrong."""
    program, command, *words = shlex.split(line)
    if program != "palaestra":
        return f"not a command of palaestra: {line}"
    blocks = [seeds] if command in TRAINING else [(seed,) for seed in (seeds if use.data else seeds[:1])]
    done = []
    for number, block in enumerate(blocks):
        place = folder / str(number)
        place.mkdir(parents=True)
        if use.data is not None:
            load_object(use.data, "data")(block[0], place)
        extra = []
        if command == "train":
            extra = ["--out", "run", "--jobs", "1", f"seeds=[{','.join(map(str, block))}]"]
            extra += ["train.iterations=2", "evaluation.controls={}"] if fast else []
        environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "1000"}
        process = [sys.executable, "-P", "-m", "palaestra", command, *words, *extra]
        try:
            ran = subprocess.run(process, cwd=place, env=environment, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            return f"took more than {timeout:g} s"
        done.append(Left(place, ran.returncode, ran.stdout if ran.returncode == 0 else ran.stdout + ran.stderr))
    return done


def _last_line(left: Sequence[Left]) -> str:
    lines = [line for each in left for line in each.stdout.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing was printed"


def _columns(use: Use, left: Sequence[Left]) -> str | None:
    """What is wrong with the columns that the method fills in a training's saved turns."""
    if use.line.split()[1] != "train":
        return None
    for seed in left[0].seeds():
        table = Turns.load(seed / "turns")
        for name in dict.fromkeys(("advantage", *use.columns)):
            if name not in table.columns:
                return f"{seed.name}: the turns have no column {name!r}"
            values = table[name].drop_nulls()
            if len(values) == 0:
                return f"{seed.name}: column {name!r} is null in every row"
            if name in use.columns and values.n_unique() == 1:
                return f"{seed.name}: column {name!r} is constant"
    return None
