"""Credit from files to files, at sizes that no memory need hold: GRPO and GiGPO, beside DuckDB's windowed mean.

A folder of Parquet files, groups of 8 episodes of about 60 turns, 512,000 turns a file, is written once. Then, each in
a process of its own: `palaestra apply` with one worker, with two if there are two cores, and DuckDB's reward minus its
mean over the same key, written to Parquet as well. Wall and CPU nanoseconds a turn, start of the process included; peak
memory of the whole process tree, sampled from /proc; bytes a turn on disk. DuckDB is told one thread and the same
memory, and does less: one window, no returns, no deviations, no states.

Criteria: at most 0.5 GB and 500 ns of CPU a turn for one worker, whose wall time is less where the machine is free.

Run: python benchmarks/out_of_core.py [TURNS, default 10000000] [--one: no second process] [--keep: the files]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

EPISODE, GROUP_SIZE, STATES, FILE = 60, 8, 48, 512_000
MOST_GIGABYTES, MOST_NANOSECONDS = 0.5, 500.0

DUCKDB = """
import duckdb, sys, pathlib
source, out = map(pathlib.Path, sys.argv[1:])
out.mkdir()
con = duckdb.connect(config={"threads": 1, "memory_limit": "450MB", "temp_directory": str(out / "spill")})
for file in sorted(source.glob("*.parquet")):
    con.execute(f"COPY (SELECT *, reward - avg(reward) OVER (PARTITION BY iteration, \\"group\\") AS advantage "
                f"FROM '{file}') TO '{out / file.name}' (FORMAT parquet, COMPRESSION zstd)")
"""
APPLY = """
import sys
from palaestra.algebra.folders import apply
from palaestra.foundation.malloc import keep
keep()  # as the command does
expression, source, out, workers = sys.argv[1:]
print(apply({"advantage": expression}, source, out, workers=int(workers)))
"""


def write(folder: Path, turns: int) -> int:
    """The table, file by file; returns how many turns it has."""
    folder.mkdir(parents=True)
    group, total, number = 0, 0, 0
    while total < turns:
        rng = np.random.default_rng(number)
        episodes = max(round(min(FILE, turns - total) / EPISODE / GROUP_SIZE), 1) * GROUP_SIZE
        lengths = rng.integers(EPISODE - 20, EPISODE + 21, episodes)
        episode = np.repeat(np.arange(episodes), lengths)
        n, own = len(episode), group + episode // GROUP_SIZE
        turn = np.arange(n) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        seen = own * STATES + rng.integers(0, STATES, n)
        reward = np.where(turn == lengths[episode] - 1, (rng.random(episodes) < 0.3)[episode], 0.0)
        frame = pl.DataFrame(
            {
                "iteration": np.zeros(n, np.int32),
                "group": own.astype(np.int32),
                "episode": (episode % GROUP_SIZE).astype(np.int32),
                "turn": turn.astype(np.int32),
                "agent": pl.Series(np.array(["solver", "checker"])[turn % 2], dtype=pl.Categorical),
                "state": (seen.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15),
                "reward": reward,
            }
        )
        frame.write_parquet(folder / f"{number:05d}.parquet", compression="zstd")
        group, total, number = group + episodes // GROUP_SIZE, total + n, number + 1
    return total


def tree_bytes(pid: int) -> int:
    """Resident memory of a process and of all that it started; pages they share are counted for each."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    own = next((int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS")), 0) * 1024
    return own + sum(tree_bytes(int(child)) for child in below)


def measure(code: str, *arguments: str) -> dict[str, float]:
    """Wall seconds, CPU seconds and peak bytes of a Python process."""
    before, start = os.times(), perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, tree_bytes(process.pid))
        sleep(0.02)
    wall, after = perf_counter() - start, os.times()
    if process.returncode:
        raise SystemExit(f"failed with {process.returncode}: {arguments}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"wall": wall, "cpu": cpu, "peak": float(peak)}


def size(folder: Path) -> int:
    """Bytes of the Parquet files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*.parquet"))


def main() -> int:
    """Write, measure, print; 0 if the criteria hold."""
    wanted = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    base = Path(tempfile.mkdtemp(prefix="outofcore-"))
    console = Console(width=120)
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    try:
        turns = write(base / "in", int(float(wanted[0])) if wanted else 10_000_000)
        runs: list[tuple[str, int, tuple[str, ...]]] = [
            (name, workers, (APPLY, expression, str(base / "in"), str(base / "out"), str(workers)))
            for name, expression in (("GRPO", "grpo()"), ("GiGPO", "gigpo(gamma=0.95)"))
            for workers in range(1, min(os.cpu_count() or 1, 1 if "--one" in sys.argv else 2) + 1)
        ]
        runs.append(("DuckDB, mean only", 1, (DUCKDB, str(base / "in"), str(base / "out"))))
        for name, workers, command in runs:
            found = measure(*command)
            written = size(base / "out")
            shutil.rmtree(base / "out")
            rows.append({"what": name, "processes": workers, "turns": turns, "bytes in": size(base / "in"),
                         "bytes out": written, **found})  # fmt: skip
            if "DuckDB" not in name and workers == 1:
                nanoseconds = 1e9 * found["cpu"] / turns
                failures += [f"{name}: {found['peak'] / 1e9:.2f} GB"] * (found["peak"] > MOST_GIGABYTES * 1e9)
                failures += [f"{name}: {nanoseconds:.0f} ns"] * (nanoseconds > MOST_NANOSECONDS)
    finally:
        if "--keep" not in sys.argv:
            shutil.rmtree(base)
    shown = Table(title=f"{turns:,} turns from files to files")
    for heading in ("what", "processes", "ns a turn", "CPU ns a turn", "peak GB", "bytes a turn in", "out"):
        shown.add_column(heading, justify="left" if heading == "what" else "right")
    for row in rows:
        per = {key: row[key] / turns for key in ("wall", "cpu", "bytes in", "bytes out")}
        shown.add_row(
            row["what"], str(row["processes"]), f"{1e9 * per['wall']:.0f}", f"{1e9 * per['cpu']:.0f}",
            f"{row['peak'] / 1e9:.2f}", f"{per['bytes in']:.1f}", f"{per['bytes out']:.1f}",
        )  # fmt: skip
    console.print(shown)
    print(json.dumps(rows))
    for failure in failures:
        console.print(f"FAIL  {failure}")
    if not failures:
        console.print(f"PASS  one process, at most {MOST_GIGABYTES} GB and {MOST_NANOSECONDS:.0f} ns of CPU a turn")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
