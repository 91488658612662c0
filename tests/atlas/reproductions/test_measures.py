"""Measures of rows whose effect could be had by doing nothing: no success is no number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.credit import dr_mas
from palaestra_atlas.catalog.credit.s018_dr_mas import moment_ratio
from palaestra_atlas.catalog.rewards.s152_smart_snap import rows_read
from palaestra_atlas.catalog.teams.s053_efficiency_survey import calls_at_success
from palaestra_atlas.verification.measures import Left


def left(tmp_path: Path) -> tuple[Left, Path]:
    seed = tmp_path / "run" / "seed-1"
    seed.mkdir(parents=True)
    (tmp_path / "run" / "recipe.yaml").write_text('stages: judge("a", evidence="evidence")')
    return Left(tmp_path, 0, ""), seed


@pytest.mark.parametrize(("done", "expected"), [(10, 1.0), (8, 1.25), (7, np.nan), (0, np.nan)])
def test_evidence_that_nobody_submits_is_no_gain(tmp_path: Path, done: int, expected: float) -> None:
    found, seed = left(tmp_path)
    episode, turn = (axis.ravel() for axis in np.indices((10, 2)))
    table = {"group": episode * 0, "episode": episode, "turn": turn, "agent": ["seeker"] * 20}
    table |= {"observation": ["proof, it worked", "submit what was kept"] * 10, "tool": ["look", "submit"] * 10}
    table |= {"evidence": [None, [0]] * 10, "success": [each for n in range(10) for each in (None, n < done)]}
    Turns(table).save(seed / "turns")
    np.testing.assert_equal(rows_read()(found), [expected])


@pytest.mark.parametrize(("share", "expected"), [(0.9, 1.0), (0.85, 1.0), (0.8, np.nan)])
def test_calls_that_are_saved_at_the_cost_of_success_are_no_gain(tmp_path: Path, share: float, expected: float) -> None:
    found, seed = left(tmp_path)
    success = np.arange(200) < 200 * share
    table = pl.DataFrame({"task": "a", "group": range(200), "episode": 0, "searches": 1, "success": success})
    table.with_columns(system=pl.lit("after")).write_parquet(seed / "evaluation.parquet")
    np.testing.assert_equal(calls_at_success(0.9)(found), [expected])


def test_moments_are_those_of_the_saved_credit_and_rewards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, (iteration, episode, agent) = np.random.default_rng(0), np.indices((2, 32, 2)).reshape(3, -1)
    table = {"iteration": iteration, "group": episode * 0, "episode": episode, "turn": agent,
             "agent": np.array(["a", "b"])[agent], "reward": rng.normal(10 * iteration, 1 + agent)}  # fmt: skip
    for number, credit in enumerate((dr_mas(), dr_mas(over="group"))):
        found, seed = left(tmp_path / str(number))
        Turns(table).with_column(advantage=credit).save(seed / "turns")
        ratio = moment_ratio()(found)[0]
        assert (abs(ratio - 1) < 1e-6) == (number == 0), ratio
