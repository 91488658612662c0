"""Coverage, type I error and power of everything that is reported, a fast version of `palaestra reproduce 132`."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import palaestra.evaluation as ev
from palaestra_atlas.catalog.evaluation import coverage, coverage_page
from palaestra_atlas.catalog.evaluation.coverage_trials import of_three

DRAWS = {"permutation": 250, "holm": 250, "proof": 80, "bounds": 250, "order": 50, "ranking": 20}
COMMON = 40
"""Data sets per study: as many as fit into a few seconds. The reproduction draws 2000 of each."""


@pytest.mark.parametrize("one", coverage.studies(), ids=lambda one: one.__name__)
def test_every_study_is_within_what_chance_allows(one: coverage.Study) -> None:
    draws = DRAWS.get(one.__name__, COMMON)
    rng = np.random.default_rng(2)
    found = coverage.shares(one, rng, draws)
    slack = 3.5 * math.sqrt(0.05 * 0.95 / draws)
    assert coverage.misses(found, slack) == []


def test_a_wrong_interval_is_caught() -> None:
    """The same 60 draws tell an interval that is 40 % too narrow: the fast version is no formality."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 40))
    margin = 0.6 * 1.96 * x.std(1, ddof=1) / math.sqrt(40)
    found = {"coverage_narrow": float((np.abs(x.mean(1)) <= margin).mean()), "type1_x": 0.25, "power_x": 0.2}
    assert coverage.misses(found, 3.5 * math.sqrt(0.05 * 0.95 / 60)) == ["coverage_narrow", "type1_x", "power_x"]


def test_only_the_named_may_cover_too_much() -> None:
    assert coverage.misses({"coverage_rank": 1.0, "coverage_mean": 1.0, "coverage_success": 0.95}) == ["coverage_mean"]
    assert coverage.misses({"coverage_rank": 0.92}) == ["coverage_rank"]


def test_the_shortcut_without_a_table_is_the_public_estimate() -> None:
    rng = np.random.default_rng(1)
    for _ in range(3):
        success = rng.random((12, 4)) < rng.random((12, 1))
        table = coverage.table("a", success=success)
        found = of_three(success)
        for reducer, name in (("pass_at_k", "pass_at_3"), ("pass_hat_k", "pass_hat_3"), ("all_k", "all_3")):
            short, whole = found[name], ev.k_estimate(table, reducer, 3)  # type: ignore[arg-type]
            assert (short.mean, short.low, short.high) == pytest.approx((whole.mean, whole.low, whole.high), abs=1e-12)


def test_trials_from_arrays_keep_their_places() -> None:
    table = coverage.table("a", success=np.array([[[True, False]], [[False, False]]]))
    assert table.select("run", "task", "trial", "success").rows() == [
        (0, 0, 0, True),
        (0, 0, 1, False),
        (1, 0, 0, False),
        (1, 0, 1, False),
    ]


def test_held_counts_an_unknown_interval_as_missed() -> None:
    assert coverage.held([0.0, math.nan, 1.0], [1.0, math.nan, 2.0], 0.5).tolist() == [True, False, False]
    assert coverage.held(pl.Series([None, 0.0]), pl.Series([None, 1.0]), 1.0).tolist() == [False, True]


def test_the_page_has_a_row_for_every_share_and_keeps_its_notes() -> None:
    page = (Path(__file__).parents[2] / "docs/coverage.md").read_text("utf-8")
    found = coverage.simulate(1)
    assert sorted(coverage_page.names(page)) == sorted(found)
    again = coverage_page.rewritten(page, {"coverage_mean": 0.9, "type1_fit": 0.05}, 100)
    changed = [new for old, new in zip(page.splitlines(), again.splitlines(), strict=True) if old != new]
    assert changed == ["| coverage_mean | 100 | 0.900 | 0.030 | 40 x 4, t |", "| type1_fit | 100 | 0.050 | 0.022 |  |"]
    with pytest.raises(KeyError, match="no row for coverage_nothing"):
        coverage_page.rewritten(page, {"coverage_nothing": 0.9}, 100)


def test_a_study_that_misses_a_bound_is_drawn_longer_and_one_that_is_wrong_stays_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: dict[str, int] = {"strayed": 0, "wrong": 0}

    def strayed(rng: np.random.Generator) -> dict[str, bool]:
        drawn["strayed"] += 1
        return {"coverage_strayed": drawn["strayed"] > 10 and drawn["strayed"] % 20 != 0}

    def wrong(rng: np.random.Generator) -> dict[str, bool]:
        drawn["wrong"] += 1
        return {"coverage_wrong": drawn["wrong"] % 5 != 0}

    monkeypatch.setattr(coverage, "studies", lambda: [strayed, wrong])
    found = coverage.simulate(10, redrawn=4)
    assert drawn == {"strayed": 50, "wrong": 50}
    assert found == {"coverage_strayed": 0.95, "coverage_wrong": 0.8}
    assert coverage.misses(found) == ["coverage_wrong"]


def test_a_study_draws_the_same_whichever_others_there_are() -> None:
    one = coverage.studies()[0]
    alone = coverage.shares(one, coverage.stream(one, 0), 2)
    assert alone.items() <= coverage.simulate(2).items()
