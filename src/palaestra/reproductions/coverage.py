"""Do 95 % intervals hold the truth in 95 % of data sets, and do tests at 5 % err in 5 %? Every one, from known truths.

A study draws one data set, calls the public functions on it, and says which intervals held and which tests spoke.
Left out: the triage's sampling gain, and standard errors that come without an interval (`suite_score`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
import polars as pl
from scipy import stats

import palaestra.evaluation as ev
from palaestra.evaluation import population
from palaestra.evaluation import ranking as rk

Rng = np.random.Generator
Study = Callable[[Rng], Mapping[str, Any]]
STUDIES: list[Study] = []
CONSERVATIVE = frozenset(
    f"coverage_{name}"
    for name in (
        "ece", "variance_6_runs", "sequence_share", "rank", "copeland", "alpha_rank", "nash", "clopper_pearson",
        "hoeffding",
    )
)  # fmt: skip
"""Intervals that promise at least 95 %: whole numbers, scores that move in jumps, exact bounds."""


def study(one: Study) -> Study:
    """Register a study."""
    STUDIES.append(one)
    return one


def simulate(draws: int, seed: int = 0) -> dict[str, float]:
    """Share of data sets in which each interval held or each test spoke, by name; each study has its own stream."""
    found: dict[str, float] = {}
    for one, rng in zip(STUDIES, np.random.default_rng(seed).spawn(len(STUDIES)), strict=True):
        seen = defaultdict(list)
        for _ in range(draws):
            for name, value in one(rng).items():
                seen[name].append(np.mean(value))
        found |= {name: float(np.mean(values)) for name, values in seen.items()}
    return found


def misses(found: Mapping[str, float], slack: float = 0.0) -> list[str]:
    """Names that break the criterion: 93-97 % held (at least 93 % if conservative), type I error at most 6.5 %,
    power more than half. slack: by how much less strict, for few draws."""
    broken = {
        "coverage": lambda name, x: x < 0.93 - slack or (x > 0.97 + slack and name not in CONSERVATIVE),
        "type1": lambda _, x: x > 0.065 + slack,
        "power": lambda _, x: x < 0.5 - slack,
    }
    return [name for name, x in found.items() if broken[name.split("_")[0]](name, x)]


def held(low: Any, high: Any, truth: Any) -> Any:
    """Whether an interval holds the truth; one that is unknown does not."""
    low, high = (np.asarray(x, float) for x in (low, high))
    return (low <= np.asarray(truth) + 1e-9) & (np.asarray(truth) <= high + 1e-9)


def holds(estimate: Any, truth: float) -> Any:
    """The same for anything with `low` and `high`."""
    return held(estimate.low, estimate.high, truth)


@lru_cache
def _keys(shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return tuple(axis.ravel() for axis in np.indices(shape))


def table(system: str, **values: np.ndarray) -> pl.DataFrame:
    """Trials from arrays [tasks, trials] or [runs, tasks, trials]."""
    first = next(iter(values.values()))
    keys = dict(zip(("run", "task", "trial")[-first.ndim :], _keys(first.shape), strict=True))
    return pl.DataFrame({"system": system, "run": 0, **keys, **{name: x.ravel() for name, x in values.items()}})


def speaks(difference: ev.Difference) -> bool:
    """Better or worse: the interval is clear of 0 and p <= 5 %, as the verdict wants it."""
    return difference.p <= 0.05 and not difference.low <= 0 <= difference.high


# -- trials of tasks ---------------------------------------------------------------------------------------------------

TASKS, TRIALS, NOISE = 40, 4, 0.3


@study
def tasks_and_trials(rng: Rng) -> dict[str, Any]:
    """One run; success rates of tasks are Beta(2, 1), so E p = 2/3, E p³ = 2/5, E (1-p)³ = 1/10, Var p = 1/18."""
    size = (TASKS, TRIALS)
    p = rng.beta(2, 1, (TASKS, 1))
    cost = (2 - p) * rng.lognormal(0, 0.5, size)
    score = p + NOISE * rng.standard_normal(size)
    one = table("a", success=rng.random(size) < p, score=score, cost=cost)
    worse = table("b", success=rng.random(size) < 0.8 * p, score=0.8 * p + NOISE * rng.standard_normal(size))
    same = table("b", success=rng.random(size) < p)
    both, equal = (pl.concat([one.select(x.columns), x]) for x in (worse, same))
    k = partial(ev.k_estimate, one)
    spread = ev.variance_components(one, value="score")
    task_share = (1 / 18) / (1 / 18 + NOISE**2)
    differ = partial(ev.paired_difference, both, "a", "b", resamples=300)
    success_difference = differ()
    return {
        "coverage_success": holds(ev.success_interval(one), 2 / 3),
        "coverage_mean": holds(ev.mean_interval(one), 2 / 3),
        "coverage_pass_at_3": holds(k("pass_at_k", 3), 0.9),
        "coverage_pass_hat_3": holds(k("pass_hat_k", 3), 0.4),
        "coverage_all_3": holds(k("all_k", 3), 0.4),
        "coverage_best_of_3": holds(k("best_of", 3), 2 / 3 + NOISE * 1.5 / math.sqrt(math.pi)),
        "coverage_cost_per_success": held(
            *ev.cost_per_success(one).select("low", "high").row(0), 2 * math.exp(0.125)
        ),
        "coverage_difference": holds(success_difference, 2 / 15),
        "coverage_score_difference": holds(differ(value="score"), 2 / 15),
        "coverage_robustness_ratio": holds(ev.robustness(both, "b", "a").ratio, 0.8),
        "coverage_variance_task": held(spread["low"][0], spread["high"][0], task_share),
        "coverage_variance_trial": held(spread["low"][3], spread["high"][3], 1 - task_share),
        "type1_difference": speaks(ev.paired_difference(equal, "a", "b", resamples=300)),
        "power_difference": speaks(success_difference),
    }


@study
def one_trial_each(rng: Rng) -> dict[str, Any]:
    """One trial per task: Wilson's interval, McNemar's test; and the whole run's spread over 8 of them."""
    p = rng.beta(2, 1, (60, 1))
    success = rng.random((60, 8)) < p
    one = table("a", success=success[:, :1])
    clean = ev.safety_score(pl.DataFrame({"episode": np.flatnonzero(~success[:, 0]), "severity": "high"}), 60)
    change = np.array([-1.0, 0.0, 1.0])
    null, better = (rng.choice(change, 60, p=[q, 1 - q - r, r]) for q, r in ((0.2, 0.2), (0.1, 0.3)))
    keyed = table("a", success=success[:, :1]).with_columns(domain=pl.col("task") % 2, level=pl.lit("L1"))
    grid = ev.matrix_table(keyed, rows="domain", columns="level")
    inside = held(grid["low"], grid["high"], 2 / 3)
    return {
        "coverage_success_one_trial": holds(ev.success_interval(one), 2 / 3),
        "coverage_matrix_cell": inside[0],
        "coverage_matrix_margin": inside[-1],
        "coverage_compliance": held(clean["low"], clean["high"], 2 / 3),
        "coverage_run_sd": holds(ev.run_spread(table("a", success=success)), math.sqrt((p * (1 - p)).sum()) / 60),
        "type1_mcnemar": ev.sign_flip_pvalue(null) <= 0.05,
        "power_mcnemar": ev.sign_flip_pvalue(better) <= 0.05,
    }


