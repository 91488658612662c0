"""The composer: the threshold's worked numbers and bound, and who is taken."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.analyses import analyze, table
from palaestra.evaluation.teamwork import (
    competitive_ratio,
    compose,
    offline,
    retrieve,
    threshold,
    threshold_knapsack,
)

DATA = Path(__file__).parents[2] / "atlas" / "data" / "inventory.csv"


def test_worked_thresholds():
    assert threshold(0.5, 1, 100) == pytest.approx(6.065, abs=1e-3)
    assert threshold(np.array([0.0, 1.0]), 2, 50).tolist() == pytest.approx([2 / np.e, 50])
    assert threshold(1 / competitive_ratio(1, 100), 1, 100) == pytest.approx(1)
    assert competitive_ratio(1, 100) == competitive_ratio(2, 200) == pytest.approx(5.605, abs=1e-3)
    with pytest.raises(InputError, match="lower=2 <= upper=1"):
        threshold(0, 2, 1)


@given(st.integers(0, 10**6), st.sampled_from([2.0, 10.0, 100.0]), st.sampled_from(["random", "rising", "falling"]))
def test_the_optimum_is_at_most_the_ratio_in_any_order(seed: int, upper: float, order: str):
    rng = np.random.default_rng(seed)
    density = upper ** rng.random((3, 800))
    density = {"random": density, "rising": np.sort(density, 1), "falling": -np.sort(-density, 1)}[order]
    size = 1 / 400
    taken = threshold_knapsack(density * size, np.full(800, size), 1.0, lower=1.0, upper=upper)
    assert (taken.sum(1) * size <= 1 + 1e-9).all()
    best = np.sort(density, 1)[:, -400:].sum(1)
    slack = 1 + 2 * size * upper  # items are small, not infinitely so
    assert (best / (density * taken).sum(1) <= competitive_ratio(1, upper) * slack).all()


def test_what_does_not_fit_or_is_worth_nothing_is_passed_over():
    taken = threshold_knapsack(np.array([0.0, 3.0, 2.0, 0.85]), np.array([1.0, 2.0, 2.0, 1.0]), 3, lower=0.5, upper=2.0)
    assert taken.tolist() == [False, True, False, False]  # the last fits, but .85 is too little when 2/3 are spent
    assert 0.85 < threshold(2 / 3, 0.5, 2.0) < 1
    assert threshold_knapsack(np.array([3.0, 1.0]), np.array([2.0, 1.0]), 3, lower=0.5, upper=2.0).all()
    assert threshold_knapsack(np.array([9.0]), np.array([3.0]), 3, lower=0.5, upper=2.0).all(), "the budget to the last"
    with pytest.raises(InputError, match="budget=0"):
        threshold_knapsack(np.ones(2), np.ones(2), 0, lower=1, upper=1)
    with pytest.raises(InputError, match="every cost must be above 0"):
        threshold_knapsack(np.ones(2), np.array([1.0, 0.0]), 1, lower=1, upper=1)


def test_the_sandbox_decides():
    found = analyze("compose(budget=3)", DATA)
    told = {row["component"]: (row["accepted"], row["reason"], row["covers"]) for row in found.iter_rows(named=True)}
    assert told["cheap search"] == (False, "no help", [])
    assert told["crashes"] == (False, "broken", [])
    assert told["search"] == (True, None, ["find"])
    assert told["reader"] == (True, None, ["read", "count"])
    assert "sums" not in told  # what it can do is covered already, so it is not tried
    assert found["probes"].to_list()[-1] == 2 * 3 + 2 * 2  # one skill is covered after the second
    level = {row["component"]: row["threshold"] for row in found.iter_rows(named=True)}
    lower, upper = 1 / 1.5, 3 / 0.4
    assert level["search"] == pytest.approx(lower / np.e)
    assert level["reader"] == pytest.approx(float(threshold(1 / 3, lower, upper)))


def test_what_fits_to_the_last_is_taken_and_what_does_not_is_said():
    rows = [("x", 1.0, "a", 0.9, 1), ("y", 1.5, "b", 0.9, 1), ("z", 1.0, "b", 0.5, 1)]
    inventory = pl.DataFrame(rows, schema=["component", "cost", "skill", "similarity", "verdict"], orient="row")
    weights = {"a": 1.0, "b": 5.0}
    told = compose(inventory, 2.0, weights=weights)
    assert told["reason"].to_list() == [None, "does not fit", None]
    assert told["value"].to_list() == [1, 5, 5]
    assert retrieve(inventory, 2.0) == ["x"]
    assert retrieve(inventory, 2.5) == ["x", "y"]


def test_what_reads_only_what_is_advertised_is_misled():
    inventory = table(DATA)
    assert retrieve(inventory, 3) == ["cheap search", "crashes", "sums"]
    assert set(offline(inventory, 3)) == {"cheap search", "crashes", "sums"}
    assert set(offline(inventory, 10, each=9)) == set(inventory["component"])


def test_the_knapsack_is_the_best_of_all_choices():
    rng = np.random.default_rng(0)
    rows = [(f"{at}", cost, skill, float(rng.random()), 1)
            for at, cost in enumerate(rng.uniform(0.5, 2, 7)) for skill in "ab"]  # fmt: skip
    inventory = pl.DataFrame(rows, schema=["component", "cost", "skill", "similarity", "verdict"], orient="row")
    near = inventory["similarity"].to_numpy().reshape(7, 2)
    cost = inventory["cost"].to_numpy().reshape(7, 2)[:, 0]

    def worth(chosen: list[int]) -> float:
        return float(near[chosen].max(0).sum()) if chosen else 0.0

    every = [[at for at in range(7) if bits[at]] for bits in product((0, 1), repeat=7)]
    best = max(worth(each) for each in every if cost[each].sum() <= 2.5)
    assert worth([int(name) for name in offline(inventory, 2.5)]) >= best * 0.99


def test_a_skill_that_weighs_more_is_had_first():
    rows = [("x", 1.0, "a", 0.9, 1), ("y", 1.0, "b", 0.5, 1)]
    inventory = pl.DataFrame(rows, schema=["component", "cost", "skill", "similarity", "verdict"], orient="row")
    assert offline(inventory, 1.0) == ["x"]
    assert offline(inventory, 1.0, weights={"a": 1.0, "b": 3.0}) == ["y"]


def test_only_the_most_similar_are_looked_at():
    inventory = pl.DataFrame({"component": ["x", "y"], "cost": [2.0, 1.0], "skill": "a", "similarity": [0.9, 0.5]})
    assert offline(inventory, 1.0, top=1) == []
    assert offline(inventory, 1.0, top=2) == ["y"]
    told = compose(inventory.with_columns(verdict=1), 2.0, top=1)
    assert told["component"].to_list() == ["x"]


def test_bad_inventories_are_named():
    with pytest.raises(MissingColumnError, match="verdict"):
        compose(table(DATA).drop("verdict"), 3)
    with pytest.raises(InputError, match=r"no component has the skill 'fnd'.*find"):
        compose(table(DATA), 3, weights={"fnd": 1})
    with pytest.raises(InputError, match="costs must be above 0"):
        compose(table(DATA).with_columns(cost=0.0), 3)
    asked = []
    compose(table(DATA).drop("verdict"), 3, probe=lambda component, skill: asked.append((component, skill)) or 0)
    assert len(asked) == len(set(asked)) == 15


def test_nothing_is_bought_for_nothing():
    inventory = pl.DataFrame({"component": ["a"], "cost": [1.0], "skill": ["s"], "similarity": [1.0], "verdict": [1]})
    with pytest.raises(InputError, match="budget=0"):
        compose(inventory, 0)


def test_a_sum_that_only_rounding_takes_beyond_the_budget_fits():
    inventory = pl.DataFrame({"component": ["a", "b", "c"], "cost": 0.1, "skill": ["x", "y", "z"], "similarity": 0.9})
    assert sum(inventory["cost"]) > 0.3
    weights = {"x": 1.0, "y": 3.0, "z": 9.0}  # so that nobody is too dear
    helps = {("a", "x"), ("b", "y"), ("c", "z")}
    online = compose(inventory, 0.3, weights=weights, probe=lambda *pair: int(pair in helps))
    assert online["accepted"].to_list() == [True] * 3
    assert retrieve(inventory, 0.3) == offline(inventory, 0.3) == ["a", "b", "c"]


def test_what_resembles_no_skill_is_not_bought():
    inventory = pl.DataFrame({"component": ["a", "b"], "cost": 1.0, "skill": ["x", "y"], "similarity": [0.0, -0.2]})
    assert offline(inventory, 9.0) == []
