"""[142] LLM Swiss Round (arXiv 2512.21010): points in Swiss rounds over benchmarks, and what dropping the last does.

Worked example, exact; then a generalist against a specialist that fails on two benchmarks, with and without
elimination, among six others of our own choice. Left out: the published score table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.evaluation.ranking import failure_sensitivity, swiss
from palaestra_atlas.reproductions import Outcome, reproduction

WORKED = np.array([[4, 1], [3, 4], [2, 3], [1, 2]])
SPECIALIST = (0.05, 0.95, 0.95, 0.05, 0.95, 0.95)
OTHERS, BENCHMARKS, SIMULATIONS = 6, 6, 500


@reproduction(
    142,
    claim="Who drops out changes who is ahead: a specialist leads without elimination, a generalist with it.",
    baseline="The same tournament without elimination.",
    criterion="Worked expectations 1, 5/3, 4/3, 0 exactly, and by simulation within 3 standard errors; on average "
    "over seeds the specialist is ahead at T = 0 and the generalist at T = 1 and 2, by over 2 standard errors, and "
    "the generalist's slope is flatter in nine seeds of ten.",
    seeds=tuple(range(200)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Other systems score uniformly between .4 and 1, drawn per seed."""
    exact = swiss(WORKED, exact=True)["expected"].to_numpy()
    drawn = swiss(WORKED, simulations=100_000, seed=seeds[0])
    error = (drawn["high"] - drawn["expected"]).to_numpy() / 1.96
    off = np.abs(drawn["expected"].to_numpy() - exact)
    measured = {
        "worked_error": float(np.abs(exact - [1, 5 / 3, 4 / 3, 0]).max()),
        "simulation_in_standard_errors": float((off / np.where(error > 0, error, 1)).max()),
    }
    tables = []
    for seed in seeds:
        others = np.random.default_rng(seed).uniform(0.4, 1.0, (OTHERS, BENCHMARKS))
        scores = np.vstack([np.full(BENCHMARKS, 0.72), SPECIALIST, others])
        tables.append(failure_sensitivity(scores, eliminate=range(3), simulations=SIMULATIONS, seed=seed))
    ahead = np.array([[found[f"T={t}"][0] - found[f"T={t}"][1] for t in range(3)] for found in tables])
    slopes = np.array([[found["slope"][0], found["slope"][1]] for found in tables])
    measured |= {f"generalist_minus_specialist_T{t}": float(ahead[:, t].mean()) for t in range(3)}
    measured |= {"slope_generalist": float(slopes[:, 0].mean()), "slope_specialist": float(slopes[:, 1].mean())}
    z = ahead.mean(axis=0) / (ahead.std(axis=0, ddof=1) / np.sqrt(len(seeds)))
    measured["flatter"] = float((slopes[:, 0] > slopes[:, 1]).mean())
    holds = (
        measured["worked_error"] < 1e-12
        and measured["simulation_in_standard_errors"] < 3.5
        and z[0] < -2
        and bool((z[1:] > 2).all())
        and measured["flatter"] >= 0.9
    )
    return Outcome(measured, holds)
