"""[133] AgentIF-OneDay (arXiv 2601.20613): rubric scores net of penalties, and what a judge of 80 % can tell apart.

Four systems at the published rates on 767 points in 104 tasks with shared difficulty; a judge flips a verdict with
chance f. Which of the published differences would such a study find? The score's formula is a reconstruction.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from scipy import stats

from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.rubric import agreement, rubric
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

RATES = (0.645, 0.635, 0.626, 0.562)
TASKS, POINTS, ANALYSES = 104, 767, 2000
FLIPS = (0.0, 0.1, 0.2)
SPREAD = 1.0
"""Standard deviation of the log odds over tasks, and again over the points of a task."""


def intercept(rate: float) -> float:
    """Log odds at which the mean over normal difficulties is the rate."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    grid = np.linspace(-4, 4, 4001)
    means = (1 / (1 + np.exp(-(grid[:, None] + np.sqrt(2) * SPREAD * nodes)))) @ weights / weights.sum()
    return float(np.interp(rate, means, grid))


def separated(flip: float, rng: np.random.Generator) -> np.ndarray:
    """Share of studies that find the best better than the 2nd, 3rd and 4th at 5 %: paired, clustered by task."""
    task = np.sort(np.arange(POINTS) % TASKS)
    sizes = np.bincount(task)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    found = np.zeros(len(RATES) - 1)
    for _ in range(ANALYSES // 100):
        hard = SPREAD * (rng.standard_normal((100, TASKS))[:, task] + rng.standard_normal((100, POINTS)))
        chance = 1 / (1 + np.exp(-(np.array([intercept(r) for r in RATES])[:, None, None] + hard)))
        met = rng.random(chance.shape) < chance
        seen = met ^ (rng.random(met.shape) < flip)
        scores = np.add.reduceat(seen, starts, axis=2, dtype=float) / sizes
        gap = scores[:1] - scores[1:]
        t = gap.mean(2) / (gap.std(2, ddof=1) / np.sqrt(TASKS))
        found += (t > stats.t.ppf(0.975, TASKS - 1)).sum(1)
    return found / ANALYSES


def worked() -> tuple[float, float, float | None]:
    """2 of 3 bonus points and a penalty; penalties alone; no bonus at all."""
    criteria = pl.DataFrame({"criterion": ["a", "b", "c", "rude"], "kind": ["bonus"] * 3 + ["penalty"]})
    verdicts = pl.DataFrame({"trial": [0] * 4 + [1] * 4, "criterion": list(criteria["criterion"]) * 2,
                             "met": [1, 1, 0, 1, 0, 0, 0, 1]})  # fmt: skip
    both = rubric(verdicts, criteria, "net")["score"].to_list()
    only = criteria.filter(pl.col("kind") == "penalty")
    return both[0], both[1], rubric(verdicts.filter(pl.col("criterion") == "rude"), only, "net")["score"][0]


def scored(judgements: pl.DataFrame, criteria: pl.DataFrame, rule: str = "net") -> pl.DataFrame:
    """What `palaestra analyze` makes of two tables."""
    with tempfile.TemporaryDirectory() as folder:
        judgements.write_csv(Path(folder) / "judgements.csv")
        criteria.write_csv(Path(folder) / "criteria.csv")
        return analyze(f'rubric("{rule}")', Path(folder) / "judgements.csv", Path(folder) / "criteria.csv")


KINDS = pl.DataFrame({"criterion": ["a", "b", "c", "rude"], "kind": ["bonus"] * 3 + ["penalty"]})


def judged(*met: int) -> pl.DataFrame:
    """Verdicts on the four points of one task."""
    return pl.DataFrame({"task": "t", "criterion": KINDS["criterion"], "met": met})


@exact
def points_and_penalties() -> None:
    """Two of three points met: 2/3, and 1/3 with a penalty; penalties alone 0; a task without points has no score."""
    assert abs(scored(judged(1, 1, 0, 0), KINDS)["score"].item() - 2 / 3) < 1e-9
    assert abs(scored(judged(1, 1, 0, 1), KINDS)["score"].item() - 1 / 3) < 1e-9
    assert scored(judged(0, 0, 0, 1), KINDS)["score"].item() == 0
    only = KINDS.filter(pl.col("kind") == "penalty")
    assert scored(judged(1, 1, 1, 1).filter(pl.col("criterion") == "rude"), only)["score"].item() is None


@exact
def tasks_weigh_alike() -> None:
    """A task of two points, both met, and one of twenty, half met: the mean over tasks is .75."""
    names = {"small": [f"s{n}" for n in range(2)], "large": [f"l{n}" for n in range(20)]}
    criteria = pl.DataFrame([{"task": task, "criterion": each} for task, all_ in names.items() for each in all_])
    met = [1, 1] + [1, 0] * 10
    assert scored(criteria.with_columns(met=pl.Series(met)), criteria)["score"].mean() == 0.75


@exact
def trust_in_a_judge() -> None:
    """A judge that always says met agrees with people on 80 % of points and deserves no trust."""
    people = [1] * 8 + [0] * 2
    assert agreement(people, [1] * 10) == (0.8, 0.0)
    assert agreement(people, people) == (1.0, 1.0)


def made(seed: int, folder: Path) -> None:
    """A system that meets more points and triggers the penalties, and one that does neither."""
    rng = np.random.default_rng(seed)
    criteria, rows = [], []
    for task in range(40):
        points = [(f"p{n}", "bonus") for n in range(6)] + [("rude", "penalty"), ("leaks", "penalty")]
        criteria += [{"task": f"t{task}", "criterion": name, "kind": kind} for name, kind in points]
        for system, chance in (("eager", (0.75, 0.6)), ("careful", (0.65, 0.05))):
            rows += [{"system": system, "task": f"t{task}", "criterion": name,
                      "met": int(rng.random() < chance[kind == "penalty"])} for name, kind in points]  # fmt: skip
    pl.DataFrame(criteria).write_csv(folder / "criteria.csv")
    pl.DataFrame(rows).write_csv(folder / "judgements.csv")


def lead_of_the_eager() -> Measure:
    """Mean score of the system that triggers penalties less that of the other."""

    def measured(left: Left) -> list[float]:
        rows = json.loads(left.stdout)
        means = [np.mean([row["score"] for row in rows if row["system"] == name]) for name in ("eager", "careful")]
        return [float(means[0] - means[1])]

    return measured


@reproduction(
    133,
    claim="Net rubric scores are exact; verdicts of a judge that errs in one of five support 'three tied, one behind' "
    "at best, and only about half of the time.",
    baseline="a judge that never errs",
    criterion="1/3, 0 and null; without errors the 4th is told apart in >= 90 % of studies, the 2nd in <= 20 %; with "
    "20 % errors the 4th in 35 to 75 % and the 2nd in <= 15 %",
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked scores, then 2000 studies for each judge."""
    rng = np.random.default_rng(seeds[0])
    shares = {flip: separated(flip, rng) for flip in FLIPS}
    measured = {
        f"separated_{rank}_flip_{flip}": float(share)
        for flip, found in shares.items()
        for rank, share in zip("234", found)
    }
    two_of_three, nothing, undefined = worked()
    measured |= {"two_of_three_with_penalty": two_of_three, "penalties_only": nothing}
    exact = abs(two_of_three - 1 / 3) < 1e-12 and nothing == 0 and undefined is None
    clear = shares[0.0][2] >= 0.9 and shares[0.0][0] <= 0.2
    blurred = 0.35 <= shares[0.2][2] <= 0.75 and shares[0.2][0] <= 0.15
    return Outcome(measured, bool(exact and clear and blurred))
