"""Criteria tables: judged once, weighted often; dependencies; null is never zero."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.credit import ndcg
from palaestra.errors import InputError, SchemaError
from palaestra.rewards import Criteria, best_of, onto, satisfaction, step_advantage, utility

WEIGHTS = {"a": 0.3, "b": 0.3, "c": 0.4}


def checklist(rows: list[str], **columns: object) -> Criteria:
    """One episode per text such as `110`; `.` is a failed call."""
    records = [
        {"group": 0, "episode": e, "criterion": name, "value": None if mark == "." else float(mark)}
        for e, row in enumerate(rows)
        for name, mark in zip("abc", row, strict=True)
    ]
    return Criteria(pl.DataFrame(records, {"group": int, "episode": int, "criterion": str, "value": float}))


def steps(marks: dict[str, str], episodes: int = 1) -> Criteria:
    """Items over the steps of one turn: {"b": "0011"}."""
    records = [
        {"group": 0, "episode": e, "turn": 0, "step": s, "criterion": name, "value": float(mark)}
        for e in range(episodes)
        for name, row in marks.items()
        for s, mark in enumerate(row)
    ]
    return Criteria(pl.DataFrame(records))


def test_worked_scores() -> None:
    found = utility(checklist(["111", "110", "100", "000", "111"]), WEIGHTS, method="any")
    np.testing.assert_allclose(found["utility"], [1, 0.6, 0.3, 0, 1])
    assert found["judged"].all()


def test_a_failed_call_is_null_and_not_zero() -> None:
    found = utility(checklist(["11.", "111"]), WEIGHTS)
    assert found["utility"].to_list() == [None, 1.0]
    assert found["judged"].to_list() == [False, True]


def test_an_item_counts_if_it_was_true_at_some_step() -> None:
    table = steps({"a": "010", "b": "001"})
    by = ("episode", "turn")
    weights = {"a": 0.25, "b": 0.75}
    assert utility(table, weights, by=by, method="any")["utility"].to_list() == [1.0]
    assert utility(table, weights, by=by, method="last")["utility"].to_list() == [0.75]
    assert utility(table, weights, by=by)["utility"].to_list() == [pytest.approx(1 / 3)]


def test_weights_may_depend_on_the_group() -> None:
    table = checklist(["100"])
    weights = pl.DataFrame({"group": [0] * 3, "criterion": list("abc"), "weight": [0.9, 0.1, 0.0]})
    assert utility(table, weights)["utility"].to_list() == [0.9]


def test_weights_may_not_differ_within_a_key_of_the_sum() -> None:
    table = Criteria(pl.DataFrame({"episode": [0, 0], "turn": [0, 1], "criterion": ["a", "a"], "value": [0.0, 1.0]}))
    weights = pl.DataFrame({"turn": [0, 1], "criterion": ["a", "a"], "weight": [1.0, 0.5]})
    assert utility(table, weights, by=("episode", "turn"))["utility"].to_list() == [0.0, 0.5]
    with pytest.raises(InputError, match="'a' has several in one episode"):
        utility(table, weights)


def test_a_criterion_without_a_value_is_no_zero_though_its_call_went_well() -> None:
    table = {"episode": [0, 0, 1, 1], "criterion": ["a", "b"] * 2, "value": [1.0, None, 1.0, 0.0]}
    found = utility(Criteria(pl.DataFrame(table | {"call_ok": [True] * 4})), {"a": 0.5, "b": 0.5})
    assert found.rows() == [(0, None, True), (1, 0.5, True)]


def test_weights_and_criteria_must_fit() -> None:
    with pytest.raises(InputError, match=r"criterion 'd' was not judged"):
        utility(checklist(["111"]), WEIGHTS | {"d": 1.0})
    with pytest.raises(InputError, match=r"criterion 'c' has no weight"):
        utility(checklist(["111"]), {"a": 0.5, "b": 0.5})


def test_weights_that_are_not_one_number_each() -> None:
    table = checklist(["100"])
    twice = pl.DataFrame({"criterion": list("aabc"), "weight": [0.9, 0.1, 0.0, 0.0]})
    with pytest.raises(InputError, match="criterion 'a' has several"):
        utility(table, twice)
    with pytest.raises(InputError, match="one is not finite"):
        utility(table, WEIGHTS | {"a": float("nan")})
    other = pl.DataFrame({"group": ["one"] * 3, "criterion": list("abc"), "weight": [0.9, 0.1, 0.0]})
    with pytest.raises(SchemaError, match="weights: keys of other types"):
        utility(table, other)


def test_a_key_may_be_one_name() -> None:
    assert utility(checklist(["100"]), WEIGHTS, by="episode")["utility"].to_list() == [0.3]


def test_tables_that_are_none() -> None:
    for value, message in (([float("nan")], "value of row 0 is not finite"), (["yes"], "holds String, not numbers")):
        with pytest.raises(SchemaError, match=message):
            Criteria(pl.DataFrame({"episode": [0], "criterion": ["a"], "value": value}))
    with pytest.raises(SchemaError, match="no column 'step'"):
        satisfaction(checklist(["111"]))
    with pytest.raises(SchemaError, match="'value'"):
        Criteria(pl.DataFrame({"episode": [0], "criterion": ["a"]}))
    with pytest.raises(SchemaError, match="needs a key"):
        Criteria(pl.DataFrame({"criterion": ["a"], "value": [1.0]}))
    bad = pl.DataFrame({"episode": [0], "criterion": ["a"], "value": [0.0], "call_ok": [False]})
    with pytest.raises(SchemaError, match="row 0 has a value, but its call failed"):
        Criteria(bad)


def test_an_item_waits_for_what_it_depends_on() -> None:
    table = steps({"b": "0011", "c": "1001"})
    alone = satisfaction(table)
    assert alone.select("criterion", "open", "done").rows() == [("b", 0, 2), ("c", 0, 0)]
    half = Criteria(table.frame.with_columns(pl.col("value") / 2))  # which is not yet true
    assert satisfaction(half)["done"].to_list() == [None, None]
    waiting = satisfaction(table, {"c": ["b"]})
    assert waiting.select("criterion", "open", "done").rows() == [("b", 0, 2), ("c", 2, 2)]
    never = satisfaction(steps({"b": "0000", "c": "1001"}), {"c": ["b"]})
    assert never.select("criterion", "open", "done").rows() == [("b", 0, None), ("c", None, None)]
    with pytest.raises(InputError, match="in a circle"):
        satisfaction(table, {"c": ["b"], "b": ["c"]})
    with pytest.raises(InputError, match="'d' was not judged"):
        satisfaction(table, {"c": ["d"]})


def test_step_credit_by_hand() -> None:
    early, late, never = ({"a": row} for row in ("11", "01", "00"))
    tables = [
        steps(marks).frame.with_columns(episode=pl.lit(e)) for e, marks in enumerate((early, late, never, never, never))
    ]
    found = step_advantage(Criteria(pl.concat(tables)), {"a": 1.0}, eta=0.5)
    # open and not done: early scores 1 at step 0; late 0.5 at both; the others 0 at both. mean of nine scores: 2/9
    right = [1 - 2 / 9, 0, 0.5 - 2 / 9, 0.5 - 2 / 9, *[-2 / 9] * 6]
    np.testing.assert_allclose(found["step_advantage"], right)
    moved = pl.concat(tables).with_columns(pl.col("step") + 3)
    np.testing.assert_allclose(step_advantage(Criteria(moved), {"a": 1.0}, eta=0.5)["step_advantage"], right)
    few = step_advantage(Criteria(pl.concat(tables)), {"a": 1.0}, eta=0.5, least=10)
    assert few["step_advantage"].abs().sum() == 0


def test_step_credit_leaves_out_episodes_with_a_failed_call() -> None:
    good = steps({"a": "01"}, episodes=5).frame
    broken = steps({"a": "11"}).frame.with_columns(episode=pl.lit(9), value=pl.lit(None, pl.Float64), call_ok=False)
    both = Criteria(pl.concat([good, broken], how="diagonal_relaxed"))
    found = step_advantage(both, {"a": 1.0})
    assert found.filter(episode=9)["step_advantage"].to_list() == [0.0, 0.0]
    alone = step_advantage(Criteria(good), {"a": 1.0})
    assert found.filter(pl.col("episode") != 9)["step_advantage"].to_list() == alone["step_advantage"].to_list()


def test_step_credit_of_two_items_over_two_turns_by_hand() -> None:
    """Weights .75 and .25. Turn 0: item a holds in episode 0 alone, b in none; turn 1: a in both, b in episode 0 alone.

    The means are those of the item at the turn: .75 · (1 - 1/2) at turn 0, .25 · (1 - 1/2) at turn 1. Any order.
    """
    held = {(0, 0, "a"): 1, (0, 1, "a"): 0, (0, 0, "b"): 0, (0, 1, "b"): 0}
    held |= {(1, 0, "a"): 1, (1, 1, "a"): 1, (1, 0, "b"): 1, (1, 1, "b"): 0}
    rows = [(0, episode, turn, 0, name, float(value)) for (turn, episode, name), value in held.items()]
    rows = [rows[k] for k in (5, 2, 7, 0, 3, 6, 1, 4)]
    names = ("group", "episode", "turn", "step", "criterion", "value")
    table = Criteria(pl.DataFrame(rows, schema=names, orient="row"))
    found = step_advantage(table, {"a": 0.75, "b": 0.25}, least=2)
    expected = {(0, 0): 0.375, (0, 1): 0.125, (1, 0): -0.375, (1, 1): -0.125}
    assert {(episode, turn): value for _, episode, turn, _, value in found.rows()} == pytest.approx(expected)


def test_of_the_steps_of_a_key_the_last_is_the_latest_and_one_failed_call_is_enough() -> None:
    steps = {"episode": [0] * 3, "turn": [1, 0, 1], "step": [0, 3, 1], "criterion": ["a"] * 3}
    table = Criteria(pl.DataFrame(steps | {"value": [0.2, 0.9, 0.4]}).reverse())
    assert utility(table, {"a": 1.0}, method="last")["utility"].to_list() == [0.4]
    shuffled = Criteria(pl.DataFrame(steps | {"value": [0.2, 0.9, 0.4]})[[2, 0, 1]])
    assert utility(shuffled, {"a": 1.0}, method="last")["utility"].to_list() == [0.4]
    failed = Criteria(pl.DataFrame(steps | {"value": [1.0, None, 0.0]}))
    assert utility(failed, {"a": 1.0}, method="any").rows() == [(0, None, False)]


def test_scores_join_every_row_of_their_key() -> None:
    turns = Turns({"group": [0] * 3, "episode": [1, 0, 2], "turn": [0] * 3})
    scored = onto(turns, utility(checklist(["111", "110"]), WEIGHTS))
    assert scored["utility"].to_list() == [pytest.approx(0.6), pytest.approx(1.0), None]
    assert onto(Turns({"episode": [1, 0]}), pl.DataFrame({"episode": [0], "x": [3]}))["x"].to_list() == [None, 3]
    with pytest.raises(SchemaError, match="no column"):
        onto(Turns({"reward": [1.0]}), utility(checklist(["111"]), WEIGHTS))
    with pytest.raises(SchemaError, match="onto: keys of other types"):
        onto(turns, pl.DataFrame({"episode": ["first"], "x": [1]}))
    with pytest.raises(SchemaError, match="several rows for one"):
        onto(turns, pl.DataFrame({"episode": [0, 0], "x": [1, 2]}))


def test_best_of_and_the_worked_ndcg() -> None:
    scores = {"u": [0.8, 0.85, 0.4, 0.85, 0.0], "worth": [0.9, 0.7, 0.5, 0.2, 0.1]}
    turns = Turns({"group": [0] * 5, "episode": [4, 3, 2, 1, 0], "turn": [0] * 5} | scores)
    assert np.asarray(best_of("u").evaluate(turns)).tolist() == [False, False, False, True, False]
    turns = turns.with_column(u=[0.8, 0.85, 0.4, 0.3, 0.0])
    np.testing.assert_allclose(np.asarray(ndcg("u", "worth").evaluate(turns)), 0.9570, atol=1e-4)


def test_a_criterion_with_just_enough_steps_counts() -> None:
    tables = [steps({"a": "00"}).frame.with_columns(episode=pl.lit(e)) for e in range(2)]
    tables.append(steps({"a": "01"}).frame.with_columns(episode=pl.lit(2)))
    for least, counts in ((6, True), (7, False)):
        found = step_advantage(Criteria(pl.concat(tables)), {"a": 1.0}, eta=0.5, least=least)
        assert (found["step_advantage"].abs().sum() > 0) is counts