@study
def permutation(rng: Rng) -> dict[str, Any]:
    """Differences that are no multiples of anything, so that sign patterns are drawn; t's power for comparison .77."""
    x = rng.laplace(0, 1 / math.sqrt(2), 30)
    return {
        "type1_permutation": ev.sign_flip_pvalue(x, resamples=400, rng=rng) <= 0.05,
        "power_permutation": ev.sign_flip_pvalue(x + 0.5, resamples=400, rng=rng) <= 0.05,
    }


@study
def several_runs(rng: Rng) -> dict[str, Any]:
    """6 runs x 30 tasks x 2 trials, crossed; variances task 1, run .3, both .5, trial 1."""
    runs, tasks, trials = 6, 30, 2

    def scores(task: np.ndarray) -> np.ndarray:
        run, cell = rng.normal(0, 0.3**0.5, (runs, 1, 1)), rng.normal(0, 0.5**0.5, (runs, tasks, 1))
        return np.asarray(task + run + cell + rng.standard_normal((runs, tasks, trials)))

    task = rng.standard_normal((tasks, 1))
    a, b, c = (scores(task + shift) for shift in (0, 0, 1.2))
    rate = rng.beta(2, 1, (tasks, 1)) * rng.uniform(0.7, 1, (runs, 1, 1))
    one = table("a", score=a, success=rng.random(a.shape) < rate)
    differ = partial(ev.paired_difference, a="b", b="a", value="score", resamples=300)
    null, better = (differ(pl.concat([one.select("system", "run", "task", "trial", "score"), table("b", score=x)]))
                    for x in (b, c))  # fmt: skip
    spread = ev.variance_components(one, value="score")
    truth = np.array([1, 0.5, 1]) / 2.8
    kept = spread.filter(pl.col("source") != "run")
    return {
        "coverage_mean_6_runs": holds(ev.mean_interval(one), 0),
        "coverage_success_6_runs": holds(ev.success_interval(one), 2 / 3 * 0.85),
        "coverage_difference_6_runs": holds(better, 1.2),
        "coverage_variance_6_runs": held(kept["low"], kept["high"], truth),
        "type1_difference_6_runs": null.p <= 0.05,
        "power_difference_6_runs": better.p <= 0.05,
    }


