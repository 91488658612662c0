"""[90] AstaBench: a suite's score is a mean over tags, cost comes from pinned prices, and a missing part is not free.

Exact, on the worked numbers of the released scorer. Left out: the benchmark's own tasks.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from palaestra.evaluation.dominance import frontier
from palaestra.evaluation.suite import Price, Prices, Suite, price, suite_score
from palaestra_atlas.reproductions import Outcome, reproduction

SCORES = {"papers": 0.6, "tables": 0.4, "code": 0.3, "data": 0.2}
SUITE = Suite.of({"tasks": [
    {"name": "papers", "tags": ["lit"]}, {"name": "tables", "tags": ["lit"], "weight": 0.5},
    {"name": "code", "tags": ["code"]}, {"name": "data", "tags": ["data"]},
]})  # fmt: skip
AGENTS = {"agent": list("abcdef"), "cost": [1, 2, 4, 5, 10, 2], "score": [0.30, 0.50, 0.55, 0.54, 0.80, 0.45]}


def overall(names: Sequence[str], missing: str = "zero") -> float:
    """The suite's score of a system that was run on these tasks."""
    common = {"system": "s", "run": "run", "trial": 0, "cost": 1.0}
    rows = [common | {"task": f"{name}/1", "score": SCORES[name]} for name in names]
    table = suite_score(pl.DataFrame(rows), SUITE, missing=missing)  # type: ignore[arg-type]
    return float(table.filter(pl.col("level") == "overall")["score"].item())


@reproduction(
    90,
    claim="The mean over tags differs from the mean over tasks, a missing task counts as zero unless said otherwise, "
    "and a cost with an unknown part is unknown.",
    baseline="the mean over tasks (.375)",
    criterion="overall .3444, without one task .2778 and .4167, to 5e-5; the frontier is a, b, c, e; a model without a "
    "price has no cost",
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Tag means, missing parts, prices, frontier."""
    whole, three = list(SCORES), ["papers", "tables", "code"]
    measured = {
        "overall": overall(whole),
        "task_mean": sum(SCORES.values()) / 4,
        "missing_as_zero": overall(three),
        "missing_left_out": overall(three, "preserve"),
    }
    best = frontier(pl.DataFrame(AGENTS)).filter("frontier")["agent"].str.join("").item()
    turns = pl.DataFrame({"policy": ["m", "new"], "tokens_in": [1000, 1000], "tokens_out": [100, 100]})
    costs = price(turns, Prices("2026-01-01", {"m": Price(3.0, 15.0)}))["cost"].to_list()
    measured["cost"] = costs[0]
    near = {"overall": 0.3444, "missing_as_zero": 0.2778, "missing_left_out": 0.4167}
    holds = all(abs(measured[name] - value) <= 5e-5 for name, value in near.items())
    return Outcome(measured, holds and best == "abce" and costs[1] is None)
