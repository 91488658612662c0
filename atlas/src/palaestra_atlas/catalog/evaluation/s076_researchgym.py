"""[76] ResearchGym (arXiv 2602.15112): three researchers on a regression task, and which rule finds whom.

One is honest, one edits the grader, one reports the best of 50 seeds on the test set. A digest finds the editor; the
seed-picker is found by re-runs with fresh seeds, and by one re-run alone never.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from palaestra.evaluation.intervals import wilson
from palaestra.evaluation.tolerance import check_fresh_seeds
from palaestra_atlas.reproductions import Outcome, reproduction

TRAIN, TEST, FEATURES, PICKED, RERUNS = 40, 60, 6, 50, 20
GRADER = "score = 1 - mean((y - prediction)**2) / var(y)"


def scores(task: np.random.Generator, seeds: int) -> np.ndarray:
    """R² on the test set of as many fits; a seed decides which half of the training data a fit sees."""
    weights = task.standard_normal(FEATURES)
    x = task.standard_normal((TRAIN + TEST, FEATURES))
    y = x @ weights + 2.0 * task.standard_normal(TRAIN + TEST)
    chosen = np.argsort(task.random((seeds, TRAIN)), axis=1)[:, : TRAIN // 2]
    half, target = x[chosen], y[chosen]
    ridge = half.transpose(0, 2, 1) @ half + np.eye(FEATURES)
    fitted = np.linalg.solve(ridge, half.transpose(0, 2, 1) @ target[..., None])[..., 0]
    test = y[TRAIN:]
    return np.asarray(1 - ((test - fitted @ x[TRAIN:].T) ** 2).mean(1) / test.var())


def digest(text: str) -> str:
    """Of a file that must not change."""
    return hashlib.sha256(text.encode()).hexdigest()


@reproduction(
    76,
    claim="An edited grader is found by its digest, a picked seed by several re-runs with fresh seeds but not by one; "
    "an honest report passes both.",
    baseline="one re-run",
    criterion="over 200 tasks the digest marks the editor and nobody else; the picker's report exceeds the mean of "
    "fresh seeds by >= 1 standard deviation on average, the honest one's by |x| <= .2; 20 re-runs mark the picker "
    "(p <= .05) in >= 40 % and the honest one in <= 10 %, one re-run never; 1 of 15 has Wilson's interval .012 to .298",
    seeds=tuple(range(200)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The same tasks for the three of them."""
    excess: dict[str, list[float]] = {"honest": [], "picker": []}
    marked = {"honest": 0.0, "picker": 0.0}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        fits = scores(rng, PICKED + RERUNS)
        fresh = fits[PICKED:].tolist()
        for who, reported in (("honest", fits[0]), ("picker", fits[:PICKED].max())):
            found = check_fresh_seeds(float(reported), fresh)
            excess[who].append(found.excess)
            marked[who] += (found.p <= 0.05) / len(seeds)
    before = digest(GRADER)
    changed = {who: digest(text) != before for who, text in
               (("honest", GRADER), ("picker", GRADER), ("editor", GRADER + " + 0.3"))}  # fmt: skip
    low, high = map(float, wilson(1, 15))
    measured = {
        "excess_picker": float(np.mean(excess["picker"])), "least_excess_picker": float(np.min(excess["picker"])),
        "excess_honest": float(np.mean(excess["honest"])), "marked_picker": marked["picker"],
        "marked_honest": marked["honest"], "least_p_of_one_rerun": 0.5, "one_of_15_low": low, "one_of_15_high": high,
    }  # fmt: skip
    holds = changed == {"honest": False, "picker": False, "editor": True}
    holds &= measured["excess_picker"] >= 1 and abs(measured["excess_honest"]) <= 0.2
    holds &= marked["picker"] >= 0.4 and marked["honest"] <= 0.1
    return Outcome(measured, bool(holds and abs(low - 0.012) < 5e-4 and abs(high - 0.298) < 5e-4))
