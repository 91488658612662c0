"""Every statistic on tables made for it, ties at the thresholds among them, gives what it gave; see `tests.frozen`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.frozen import Case, changed, kinds, write

from palaestra import evaluation as e
from palaestra.evaluation import aggregates, anchors, clusters, intervals, power, reducers, sequences
from palaestra.evaluation.attempts import attempt_chain, pass_by_attempt, ten_points
from palaestra.evaluation.consistency import divergence
from palaestra.evaluation.counterfactual import risk_difference
from palaestra.evaluation.population import (
    binomial_regression,
    cohens_d,
    exposure,
    exposure_slope,
    gini,
    matched_effect,
    powerlaw_fit,
    quadratic_test,
    roles,
)
from palaestra.evaluation.rubric import agreement, rubric
from palaestra.evaluation.suite import Price, Prices, Suite, SuiteTask, price, suite_score
from palaestra.evaluation.tolerance import check_fresh_seeds, check_rerun, series_match
from palaestra.rewards.paths import path_credit

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # what is 0 / 0 is left out before it is divided
FROZEN = Path(__file__).with_name("frozen.json")
FEW = 40
"""Resamples: the numbers are kept, not believed."""
ERRORS = (None, None, None, None, "env: OSError: no", "policy-timeout: late", "agent: ValueError: own fault")
DESIGNS = {  # runs, tasks, trials of a task, share of rows that are not there, tasks of a cluster
    "one run": (1, 12, 3, 0.1, 0),
    "three runs": (3, 9, 2, 0.15, 0),
    "single trials": (1, 30, 1, 0.0, 0),
    "two of a cluster": (1, 24, 2, 0.1, 2),
    "runs and clusters": (2, 20, 2, 0.1, 3),
    "one task": (1, 1, 9, 0.0, 0),
    "five tasks": (1, 5, 2, 0.0, 0),
    "eight tasks": (1, 8, 2, 0.0, 0),
    "ten tasks": (1, 10, 1, 0.0, 0),
    "two runs of two": (2, 2, 2, 0.0, 0),
    "one run of each task": (4, 4, 1, 0.75, 0),
}


@cache
def table(design: str, skewed: bool = False) -> pl.DataFrame:
    """Trials of three systems: success and quarters of a score, with nulls; or a score with a heavy tail."""
    runs, tasks, per, gone, together = DESIGNS[design]
    rng = np.random.default_rng(len(design))
    hard, rows = rng.beta(1, 1, tasks), []
    for s, system in enumerate(("before", "after", "other")):
        for run in range(runs):
            for task in range(tasks):
                for trial in range(per):
                    won, score, luck = rng.random() < hard[task] ** (1 - 0.4 * s), rng.random() + 0.2 * s, rng.random(9)
                    score = math.exp(3 * score) if skewed else round(4 * score) / 4
                    error = ERRORS[int(luck[1] * 30)] if luck[1] < 0.2 else None
                    own = bool(won) if error is None else False if error.startswith("agent") else None
                    if luck[0] >= gone:
                        rows.append(
                            {
                                "system": system,
                                "run": str(run),
                                "task": f"t{task:02}",
                                "trial": trial,
                                "success": own,
                                "score": score if error is None and luck[2] > 0.05 else None,
                                "error": error,
                                "turns": 1 + int(4 * luck[3]),
                                "tokens_in": None if luck[4] < 0.1 else int(50 * luck[5]),
                                "tokens_out": int(20 * luck[6]),
                                "cost": None if luck[7] < 0.1 else round(luck[8], 2),
                                "tools": [("look", "go", "take")[int(x * 3)] for x in luck[: 2 + int(4 * luck[3])]],
                                "variant": "ab"[trial % 2],
                                **({"cluster": f"c{task // together}"} if together else {}),
                            }
                        )
    return pl.DataFrame(rows, infer_schema_length=None)


def own(design: str, skewed: bool = False) -> pl.DataFrame:
    return table(design, skewed).filter(pl.col("system") == "after")


def holes(shape: tuple[int, int], seed: int, share: float = 0.25) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape)
    values[rng.random(shape) < share] = np.nan
    return values


def compared(design: str, value: str) -> list[object]:
    found = e.comparison_table(table(design), value=value, resamples=FEW)
    return [[row.to_dict(), e.verdict(row)] for row in found] + [found._repr_html_()]


def said(**changes: object) -> str:
    """The verdict on one row, with its difference, its loss or its size changed."""
    row = e.comparison_table(table("one run"), resamples=FEW)[1]
    assert row.difference is not None
    base = replace(row.difference, mean=0.1, low=0.02, high=0.3, p=0.01, caution="", detectable=0.2, more_tasks=3)
    of_difference = {name: x for name, x in changes.items() if name in base.__dataclass_fields__}
    lost = {"before": (1, 10, {"env": 1})} | changes.get("lost", {})  # type: ignore[operator]
    of_row = {name: changes[name] for name in ("trials", "value") if name in changes}
    if "of" in changes:
        of_row["tasks"] = changes["of"]
    return e.verdict(replace(row, lost=lost, difference=replace(base, **of_difference), **of_row))  # type: ignore[arg-type]


def designed() -> Iterator[tuple[str, Case]]:
    for design in DESIGNS:
        for value in ("success", "score"):
            at = f"{design}, {value}"
            yield f"difference, {at}", partial(pair, design, value)
            yield f"variance, {at}", lambda d=design, v=value: e.variance_components(own(d), value=v)
            yield f"spread, {at}", lambda d=design, v=value: e.run_spread(own(d), value=v)
            yield f"interval, {at}", lambda d=design, v=value: e.mean_interval(own(d), value=v, resamples=FEW)
            yield f"matrix, {at}", partial(pivoted, design, value)
            yield f"robustness, {at}", lambda d=design, v=value: e.robustness(table(d), "after", "before", value=v)
            yield f"sensitivity, {at}", lambda d=design, v=value: e.sensitivity(own(d), variant="variant", value=v)
        yield f"skewed difference, {design}", partial(pair, design, "score", True)
        yield f"skewed interval, {design}", lambda d=design: e.mean_interval(own(d, True), resamples=FEW)
        yield f"success, {design}", lambda d=design: e.success_interval(own(d), level=0.9)
        yield f"share, {design}", lambda d=design: e.mean_interval(own(d), value="success", share=False, resamples=FEW)
        yield f"cost, {design}", lambda d=design: e.cost_per_success(table(d))
        yield f"consistency, {design}", lambda d=design: e.consistency(table(d), actions="tools")
        yield f"divergences, {design}", lambda d=design: e.divergences(table(d), tokens="tools")
        yield f"k, {design}", partial(of_k, design)
    for design in ("one run", "three runs", "two of a cluster", "one task", "two runs of two"):
        yield f"comparison, {design}", partial(compared, design, "success")
        yield f"comparison, {design}, score", partial(compared, design, "score")


def pair(design: str, value: str, skewed: bool = False) -> object:
    trials = table(design, skewed)
    found = e.paired_difference(trials, "after", "before", value=value, resamples=FEW, seed=1)
    return [
        found,
        e.advice(found),
        e.paired_difference(trials, "before", "other", value=value, level=0.8, resamples=FEW),
    ]


def pivoted(design: str, value: str) -> object:
    made = e.matrix_table(table(design), rows="system", columns="variant", value=value)
    return [made, e.wide(made), e.wide(made, "n")]


def of_k(design: str) -> object:
    names: tuple[reducers.Reducer, ...] = ("pass_at_k", "pass_hat_k", "all_k", "best_of")
    found: list[object] = [e.k_estimate(own(design), name, k) for name in names for k in (1, 2, 3)]
    found += [e.per_task(own(design), "all_k", 2, missing=missing) for missing in (None, True, False)]
    return [*found, e.per_task(own(design), "best_of", 2, value="cost", select="score")]


def verdicts() -> Iterator[tuple[str, Case]]:
    changes: dict[str, dict[str, object]] = {
        "better": {},
        "worse": {"mean": -0.1, "low": -0.3, "high": -0.02},
        "p at alpha": {"p": 0.05},
        "p above": {"p": 0.06},
        "low at 0": {"low": 0.0},
        "high at 0": {"mean": -0.1, "low": -0.3, "high": 0.0},
        "lost at most": {"lost": {"after": (2, 10, {"env": 2})}},
        "lost more": {"lost": {"after": (3, 10, {"env": 3})}},
        "no interval": {"low": math.nan},
        "nothing": {"n": 0},
        "dropped": {"dropped": 1, "low": -0.1},
        "two runs": {"runs": 2},
        "one task": {"of": 1},
        "two tasks": {"tasks": 2},
        "a task": {"tasks": 1},
        "one trial": {"trials": 1, "most": 1},
        "two trials": {"trials": 2, "most": 2},
        "a score": {"value": "score"},
        "doubt": {"caution": "hm"},
        "no number": {"low": -0.1, "detectable": math.nan},
        "one more": {"low": -0.1, "more_tasks": 1, "more_runs": 2},
        "none more": {"low": -0.1, "more_tasks": 0, "more_runs": -1},
        "a run more": {"low": -0.1, "more_tasks": -1, "more_runs": 1},
        "clusters": {"low": -0.1, "method": "by cluster", "more_tasks": 1},
        "one task of clusters": {"low": -0.1, "method": "by cluster", "of": 1},
        "many": {"low": -0.1, "method": "by cluster"},
    }
    for name, change in changes.items():
        yield f"verdict, {name}", lambda c=change: said(**c)
    quarter = pl.DataFrame(
        {
            "system": ["a"] * 5 + ["b"] * 5,
            "run": "0",
            "task": [*"vwxyz"] * 2,
            "trial": 0,
            "success": [True] * 5 + [False] * 5,
            "score": [1.0] * 5 + [0.5] * 5,
        }
    )
    for value in ("success", "score"):
        yield f"all apart, {value}", lambda v=value: e.paired_difference(quarter, "a", "b", value=v)
        yield f"all equal, {value}", lambda v=value: e.paired_difference(quarter, "a", "a", value=v)
        yield f"no spread, {value}", lambda v=value: e.mean_interval(quarter.filter(pl.col("system") == "a"), value=v)
    yield "difference of one resample", partial(e.paired_difference, table("one run"), "after", "before", resamples=1)
    yield "robustness of nothing", lambda: e.robustness(quarter, "b", "a")
    yield "cost of nothing", lambda: e.cost_per_success(table("one run").with_columns(cost=0.0))
    yield "cost of no success", lambda: e.cost_per_success(table("one run").with_columns(success=False))
    yield "resources of one", lambda: [e.resource_consistency(x) for x in ([0], [0.0, None], [2])]
    yield "variance of equals", lambda: e.variance_components(quarter.filter(pl.col("system") == "a"))
    yield "holm", lambda: e.holm([0.04, math.nan, 0.01, 0.01, 0.5, 0.9])


def of_arrays() -> Iterator[tuple[str, Case]]:
    groups = np.array([0, 0, 1, 2, 2, 3, 1, 0, 4, 4, 5, 6])
    heavy = np.exp(2 * holes((1, 12), 9, 0.0))
    for shape in ((1, 12), (3, 12), (2, 2), (5, 3), (1, 2), (1, 1), (8, 1), (1, 8), (1, 7), (1, 9), (1, 10)):
        for share in (0.0, 0.3):
            x, at = holes(shape, sum(shape), share), f"{shape}, {share}"
            g = groups[: shape[1]]
            yield (
                f"clustered, {at}",
                lambda x=x, g=g: [intervals.clustered_variance(x), intervals.clustered_variance(x, g)],
            )
            yield (
                f"of cells, {at}",
                lambda x=x, g=g: [intervals.mean_of_cells(x, n=9, resamples=FEW, groups=k) for k in (None, g)],
            )
            some = np.isfinite(x).any()
            yield (
                f"share of cells, {at}",
                lambda x=x, g=g, some=some, tasks=shape[1]: [
                    intervals.share_of_cells(np.clip(x, 0, 1), n=n * some, groups=k)
                    for k in (None, g)
                    for n in (tasks, 60)
                ],
            )
            yield f"two ways, {at}", lambda x=x: [power.two_way(x), *(e.more_units(x, d) for d in (0.1, 0.5, 3.0, 0.0))]
            yield (
                f"draws, {at}",
                lambda x=x, g=g: [intervals.studentised(x, k, resamples=20, seed=3) for k in (None, g)],
            )
            yield f"flips, {at}", lambda x=x: e.sign_flip_pvalue(x.ravel(), resamples=FEW)
    yield "caution", lambda: [intervals.caution(x) for x in (heavy, heavy[:, :9], heavy[:, :10], np.ones((1, 12)))]
    yield "caution of clusters", lambda: [intervals.caution(heavy, groups), intervals.caution(heavy[:, :1], groups[:1])]
    yield "settle", lambda: [intervals.settle(x, np.array([2.0, -8.0, np.nan])) for x in (8e-12, 8.1e-12, -8e-12, 1.0)]
    yield "binary", lambda: [intervals.binary(pl.Series(x)) for x in ([True], [0, 1], [1, 1], [0.0, 1.0, None], [0, 2])]
    counts = np.arange(6)
    yield "wilson", lambda: [intervals.wilson(counts, 5, level=level) for level in (0.8, 0.95)]
    yield "exact", lambda: [intervals.clopper_pearson(counts, 5, level=level) for level in (0.8, 0.95)]
    grid = np.meshgrid(np.arange(6), np.arange(1, 7))
    yield "pass at k", lambda: [f(5, *grid) for f in (e.pass_at_k, e.pass_hat_k)]
    for c, n, k in ((-1, 2, 1), (3, 2, 1), (0, 2, 0), (0, 0, 1), (2, 2, 1)):
        yield f"pass at k, {c}, {n}, {k}", lambda c=c, n=n, k=k: e.pass_at_k(n, c, k)
    for k, steps in enumerate(
        (
            [1.0],
            [0.5, 0.5, -0.25],
            [1, -1, 1],
            [1 / 3] * 12,
            [0.0],
            np.pi * np.arange(1, 13),
            np.pi * np.arange(1, 14),
            -(np.e ** np.arange(1, 13)),
            [1 / 65, 3 / 64],
            [1 / 64, 3 / 64],
        )
    ):
        yield f"flips {k}", lambda s=steps: e.sign_flip_pvalue(np.array(s, float), resamples=FEW)
    looks = [(float(i), np.append(np.full(8 + 2 * i, 0.25), [-0.25, 0.0, np.nan])) for i in range(1, 5)]
    for planned in (None, 3, 4):
        yield f"first proof, {planned}", lambda p=planned: e.first_significant(looks, planned=p)
    yield (
        "no proof",
        lambda: [e.first_significant([(1.0, np.array(d))]) for d in ([], [-1.0] * 9, [1.0] * 6, [1.0] * 7)],
    )
    yield (
        "first proof at 1",
        lambda: e.first_significant([(1.0, np.full(6, 1.0))], alpha=1 / 16),
    )  # p = 2^-5 = alpha / 2
    yield (
        "power",
        lambda: [
            *(e.t_power(s, d, n, paired=p) for s, d, n, p in ((1, 1, 5, True), (2, -1, 9, False), (1, 0.5, 30, True))),
            *(
                e.detectable_difference(s, power=p, alpha=a, freedom=f)
                for s, p, a, f in ((1, 0.8, 0.05, 5), (2, 0.9, 0.1, 99))
            ),
            *(
                e.runs_needed(s, d, paired=p, test=t)
                for s, d, p, t in (
                    (1, 0.5, True, "t"),
                    (1, 0.5, True, "z"),
                    (1, -0.5, False, "t"),
                    (0, 1, False, "t"),
                    (0.01, 1, False, "t"),
                )
            ),
            *(e.mcnemar_power(a, b, n) for a, b, n in ((0.1, 0.2, 5), (0.3, 0.1, 6), (0.02, 0.3, 30), (0.1, 0.1, 12))),
            *(e.mcnemar_tasks(a, b, power=p) for a, b, p in ((0.05, 0.4, 0.8), (0.4, 0.05, 0.5), (0.0, 0.9, 0.5))),
        ],
    )
    for bad in (
        (-1, 1, 0.8, 0.05),
        (1, 0, 0.8, 0.05),
        (1, 1, 1.0, 0.05),
        (1, 1, 0.0, 0.05),
        (1, 1, 0.8, 0.0),
        (1, 1, 0.8, 1.0),
    ):
        yield f"runs needed, {bad}", lambda b=bad: e.runs_needed(b[0], b[1], power=b[2], alpha=b[3])
    for bad in ((0.1, 0.1, 99), (0.1, 0.3, 8), (0.1, 0.3, 99), (0.1, 0.3, 64)):
        yield f"mcnemar, {bad}", lambda b=bad: e.mcnemar_tasks(b[0], b[1], most=b[2])


def of_scores() -> Iterator[tuple[str, Case]]:
    rng = np.random.default_rng(5)
    a, b = np.round(rng.random((4, 6)) * 4) / 4, np.round(rng.random((3, 6)) * 4) / 4
    for over in ("runs", "runs and tasks"):
        for fixed in (True, False):
            yield (
                f"bootstrap, {over}, {fixed}",
                lambda o=over, c=fixed: e.bootstrap_interval(a, over=o, corrected=c, resamples=FEW),
            )
            yield (
                f"improvement, {over}, {fixed}",
                lambda c=fixed: e.improvement_interval(a, b, corrected=c, resamples=FEW),
            )
    yield "one run", lambda: [e.bootstrap_interval(a[:1], resamples=FEW), e.bootstrap_interval(a[:2], resamples=FEW)]
    yield "profile", lambda: e.performance_profile(a, np.linspace(0, 1, 5), resamples=FEW)
    yield "blocks", lambda: [x.mean() for x in aggregates._resampled(a, True, 7, 0, 3)]
    yield (
        "aggregates",
        lambda: [
            *(e.interquartile_mean(x) for x in (a, b, a[:1, :3], a[:1, :4], a[:1, :5])),
            e.optimality_gap(a),
            e.optimality_gap(a, target=0.5),
            e.probability_of_improvement(a, b),
            *map(
                e.score_matrix, (own("ten tasks").drop_nulls("score"), own("two runs of two").with_columns(score=1.5))
            ),
        ],
    )
    sure = np.array([0.0, 0.1, 0.1, 0.25, 0.5, 0.5, 0.5, 0.75, 0.9, 1.0, 1.0, 0.3, 0.3])
    right = np.array([0, 0, 1, 0, 1, 0, 1, 1, 1, 1, 0, 0, 1])
    for bins in (1, 4, 10):
        yield f"calibration, {bins}", lambda n=bins: e.calibration(sure, right, bins=n, resamples=FEW)
    yield (
        "calibration of clusters",
        lambda: e.calibration([*sure, None], [*right, 1], cluster=[*"aabbccddeeffgg"], resamples=FEW),
    )
    yield "calibration of one kind", lambda: e.calibration(sure, right * 0, resamples=FEW)
    yield "calibrated", lambda: e.calibration(np.tile([0.25, 0.75], 20), np.arange(40) % 4 > 1, resamples=FEW)
    yield "spiegelhalter", lambda: [e.calibration_pvalue(sure, right), e.calibration_pvalue([0.5, 1.0], [0, 1])]
    for wrong in ([1.1], [-0.1], [None]):
        yield f"calibration, {wrong}", lambda w=wrong: e.calibration(w, [1], resamples=3)
    points = np.round(rng.random((12, 4)) * 8) / 8
    for d in (1, 2, 3, 4):
        yield (
            f"dominance, {d}",
            lambda d=d: [
                e.nondominated(points[:, :d]),
                e.nondominated(-points[:, :d]),
                e.hypervolume(points[:, :d], np.full(d, 0.25)),
                e.hypervolume(points[:, :d], np.ones(d)),
                e.eum(points[:, :d], e.simplex_weights(d, 5, seed=2)),
                e.eum(points[:, :d], e.simplex_weights(d, 5), utility=lambda p, w: (p * w).min(-1)),
            ],
        )
    costs = pl.DataFrame(
        {
            "name": [*"abcdefgh"],
            "cost": [1.0, 1, 2, 2, 3, 4, None, 0.5],
            "score": [0.25, 0.5, 0.5, 1, 1.25, 1.5, 9, None],
        }
    )
    yield (
        "pareto",
        lambda: [e.pareto(costs, min=["cost"], max=["score"]), e.pareto(costs, min=["score"]), e.frontier(costs)],
    )
    yield "collinear", lambda: e.frontier(pl.DataFrame({"cost": [0.0, 1, 2, 3, 4], "score": [0.0, 1, 2, 2.5, 3.5]}))
    yield "scalarise", lambda: [e.scalarise(points, [1, 2, 0, -1]), e.scalarise(points, utility=lambda v: v.min(-1))]
    yield (
        "gated",
        lambda: [e.gated_score([0.91234567, 1.0, 0.0], [0.5, 1.0, 0.0], [1.0, 0.3, 0.0], digits=n) for n in (None, 4)],
    )
    for bad in ((1.1, 0.5, 0.5), (0.5, -0.1, 0.5), (0.5, 0.5, 2)):
        yield f"gated, {bad}", lambda b=bad: e.gated_score(*b)
    calls = pl.DataFrame(
        {
            "episode": [0, 0, 0, 1, 1, 2, 2, 2, 2, 3],
            "tool": [*"abaaaabbca"],
            "status": [400, 500, 200, 399, 200, 200, 400, 399, 500, 429],
        }
    )
    yield "calls", lambda: e.call_robustness(calls)
    worst = pl.DataFrame({"episode": [0, 0, 1], "severity": ["low", "high", "medium"]})
    yield "safety", lambda: [e.safety_score(worst, 5), e.safety_score(worst, 2), e.safety_score(worst[:0], 3)]
    yield "safety, too few", lambda: e.safety_score(worst, 1)
    yield "safety, none", lambda: e.safety_score(worst[:0], 0)
    yield (
        "clusters",
        lambda: [
            clusters.silhouette(clusters.distances(points, points), k)
            for k in (np.arange(12) % 3, np.array([0] + [1] * 11), np.zeros(12, int))
        ],
    )
    yield (
        "kmeans of ties",
        lambda: [clusters.kmeans(np.array([[0.0], [9.0]]), 2, 3, np.random.default_rng(i)) for i in range(6)],
    )
    yield "kmeans of equals", lambda: clusters.kmeans(np.ones((3, 2)), 2, 1, np.random.default_rng(0))
    yield "kmeans", lambda: clusters.kmeans(points, 3, 2, np.random.default_rng(0))
    yield (
        "consistency",
        lambda: [
            e.outcome_consistency([0, 0.25, 0.5, 1]),
            divergence([1, 0, 3], [2, 2, 1]),
            *(
                e.sequence_similarity(x, y, k)
                for x, y in (("abc", "xbcd"), ("", ""), ("a", ""), ("aab", "baa"), ("abcd", "dcba"))
                for k in ("levenshtein", "histogram")
            ),
            *map(e.resource_consistency, ([1, 2, None], [0, 0], [1], [-1, 1], [0.5, 0.5, 2], [])),
        ],
    )


def of_rows() -> Iterator[tuple[str, Case]]:
    rng = np.random.default_rng(8)
    n = 40
    choices = pl.DataFrame(
        {
            "system": ["x"] * 30 + ["y"] * 10,
            "episode": np.repeat(np.arange(8), 5),
            "turn": np.tile(np.arange(5), 8),
            "action": (rng.random(n) < 0.6).astype(int),
        }
    )
    yield "sequences", lambda: sequences.sequence_tests(choices)
    yield "sequences, longer", lambda: sequences.sequence_tests(choices, longest=2, level=0.8, series=())
    yield "constant sequences", lambda: sequences.sequence_tests(choices.with_columns(action=1))
    yield "one choice", lambda: sequences.sequence_tests(choices[:1])
    yield "alternation", lambda: sequences.sequence_tests(choices.with_columns(action=pl.col("turn") % 2), series=())
    yield (
        "divergence",
        lambda: [e.first_divergence([*a], [*b]) for a, b in (("", "a"), ("ab", "ab"), ("ab", "abc"), ("abc", "axc"))],
    )
    met = pl.DataFrame(
        {
            "task": ["t"] * 5 + ["u"] * 4,
            "criterion": [*"abcde", *"abce"],
            "trial": 0,
            "met": [1.0, 0.5, 0.25, 0.5, 1.0, 1.0, 1.0, 0.75, None],
        }
    )
    kinds = pl.DataFrame(
        {
            "criterion": [*"abcde"],
            "weight": [1.0, 2.0, 0.5, 1.5, 1.0],
            "step": [3, 1, 2, 4, 5],
            "kind": ["bonus", "bonus", "bonus", "gate", "penalty"],
        }
    )
    full = met.filter(pl.col("task") == "t")
    for rule in ("mean", "net", "gated", "all", "path"):
        yield (
            f"rubric, {rule}",
            lambda r=rule: [rubric(met, kinds, r), rubric(full, kinds, r, threshold=0.25, gamma=0.5)],
        )
        yield f"rubric, {rule}, no kinds", lambda r=rule: rubric(full, kinds.drop("kind", "weight"), r, threshold=0.25)
        yield f"rubric, {rule}, penalties", lambda r=rule: rubric(full, kinds.with_columns(kind=pl.lit("penalty")), r)
    yield "rubric, path, half", lambda: rubric(full.with_columns(met=pl.lit(0.5)), kinds, "path")
    yield "paths", lambda: [path_credit(rng_paths()), path_credit([[1, 1, 1, 0.5]], 1.0), path_credit([[0.5, 1.0]])]
    yield (
        "agreement",
        lambda: [agreement([1, 0, 1, 1], [0, 0, 1, 1]), agreement([1, 1], [1, 1]), agreement([0, 1], [1, 0])],
    )
    suite = Suite(
        (SuiteTask("a", ("x", "y"), weight=2.0), SuiteTask("b", ("x",), metric="success"), SuiteTask("c", ("y",)))
    )
    played = own("three runs").with_columns(
        task=pl.col("task").replace({"t00": "a", "t01": "a/1", "t02": "b", "t03": "b/2", "t04": "ab"})
    )
    for missing in ("zero", "preserve"):
        yield f"suite, {missing}", lambda m=missing: suite_score(played, suite, missing=m)
        yield (
            f"suite without tags, {missing}",
            lambda m=missing: suite_score(
                played.with_columns(cost=0.5, cluster=pl.col("task").str.slice(0, 1)),
                Suite(tuple(replace(t, tags=()) for t in suite.tasks)),
                missing=m,
            ),
        )
    prices = Prices("d", {"m": Price(3, 15, 0.3, 4), "k": Price(1, 2)})
    tokens = pl.DataFrame(
        {
            "policy": ["m", "m", "k", "k", "z"],
            "tokens_in": [100, 50, 10, 10, 1],
            "tokens_out": [7, 0, 5, 5, 1],
            "tokens_cached": [40, 0, 0, 3, 0],
            "tokens_cache_write": [10, 50, 0, 0, 0],
            "cost": [None, 9.0, None, None, None],
        }
    )
    yield (
        "price",
        lambda: [
            price(tokens, prices)["cost"] * 1e6,
            price(tokens.drop("cost", "tokens_cached"), prices)["cost"] * 1e6,
        ],
    )
    yield (
        "series",
        lambda: [
            series_match([1.25, 2.25, math.nan], [1.0, 2.0, 3.0], rtol=0, atol=0.25),
            series_match([2.5, 9], [2, 3, 4], rtol=0.25, atol=0),
        ],
    )
    yield (
        "rerun",
        lambda: [
            check_rerun([1.0, 2], [1.0, 2.5]),
            check_rerun([1, 2], [1, 2]),
            check_rerun([1], [1, 2]),
            check_rerun([], []),
            check_rerun([1.0], [math.nan]),
        ],
    )
    yield (
        "fresh seeds",
        lambda: [
            check_fresh_seeds(1.0, [1.0, 1.0]),
            check_fresh_seeds(1.5, [1, 1.5, 0, math.nan]),
            check_fresh_seeds(2, [1, 2]),
        ],
    )
    yield "too few seeds", lambda: check_fresh_seeds(1.0, [1.0, math.nan])
    flagged = pl.DataFrame(
        {"arm": ["f", "c"] * 9, "seed": np.repeat(np.arange(9), 2), "flag": [*(rng.random(17) < 0.5).tolist(), None]}
    )
    yield "risk", lambda: risk_difference(flagged, "f", "c")
    levels = pl.DataFrame(
        {
            "d": [None, 0.5, 0.25, 0.5, 0.5, 0.5, 0.5, None, 0.25],
            "t": [None, None, 0.25, 0.25, 0.5, 0.3, 0.251, 0.25, 0.0],
            "b": 0.25,
            "r": [1.25] * 6 + [0.26, 1.25, 1.25],
        }
    )
    yield (
        "levels",
        lambda: levels.select(
            anchors.capability_level("d", "t", "b", "r"),
            anchors.normalise_between(pl.col("t"), pl.col("b"), pl.col("r")),
        ),
    )
    yield (
        "anchors",
        lambda: [
            anchors.normalise_between([1, 2], 1, [3, 1]),
            anchors.improvement(3.0, -2.0),
            anchors.standardise_error(3.0, 1.0, 4.0),
            anchors.luck_of_the_best(1),
            anchors.luck_of_the_best(5),
        ],
    )
    yield "no luck", lambda: anchors.luck_of_the_best(0)
    log = pl.DataFrame(
        {
            "system": ["s"] * 6,
            "group": [0, 0, 0, 1, 1, 2],
            "episode": 0,
            "turn": [0, 1, 2, 0, 1, 0],
            "score.attempt": [4.0, 10.0, 10.0, 9.5, 9.0, 11.0],
        }
    )
    yield (
        "attempts",
        lambda: [pass_by_attempt(log), pass_by_attempt(log, perfect=9.0), ten_points([0.5, 1, 0], [0.5, 0.3, 0.2])],
    )
    for carry in ("best", "first"):
        yield (
            f"chain, {carry}",
            lambda c=carry: [
                attempt_chain(
                    lambda k, w, heard: (*w, k, len(heard)),
                    lambda k, w: ((3 * len(w) + k) % 11, ("x",) * (len(w) % 3)),
                    (),
                    subtasks=4,
                    most=m,
                    carry=c,
                )
                for m in (1, 2, 4)
            ],
        )
    yield "chain, none", lambda: attempt_chain(lambda k, w, h: w, lambda k, w: (1.0, ()), 0, subtasks=1, most=0)


def rng_paths() -> np.ndarray:
    return (np.random.default_rng(0).random((6, 4)) < 0.6).astype(float)


def of_many() -> Iterator[tuple[str, Case]]:
    rng = np.random.default_rng(2)
    agents = [*"abcdef"]
    edges = pl.DataFrame({"agent": [*"bccdeffa"], "source": [*"aabcadea"]}).filter(pl.col("agent") != pl.col("source"))
    took = pl.DataFrame({"item": ["i"] * 5 + ["j"] * 3, "agent": [*"abcde", *"cda"], "time": [0, 1, 1, 3, 4, 1, 2, 2]})
    yield "exposure", lambda: exposure(took, edges)
    seen = pl.DataFrame(
        {"exposure": np.repeat([0, 1, 2, 3, 5], 8), "adopted": rng.random(40) < np.repeat([0.1, 0.2, 0.4, 0.5, 0.7], 8)}
    )
    yield "slope~", lambda: [exposure_slope(seen), exposure_slope(seen).kind, quadratic_test(seen)]
    for low, high in ((0.5, 1.0), (0.5, 0.9), (1.0, 2.0), (1.1, 2.0)):
        yield f"slope, {low}, {high}", lambda a=low, b=high: exposure_slope(seen)._replace(low=a, high=b).kind
    yield (
        "logit~",
        lambda: [
            binomial_regression(
                np.array([2.0, 5, 9]), np.array([8.0, 5, 0]), np.array([[1.0, 0], [1, 1], [1, 3]]), link=k
            )
            for k in ("logit", "cloglog")
        ],
    )
    yield "few exposures", lambda: [exposure_slope(seen.filter(pl.col("exposure") <= k)) for k in (2,)]
    yield "one exposure", lambda: exposure_slope(seen.filter(pl.col("exposure") <= 1))
    tail = np.sort(np.round(rng.pareto(1.5, 60) * 4 + 1))
    for whole in (False, True):
        yield (
            f"power law, {whole}~",
            lambda w=whole: [powerlaw_fit(tail, discrete=w), powerlaw_fit(tail, xmin=2, discrete=w)],
        )
    yield "power law of many~", lambda: powerlaw_fit(rng_tail())
    for few in ([2.0, 2.0], [1.0, 0.0], [0.0, 1.0, 2.0, 4.0], [1.0, 2.0], [1.0]):
        yield f"power law, {few}", lambda f=few: powerlaw_fit(f)
    yield "gini", lambda: [gini(x) for x in ([0, 0], [1.0], [1, 5, 2], [0, 3])]
    x = np.round(rng.random((16, 2)) * 4) / 4
    yield "roles", lambda: [roles(x), roles(x, 2, restarts=1), roles(np.column_stack([x, np.ones(16)]), (2, 3))]
    yield "too few for roles", lambda: roles(x[:3], 2)
    yield "just enough for roles", lambda: roles(x[:4], 2)
    yield "one role", lambda: roles(x, 1)
    one = pl.DataFrame({"p": x[:8, 0], "q": x[:8, 1], "quality": rng.random(8)})
    two = pl.DataFrame({"p": x[8:, 0], "q": x[8:, 1], "quality": rng.random(8)})
    yield "matched", lambda: matched_effect(one, two, on=["p", "q"], resamples=FEW)
    yield "matched, two", lambda: matched_effect(one[:2], two[:3], on=["p"], resamples=FEW)
    yield "matched, one", lambda: matched_effect(one[:1], two, on=["p"], resamples=FEW)
    yield "cohen", lambda: [cohens_d([1, 2, 4], [2, 5]), cohens_d([1, 2], [1, 2])]
    assert agents


def rng_tail() -> np.ndarray:
    return np.random.default_rng(4).pareto(2, 150) + 0.5


CASES = dict((*designed(), *verdicts(), *of_arrays(), *of_scores(), *of_rows(), *of_many()))


@pytest.mark.parametrize("kind", kinds(CASES))
def test_a_statistic_gives_what_it_gave(kind: str) -> None:
    assert not changed(FROZEN, CASES, kind)


if __name__ == "__main__":
    write(FROZEN, CASES)