@study
def holm(rng: Rng) -> dict[str, Any]:
    """Three systems that equal the baseline on 40 tasks: is any of them said to differ? Another gains 15 points."""
    p = rng.beta(2, 2, TASKS)
    baseline = rng.binomial(TRIALS, p) / TRIALS
    rates = (p, p, p, np.minimum(p + 0.15, 1))
    found = [ev.sign_flip_pvalue(rng.binomial(TRIALS, q) / TRIALS - baseline) for q in rates]
    return {"type1_holm_family": min(ev.holm(found[:3])) <= 0.05, "power_holm": ev.holm(found)[-1] <= 0.05}


@study
def proof(rng: Rng) -> dict[str, Any]:
    """Five looks at 40 tasks x 4 trials: a team that never gets better, and one that gains 4 points per look."""
    p, tasks = rng.beta(2, 2, (TASKS, 1)), (TASKS, TRIALS)
    start = (rng.random(tasks) < p).mean(1)

    def looks(gain: float) -> list[tuple[float, np.ndarray]]:
        return [(i, (rng.random(tasks) < p + gain * i).mean(1) - start) for i in range(1, 6)]

    return {
        "type1_first_proof": ev.first_proof(looks(0.0)) is not None,
        "power_first_proof": ev.first_proof(looks(0.04)) is not None,
    }


# -- consistency, calibration, sequences -------------------------------------------------------------------------------


@lru_cache
def _consistency_truths() -> dict[str, float]:
    """Expected parts of 4 trials, Beta(2, 1) successes; two actions each, x with a chance that is uniform per task."""
    words = ["".join(pair) for pair in product("xy", repeat=2)]
    chance = {a + b: 1 / (5 * math.comb(4, (a + b).count("x"))) for a in words for b in words}
    actions, sequence = (
        sum(chance[a + b] * ev.sequence_similarity(a, b, kind) for a in words for b in words)  # type: ignore[arg-type]
        for kind in ("histogram", "levenshtein")
    )
    x = np.random.default_rng(0).lognormal(0, 0.5, (400_000, TRIALS))
    resources = float(np.exp(-x.std(axis=1, ddof=1) / x.mean(axis=1)).mean())
    wins = np.arange(TRIALS + 1)
    of = stats.betabinom.pmf(wins, TRIALS, 2, 1)
    outcome = (2 * wins / TRIALS - 1) ** 2
    path = np.where(wins > 1, (actions + sequence) / 2, 0.0)
    overall = (outcome + resources + path) / np.where(wins > 1, 3, 2)
    parts = {"outcome": of @ outcome, "actions": actions, "sequence": sequence, "resources": resources}
    return parts | {"overall": of @ overall}


@study
def consistency(rng: Rng) -> dict[str, Any]:
    """24 tasks x 4 trials."""
    size = (24, TRIALS)
    success = rng.random(size) < rng.beta(2, 1, (size[0], 1))
    did = rng.random((*size, 2)) < rng.random((size[0], 1, 1))
    one = table("a", success=success, cost=rng.lognormal(0, 0.5, size))
    one = one.with_columns(did=pl.Series(did.reshape(-1, 2).tolist()))
    found = ev.consistency(one, actions="did", resources=["cost"])
    truths = _consistency_truths()
    inside = held(found["low"], found["high"], [truths[part] for part in found["part"]])
    return {f"coverage_consistency_{part}": ok for part, ok in zip(found["part"], inside, strict=True)}


