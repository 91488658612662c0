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

from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.rubric import agreement, rubric
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

RATES = (0.645, 0.635, 0.626, 0.562)
TASKS, POINTS, STUDIES = 104, 767, 500
FLIPS = (0.0, 0.1, 0.2)


def study(error: float, studies: int, seed: int = 0) -> pl.DataFrame:
    """Simulated studies of the published design, by `palaestra analyze`."""
    points = pl.DataFrame({"task": np.sort(np.arange(POINTS) % TASKS)})
    criteria = points.with_columns(criterion=pl.int_range(pl.len()).over("task"))
    systems = pl.DataFrame({"system": ["1st", "2nd", "3rd", "4th"], "rate": RATES})
    return powered(systems, criteria, f"judge_power({error}, studies={studies}, seed={seed})")


def powered(systems: pl.DataFrame, criteria: pl.DataFrame, text: str) -> pl.DataFrame:
    """The table that `palaestra analyze` makes of systems and criteria."""
    with tempfile.TemporaryDirectory() as folder:
        systems.write_csv(Path(folder) / "systems.csv")
        criteria.write_csv(Path(folder) / "criteria.csv")
        return analyze(text, Path(folder) / "systems.csv", Path(folder) / "criteria.csv")


def worked() -> tuple[float, float, float | None]:
    """2 of 3 bonus points and a penalty; penalties alone; no bonus at all."""
    criteria = pl.DataFrame({"criterion": ["a", "b", "c", "rude"], "kind": ["bonus"] * 3 + ["penalty"]})
    verdicts = pl.DataFrame({"trial": [0] * 4 + [1] * 4, "criterion": list(criteria["criterion"]) * 2,
                             "met": [1, 1, 0, 1, 0, 0, 0, 1]})  # fmt: skip
    both = rubric(verdicts, criteria, "net")["score"].to_list()
    only = criteria.filter(pl.col("kind") == "penalty")
    return both[0], both[1], rubric(verdicts.filter(pl.col("criterion") == "rude"), only, "net")["score"][0]


def scored(judgements: pl.DataFrame, criteria: pl.DataFrame, method: str = "net") -> pl.DataFrame:
    """What `palaestra analyze` makes of two tables."""
    with tempfile.TemporaryDirectory() as folder:
        judgements.write_csv(Path(folder) / "judgements.csv")
        criteria.write_csv(Path(folder) / "criteria.csv")
        return analyze(f'rubric("{method}")', Path(folder) / "judgements.csv", Path(folder) / "criteria.csv")


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
def points_weigh() -> None:
    """Points of weights 3 and 1 of 6, less a penalty of weight 2: 1/3; the point of weight 3 alone: 1/2."""
    heavy = KINDS.with_columns(weight=pl.Series([3.0, 1.0, 2.0, 2.0]))
    assert abs(scored(judged(1, 1, 0, 1), heavy)["score"].item() - 2 / 6) < 1e-9
    assert abs(scored(judged(1, 0, 0, 0), heavy)["score"].item() - 3 / 6) < 1e-9


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


@exact
def errors_shrink_leads() -> None:
    """A judge that errs in f of its verdicts shows (1 - 2f) of a lead, and parts best from fourth in fewer studies."""
    found = {flip: study(flip, 50).row(3, named=True) for flip in (0.0, 0.2)}
    assert abs(found[0.0]["lead"] / found[0.0]["true_lead"] - 1) < 1e-9
    assert abs(found[0.2]["lead"] / found[0.2]["true_lead"] - 0.6) < 0.12, found
    assert found[0.0]["found"] > 0.85, found
    assert 0.3 < found[0.2]["found"] < 0.75, found


@exact
def penalties_decide_studies() -> None:
    """A system with most points and most penalties is first by points alone and last net of penalties."""
    criteria = pl.DataFrame({"task": range(30)}).join(KINDS, how="cross")
    systems = pl.DataFrame({"system": ["eager", "careful"], "rate": [0.75, 0.6], "penalty": [0.9, 0.05]})
    net, mean = (
        powered(systems, criteria, f'judge_power(0.1, studies=20, method="{method}")') for method in ("net", "mean")
    )
    assert net["true_lead"][1] < net["lead"][1] < 0 < mean["lead"][1] < mean["true_lead"][1], (net, mean)


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
    """Worked scores, then 500 studies for each judge."""
    shares = {flip: study(flip, STUDIES, seeds[0])["found"].to_list()[1:] for flip in FLIPS}
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
