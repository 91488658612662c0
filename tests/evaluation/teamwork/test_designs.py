"""Designs: the surrogate beside plain ridge regression, and what is proposed."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.teamwork import Surrogate, climb, guided_search, propose, training_designs

DATA = Path(__file__).parents[2] / "atlas" / "data" / "designs.csv"


def features(designs: np.ndarray, options: int) -> np.ndarray:
    """One-hot of options and of pairs, scaled to length 1."""
    rows = []
    for row in designs:
        one = np.zeros((len(row), options))
        one[np.arange(len(row)), row] = 1
        pairs = [np.outer(one[i], one[j]).ravel() for i, j in combinations(range(len(row)), 2)]
        rows.append(np.concatenate([one.ravel(), *pairs]))
    found = np.array(rows)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def test_the_kernel_is_ridge_regression_on_options_and_pairs():
    rng = np.random.default_rng(0)
    designs, new = rng.integers(3, size=(15, 4)), rng.integers(3, size=(6, 4))
    scores = rng.normal(size=15)
    x, z = features(designs, 3), features(new, 3)
    np.testing.assert_allclose(Surrogate.kernel(designs, new), x @ z.T, atol=1e-12)
    y = (scores - scores.mean()) / scores.std()
    weights = np.linalg.solve(x.T @ x + 0.3 * np.eye(x.shape[1]), x.T @ y)
    mean, deviation = Surrogate(0.3).fit(designs, scores).predict(new)
    np.testing.assert_allclose(mean, scores.mean() + scores.std() * z @ weights)
    covariance = 0.3 * np.linalg.inv(x.T @ x + 0.3 * np.eye(x.shape[1]))
    np.testing.assert_allclose(deviation, scores.std() * np.sqrt(np.einsum("ij,jk,ik->i", z, covariance, z)))


def test_a_search_evaluates_each_design_once_and_finds_the_best_where_slots_add_up():
    seen = []

    def evaluate(chosen):
        seen.append(tuple(chosen.values()))
        return sum(chosen.values())

    slots = {"a": [0, 1, 2, 3], "b": [0, 1, 2, 3], "c": [0, 1, 2, 3]}
    found = guided_search(slots, evaluate, budget=25, rng=np.random.default_rng(0), start=6)
    assert len(seen) == len(set(seen)) == len(found) == 25
    assert found["score"].max() == 9
    assert found["predicted"].null_count() == 6
    assert (found["parent"].drop_nulls() < found.filter(pl.col("parent").is_not_null())["step"]).all()
    assert len(guided_search(slots, evaluate, budget=64, rng=np.random.default_rng(0))) == 64, "all of them"
    with pytest.raises(InputError, match="budget=65"):
        guided_search(slots, evaluate, budget=65, rng=np.random.default_rng(0))


class Told(np.random.Generator):
    """Draws, and remembers the chances it drew by."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))
        self.chances: list[np.ndarray] = []

    def choice(self, number, p):  # type: ignore[override]
        self.chances.append(p)
        return super().choice(number, p=p)


def test_what_is_changed_is_drawn_by_what_came_of_it_per_visit():
    slots = {"a": [1, 2, 5], "b": [1, 3, 9]}
    rng = Told()
    found = guided_search(slots, lambda chosen: chosen["a"] * chosen["b"] / 45, budget=4, rng=rng, start=2)
    first, second, third = found["score"][:3].to_list()
    missed = abs(third - found["predicted"][2])
    assert missed > 0.01
    worth, unforeseen = {1: first, 2: second, 3: third}, {1: 0.0, 2: 0.0, 3: missed}
    parent = found["parent"][2]
    worth[parent], unforeseen[parent] = (worth[parent] + third) / 2, missed / 2
    for told, number in zip(rng.chances, (2, 3), strict=True):
        nodes = range(1, number + 1)
        values = [7 * worth[at] + 3 * unforeseen[at] if number == 3 else 7 * (first, second)[at - 1] for at in nodes]
        weight = np.exp(values)  # α = 10, β = .3
        assert told == pytest.approx(0.2 / number + 0.8 * weight / weight.sum())
    with pytest.raises(InputError, match="start=4"):
        guided_search(slots, lambda chosen: 0.0, budget=4, rng=rng, start=4)
    with pytest.raises(InputError, match="1 slots"):
        guided_search({"a": [1, 2, 3]}, lambda chosen: 0.0, budget=2, rng=rng, start=1)