@lru_cache
def _calibration_truths() -> dict[str, float]:
    """Of a uniform confidence c with success chance g = .2 + .6 c."""
    c = (np.arange(200_000) + 0.5) / 200_000
    g = 0.2 + 0.6 * c
    risk = np.cumsum((1 - g)[::-1]) / np.arange(1, len(c) + 1)
    return {
        "ece": float(np.abs((g - c).reshape(10, -1).mean(1)).mean()),
        "brier": float((g * (1 - g) + (g - c) ** 2).mean()),
        "auroc": float((g * np.cumsum(1 - g)).mean() / len(c) / 0.25),
        "aurc": float(risk.mean()),
        "eaurc": float(risk.mean()) - (0.5 + 0.5 * math.log(0.5)),
    }


@study
def calibration(rng: Rng) -> dict[str, Any]:
    """100 forecasts that are overconfident, and 100 that are right."""
    c = rng.random(100)
    found = ev.calibration(c, rng.random(100) < 0.2 + 0.6 * c, resamples=300)
    right = rng.random(100) < c
    truths = _calibration_truths()
    curve = found.bins.row(7)
    return {f"coverage_{name}": holds(getattr(found, name), truth) for name, truth in truths.items()} | {
        "type1_ece": ev.calibration(c, right, resamples=300).ece_p <= 0.05,
        "power_ece": found.ece_p <= 0.05,
        "type1_spiegelhalter": ev.calibration_pvalue(c, right) <= 0.05,
        "power_spiegelhalter": ev.calibration_pvalue(c, rng.random(100) < 0.2 + 0.6 * c) <= 0.05,
        "coverage_calibration_bin": held(curve[2], curve[3], 0.2 + 0.6 * c[(c >= 0.7) & (c < 0.8)].mean()),
    }


@study
def coins(rng: Rng) -> dict[str, Any]:
    """Decisions of coins that are fair, or at .4, or turn over with chance .65; 150 of each."""
    luck = rng.random((3, 150))
    x = np.array([luck[0] < 0.5, luck[1] < 0.4, np.cumsum(luck[2] < 0.65) % 2])
    coin, turn = _keys(x.shape)
    turns = pl.DataFrame({"system": coin, "episode": 0, "turn": turn, "action": x.ravel().astype(np.int8)})
    found = ev.sequence_tests(turns).to_dict(as_series=False)
    spoke = {name: np.array(found[f"{name}_p"], float) <= 0.05 for name in ("uniform", "runs", "markov")}
    return {
        "coverage_sequence_share": held(found["low"][:2], found["high"][:2], [0.5, 0.4]),
        "coverage_alternation": held(found["alternation_low"], found["alternation_high"], [0.5, 0.48, 0.65]),
        "type1_uniform": spoke["uniform"][0],
        "power_uniform": spoke["uniform"][1],
        **{f"type1_{name}": spoke[name][:2] for name in ("runs", "markov")},
        **{f"power_{name}": spoke[name][2] for name in ("runs", "markov")},
    }


# -- score matrices and populations ------------------------------------------------------------------------------------


@study
def aggregates(rng: Rng) -> dict[str, Any]:
    """10 runs x 12 fixed tasks, normal scores around .1 … .9 with sd .2; then 30 tasks that are drawn anew."""
    middle = np.linspace(0.1, 0.9, 12)
    a, b = (middle + shift + 0.2 * rng.standard_normal((10, 12)) for shift in (0.0, 0.1))
    fresh = rng.normal(0.5, 0.2, 30) + 0.2 * rng.standard_normal((5, 30))
    z, levels = (1 - middle) / 0.2, np.array([0.3, 0.5, 0.7])
    gap = float((0.2 * (z * stats.norm.cdf(z) + stats.norm.pdf(z))).mean())
    profile = ev.performance_profile(a, levels, resamples=300)
    above = stats.norm.sf((levels[:, None] - middle) / 0.2).mean(1)
    shape = ev.bootstrap_interval
    return {
        "coverage_iqm": holds(shape(a, resamples=300), 0.5),
        "coverage_iqm_over_tasks": holds(shape(fresh, over="runs and tasks", resamples=300), 0.5),
        "coverage_optimality_gap": holds(shape(a, ev.optimality_gap, resamples=300), gap),
        "coverage_improvement": holds(
            ev.improvement_interval(b, a, resamples=300), stats.norm.cdf(0.1 / 0.2 / math.sqrt(2))
        ),
        "coverage_profile": held(profile["low"], profile["high"], above),
    }


