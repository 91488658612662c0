"""Ranking and resampling: alpha-Rank beside OpenSpiel's, Bradley-Terry beside evalica's, and a clustered bootstrap.

Every time is CPU time of one thread; medians. Both sides of a ratio give the same numbers to 1e-6. OpenSpiel needs
about a minute for 1 000 strategies, so that is measured once; payoffs are rounded there, because it takes those within
1e-5 of each other for equal. What is not installed is named and left out.

Run: python benchmarks/ranking.py
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ[name] = "1"

import importlib.util
import sys
from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from palaestra.evaluation import comparison_table, paired_difference, trials
from palaestra.evaluation.ranking import bradley_terry, elo, matches
from palaestra.evaluation.ranking.alpha_rank import alpha_rank

LEAST_RATIO, EQUAL = 10, 1e-6
MOST_BOOTSTRAP, MOST_TABLE = 1.0, 2.0


def seconds(function: Callable[[], Any], repeats: int = 5, most: float = 3.0) -> float:
    times: list[float] = []
    while len(times) < repeats and sum(times) < most:
        start = process_time()
        function()
        times.append(process_time() - start)
    return median(times)


def alpha_ranks(console: Console, rng: np.random.Generator) -> list[tuple[str, bool]]:
    if importlib.util.find_spec("open_spiel") is None:
        console.print("alpha-Rank is not compared: OpenSpiel is not installed.")
        return []
    from open_spiel.python.egt import alpharank

    table = Table("alpha-Rank", "OpenSpiel, s", "ours, s", "ratio", "largest difference")
    verdicts = []
    four = [rng.random((5,) * 4) for _ in range(4)]
    cases: list[tuple[str, Any, float]] = [("4 players x 5 strategies, α = 1", four, 1.0)]
    cases.append(("4 players x 5 strategies, α infinite", four, np.inf))
    cases.append(("1000 strategies, α infinite", rng.random((1000, 1000)).round(3), np.inf))
    for label, payoffs, alpha in cases:
        tables = payoffs if isinstance(payoffs, list) else [payoffs]
        how = {"use_inf_alpha": True, "inf_alpha_eps": 0.01} if np.isinf(alpha) else {"alpha": alpha}
        theirs: list[np.ndarray] = []
        slow = seconds(lambda t=tables, h=how, o=theirs: o.append(alpharank.compute(t, **h)[2]), 3)  # type: ignore[misc]
        fast = seconds(lambda p=payoffs, a=alpha: alpha_rank(p, alpha=a))  # type: ignore[misc]
        gap = float(np.abs(alpha_rank(payoffs, alpha=alpha).ravel() - theirs[0]).max())
        table.add_row(label, f"{slow:.2f}", f"{fast:.3f}", f"{slow / fast:.0f}×", f"{gap:.0e}")
        verdicts.append((f"{label}: {slow / fast:.0f}×, at least {LEAST_RATIO}×", slow / fast >= LEAST_RATIO))
        verdicts.append((f"{label}: equal to {gap:.0e}", gap <= EQUAL))
    console.print(table)
    return verdicts


def ratings(console: Console, rng: np.random.Generator) -> list[tuple[str, bool]]:
    if importlib.util.find_spec("evalica") is None:
        console.print("Ratings are not compared: evalica is not installed.")
        return []
    import evalica

    n, number = 50, 100_000
    a = rng.integers(0, n, number)
    b = (a + rng.integers(1, n, number)) % n
    strength = rng.normal(size=n)
    score = (rng.random(number) < 1 / (1 + np.exp(strength[b] - strength[a]))).astype(float)
    names = np.array([f"s{i:02}" for i in range(n)])
    x, y = list(names[a]), list(names[b])
    winners = [evalica.Winner.X if s else evalica.Winner.Y for s in score]
    play = matches(x, y, score)
    table = Table(f"{number:,} matches of {n} systems", "evalica, s", "ours, s", "largest difference")

    def theirs() -> np.ndarray:
        return np.log(
            evalica.bradley_terry(x, y, winners, tolerance=1e-10, limit=10_000).scores.sort_index().to_numpy()
        )

    gap = float(np.abs(theirs() - theirs().mean() - bradley_terry(play.wins())).max())
    slow, fast = seconds(theirs, 3), seconds(lambda: bradley_terry(play.wins()))
    table.add_row("Bradley-Terry", f"{slow:.3f}", f"{fast:.3f}", f"{gap:.0e}")
    rated = evalica.elo(x, y, winners, k=30.0).scores.sort_index().to_numpy()
    off = float(np.abs(rated - elo(play)).max())
    slow, fast = seconds(lambda: evalica.elo(x, y, winners, k=30.0), 3), seconds(lambda: elo(play), 1)
    table.add_row("Elo, one order", f"{slow:.3f}", f"{fast:.3f}", f"{off:.0e}")
    console.print(table)
    return [(f"ratings equal to {max(gap, off):.0e}", max(gap, off) <= EQUAL)]


def resampling(console: Console, rng: np.random.Generator) -> list[tuple[str, bool]]:
    tasks, per_task = 1000, 8
    p = rng.random((tasks, 1))
    task, trial = (axis.ravel() for axis in np.indices((tasks, per_task)))
    parts = [
        pl.DataFrame({"system": name, "run": "0", "task": task.astype(str), "trial": trial,
                      "success": (rng.random((tasks, per_task)) < p).ravel()})
        for name in ("a", "b")
    ]  # fmt: skip
    both = pl.concat(parts)
    whole = seconds(lambda: paired_difference(both, "a", "b", resamples=10_000))
    rows = 1_000_000
    turns = pl.DataFrame(
        {
            "system": rng.choice(["a", "b"], rows // 5).repeat(5),
            "task": rng.integers(0, 2000, rows // 5).repeat(5).astype(str),
            "episode": np.arange(rows // 5).repeat(5),
            "agent": "solver",
            "success": (rng.random(rows // 5) < 0.5).repeat(5),
            "reward": rng.random(rows),
        }
    )
    reduce = seconds(lambda: trials(turns), 3)
    reduced = trials(turns)
    compare = seconds(lambda: comparison_table(reduced, baseline="a"), 3)
    table = Table("resampling", "s")
    table.add_row("paired difference, 10 000 resamples of 1 000 tasks x 8 trials", f"{whole:.2f}")
    table.add_row(f"{rows:,} turns to {len(reduced):,} trials", f"{reduce:.2f}")
    table.add_row("the comparison of two systems from them", f"{compare:.2f}")
    console.print(table)
    return [
        (f"clustered bootstrap: {whole:.2f} s, at most {MOST_BOOTSTRAP} s", whole <= MOST_BOOTSTRAP),
        (f"a million rows: {reduce + compare:.2f} s, at most {MOST_TABLE} s", reduce + compare <= MOST_TABLE),
    ]


def main() -> int:
    """Measure, print, and say whether the criteria hold: 0 if they all do."""
    console, rng = Console(width=120), np.random.default_rng(0)
    verdicts = alpha_ranks(console, rng) + ratings(console, rng) + resampling(console, rng)
    for text, holds in verdicts:
        console.print(f"{'PASS' if holds else 'FAIL'}  {text}")
    return 0 if all(holds for _, holds in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