def test_a_slot_of_one_option_is_a_slot():
    slots = {"a": [3, 1], "b": [2]}
    found = guided_search(slots, lambda chosen: chosen["a"], budget=2, rng=np.random.default_rng(0), start=1)
    assert sorted(found["a"]) == [1, 3]


def test_kappa_weighs_what_is_uncertain():
    rng = np.random.default_rng(1)
    tried = pl.DataFrame({"a": rng.integers(4, size=9), "b": rng.integers(4, size=9), "score": rng.normal(size=9)})
    for kappa in (0.25, 4.0):
        found = propose(tried, most=99, kappa=kappa)
        worth = (found["predicted"] + kappa * found["deviation"]).to_numpy()
        assert (np.diff(worth) <= 1e-9).all()
    digits = pl.DataFrame({name: range(10) for name in "abcde"}).with_columns(score=pl.lit(0.5))
    assert len(propose(digits, most=1)) == 1, "100,000 designs are not too many"


def test_what_should_be_tried_next():
    found = analyze("designs(most=2)", DATA)
    assert found.columns == ["workflow", "memory", "planning", "predicted", "deviation"]
    assert len(found) == 2
    assert found.row(0)[:2] == ("debate", "notes")  # both were better wherever they were tried
    tried = pl.read_csv(DATA)
    assert not found.join(tried, on=["workflow", "memory", "planning"]).height
    with pytest.raises(MissingColumnError, match="score"):
        propose(tried.drop("score"))
    with pytest.raises(InputError, match="1 slots"):
        propose(tried.select("workflow", "score"))


def test_a_written_tree_is_gone_through_as_it_would_be(tmp_path):
    found = analyze("tree_search(6)", DATA.parent / "tree.csv")
    assert found.rows()[0] == ("root", "expanded")
    assert found.rows()[-2:] == [("answer b1", "passed"), ("answer b1", "answer")]
    tried = found["node"].to_list()
    assert "answer a1" in tried  # the best opinion of itself comes first, and its failure sends the search elsewhere
    assert analyze("tree_search(4)", DATA.parent / "tree.csv").rows()[-1] == ("answer a1", "answer")
    rootless = tmp_path / "tree.csv"
    pl.read_csv(DATA.parent / "tree.csv").filter(pl.col("parent").is_not_null()).write_csv(rootless)
    with pytest.raises(InputError, match="0 nodes have no parent"):
        analyze("tree_search(4)", rootless)


def test_a_score_that_is_nan_is_no_evaluation():
    tried = pl.DataFrame({"a": ["x", "y", "y"], "b": ["u", "v", "u"], "score": [1.0, 0.0, float("nan")]})
    assert propose(tried).select("a", "b").sort("a").rows() == [("x", "v"), ("y", "u")]
    assert propose(tried)["predicted"].is_finite().all()


def test_training_designs_cover_all_pairs_and_then_take_the_best_and_the_worst_in_turn() -> None:
    slots = {name: list(range(3)) for name in "abc"}
    rng = np.random.default_rng(0)
    table = training_designs(slots, lambda design: float(sum(design.values())), number=20, rng=rng)
    assert all(table.select(one, other).unique().height == 9 for one, other in combinations("abc", 2))
    assert table.select("a", "b", "c").is_unique().all()
    found = guided_search(slots, lambda design: 0.0, budget=6, start=2, rng=rng, trained=table)
    assert len(found) == 6
    with pytest.raises(InputError, match="training_designs"):
        training_designs(slots, lambda design: 0.0, number=28, rng=rng)


def test_a_climb_changes_one_slot_of_the_best_one() -> None:
    slots = {name: list(range(3)) for name in "abc"}
    rows = climb(slots, lambda design: float(sum(design.values())), budget=30, rng=np.random.default_rng(0)).to_dicts()
    assert len(rows) == 30
    assert all(sum(row[n] != rows[row["parent"] - 1][n] for n in "abc") <= 1 for row in rows if row["parent"])
    assert len({tuple(row[n] for n in "abc") for row in rows[:27]}) == 27, "no design twice while there are others"
