"""[54] Efficient Agents (arXiv 2508.02694): what a solved task costs, and why more tries rarely pay.

Worked numbers, two ways of putting levels together, and best-of-N with a verifier that errs: the cost of a success is
least at one try; stopping at the first answer that a perfect verifier passes costs the same at every N. Left out: GAIA.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.evaluation import analyses, cost_per_success
from palaestra.evaluation.teamwork import best_of_n, best_settings, cheapest, cost_over_levels
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

CHANCE, RIGHT, WRONG, TASKS, TRIES = 0.3, 0.8, 0.2, 40_000, (1, 2, 4, 8)


FACTORS: dict[str, tuple[str, ...]] = {
    "model": ("small", "large"), "tries": ("1", "2", "4", "8"), "memory": ("none", "summary", "all"),
}  # fmt: skip
BASE = {"model": "large", "tries": "2", "memory": "summary"}
PRICE = {"small": 1.0, "large": 4.0}
SKILL = {"small": 0.42, "large": 0.5}
REMEMBERS = {"none": (0.0, 0.0), "summary": (0.2, 0.03), "all": (1.5, 0.04)}
"""Tokens that a memory adds, as a share of the cost, and what it adds to the chance of an answer."""


def attempt(design: Mapping[str, str], rng: np.random.Generator) -> tuple[bool, float]:
    """Whether one task is solved and what it cost; failures go on for longer than successes."""
    more, better = REMEMBERS[design["memory"]]
    tries = int(design["tries"])
    solved = bool(rng.random() < best_of_n(SKILL[design["model"]] + better, tries, tpr=RIGHT, fpr=WRONG))
    return solved, PRICE[design["model"]] * tries * (1 + more) * (1.0 if solved else 1.6)


def attempts(seed: int, folder: Path) -> None:
    """Writes `attempts.csv`: one factor at a time is varied around a design."""
    rng, rows = np.random.default_rng(seed), []
    designs = [BASE | {name: value} for name, values in FACTORS.items() for value in values]
    for design in designs:
        for task in range(400):
            solved, cost = attempt(design, rng)
            rows.append({"task": f"{task}", **design, "success": solved, "cost": cost})
    pl.DataFrame(rows).write_csv(folder / "attempts.csv")


def fresh_cost() -> Measure:
    """Cost per solved task of what was chosen, put together, on 4000 other tasks."""

    def measured(left: Left) -> list[float]:
        design = {row["factor"]: row["setting"] for row in json.loads(left.stdout)}
        rng = np.random.default_rng(0)
        solved, cost = np.array([attempt(design, rng) for _ in range(4000)]).T
        return [float(cost.sum() / solved.sum())]

    return measured


@exact
def failures_count() -> None:
    """Σ cost / Σ success: a failed attempt is paid for."""
    np.testing.assert_allclose(pooled([0.1, 0.1, 0.1, 0.5], [1, 0, 1, 1]), 0.8 / 3)


@exact
def levels() -> None:
    """The card's levels: .80 pooled, 1.575 as the mean of their ratios."""
    rows = [
        {"system": "s", "task": f"{level}-{at}", "level": level, "cost": cost, "success": at < 10 * share}
        for level, cost, share in ((1, 0.1, 0.8), (2, 0.3, 0.5), (3, 0.8, 0.2)) for at in range(10)
    ]  # fmt: skip
    frame = pl.DataFrame(rows)
    np.testing.assert_allclose(cost_per_success(frame)["cost_per_success"], [0.8])
    np.testing.assert_allclose(cost_over_levels(frame, "level")["cost_per_success"], [1.575])


@exact
def unsolved_last() -> None:
    """A cheap system that solves nothing is the last one."""
    rows = [("cheap", "1", 0.01, False), ("dear", "1", 5.0, True), ("fair", "1", 1.0, True)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        pl.DataFrame(rows, schema=["system", "task", "cost", "success"], orient="row").write_csv(path)
        assert analyses.cost_of_pass()(path)["system"].to_list() == ["fair", "dear", "cheap"]


@exact
def per_kind() -> None:
    """Two kinds of tasks have two winners: at 1 and at 2 for a solved one."""
    rows = [("one", "easy", 1.0), ("two", "easy", 2.0), ("one", "hard", 9.0), ("two", "hard", 2.0)]
    frame = pl.DataFrame(rows, schema=["system", "kind", "cost"], orient="row").with_columns(task="kind", success=True)
    assert cheapest(frame, "kind").rows() == [("easy", "one", 1.0), ("hard", "two", 2.0)]


@exact
def assembled() -> None:
    """Each factor beside the commonest setting of the others, by cost per solved task and not by success."""
    rows = [
        ("large", 1, 40, 8), ("small", 1, 10, 6), ("small", 4, 40, 9), ("small", 1, 10, 6),
    ]  # fmt: skip
    table = [
        {"task": f"{at}", "model": model, "tries": tries, "cost": cost / 10, "success": at < solved}
        for model, tries, cost, solved in rows for at in range(10)
    ]  # fmt: skip
    found = best_settings(pl.DataFrame(table), ["model", "tries"])
    assert found["setting"].to_list() == ["small", "1"]
    np.testing.assert_allclose(found["cost_per_success"], [20 / 12] * 2)
    assert best_settings(pl.DataFrame(table), ["model", "tries"], by="success")["setting"].to_list() == ["large", "4"]


@exact
def tasks_together() -> None:
    """Attempts at one task stay together: four at each of ten tasks tell as much as one at each."""
    once = pl.DataFrame({"system": "s", "task": [f"{k}" for k in range(10)], "cost": 1.0, "success": [1.0, 0.0] * 5})
    ends = [cost_per_success(frame).select("low", "high").row(0) for frame in (once, pl.concat([once] * 4))]
    np.testing.assert_allclose(ends[0], ends[1])
    margin = 2.262157 / 3  # Student's t of 9 degrees, √(10/9 · Σ (c/Σc - s/Σs)²)
    np.testing.assert_allclose(ends[0], 2 * np.exp([-margin, margin]), rtol=1e-6)


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
