"""Auctions of plans: who wins, who may refine, weights from outcomes, and what a memory shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.teamwork import Weights, award, contrast, fit_weights
from palaestra.foundation.archive import Archive, Entry

DATA = Path(__file__).parents[2] / "atlas" / "data" / "bids.jsonl"
BIDS = pl.DataFrame(
    {"task": [0] * 3, "agent": ["a", "b", "c"], "price": [1.0, 2.0, 4.0], "tokens": [10, 10, 10],
     "entropy": [0.0, 0.0, 6.0], "jury": [[1.0, 1], [9, 9], [9, 9]]}
)  # fmt: skip


def winner(bids: pl.DataFrame, weights: Weights) -> list[str]:
    return award(bids, weights).filter("winner")["agent"].to_list()


def test_the_least_cost_less_value_wins():
    found = award(BIDS, Weights(1.0, 0.0, 1.0))
    assert found["score"].to_list() == [10 - 2, 20 - 18, 40 - 18]
    assert winner(BIDS, Weights(1.0, 0.0, 1.0)) == ["b"]
    assert winner(BIDS, Weights(1.0, 0.0, 0.0)) == ["a"]
    assert winner(BIDS, Weights(1.0, 4.0, 1.0)) == ["c"]  # its plan is less sure of itself, which counts as thought
    assert award(BIDS, Weights(0.0, 0.0, (1.0, 0.5)))["score"].to_list() == [-1.5, -13.5, -13.5]
    told = BIDS.with_columns(jury=pl.Series([2.0, 8.0, 4.0]))
    assert award(told, Weights(1.0, 0.0, 0.5))["score"].to_list() == [9.0, 16.0, 38.0]
    assert award(told, Weights(1.0, 0.0, (0.5, 0.25)))["score"].to_list() == [8.5, 14.0, 37.0]
    assert winner(BIDS, Weights(0.0, 0.0, 1.0)) == ["b"]  # of equal ones the first
    assert analyze("auction(cost=.1)", DATA).filter("winner")["agent"].to_list() == ["large", "small"]


@pytest.mark.parametrize(
    ("agent", "price", "marks", "wins"),
    [
        ("a", 1.0, 12.0, "a"),  # cheaper than b, and better now
        ("a", 1.0, 5.0, "b"),  # cheaper, but still worse
        ("a", 1.0, 8.0, "b"),  # cheaper, but only as good
        ("c", 2.0, 90.0, "b"),  # better, but only as cheap
        ("c", 4.0, 90.0, "b"),  # better, but not cheaper than the winner
    ],
)
def test_only_who_is_cheaper_than_the_winner_may_refine(agent: str, price: float, marks: float, wins: str):
    again = pl.DataFrame({"task": [0], "agent": [agent], "price": [price], "tokens": [10], "entropy": [0.0],
                          "jury": [[marks, 0.0]], "refined": [True]})  # fmt: skip
    bids = pl.concat([BIDS.with_columns(refined=False), again])
    assert winner(bids, Weights(1.0, 0.0, 1.0)) == [wins]


def test_weights_are_learnt_from_what_came_of_plans():
    rng = np.random.default_rng(0)
    n = 300
    marks, price = rng.normal(size=(n, 3)), rng.random((n, 3))
    bids = pl.DataFrame({"task": np.repeat(np.arange(n), 3), "agent": ["a", "b", "c"] * n, "price": price.ravel(),
                         "tokens": [1.0] * 3 * n, "jury": marks.ravel(), "entropy": rng.normal(size=3 * n),
                         "worth": (marks - 2 * price + 0.1 * rng.normal(size=(n, 3))).ravel()})  # fmt: skip
    weights = fit_weights(bids, "worth")
    assert weights.cost / weights.jury == pytest.approx(2, rel=0.1)
    assert weights.entropy < 0.05 * weights.jury
    best = bids.sort("worth").group_by("task").last().sort("task")["agent"]
    assert (award(bids, weights).filter("winner").sort("task")["agent"] == best).mean() > 0.9
    strong = fit_weights(bids, "worth", ridge=0.1)
    assert strong.jury < 0.9 * weights.jury, "squares of weights are paid for"
    price, marks = (bids[name].to_numpy() for name in ("price", "jury"))
    pairs = (
        bids.with_row_index("_row")
        .join(bids.with_row_index("_row"), on="task")
        .filter(pl.col("worth") > pl.col("worth_right"))
    )
    one, other = pairs["_row"].to_numpy(), pairs["_row_right"].to_numpy()
    gap = np.stack([price[one] - price[other], -(marks[one] - marks[other])], 1)
    gap, scale = gap / gap.std(0), gap.std(0)
    more = (pairs["worth"] - pairs["worth_right"]).to_numpy()

    def loss(cost: float, jury: float) -> float:
        found = np.array([cost, jury]) * scale
        return float(more / more.sum() @ np.logaddexp(0, gap @ found) + 0.1 * found @ found)

    at = strong.cost, strong.jury
    assert all(loss(*at) <= loss(at[0] * a, at[1] * b) for a in (0.97, 1, 1.03) for b in (0.97, 1, 1.03))
    with pytest.raises(InputError, match="no two bids of a task differ"):
        fit_weights(bids.with_columns(worth=1.0), "worth")


def test_bad_bids_are_named():
    with pytest.raises(MissingColumnError, match="jury"):
        award(BIDS.drop("jury"))
    with pytest.raises(MissingColumnError, match="entropy"):
        award(BIDS.drop("entropy"), Weights(1, 1, 1))
    with pytest.raises(InputError, match=r"\[2\] marks of the jury, 3 weights"):
        award(BIDS, Weights(1, 0, (1.0, 1.0, 1.0)))


def test_pairs_of_the_nearest_tasks_one_of_each_being_ones_own():
    memory = Archive()
    for task, near in (("t0", [1.0, 0]), ("t1", [0.9, 0.1]), ("t2", [0.0, 1])):
        for agent in "abc":
            memory.add(Entry(task, f"{agent} on {task}", float(agent == "b"), agent), near)
    assert contrast(memory, np.array([1.0, 0]), "a", 2) == [("a on t0", "b on t0"), ("a on t1", "b on t1")]
    assert contrast(memory, np.array([0.0, 1]), "b", 1) == [("a on t2", "b on t2"), ("c on t2", "b on t2")]
    assert contrast(Archive(), np.array([1.0]), "a") == []


def test_a_bid_of_which_something_is_missing_does_not_win():
    bids = pl.DataFrame({"task": ["t", "t", "u"], "agent": ["a", "b", "a"], "price": [1.0, 9.0, None],
                         "tokens": [10, 10, 10], "jury": [[1.0, None], [1.0, 2.0], None]})  # fmt: skip
    found = award(bids)
    assert found["winner"].to_list() == [False, True, False]
    assert found["score"].to_list() == [None, 87.0, None]
    assert len(award(bids.head(0))) == 0
    silent = award(bids.with_columns(entropy=pl.Series([0.1, None, 0.1])))
    assert silent["winner"].to_list() == [False, True, False], "entropy of weight 0 does not count"
    weighed = award(bids.with_columns(entropy=pl.Series([0.1, None, 0.1])), Weights(1.0, 1.0, 1.0))
    assert not weighed["winner"].any()
