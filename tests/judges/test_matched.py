"""Pairs by policy and by principle: SALMON's worked numbers, who may stand in a pair, what chance decides."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, MissingColumnError
from palaestra.judges import PAIRINGS, PAIRS
from palaestra.judges.aggregate import swap_consistent
from palaestra.judges.matched import policy_pairs, principle_pairs, principle_scores


def played(seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame({"group": rng.integers(6, size=60), "policy": rng.choice(["a", "b", "c"], 60)})


@pytest.mark.parametrize("seed", range(3))
def test_a_policy_stands_beside_itself_and_against_another(seed: int) -> None:
    rows = played(seed)
    found = policy_pairs(rows, seed=seed, passes=20)
    assert {name: found.schema[name] for name in PAIRS} == PAIRS
    three = [rows[found[name].to_list()] for name in ("reference", "chosen", "rejected")]
    assert (three[0]["policy"] == three[1]["policy"]).all()
    assert (three[1]["policy"] != three[2]["policy"]).all()
    assert all((each["group"] == three[1]["group"]).all() for each in three)
    assert (found["reference"] != found["chosen"]).all()
    sizes = rows.with_row_index().with_columns(own=pl.len().over("group", "policy"), all=pl.len().over("group"))
    able = sizes.filter(pl.col("own") > 1, pl.col("all") > pl.col("own"))["index"].to_list()
    assert sorted(found["chosen"].to_list()) == sorted(able * 20)
    ways = {(a, b) for a, b in zip(found["chosen"], found["rejected"], strict=True) if a == able[0]}
    assert {b for _, b in ways} <= set(
        sizes.filter(pl.col("group") == rows["group"][able[0]], pl.col("policy") != rows["policy"][able[0]])["index"]
    )
    assert len(ways) > 1


def test_nobody_to_stand_against_is_said() -> None:
    with pytest.raises(InputError, match="two rows of one policy"):
        policy_pairs(pl.DataFrame({"group": [0, 0], "policy": ["a", "b"]}))
    with pytest.raises(MissingColumnError, match="'policy'"):
        policy_pairs(pl.DataFrame({"group": [0]}))


def test_salmons_worked_numbers() -> None:
    """Order scores (3, 1), (-.6, -.2), (1.2, -.4), variances (4, 1, 2.25): .5, -.4 and 0."""
    lead = swap_consistent(np.array([3.0, -0.6, 1.2]), np.array([1.0, -0.2, -0.4]))
    scores = lead / np.array([4.0, 1.0, 2.25])
    assert scores.tolist() == pytest.approx([0.5, -0.4, 0.0])
    every = {"passes": 400, "stop": 1e-9, "flip": 0.0}
    found = principle_pairs(np.array([0]), np.array([1]), scores[None], negate=0.0, **every)  # type: ignore[arg-type]
    assert found["chosen"].unique().to_list() == [0]
    turned = principle_pairs(np.array([0]), np.array([1]), scores[None], negate=1.0, **every)  # type: ignore[arg-type]
    assert turned["chosen"].unique().to_list() == [1]
    assert turned["condition"].to_list()[0] == [-1.0, -1.0, -1.0]


def test_principle_scores_divide_by_the_variance() -> None:
    lead = np.random.default_rng(0).normal(scale=[2.0, 1.0, 0.0], size=(500, 3))
    found = principle_scores(lead)
    assert found[:, :2].std(0) * lead[:, :2].std(0) == pytest.approx([1.0, 1.0])
    assert (found[:, 2] == 0).all()


def test_what_chance_decides() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(2000, 5))
    first, second = np.arange(2000), np.arange(2000, 4000)
    found = principle_pairs(first, second, scores, passes=1, most=3)
    condition = np.array(found["condition"].to_list())
    number = np.abs(condition).sum(1)
    shares = [(number == k).mean() for k in (1, 2, 3)]
    assert shares == pytest.approx([0.2, 0.16, 0.64], abs=0.03)
    assert (condition[condition != 0] < 0).mean() == pytest.approx(0.5, abs=0.03)
    lead = scores[np.minimum(found["chosen"].to_numpy(), found["rejected"].to_numpy())] * condition
    best = lead[np.arange(len(lead)), np.abs(lead).argmax(1)] > 0
    assert (best == (found["chosen"].to_numpy() < 2000)).mean() == pytest.approx(0.9, abs=0.03)
    with pytest.raises(InputError, match="stop=0"):
        principle_pairs(first, second, scores, stop=0)
    with pytest.raises(InputError, match="shape"):
        principle_pairs(first[:3], second, scores)


def test_principles_of_which_nothing_is_known_decide_nothing() -> None:
    unknown = np.array([[np.nan, 2.0], [np.nan, -2.0]])
    assert principle_scores(unknown)[:, 1].tolist() == [0.5, -0.5]
    assert np.isnan(principle_scores(unknown)[:, 0]).all()
    assert principle_scores(np.zeros((0, 2))).shape == (0, 2)
    with pytest.raises(InputError, match="shape"):
        principle_pairs(np.arange(2), np.arange(2), np.zeros((2, 0)))


def test_pairings_by_name_read_a_table_of_turns() -> None:
    turns = Turns({"group": [0, 0, 0, 1], "policy": ["a", "a", "b", "a"]})
    found = PAIRINGS.build("policy_pairs()")(turns)
    assert set(found.select("chosen", "rejected", "reference").rows()) == {(0, 2, 1), (1, 2, 0)}
    lists = {name: [[2.0, -1.0], [9.0, 9.0], [0.0, 3.0]] for name in ("lead", "swapped")}
    judged = Turns({"group": [0, 0, 1], **lists})  # the second group has one row only
    found = PAIRINGS.build("principle_pairs(stop=1e-9, flip=0, negate=0, passes=1)")(judged)
    assert found.select("chosen", "rejected", "condition").rows() == [(0, 1, [1.0, 1.0, 0.0, 0.0])]
    with pytest.raises(MissingColumnError, match="swapped"):
        PAIRINGS.build("principle_pairs(swapped='swaped')")(judged)


def test_rows_of_an_unknown_policy_are_never_chosen() -> None:
    rows = pl.DataFrame({"group": 0, "policy": [None, None, "a", "a", "b"]})
    found = policy_pairs(rows, passes=5)
    assert set(found["chosen"].to_list()) == {2, 3}
