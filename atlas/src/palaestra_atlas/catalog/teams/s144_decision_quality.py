"""[144] MyAntFarm (arXiv 2511.15755): a score without variance is a warning, not a proof.

The released service's recommended actions are constants. Actions with the same tiers (specific 1, .67, 0; as right as
.75, .5, 0) have the reported .692 exactly. The audit names constants: they are the same in every case, and as right
elsewhere.
Left out: the service and its model; its own texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.evaluation.teamwork import decision_quality
from palaestra_atlas.reproductions import Outcome, reproduction

SERVICES, FAULTS = (
    ("auth", "billing", "search", "mail"),
    ("memory leak", "bad deployment", "full disk", "lost database"),
)
CONSTANT = ["Rollback the service to the last version", "Check the database", "Restart the deployment"]

TRUTH = "roll auth-service back to v2.3.0"
TIERS = ["Deploy v2.3.0 to auth-service", "Check auth-service to confirm", "Notify customers"]
"""Actions of the tiers of the released constants, written for this file."""


def cases(skill: float, rng: np.random.Generator) -> pl.DataFrame:
    """Sixteen cases; one system reads them and is right so often, one says the same always."""
    rows = []
    for service in SERVICES:
        for fault in FAULTS:
            truth = f"{service}: {fault}"
            other = f"{rng.choice(SERVICES)}: {rng.choice(FAULTS)}"
            rows.append(("reads", f"{service} {fault}", [truth if rng.random() < skill else other], truth))
            rows.append(("constant", f"{service} {fault}", CONSTANT, truth))
    return pl.DataFrame(rows, schema=["system", "case", "actions", "truth"], orient="row")


@reproduction(
    144,
    claim="Quality without variance comes from answers that do not depend on the case, and shuffling cases shows it.",
    baseline="a system that reads the case",
    criterion="the constant system has variance 0 and is flagged, and is as right on other cases' truths within 0.05; "
    "the other is not flagged and loses at least 0.3 there, in every seed; no actions score 0; the worked actions "
    "score .692",
    seeds=(0, 1, 2),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both systems."""
    holds, rows = True, []
    for seed in seeds:
        found = decision_quality(cases(0.8, np.random.default_rng(seed)))
        by = {row["system"]: row for row in found.iter_rows(named=True)}
        fixed, honest = by["constant"], by["reads"]
        holds &= fixed["constant"] and fixed["variance"] < 1e-3 and not honest["constant"]
        holds &= abs(fixed["correctness"] - fixed["elsewhere"]) <= 0.05
        holds &= honest["correctness"] - honest["elsewhere"] >= 0.3
        rows.append([fixed["quality"], honest["quality"], honest["correctness"], honest["elsewhere"]])
    nothing = decision_quality(pl.DataFrame({"system": ["s"], "case": ["c"], "actions": [[]], "truth": ["x"]},
                                            schema_overrides={"actions": pl.List(pl.String)}))  # fmt: skip
    tiers = decision_quality(pl.DataFrame({"system": ["s"], "case": ["c"], "actions": [TIERS], "truth": [TRUTH]}))
    worked = float(tiers["quality"][0])
    holds &= abs(worked - 0.692) < 1e-9
    names = ("constant_quality", "honest_quality", "honest_correctness", "honest_elsewhere")
    measured = dict(zip(names, np.mean(rows, 0).tolist())) | {"worked": worked}
    return Outcome(measured, bool(holds and float(nothing["quality"][0]) == 0.0))
