"""Counterfactual regret minimisation on Leduc poker: time of an iteration beside OpenSpiel's in Python and C++.

All start from the same game and do the same iterations; the exploitability that is reached is compared too. Our
tree is built once, and timed apart. Times are CPU times of one thread.

Run: python benchmarks/games.py
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import sys
from collections.abc import Callable
from time import process_time

from rich.console import Console
from rich.table import Table

from palaestra.evaluation.games import CFR, openspiel_tree
from palaestra.evaluation.games.cfr import rule

GAME = "leduc_poker"
PYTHON, CPP, OURS = 5, 50, 500
FASTER_THAN_PYTHON, SLOWER_THAN_CPP = 20.0, 3.0


def seconds(step: Callable[[], object], steps: int) -> float:
    """CPU seconds per step, the first left out."""
    step()
    start = process_time()
    for _ in range(steps):
        step()
    return (process_time() - start) / steps


def main() -> int:
    """Measure, print, and say whether the criteria hold: 0 if they all do."""
    console = Console(width=110)
    try:
        import pyspiel
        from open_spiel.python.algorithms import cfr, exploitability
    except ImportError:
        console.print("OpenSpiel is not installed: pip install 'palaestra[openspiel]'")
        return 0
    game = pyspiel.load_game(GAME)
    start = process_time()
    tree = openspiel_tree(GAME)
    built = process_time() - start
    table = Table(f"{GAME}, {len(tree.keys)} information sets", "CFR, ms", "CFR+, ms")
    python = [cfr.CFRSolver(game), cfr.CFRPlusSolver(game)]
    slow = [seconds(each.evaluate_and_update_policy, PYTHON) for each in python]
    fast = [seconds(made(game).evaluate_and_update_policy, CPP) for made in (pyspiel.CFRSolver, pyspiel.CFRPlusSolver)]
    runs = [CFR(tree, rule(variant)) for variant in ("plain", "plus")]
    ours = [seconds(run.step, OURS) for run in runs]
    rows = (("OpenSpiel, Python", slow), ("OpenSpiel, C++", fast), (f"ours ({built:.2f} s for the tree)", ours))
    for who, pair in rows:
        table.add_row(who, *(f"{1000 * each:.2f}" for each in pair))
    console.print(table)
    gaps = []
    for variant, solver in zip(("plain", "plus"), python):
        run = CFR(tree, rule(variant))
        for _ in run.run(PYTHON + 1):
            pass
        theirs = exploitability.nash_conv(game, solver.average_policy()) / game.num_players()
        gaps.append(abs(run.tree.exploitability(run.average()) - theirs))
    ratio, share = min(a / b for a, b in zip(slow, ours)), max(a / b for a, b in zip(ours, fast))
    verdicts = [
        (f"{ratio:.0f} times as fast as Python, at least {FASTER_THAN_PYTHON:g}", ratio >= FASTER_THAN_PYTHON),
        (f"{share:.3f} of the time of C++, at most {SLOWER_THAN_CPP:g}", share <= SLOWER_THAN_CPP),
        (f"exploitability after {PYTHON + 1} iterations differs by {max(gaps):.1e}, at most 1e-6", max(gaps) <= 1e-6),
    ]
    for text, holds in verdicts:
        console.print(f"{'PASS' if holds else 'FAIL'}  {text}")
    return 0 if all(holds for _, holds in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
