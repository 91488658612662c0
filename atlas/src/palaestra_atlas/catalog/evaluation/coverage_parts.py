"""Studies of coverage: consistency, calibration, sequences of choices, score matrices, and populations."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import polars as pl
from scipy import stats

import palaestra.evaluation as ev
from palaestra.evaluation import population
from palaestra_atlas.catalog.evaluation.coverage import Rng, fresh, held, holds, keys, study, table

TRIALS = 4


@lru_cache
def _consistency_truths() -> dict[str, float]:
    """Expected parts of 4 trials, Beta(2, 1) successes; two actions each, x with a chance that is uniform per task."""
    words = ["".join(pair) for pair in product("xy", repeat=2)]
    chance = {a + b: 1 / (5 * math.comb(4, (a + b).count("x"))) for a in words for b in words}
    actions, sequence = (
        sum(chance[a + b] * ev.sequence_similarity(a, b, kind) for a in words for b in words)
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
    """30 tasks x 4 trials."""
    size = (30, TRIALS)
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
    over, right = rng.random(100) < 0.2 + 0.6 * c, rng.random(100) < c
    found, calm = (ev.calibration(c, s, resamples=300, seed=fresh(rng)) for s in (over, right))
    curve = found.bins.row(7)
    return {f"coverage_{name}": holds(getattr(found, name), x) for name, x in _calibration_truths().items()} | {
        "coverage_calibration_bin": held(curve[2], curve[3], 0.2 + 0.6 * c[(c >= 0.7) & (c < 0.8)].mean()),
        "coverage_ece_of_calibrated": holds(calm.ece, 0),
        "type1_ece": calm.ece_p <= 0.05,
        "power_ece": found.ece_p <= 0.05,
        "type1_spiegelhalter": ev.calibration_pvalue(c, right) <= 0.05,
        "power_spiegelhalter": ev.calibration_pvalue(c, over) <= 0.05,
    }


@study
def coins(rng: Rng) -> dict[str, Any]:
    """Decisions of coins that are fair, or at .4, or turn over with chance .65; 150 of each."""
    luck = rng.random((3, 150))
    x = np.array([luck[0] < 0.5, luck[1] < 0.4, np.cumsum(luck[2] < 0.65) % 2])
    coin, turn = keys(x.shape)
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


@study
def aggregates(rng: Rng) -> dict[str, Any]:
    """10 runs x 12 fixed tasks, normal scores around .1 … .9 with sd .2; then 30 tasks that are drawn anew."""
    middle = np.linspace(0.1, 0.9, 12)
    a, b = (middle + shift + 0.2 * rng.standard_normal((10, 12)) for shift in (0.0, 0.1))
    anew = rng.normal(0.5, 0.2, 30) + 0.2 * rng.standard_normal((5, 30))
    z, levels = (1 - middle) / 0.2, np.array([0.3, 0.5, 0.7])
    gap = float((0.2 * (z * stats.norm.cdf(z) + stats.norm.pdf(z))).mean())
    profile = ev.performance_profile(a, levels, resamples=300, seed=fresh(rng))
    above = stats.norm.sf((levels[:, None] - middle) / 0.2).mean(1)
    shape = ev.bootstrap_interval
    return {
        "coverage_iqm": holds(shape(a, resamples=300, seed=fresh(rng)), 0.5),
        "coverage_iqm_over_tasks": holds(shape(anew, over="runs and tasks", resamples=300, seed=fresh(rng)), 0.5),
        "coverage_optimality_gap": holds(shape(a, ev.optimality_gap, resamples=300, seed=fresh(rng)), gap),
        "coverage_improvement": holds(
            ev.improvement_interval(b, a, resamples=300, seed=fresh(rng)), stats.norm.cdf(0.1 / 0.2 / math.sqrt(2))
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
        "coverage_matched_effect": holds(
            population.matched_effect(a, b, on=["x"], resamples=300, seed=fresh(rng)), 0.5
        ),
    }
