"""Contests: worked weights, no look ahead, what is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.teamwork import allocate, contest, factor_reward, recent_scores

DATA = Path(__file__).parents[2] / "atlas" / "data" / "rewards.csv"


def test_worked_weights():
    assert allocate(np.array([0.5, -0.2, 1.5])).tolist() == [0.25, 0, 0.75]
    assert allocate(np.array([-0.5, np.nan, -1.5])).tolist() == [0, 0, 0]
    assert allocate(np.array([1.0, 4, -1, 2]), "top_k", most=2).tolist() == [0, 0.5, 0, 0.5]
    assert allocate(np.array([1.0, 0, -1, 3]), "top_k", most=4).tolist() == [0.5, 0, 0, 0.5]
    assert allocate(np.array([1.0, -1, np.nan, 2]), "equal").tolist() == [0.25] * 4
    with pytest.raises(InputError, match="did you mean 'top_k'"):
        allocate(np.ones(2), "topk")  # type: ignore[arg-type]


def test_a_score_is_that_of_the_days_before():
    rng = np.random.default_rng(0)
    rewards = 0.02 * rng.normal(size=(30, 3))
    scores = recent_scores(rewards, window=5, least=0.01)
    for day in range(30):
        past = rewards[max(day - 5, 0) : day]
        if len(past) < 2:
            assert np.isnan(scores[day]).all()
            continue
        filled = np.concatenate([past, np.tile(np.median(past, 0), (5 - len(past), 1))])
        np.testing.assert_allclose(scores[day], filled.mean(0) / np.maximum(filled.std(0), 0.01))
    changed = rewards.copy()
    changed[12:] = rng.permutation(changed[12:])
    np.testing.assert_array_equal(recent_scores(changed)[:13], scores[:13])
    assert (recent_scores(changed)[13:] != scores[13:]).any()


def test_what_is_missing_or_wild_is_the_median_of_the_others():
    column = np.array([[0.01], [np.nan], [0.03], [0.9], [0.02], [0.0]])
    score = recent_scores(column, window=5)[5, 0]
    filled = np.array([0.01, 0.02, 0.03, 0.02, 0.02])
    assert score == pytest.approx(filled.mean() / 0.01)
    assert np.isnan(recent_scores(column)[2, 0])  # one day is too few


def test_a_reward_at_the_limit_is_not_wild():
    column = np.array([[0.4, 0.0, 0.5], [0.0, -0.4, 0.0], [np.nan] * 3])
    np.testing.assert_allclose(recent_scores(column, window=2)[2], [1.0, -1.0, np.nan])


def test_a_table_of_days():
    found = analyze("contest(window=3)", DATA)
    assert found["invested"].to_list()[:2] == [0, 0]
    assert found.filter(pl.col("day") >= 5)["most_on"].value_counts(sort=True)["most_on"][0] == "ann"
    by_hand = contest(pl.read_csv(DATA), window=3).with_columns(earned=pl.col("weight") * pl.col("reward"))
    sums = by_hand.group_by("day", maintain_order=True).agg(pl.col("earned", "weight").sum(), pl.col("reward").mean())
    for own, name in (("earned", "earned"), ("invested", "weight"), ("equal", "reward")):
        np.testing.assert_allclose(found[own], sums[name])
    rewards = pl.read_csv(DATA).sample(fraction=1, shuffle=True, seed=0)
    rows = contest(rewards, window=3)
    assert rows.select("day", "agent").equals(rewards.select("day", "agent"))
    day = rows.filter(day=7).sort("agent")
    past = rewards.filter(pl.col("day").is_between(4, 6)).pivot(on="agent", index="day", values="reward").sort("day")
    own = past.select("ann", "bob", "cat").to_numpy()
    np.testing.assert_allclose(day["score"], own.mean(0) / np.maximum(own.std(0), 0.01))
    with pytest.raises(InputError, match="two rewards on a day"):
        contest(pl.concat([rewards, rewards]))
    with pytest.raises(MissingColumnError, match="reward"):
        contest(rewards.drop("reward"))
    with pytest.raises(InputError, match="least=0 above 0"):
        contest(rewards, least=0)
    with pytest.raises(InputError, match="window=1"):
        contest(rewards, window=1)


def test_ratings_times_changes():
    assert factor_reward(np.array([2.0, -1, 1]), np.array([0.1, -0.5, np.nan])) == pytest.approx(0.2)
    assert factor_reward(np.array([np.nan]), np.array([0.1])) == 0


def test_equal_agents_are_taken_by_name_whatever_the_order_of_rows():
    rows = pl.DataFrame({"day": [0, 0, 1, 1, 2, 2], "agent": ["b", "a"] * 3, "reward": [0.1] * 6})
    found, turned = (contest(table, method="top_k", most=1).sort("day", "agent") for table in (rows, rows.reverse()))
    assert found.equals(turned)
    assert found["weight"].to_list()[-2:] == [1.0, 0.0]


@pytest.mark.parametrize(("method", "shares"), [("positive", [0.6, 0.4]), ("top_k", [1, 0]), ("equal", [0.5, 0.5])])
def test_who_has_no_row_on_a_day_takes_no_share_of_it(method, shares):
    """The best of three, who earned .03 a day, is not there on the last day; .015 and .01 are shared as 3 : 2."""
    earned = {"a": 0.015, "b": 0.01, "c": 0.03}
    rows = [(day, name, reward) for day in range(3) for name, reward in earned.items() if (day, name) != (2, "c")]
    frame = pl.DataFrame(rows, schema=["day", "agent", "reward"], orient="row")
    assert contest(frame, method=method, most=1).filter(day=2)["weight"].to_list() == pytest.approx(shares)


def test_no_rows_are_named():
    with pytest.raises(InputError, match="the table is empty"):
        contest(pl.DataFrame({"day": [], "agent": [], "reward": []}))
