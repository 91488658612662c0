"""Effects of factors against least squares of statsmodels, and rows that say less than others."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from statsmodels.regression.linear_model import OLS

from palaestra.evaluation.factors import effects


def games(n: int = 12) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    a, b = rng.permutation(np.tile([[0, 0], [1, 0], [0, 1], [1, 1]], (n // 4, 1))).T
    table = {"a": a, "b": b, "gain": a + rng.normal(size=n) * (1 + b), "pair": np.arange(n) // 3}
    return pl.DataFrame(table)


@pytest.mark.parametrize("cluster", [None, "pair"])
def test_errors_and_freedom_are_those_of_statsmodels(cluster: str | None) -> None:
    table = games()
    a, b = table["a"].to_numpy() - 0.5, table["b"].to_numpy() - 0.5
    how = {"cov_kwds": {"groups": table[cluster].to_numpy()}} if cluster else {}
    kind = "cluster" if cluster else "HC1"
    model = OLS(table["gain"].to_numpy(), np.column_stack([np.ones(len(a)), a, b, a * b]))
    theirs = model.fit(cov_type=kind, use_t=True, **how)
    row = effects(table, "gain", ["a", "b"], cluster=cluster).row(0, named=True)
    assert row["effect"] == pytest.approx(theirs.params[1])
    assert (row["low"], row["high"]) == pytest.approx(tuple(theirs.conf_int()[1]))
    assert row["p"] == pytest.approx(theirs.pvalues[1])


def test_as_many_terms_as_rows_or_one_cluster_leave_no_interval() -> None:
    table = games(4)
    for found in (
        effects(table, "gain", ["a", "b"]),
        effects(games().with_columns(one=0), "gain", ["a"], cluster="one"),
    ):
        assert found["effect"].is_finite().all()
        assert found.select(pl.col("low", "high", "p").is_nan().all()).row(0) == (True, True, True)


def test_a_row_without_a_cluster_is_its_own_and_one_without_a_value_is_left_out() -> None:
    table = games().with_columns(pair=pl.when(pl.col("pair") != 3).then("pair"))
    named = table.with_columns(pair=pl.col("pair").fill_null(pl.int_range(100, 100 + pl.len())))
    found = effects(table, "gain", ["a", "b"], cluster="pair")
    assert_frame_equal(found, effects(named, "gain", ["a", "b"], cluster="pair"))
    spoilt = pl.concat([table, table.head(1).with_columns(gain=float("nan"))])
    assert_frame_equal(effects(spoilt, "gain", ["a", "b"]), effects(table, "gain", ["a", "b"]))


def test_levels_that_are_numbers_stand_in_their_order() -> None:
    table = pl.DataFrame({"gain": [1.0, 2.0, 3.0, 4.0] * 3, "members": [2, 2, 10, 10] * 3})
    row = effects(table, "gain", ["members"]).row(0, named=True)
    assert (row["level"], row["against"], row["effect"]) == ("10", "2", pytest.approx(2.0))
