"""[136] Claw-Eval (arXiv 2604.06132): gated scores, and reliability that falls under faults while ability does not.

Calls of a task succeed with its skill, faults hit some, and an agent may retry. Left out: its tasks, graders and
middleware; environments inject faults of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.evaluation import gated_score, k_estimate
from palaestra_atlas.catalog.evaluation.coverage import table
from palaestra_atlas.reproductions import Outcome, reproduction

TASKS, CALLS, TRIALS, RATE = 1000, 6, 3, 0.25


def play(rng: np.random.Generator, skill: np.ndarray, rate: float, retries: int) -> np.ndarray:
    """bool[tasks, trials]: the work succeeds by skill, and every call gets through once in 1 + `retries` attempts."""
    able = rng.random((TASKS, TRIALS)) < skill[:, None]
    through = (rng.random((TASKS, TRIALS, CALLS, 1 + retries)) >= rate).any(-1).all(-1)
    return np.asarray(able & through)


@reproduction(
    136,
    claim="Under faults the chance to succeed in all three trials falls more than that to succeed in any, and "
    "retries restore both; safety multiplies the score.",
    baseline="The same agents without faults.",
    criterion="Worked scores .82, .246 and .72; with one retry Pass^3 falls more than Pass@3, by over an interval's "
    "width; without retries it falls below .05; with three both lose less than .07.",
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Pass@3 and Pass^3 with and without faults, for no, one and three retries."""
    rng = np.random.default_rng(seeds[0])
    skill = rng.beta(4, 1, TASKS)
    worked = gated_score([0.9, 0.9, 0.65], [0.5, 0.5, 1.0], [1.0, 0.3, 1.0])
    measured = {"worked_error": float(np.abs(worked - [0.82, 0.246, 0.72]).max())}
    drop = {}
    for retries in (0, 1, 3):
        for name, rate in (("calm", 0.0), ("faults", RATE)):
            trials = table("agent", success=play(rng, skill, rate, retries))
            drop[retries, name] = {"any": k_estimate(trials, "pass_at_k", 3), "all": k_estimate(trials, "all_k", 3)}
            for what, estimate in drop[retries, name].items():
                measured[f"{what}_of_3_{name}_{retries}_retries"] = estimate.mean
    fall = {r: {w: drop[r, "calm"][w].mean - drop[r, "faults"][w].mean for w in ("any", "all")} for r in (0, 1, 3)}
    width = drop[1, "faults"]["all"].high - drop[1, "faults"]["all"].low
    measured |= {"fall_of_any_1_retry": fall[1]["any"], "fall_of_all_1_retry": fall[1]["all"]}
    holds = (
        measured["worked_error"] < 1e-12
        and fall[1]["all"] - fall[1]["any"] > width
        and measured["all_of_3_faults_0_retries"] < 0.05
        and max(fall[3].values()) < 0.07
    )
    return Outcome(measured, holds)