@study
def populations(rng: Rng) -> dict[str, Any]:
    """Adoption among 400 by exposure 1 … 6: independent sources, and saturating ones; matched pairs, d = .5."""
    k = rng.integers(1, 7, 400)
    luck = rng.random(400)

    def adoption(chance: np.ndarray) -> pl.DataFrame:
        return pl.DataFrame({"exposure": k, "adopted": luck < chance})

    own = population.exposure_slope(adoption(1 - 0.85**k))
    curved = population.quadratic_test(adoption(1 / (1 + np.exp(2 - 0.4 * k))))
    bent = 1 / (1 + np.exp(-1.5 + 0.3 * (k - 3.5) ** 2))
    x = np.arange(40)
    a, b = (pl.DataFrame({"x": x, "quality": rng.normal(shift, 1, 40)}) for shift in (0.5, 0.0))
    return {
        "coverage_exposure_slope": holds(own, 1),
        "type1_exposure_slope": own.p <= 0.05,
        "power_exposure_slope": population.exposure_slope(adoption(1 - 0.7 ** (k**0.4))).p <= 0.05,
        "type1_quadratic": curved[1] <= 0.05,
        "power_quadratic": population.quadratic_test(adoption(bent))[1] <= 0.05,
        "coverage_matched_effect": holds(population.matched_effect(a, b, on=["x"], resamples=300), 0.5),
    }


# -- ranking -----------------------------------------------------------------------------------------------------------

STRENGTH = np.array([0.6, 0.3, 0.0, -0.3, -0.6])
GAMES = 24
_PAIR = np.triu_indices(5, 1)
_BEATS = 1 / (1 + np.exp(STRENGTH[_PAIR[1]] - STRENGTH[_PAIR[0]]))


def _matches(rng: Rng, beats: np.ndarray) -> rk.Matches:
    a, b = (np.repeat(side, GAMES) for side in _PAIR)
    score = (rng.random(len(a)) < np.repeat(beats, GAMES)).astype(float)
    return rk.Matches(tuple("abcde"), a, b, score, np.ones(len(a)), np.arange(len(a)))


@study
def ranking(rng: Rng) -> dict[str, Any]:
    """Five systems .3 apart in log strength, 24 games a pair; a table of equals; and rock, paper, scissors at .7."""
    games = _matches(rng, _BEATS)
    shares = np.full((5, 5), 0.5)
    shares[_PAIR], shares.T[_PAIR] = _BEATS, 1 - _BEATS
    strengths = 1000 + 400 / math.log(10) * STRENGTH
    truths = {
        "bradley_terry": strengths,
        "average_win_rate": (shares.sum(1) - 0.5) / 4,
        "copeland": np.arange(4.0, -1, -1),
        "alpha_rank": np.eye(5)[0],
    }
    found: dict[str, Any] = {}
    for method, truth in truths.items():
        ranked = rk.rank(games, method, resamples=200).table.sort("system")
        found[f"coverage_{method}"] = held(ranked["low"], ranked["high"], truth)
        if method == "bradley_terry":
            found["coverage_rank"] = held(ranked["rank_low"], ranked["rank_high"], np.arange(1, 6))
    won = rk.win_table(games)
    found["coverage_win_share"] = held(won["low"], won["high"], shares[~np.eye(5, dtype=bool)])
    equal = rk.transitivity(_matches(rng, np.full(10, 0.5)).wins(), resamples=200)
    wheel = np.array([0.7, 0.3, 0.5, 0.5, 0.7, 0.5, 0.5, 0.5, 0.5, 0.5])
    cyclic = rk.transitivity(_matches(rng, wheel).wins(), resamples=200)
    for name, p in (("cycle", "cycle_p"), ("fit", "fit_p")):
        found |= {f"type1_{name}": getattr(equal, p) <= 0.05, f"power_{name}": getattr(cyclic, p) <= 0.05}
    return found


@study
def bounds(rng: Rng) -> dict[str, Any]:
    """Bounds of payoffs after 30 plays with chance .8, delta .05; and of expected points in a Swiss tournament."""
    found: dict[str, Any] = {}
    total = rng.binomial(30, 0.8, (1, 4)).astype(float)
    for kind in ("clopper_pearson", "hoeffding"):
        estimate = rk.PayoffEstimate(total, np.full(4, 30), kind, delta=0.05)  # type: ignore[arg-type]
        found[f"coverage_{kind}"] = held(*estimate.bounds(), 0.8)
    return found
