"""[53] Survey of efficient agents (arXiv 2601.14192): the best at a budget, the price of a target, and the front.

The worked front, and drawn points, of which only those on the front can change either reading. Left out: the taxonomy,
which is prose; a price on calls is a reward (`reward: success - .1 * calls`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.evaluation import frontier
from palaestra.evaluation.teamwork import cost_at_score, score_at_cost
from palaestra_atlas.reproductions import Outcome, reproduction

POINTS = pl.DataFrame({"cost": [1.0, 2.0, 2.0, 3.0, 4.0], "score": [0.2, 0.5, 0.4, 0.5, 0.9]})


@reproduction(
    53,
    claim="Effectiveness at a fixed cost and cost at a matched effectiveness are two readings of one front.",
    baseline="all points",
    criterion="the worked front has 3 of 5 points, .5 is had for 3 and .6 costs 4 (exact); on drawn points both "
    "readings are those of the front alone, in every seed",
    seeds=(0, 1, 2),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked points, then drawn ones."""
    best = frontier(POINTS).filter("frontier")
    measured = {
        "on_front": float(len(best)), "score_at_3": score_at_cost(POINTS, 3) or np.nan,
        "cost_at_0.6": cost_at_score(POINTS, 0.6) or np.nan,
    }  # fmt: skip
    same = True
    for seed in seeds:
        rng = np.random.default_rng(seed)
        drawn = pl.DataFrame({"cost": rng.random(200), "score": rng.random(200)})
        front = frontier(drawn).filter("frontier")
        for level in rng.random(20):
            same &= score_at_cost(drawn, level) == score_at_cost(front, level)
            same &= cost_at_score(drawn, level) == cost_at_score(front, level)
    return Outcome(measured, bool(same and measured == {"on_front": 3.0, "score_at_3": 0.5, "cost_at_0.6": 4.0}))
