"""[128]: the card's worked numbers, contagion whose slope is known, and roles that are there or not."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
import scipy

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.clusters import silhouette
from palaestra.evaluation.population import (
    Slope,
    binomial_regression,
    cascades,
    cohens_d,
    exposure,
    exposure_slope,
    gini,
    hazard_ratio,
    influence_graph,
    matched_effect,
    memes,
    powerlaw_fit,
    quadratic_test,
    roles,
)
from palaestra_atlas.catalog.evaluation.s128_molt_dynamics import periphery, spread


def test_worked_numbers() -> None:
    assert gini([0, 0, 0, 10]) == 0.75
    assert gini([1, 2, 3, 4]) == 0.25
    assert cohens_d([0.2, 0.3, 0.25, 0.1], [0.5, 0.4, 0.45, 0.6]) == pytest.approx(-3.22, abs=0.005)
    fit = powerlaw_fit(np.random.default_rng(1).pareto(1.57, 5000) + 1, xmin=1.0)
    assert fit.exponent == pytest.approx(2.57, abs=2.5 * fit.se)
    assert fit.se == pytest.approx(0.022, abs=0.001)


def test_power_law_finds_where_it_begins_and_whole_numbers_have_their_own() -> None:
    rng = np.random.default_rng(0)
    tail = (rng.pareto(1.5, 4000) + 1) * 5
    body = rng.uniform(0.1, 5, 4000)
    fit = powerlaw_fit(np.concatenate([tail, body]))
    assert fit.exponent == pytest.approx(2.5, abs=0.15)
    assert 4 < fit.xmin < 12
    whole = rng.zipf(2.4, 5000)
    assert powerlaw_fit(whole, xmin=1, discrete=True).exponent == pytest.approx(2.4, abs=0.06)
    assert powerlaw_fit(whole, xmin=1).exponent > 2.8  # the continuous formula is wrong here
    for wrong in ([], [1.0, -1.0], [2.0, 2.0]):
        with pytest.raises(InputError, match="powerlaw_fit"):
            powerlaw_fit(wrong)
    with pytest.raises(InputError, match="fewer than two different values above xmin"):
        powerlaw_fit([3.0, 3.0, 1.0], xmin=3.0)


def test_up_to_a_hundred_beginnings_all_are_tried_of_more_those_of_the_lower_nine_tenths() -> None:
    tail = 100 * (1 - (np.arange(6) + 0.5) / 6) ** (-1 / 1.5)
    values = np.concatenate([np.linspace(1, 1.01, 95), tail])
    fit = powerlaw_fit(values)
    assert (fit.xmin, fit.n) == (tail[0], 6)
    assert powerlaw_fit(np.append(values, 0.99)).xmin < tail[0]


def test_who_heard_whom_and_phrases_that_spread() -> None:
    turns = Turns({
        "episode": [0] * 4, "turn": [0, 1, 2, 3], "agent": ["a", "b", "c", "a"], "recipient": ["b", "c", None, "b"],
        "action": ["the deep sea", "The deep sea!", "no", "deep the sea"],
    })  # fmt: skip
    assert influence_graph(turns).rows() == [("b", "a", 2), ("c", "b", 1)]
    found = cascades(turns, memes(turns), adopters=2)
    assert found.rows() == [("the deep sea", "a", 0), ("the deep sea", "b", 1)]
    assert cascades(turns, memes(turns), adopters=3).is_empty()
    with pytest.raises(MissingColumnError, match="recipient"):
        influence_graph(Turns({"agent": ["a"]}))
    several = pl.DataFrame({"agent": ["a", "a", "b"], "recipient": [["b", "c"], ["b", "a"], ["a", "b"]]})
    assert influence_graph(Turns(several)).rows() == [("a", "b", 1), ("b", "a", 2), ("c", "a", 1)], "none to oneself"


def test_exposure_counts_sources_that_adopted_strictly_before() -> None:
    edges = pl.DataFrame({"agent": ["c", "c", "d"], "source": ["a", "b", "c"]})
    events = pl.DataFrame({"item": ["x"] * 3, "agent": ["a", "b", "c"], "time": [0, 1, 2]})
    table = exposure(events, edges).sort("agent", "time")
    assert table.select("agent", "time", "exposure", "adopted").rows() == [
        ("b", 1, 0, True),
        ("c", 1, 1, False),
        ("c", 2, 2, True),
        ("d", 1, 0, False),
        ("d", 2, 0, False),
    ]
    again = pl.concat([events, events.with_columns(pl.col("time") + 1.0)], how="vertical_relaxed")
    twice = exposure(again, pl.concat([edges, edges])).sort("agent", "time")
    assert twice.equals(table), "a second use is no adoption, and an edge that stands twice is one"
    with pytest.raises(InputError, match="exposure"):
        exposure_slope(table.filter(pl.col("exposure") == 0))


@pytest.mark.parametrize("time", [0.5, None, math.nan, math.inf, "2024-01-09 10:00"])
def test_times_of_adoptions_are_whole_and_not_too_many(time: float | str | None) -> None:
    edges = pl.DataFrame({"agent": ["b"], "source": ["a"]})
    events = pl.DataFrame({"item": ["x"] * 2, "agent": ["a", "b"], "time": [1, 1_700_000_000_000]})
    with pytest.raises(InputError, match="'x' spreads over 1699999999999 units of time, each with a row of 2 agents"):
        exposure(events, edges)
    with pytest.raises(InputError, match=r"exposure: time .* is not a whole number"):
        exposure(events.with_columns(time=pl.lit(time)), edges)


def test_slope_is_one_for_independent_contagion_and_not_for_others() -> None:
    kinds = {kind: [exposure_slope(spread(kind, seed)).kind for seed in range(3)]
             for kind in ("saturating", "threshold", "independent")}  # fmt: skip
    assert kinds["saturating"] == ["saturating"] * 3
    assert kinds["threshold"] == ["complex"] * 3
    assert kinds["independent"].count("independent") >= 2


@pytest.mark.parametrize(
    ("low", "high", "kind"),
    [(0.7, 1.1, "independent"), (0.9, 1.3, "independent"), (0.7, 0.99, "saturating"), (1.01, 1.3, "complex")],
)
def test_a_kind_is_told_by_the_interval_and_not_by_the_slope(low: float, high: float, kind: str) -> None:
    assert Slope((low + high) / 2, 0.1, low, high, 0.5, 10).kind == kind


def counted(*cells: tuple[int, int, int]) -> pl.DataFrame:
    """A risk table of one time with (exposure, adopters, others)."""
    rows = [(k, flag) for k, yes, no in cells for flag, n in ((True, yes), (False, no)) for _ in range(n)]
    table = pl.DataFrame(rows, schema=["exposure", "adopted"], orient="row")
    return table.with_columns(item=pl.lit("x"), time=1)


def test_slope_square_and_hazard_by_hand() -> None:
    """Two or three groups are fitted exactly, and the variance of a log odds is 1 / yes + 1 / no."""
    slope = exposure_slope(counted((0, 3, 4), (1, 2, 8), (4, 5, 5)))  # rows without exposure have no logarithm
    told = math.log(math.log(0.5) / math.log(0.8)) / math.log(4)
    assert slope.slope == pytest.approx(told)
    # of cloglog: P / ((1 - P) n log(1 - P)²)
    se = math.sqrt(0.2 / (0.8 * 10 * math.log(0.8) ** 2) + 0.5 / (0.5 * 10 * math.log(0.5) ** 2)) / math.log(4)
    assert (slope.se, slope.n) == (pytest.approx(se), 20)
    assert slope.p == pytest.approx(math.erfc(abs(told - 1) / se / math.sqrt(2)))
    square, p = quadratic_test(counted((0, 2, 8), (1, 5, 5), (2, 6, 4)))
    assert square == pytest.approx((math.log(1.5) - 2 * 0 + math.log(0.25)) / 2)
    error = math.sqrt((1 / 6 + 1 / 4) + 4 * (1 / 5 + 1 / 5) + (1 / 2 + 1 / 8)) / 2
    assert p == pytest.approx(math.erfc(abs(square) / error / math.sqrt(2)))
    # 1 of 4 without and 2 of 4 with exposure: 3 · 4r / (4 + 4r) = 2, so r = 2; information 3 · 2/3 · 1/3
    found = hazard_ratio(counted((0, 1, 3), (1, 2, 2)))
    assert found[:3] == pytest.approx((2, 2 * math.exp(-1.959964 * 1.5**0.5), 2 * math.exp(1.959964 * 1.5**0.5)))


def test_misfit_of_a_law_of_whole_numbers_is_at_the_last_of_equal_values() -> None:
    values = [1, 1, 1, 2, 4, 4]
    fit = powerlaw_fit(values, xmin=1, discrete=True)
    mass = np.arange(1, 5) ** -fit.exponent / scipy.special.zeta(fit.exponent)
    reached = np.cumsum(mass)[[0, 1, 3]]
    assert fit.ks == pytest.approx(np.abs(reached - np.array([3, 4, 6]) / 6).max())


def test_slope_agrees_with_the_exact_law() -> None:
    """Counts that are the law itself: P = 1 - .9^k has slope 1 exactly."""
    k = np.arange(1, 8)
    yes = np.round((1 - 0.9**k) * 10**6).astype(int)
    rows = [(int(e), flag, n) for e, y in zip(k, yes, strict=True) for flag, n in ((True, y), (False, 10**6 - y))]
    table = pl.DataFrame(rows, schema=["exposure", "adopted", "n"], orient="row")
    table = table.select(pl.col("exposure", "adopted").repeat_by(pl.col("n") // 100).list.explode())
    assert exposure_slope(table).slope == pytest.approx(1, abs=0.01)


def test_roles_that_exist_are_found_and_named_by_size() -> None:
    rng = np.random.default_rng(0)
    blobs = np.concatenate([rng.normal(i * 6, 0.5, (n, 3)) for i, n in enumerate((50, 30, 20))])
    found = roles(blobs)
    assert len(found.shares) == 3
    assert found.shares.tolist() == [0.5, 0.3, 0.2]
    assert (found.labels[:50] == 0).all()
    assert (found.labels[80:] == 2).all()
    with pytest.raises(InputError, match="clusters"):
        roles(blobs[:5], 4)


def test_roles_do_not_depend_on_units() -> None:
    rng = np.random.default_rng(0)
    kind = np.arange(60) % 3 == 0
    found = roles(np.column_stack([kind + rng.normal(0, 0.02, 60), rng.normal(0, 1000, 60)]), 2)
    assert (found.labels == kind).all()


def test_a_high_silhouette_without_roles_shows_in_the_shares() -> None:
    found = roles(periphery(0))
    assert found.silhouette > 0.9
    assert found.shares[0] > 0.9


def test_silhouette_by_hand() -> None:
    x = np.array([0.0, 1.0, 10.0])
    distance = np.abs(x[:, None] - x)
    assert silhouette(distance, np.array([0, 0, 1])) == pytest.approx((0.9 + 8 / 9 + 0) / 3)


def test_matched_effect_compares_like_with_like() -> None:
    rng = np.random.default_rng(0)
    size = rng.uniform(0, 10, 200)
    alone = pl.DataFrame({"size": size, "quality": size + rng.normal(0, 0.1, 200)})
    large = pl.DataFrame({"size": size[:60] / 2 + 5, "quality": size[:60] / 2 + 5 - 1 + rng.normal(0, 0.1, 60)})
    matched = matched_effect(large, alone, on=["size"])
    assert matched.low < matched.d < matched.high < 0
    assert cohens_d(large["quality"], alone["quality"]) > 0  # unmatched, the large ones look better
    same, too = (frame.with_columns(kind=1.0) for frame in (large, alone))
    assert matched_effect(same, too, on=["size", "kind"]) == matched, "what all share tells nobody apart"
    with pytest.raises(MissingColumnError, match="quality"):
        matched_effect(large.drop("quality"), alone, on=["size"])


def test_effects_of_unlike_groups_by_hand() -> None:
    """Variances 7/3 of three and 1/2 of two: pooled (2 · 7/3 + 1/2) / 3. The nearest is so in units of the spread."""
    assert cohens_d([1, 2, 4], [0, 1]) == pytest.approx((7 / 3 - 1 / 2) / ((14 / 3 + 1 / 2) / 3) ** 0.5)
    a = pl.DataFrame({"big": [0.0, 2000.0, 2100.0], "small": [0.0, 1.0, 1.0], "quality": [1.0, 2.0, 4.0]})
    b = pl.DataFrame({"big": [300.0, 0.0, 2000.0], "small": [0.0, 1.0, 1.0], "quality": [1.5, 9.0, 3.0]})
    found = matched_effect(a, b, on=["big", "small"], resamples=200)
    assert found.d == pytest.approx(cohens_d([1, 2, 4], [1.5, 3, 3]))
    drawn = np.random.default_rng(0).integers(3, size=(200, 3))
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.array([cohens_d(np.array([1.0, 2, 4])[i], np.array([1.5, 3, 3])[i]) for i in drawn])
    assert found.high - found.d == pytest.approx(4.302653 * each[np.isfinite(each)].std(ddof=1)), "t of 2 degrees"


@pytest.mark.parametrize("link", ["logit", "cloglog"])
@pytest.mark.parametrize("seed", range(5))
def test_the_regression_is_that_of_statsmodels(link: str, seed: int) -> None:
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(seed)
    k = np.arange(1.0, 13.0)
    x = np.column_stack([np.ones_like(k), np.log(k), k**2 / 50][: 2 + seed % 2])
    yes = rng.binomial(60, 0.1 + 0.05 * k).astype(float)
    family = sm.families.Binomial(sm.families.links.CLogLog() if link == "cloglog" else None)
    theirs = sm.GLM(np.column_stack([yes, 60 - yes]), x, family).fit()
    found, errors = binomial_regression(yes, 60 - yes, x, link=link)  # type: ignore[arg-type]
    assert found == pytest.approx(theirs.params, rel=1e-5, abs=1e-7)
    assert errors == pytest.approx(theirs.bse, rel=1e-4)
