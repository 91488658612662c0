"""Meters of adaptability against numbers by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.adaptability import adaptability, normalised, recovery, regret


def rows(phase, returns, **columns):
    told = {"shift": "people", "magnitude": 1.0, "seed": 0, "random": 2.0, "reference": 12.0, **columns}
    made = {"phase": [phase] * len(returns), "step": range(1, len(returns) + 1), "return": returns}
    return pl.DataFrame(made).with_columns(**{name: pl.lit(value) for name, value in told.items()})


def test_a_row_per_shift_and_magnitude():
    table = pl.concat([
        rows("frozen", [7.0]), rows("frozen", [3.0], magnitude=2.0), rows("frozen", [9.0], shift="goal"),
        rows("retrained", [4.0, 11.0, 12.0]), rows("scratch", [2.0, 6.0]),
        rows("base_before", [12.0]), rows("base_after", [8.0]),
    ])  # fmt: skip
    goal, one, two = adaptability(table).rows(named=True)
    assert (goal["shift"], goal["zero_shot"], goal["recovery"], goal["forgetting"]) == ("goal", 0.7, None, None)
    assert (one["zero_shot"], one["jumpstart"], one["recovery"], one["recovered"]) == (0.5, 0.2, 2.0, 1.0)
    assert one["regret"] == pytest.approx(0.8 + 0.1)
    assert one["forgetting"] == pytest.approx(0.4)
    assert two["zero_shot"] == pytest.approx(0.1)


def test_the_median_recovery_knows_of_those_who_never_do():
    curves = [[12.0, 12.0, 12.0], [2.0, 12.0, 12.0], [2.0, 2.0, 2.0]]
    found = adaptability(pl.concat([rows("retrained", each, seed=seed) for seed, each in enumerate(curves)]))
    assert found["recovery"].to_list() == [2.0]
    assert found["recovered"][0] == pytest.approx(2 / 3)


def test_where_just_half_have_recovered_is_the_median():
    curves = [[12.0, 12.0], [2.0, 2.0]]
    found = adaptability(pl.concat([rows("retrained", each, seed=seed) for seed, each in enumerate(curves)]))
    assert found["recovery"].to_list() == [1.0]


def test_steps_may_have_gaps():
    """A curve that is looked at every few steps recovers at a step, not at a row."""
    curves = [[2.0, 12.0, 12.0], [2.0, 2.0, 12.0], [2.0, 2.0, 2.0]]
    table = pl.concat([rows("retrained", each, seed=seed) for seed, each in enumerate(curves)])
    found = adaptability(table.with_columns(step=pl.col("step").replace_strict({1: 1, 2: 5, 3: 10})))
    assert found.select("recovery", "recovered").row(0) == (10.0, pytest.approx(2 / 3))


def test_a_level_of_ones_own():
    assert recovery([0.4, 0.6], 0.5) == (2, True)
    assert recovery([0.4, 0.4], 0.5) == (2, False)
    assert regret([1.5, 0.5]) == 0.5


def test_what_cannot_be_normalised_is_named():
    with pytest.raises(InputError, match="must differ"):
        normalised(np.zeros(2), 1.0, 1.0)
    with pytest.raises(InputError, match="phases"):
        adaptability(rows("later", [1.0]))
    with pytest.raises(MissingColumnError, match="reference"):
        adaptability(rows("frozen", [1.0]).drop("reference"))


def test_a_return_that_is_missing_is_not_known():
    holed = [rows("frozen", [7.0, None]), rows("retrained", [None, 12.0]), rows("retrained", [2.0, 12.0], seed=1)]
    row = adaptability(pl.concat(holed)).row(0, named=True)
    assert (row["zero_shot"], row["recovery"], row["recovered"], row["regret"]) == (0.5, 2.0, 1.0, 1.0)
    assert adaptability(pl.concat(holed[:2]))["regret"].to_list() == [None]
