"""[54] Efficient Agents (arXiv 2508.02694): what a solved task costs, and why more tries rarely pay.

Worked numbers, two ways of putting levels together, and best-of-N with a verifier that errs: the cost of a success is
least at one try; stopping at the first answer that a perfect verifier passes costs the same at every N. Left out: GAIA.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.evaluation import cost_per_success
from palaestra_atlas.reproductions import Outcome, reproduction

CHANCE, RIGHT, WRONG, TASKS, TRIES = 0.3, 0.8, 0.2, 40_000, (1, 2, 4, 8)


def pooled(costs: Sequence[float], success: Sequence[float]) -> float:
    """Σ cost / Σ success, as the library has it."""
    frame = pl.DataFrame(
        {"system": "s", "task": [f"{k}" for k in range(len(costs))], "cost": costs, "success": success}
    )
    return float(cost_per_success(frame)["cost_per_success"][0])


def best_of(tries: int, rng: np.random.Generator) -> tuple[float, float]:
    """Tries per success: best of N by a noisy verifier, and stopping at what a perfect one passes."""
    right = rng.random((TASKS, tries)) < CHANCE
    passed = rng.random((TASKS, tries)) < np.where(right, RIGHT, WRONG)
    order = np.argsort(-(passed + 0.5 * rng.random((TASKS, tries))), axis=1)[:, 0]
    chosen = right[np.arange(TASKS), order]
    first = np.where(right.any(1), right.argmax(1) + 1, tries)
    return tries * TASKS / chosen.sum(), first.sum() / right.any(1).sum()


@reproduction(
    54,
    claim="Cost of a success is a ratio of sums; with a verifier that errs it grows with the number of tries, and "
    "stopping at the first verified answer keeps it constant.",
    baseline="one try",
    criterion="worked ratio .2667 exact; the mean of ratios by level is another number (.80 and 1.575); the cost of a "
    "success rises from try to try and is 3.33 at one; with a perfect verifier that stops it is within 3 % of 3.33 at "
    "every number, in every seed",
    seeds=(0, 1),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then tries."""
    worked = pooled([0.1, 0.1, 0.1, 0.5], [1, 0, 1, 1])
    levels = np.array([(0.1, 0.8), (0.3, 0.5), (0.8, 0.2)])
    of_sums, of_ratios = levels[:, 0].sum() / levels[:, 1].sum(), float((levels[:, 0] / levels[:, 1]).mean())
    found = np.array([[best_of(n, np.random.default_rng([seed, n])) for n in TRIES] for seed in seeds])
    measured = {"worked": worked, "of_sums": of_sums, "of_ratios": of_ratios}
    measured |= {f"best_of_{n}": float(found[:, at, 0].mean()) for at, n in enumerate(TRIES)}
    measured |= {f"stopping_{n}": float(found[:, at, 1].mean()) for at, n in enumerate(TRIES)}
    exact = abs(worked - 0.8 / 3) < 1e-9 and abs(of_sums - 0.8) < 1e-9 and abs(of_ratios - 1.575) < 1e-3
    rises = (np.diff(found[:, :, 0], axis=1) > 0).all() and (abs(found[:, 0, 0] - 1 / CHANCE) < 0.1).all()
    flat = (abs(found[:, :, 1] * CHANCE - 1) < 0.03).all()
    return Outcome(measured, bool(exact and rises and flat))
