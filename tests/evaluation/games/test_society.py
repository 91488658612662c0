"""Meters of societies against numbers by hand."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from palaestra import Turns
from palaestra.errors import InputError
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.games.society import (
    commons_episodes,
    commons_meters,
    drift,
    efficiency,
    exploration_intensity,
    kaplan_meier,
)
from palaestra.rewards import gini


def test_censored_ones_leave_the_risk_set_and_do_not_die():
    curve = kaplan_meier([1, 2, 2, 4, 5], [True, False, True, False, True])
    assert curve["at_risk"].to_list() == [5, 4, 2, 1]
    np.testing.assert_allclose(curve["survival"].to_numpy(), [0.8, 0.6, 0.6, 0.0])
    with pytest.raises(InputError, match="as many"):
        kaplan_meier([1.0], [])


def test_efficiency_is_at_most_one():
    np.testing.assert_allclose(efficiency(np.array([0.0, 300.0, 900.0]), 50, 12), [0, 0.5, 1])


@pytest.mark.parametrize("shares", [[5, 5, 5], [1, 0, 0], [1, 2, 2, 7], [3, 1]])
def test_gini_is_the_mean_difference(shares):
    x = np.array(shares, float)
    expected = np.abs(x[:, None] - x).sum() / (2 * len(x) * x.sum())
    halves = {
        "episode": [0] * 2 * len(x),
        "agent": [f"a{k}" for k in range(len(x))] * 2,
        "reward": [*(x / 2), *(x / 2)],
    }
    np.testing.assert_allclose(gini().evaluate(Turns(halves)), expected, atol=1e-12)


def test_gini_of_nothing_is_0_and_episodes_are_apart():
    rows = {"episode": [0, 0, 1, 1], "agent": ["a", "b"] * 2, "reward": [0.0, 0.0, 1.0, 0.0]}
    assert gini().evaluate(Turns(rows)).tolist() == [0, 0, 0.5, 0.5]


def table():
    return pl.DataFrame({
        "system": ["x"] * 5 + ["y"] * 2,
        "episode": [0, 0, 0, 0, 0, 0, 0],
        "agent": ["a", "b", "a", "b", "a", "a", "b"],
        "collected": [10.0, 30.0, 10.0, 30.0, None, 1.0, 1.0],
        "over_used": [0.0, 1.0, 0.0, 1.0, None, 1.0, 1.0],
        "survived": [1.0, 1.0, 2.0, 2.0, None, 1.0, 1.0],
        "success": [None, None, False, False, None, True, True],
    })  # fmt: skip


def test_meters_of_two_systems():
    found = commons_meters(table(), sustainable=50, rounds=2)
    x, y = found.rows(named=True)
    assert (x["system"], x["survived"], x["gain"], x["over_use"], x["efficiency"]) == ("x", 2.0, 40.0, 0.5, 0.8)
    assert x["equality"] == pytest.approx(0.75)
    assert (x["survival"], y["survival"]) == (0.0, 1.0)
    assert commons_episodes(table().drop("system").head(4))["ended"].to_list() == [True]


def test_time_is_a_number():
    turns = pl.DataFrame({"phase": ["a", "b"], "violated": [0, 1]})
    with pytest.raises(InputError, match=r"column 'phase' is time .* not String"):
        drift(turns, by="phase")
    found = drift(turns.with_columns(phase=pl.Series([1.5, 3])), by="phase")
    assert found["tipping"].to_list() == [3.0, 3.0]


def test_intensity_of_exploration_is_of_the_first_half(tmp_path):
    assert exploration_intensity([3.0, 2.0, 1.0]) == 2.5
    with pytest.raises(InputError, match="no level"):
        exploration_intensity([])
    lines = [{"iteration": at, "policies": {"a": {"epsilon": 1 - at / 4}, "b": {"loss": 0.0}}} for at in range(4)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = analyze("exploration", tmp_path / "metrics.jsonl").to_dicts()
    assert found == [{"policy": "a", "rule": "epsilon", "intensity": 0.875, "first": 1.0, "last": 0.25}]
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"iteration": 1, "policies": {"b": {"loss": 0.0}}}))
    with pytest.raises(InputError, match="q_network"):
        analyze("exploration", tmp_path / "metrics.jsonl")
