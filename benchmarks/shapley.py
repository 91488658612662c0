"""Exact Shapley values of 12 members, 1,000 games with all their 4,096 coalitions, beside a plain loop.

The loop goes over members and coalitions as the definition does; it takes games one by one, so it is timed on a few.
Both sides give the same numbers to 1e-9. CPU time of one thread; medians.

Run: python benchmarks/shapley.py
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ[name] = "1"

import sys
from math import factorial
from statistics import median
from time import process_time

import numpy as np
from rich.console import Console
from rich.table import Table

from palaestra.credit import interactions_of, shapley_of

MEMBERS, GAMES, LOOPED, REPEATS = 12, 1000, 3, 9
MOST_MS, EQUAL = 50.0, 1e-9


def loop(values: np.ndarray) -> list[float]:
    """Of one game, by the definition."""
    found = []
    for member in range(MEMBERS):
        total = 0.0
        for place in range(2**MEMBERS):
            if not place >> member & 1:
                size = place.bit_count()
                weight = factorial(size) * factorial(MEMBERS - size - 1) / factorial(MEMBERS)
                total += weight * (values[place | 1 << member] - values[place])
        found.append(total)
    return found


def main() -> int:
    """Measure, print, and say whether the criteria hold: 0 if they all do."""
    console = Console(width=120)
    games = np.random.default_rng(0).random((GAMES, 2**MEMBERS))
    start = process_time()
    slow = np.array([loop(game) for game in games[:LOOPED]])
    looped = (process_time() - start) / LOOPED * GAMES
    times: dict[str, list[float]] = {"values": [], "interactions of 10 games": []}
    for _ in range(REPEATS):
        start = process_time()
        fast = shapley_of(games)
        times["values"].append(process_time() - start)
        start = process_time()
        interactions_of(games[:10])
        times["interactions of 10 games"].append(process_time() - start)
    ours = median(times["values"])
    gap = float(abs(fast[:LOOPED] - slow).max())
    table = Table("12 members, 1,000 games", "plain loop, s", "ours, ms", "ratio", "largest difference")
    table.add_row("Shapley values", f"{looped:.1f}", f"{ours * 1e3:.1f}", f"{looped / ours:,.0f}×", f"{gap:.0e}")
    table.add_row("interactions of 10 games", "", f"{median(times['interactions of 10 games']) * 1e3:.1f}", "", "")
    console.print(table)
    verdicts = [
        (f"{ours * 1e3:.1f} ms, at most {MOST_MS:.0f} ms", ours * 1e3 <= MOST_MS),
        (f"equal to {gap:.0e}", gap <= EQUAL),
    ]
    for text, met in verdicts:
        console.print(f"{'PASS' if met else 'FAIL'}  {text}")
    return 0 if all(met for _, met in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
