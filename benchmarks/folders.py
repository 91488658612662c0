"""Evaluation, triage and audits over folders of Parquet: peak memory and CPU, beside the same with all of it in memory.

Folders of 3 and of 15 files, 4,000 turns each with 60 letters of talk and 6,000 of something that nobody looks at; a
process for each command and each folder: `palaestra evaluate`, `triage` and `audit` as a person runs them, and
`Turns.load` of the folder. Counted is the peak of resident memory, the interpreter with all that it imports included.

Criteria: from 3 to 15 files `evaluate` and `triage` grow by no more than 0.05 GB. An audit has the columns that it
looks at in memory, so it grows; less than the table does.

Run: python benchmarks/folders.py
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

TURNS, EPISODE, GROUP_SIZE, LETTERS, FILES = 4_000, 10, 8, (60, 6000), (3, 15)
MOST_GROWTH = 0.05e9
COMMANDS = {
    "evaluate": ["-m", "palaestra", "evaluate", "{folder}", "--json"],
    "triage": ["-m", "palaestra", "triage", "{folder}", "--out", "{out}", "--json"],
    "audit": ["-m", "palaestra", "audit", "{folder}", "--json"],
    "load": ["-c", "import sys; from palaestra import Turns; print(len(Turns.load(sys.argv[1])))", "{folder}"],
}
BETWEEN = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, *sys.argv[1:]], stdout=subprocess.DEVNULL)
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def write(folder: Path, files: int) -> None:
    """The tables."""
    folder.mkdir()
    for number in range(files):
        rng = np.random.default_rng(number)
        episodes = TURNS // EPISODE
        turn, own = np.tile(np.arange(EPISODE), episodes), np.repeat(np.arange(episodes), EPISODE)
        some = ["".join(map(chr, rng.integers(97, 123, letters))) for letters in LETTERS]
        said = [[f"{text} {number} {row}" for row in range(TURNS)] for text in some]
        table = {
            "system": np.array(["old", "new"])[own % 2], "iteration": np.zeros(TURNS, np.int32),
            "group": own // GROUP_SIZE, "episode": own % GROUP_SIZE, "turn": turn, "agent": ["a"] * TURNS,
            "task": [f"t{each}" for each in own // GROUP_SIZE % 200], "success": (rng.random(episodes) < 0.4)[own],
            "reward": np.where(turn == EPISODE - 1, rng.random(TURNS), 0.0), "state": own.astype(np.uint64) % 97,
            "observation": said[0], "action": rng.choice(["left", "right"], TURNS), "note": said[1],
        }  # fmt: skip
        pl.DataFrame(table).write_parquet(folder / f"{number:03}.parquet")


def measure(arguments: list[str]) -> tuple[float, float]:
    """Peak bytes and CPU seconds of a process; measured in one between, whose only child it is."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", BETWEEN, *arguments]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    status, peak = map(int, said.split())
    if status not in (0, 1):  # an audit that found something ends with 1
        raise SystemExit(f"failed with {status}: {arguments}")
    return 1024.0 * peak, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Measure, print, and say whether the criteria hold."""
    base = Path(tempfile.mkdtemp(prefix="folders-"))
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    try:
        for files in FILES:
            folder = base / str(files)
            write(folder, files)
            for name, command in COMMANDS.items():
                found[name].append(measure([each.format(folder=folder, out=base / "out") for each in command]))
                time.sleep(0.1)
    finally:
        shutil.rmtree(base)
    print(f"{'':10} " + "  ".join(f"{files:>3} files: GB, CPU-s" for files in FILES))
    for name, rows in found.items():
        print(f"{name:10} " + "  ".join(f"{peak / 1e9:14.2f} {seconds:6.1f}" for peak, seconds in rows))
    growth = {name: rows[-1][0] - rows[0][0] for name, rows in found.items()}
    holds = max(growth["evaluate"], growth["triage"]) <= MOST_GROWTH and growth["audit"] < growth["load"]
    told = ", ".join(f"{name} {each / 1e9:.2f}" for name, each in growth.items())
    print(f"{'PASS' if holds else 'FAIL'}  growth in GB: {told}; evaluate and triage at most {MOST_GROWTH / 1e9:g}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
