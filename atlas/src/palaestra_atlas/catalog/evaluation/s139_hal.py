"""[139] HAL (arXiv 2510.11977): the same accuracy may hide different agents; reliability and cost tell them apart.

Two agents solve 60 % of trials: one every task 6 times in 10, the other 6 tasks in 10 always. Consistency, pass^5 and
calibration see what the mean does not; a cost frontier keeps who is best at a price. Left out: HAL's logs (a reader of
its own) and its fault injector, whose faults are swallowed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.evaluation import (
    calibration,
    consistency,
    frontier,
    k_estimate,
    outcome_consistency,
    resource_consistency,
    sequence_similarity,
)
from palaestra_atlas.catalog.evaluation.coverage import table
from palaestra_atlas.reproductions import Outcome, reproduction

TASKS, TRIALS = 2000, 10
PRICES = pl.DataFrame(
    {"system": list("abcdef"), "cost": [1, 2, 4, 5, 10, 2], "score": [0.30, 0.50, 0.55, 0.54, 0.80, 0.45]}
)


@reproduction(
    139,
    claim="Agents of equal accuracy differ in consistency, in pass^5 and in whether their confidence means something.",
    baseline="Mean accuracy.",
    criterion="Worked numbers exact (consistency .36/0/.04/1, similarity .9387, resources .6065, frontier abce, hull "
    "abe); equal accuracy to 2 points, outcome consistency above .95 against below .2, pass^5 above .55 against "
    "below .11, each outside the other's interval; expected calibration error below .02 against above .3.",
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The two agents, and the formulas' worked numbers."""
    rng = np.random.default_rng(seeds[0])
    rates = {"coin": np.full(TASKS, 0.6), "specialist": np.where(np.arange(TASKS) < 0.6 * TASKS, 1.0, 0.0)}
    played = {name: rng.random((TASKS, TRIALS)) < p[:, None] for name, p in rates.items()}
    trials = pl.concat([table(name, success=x) for name, x in played.items()])
    outcome = {row["system"]: row for row in consistency(trials).filter(pl.col("part") == "outcome").to_dicts()}
    all_five = {name: k_estimate(table(name, success=x), "pass_hat_k", 5) for name, x in played.items()}
    error = {
        name: calibration(np.full(TASKS, 0.6) if name == "coin" else np.full(TASKS, 0.95), x[:, 0]).ece
        for name, x in played.items()
    }
    exact = [
        *np.abs(outcome_consistency([0.2, 0.5, 0.6, 1.0]) - [0.36, 0.0, 0.04, 1.0]),
        abs(sequence_similarity("aabc", "abcc", "histogram") - 0.9387),
        abs(resource_consistency([1, 2, 3]) - 0.6065),
    ]
    best = frontier(PRICES)
    kept = {name: "".join(sorted(best.filter(pl.col(name))["system"])) for name in ("frontier", "hull")}
    measured = {
        "largest_error_of_formulas": float(max(exact)),
        "frontier_as_published": float(kept == {"frontier": "abce", "hull": "abe"}),
        "accuracy_gap": float(abs(played["coin"].mean() - played["specialist"].mean())),
        "consistency_coin": outcome["coin"]["mean"],
        "consistency_specialist": outcome["specialist"]["mean"],
        "pass_hat_5_coin": all_five["coin"].mean,
        "pass_hat_5_specialist": all_five["specialist"].mean,
        "calibration_error_honest": error["coin"].mean,
        "calibration_error_overconfident": error["specialist"].mean,
    }
    holds = (
        measured["largest_error_of_formulas"] < 5e-5
        and kept == {"frontier": "abce", "hull": "abe"}
        and measured["accuracy_gap"] < 0.02
        and measured["consistency_specialist"] > 0.95 > 0.2 > measured["consistency_coin"]
        and measured["pass_hat_5_specialist"] > 0.55
        and measured["pass_hat_5_coin"] < 0.11
        and all_five["coin"].high < all_five["specialist"].low
        and measured["calibration_error_honest"] < 0.02
        and measured["calibration_error_overconfident"] > 0.3
    )
    return Outcome(measured, holds)
