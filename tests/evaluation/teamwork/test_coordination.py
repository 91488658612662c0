from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.messages import messages
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.teamwork import (
    ScalingLaw,
    advise,
    coordination,
    cost_at_score,
    flips,
    score_at_cost,
    turn_law,
    workflow_cost,
)

TABLE_5 = {
    "single": (0.466, 7.2), "independent": (0.370, 11.4), "decentralised": (0.477, 26.1), "centralised": (0.463, 27.7),
    "hybrid": (0.452, 44.3),
}  # fmt: skip


def table_5():
    """Episodes whose means are those of the paper's table: a thousand for each architecture, ten turns in the unit."""
    rows = []
    for name, (success, turns) in TABLE_5.items():
        for episode in range(1000):
            count = int(turns) + (episode < round(1000 * (turns - int(turns))))
            rows += [(name, episode, turn, "a", episode % 1000 < round(1000 * success)) for turn in range(count)]
    return Turns(pl.DataFrame(rows, schema=["system", "episode", "turn", "agent", "success"], orient="row")
                 .with_columns(run=pl.col("system")))  # fmt: skip


def test_efficiency_and_overhead_of_the_papers_table():
    found = coordination(table_5(), baseline="single")
    assert found["system"].to_list() == list(TABLE_5)
    assert found["efficiency"].to_list() == pytest.approx([0.466, 0.234, 0.132, 0.120, 0.073], abs=6e-4)
    assert (100 * found["overhead"]).to_list() == pytest.approx([0, 58.3, 262.5, 284.7, 515.3], abs=0.06)
    assert found["failure_ratio"][1] == pytest.approx(1.18, abs=5e-3)
    unknown = found.select("density", "redundancy", "success_per_1k")
    assert unknown.row(0) == (None, None, None), "nobody heard, answered or counted anything"


def test_density_redundancy_and_success_per_token():
    turns = Turns({
        "system": ["one"] * 2 + ["team"] * 3, "run": ["one"] * 2 + ["team"] * 3, "episode": [0, 1, 0, 0, 0],
        "turn": [0, 0, 0, 0, 1], "agent": ["a", "a", "a", "b", "a"], "answer": ["x", "y", "x", "x", "y"],
        "success": [True, False, True, True, True], "tokens_out": [100, 100, 200, 200, 100],
    })  # fmt: skip
    heard = pl.DataFrame({"run": ["team"] * 2, "episode": [0, 0], "sender": ["a", "b"], "sender_turn": [0, 0],
                          "receiver": ["a", "a"], "receiver_turn": [1, 1], "kept": [True, False]})  # fmt: skip
    found = coordination(turns, heard, baseline="one")
    assert found["density"].to_list() == pytest.approx([0.0, 1 / 3])
    assert found["redundancy"].to_list() == pytest.approx([0.0, 1 / 3])
    assert found["success_per_1k"].to_list() == pytest.approx([5.0, 2.0])
    assert found["turns"].to_list() == [1.0, 3.0]
    with pytest.raises(InputError, match="did you mean 'one'"):
        coordination(turns, baseline="ome")
    with pytest.raises(MissingColumnError, match="system"):
        coordination(Turns({"episode": [0], "success": [True]}), baseline="one")


def test_the_law_of_turns():
    members = np.array([1, 2, 3, 4, 6, 10])
    law = 2.72 * (members + 0.5) ** 1.724
    assert law == pytest.approx([5.5, 13.2, 23.6, 36.4, 68.6, 156.7], abs=0.1)
    assert turn_law(members, law) == pytest.approx((2.72, 1.724))
    with pytest.raises(InputError, match="two at least"):
        turn_law([1], [2])
    assert turn_law([0, 1.5], [1, 4]) == pytest.approx((2, 1)), "two teams are a line, and one may be empty"
    for bad, turns in (([1, 2], [0, 3]), ([-0.25, 2], [1, 3]), ([1, 2, 3], [1, 2])):
        with pytest.raises(InputError, match="all above 0"):
            turn_law(bad, turns)


def test_flips_are_counted_where_they_are_seen():
    turns = Turns({"episode": [0] * 4 + [1] * 2, "turn": [0, 0, 1, 1, 0, 1], "agent": ["a", "b", "a", "b", "a", "a"],
                   "score": [1.0, 0.0, 0.0, 1.0, 1.0, 1.0], "success": [True] * 4 + [False] * 2})  # fmt: skip
    rows = flips(turns).rows(named=True)
    assert rows[0] == {"turn": 0, "stayed_right": 0, "stayed_wrong": 0, "to_right": 0, "to_wrong": 0,
                       "overruled_right": 1}  # fmt: skip
    assert rows[1] == {"turn": 1, "stayed_right": 1, "stayed_wrong": 0, "to_right": 1, "to_wrong": 1,
                       "overruled_right": 1}  # fmt: skip
    late = turns.with_column(success=pl.Series([None, None, None, True, None, False]))
    assert flips(late).rows(named=True) == rows, "success stands on the last row of an episode"
    call = pl.DataFrame({"episode": [0], "turn": [0], "agent": ["a"], "score": [None], "success": [True]})
    calls = Turns(pl.concat([turns.frame, call.cast({"score": pl.Float64})], how="diagonal_relaxed"))
    assert flips(calls).rows(named=True) == rows, "a second call of a tool in one turn is no turn"
    with pytest.raises(MissingColumnError, match="score"):
        flips(Turns({"episode": [0], "turn": [0], "agent": ["a"]}))


@pytest.mark.parametrize(
    ("shared", "count", "output", "team", "alone"),
    [(1000, 4, 200, 9200, 5540), (4000, 4, 200, 21200, 9440), (4000, 8, 200, 45600, 15920), (500, 2, 500, 5900, 5020)],
)
def test_the_worked_prices_of_one_conversation(shared, count, output, team, alone):
    assert workflow_cost(shared, [200] * count, [output] * count) == pytest.approx((team, alone))
    with pytest.raises(InputError, match="one for each node"):
        workflow_cost(1, [1], [])


def test_two_readings_of_a_frontier():
    points = pl.DataFrame({"cost": [1, 2, 2, 3, 4], "score": [0.2, 0.5, 0.4, 0.5, 0.9]})
    assert score_at_cost(points, 3) == 0.5
    assert score_at_cost(points, 4) == 0.9
    assert score_at_cost(points, 0.5) is None
    assert cost_at_score(points, 0.5) == 2
    assert cost_at_score(points, 0.6) == 4
    assert cost_at_score(points, 1.0) is None
    with pytest.raises(MissingColumnError, match="cost"):
        score_at_cost(points.drop("cost"), 3)


def test_systems_that_number_their_episodes_alike_keep_their_messages():
    rows = {"system": ["one"] * 2 + ["team"] * 4, "episode": [0, 1, 0, 0, 1, 1], "turn": [0, 0, 0, 1, 0, 1]}
    heard = [[], [], [], ["b"], [], ["b"]]
    when = [[], [], [], [0], [], [0]]
    turns = Turns(pl.DataFrame({**rows, "agent": ["a", "a", "b", "a", "b", "a"], "success": [True] * 6, "heard": heard,
                                "heard_turn": when}, schema_overrides={"heard": pl.List(pl.String)}))  # fmt: skip
    found = coordination(turns, baseline="one")
    assert found["density"].to_list() == [0.0, 0.5]
    assert found["failure_ratio"].to_list() == [None, None], "the baseline does not fail"
    with pytest.raises(InputError, match="give messages a column 'system'"):
        coordination(turns, messages(turns), baseline="one")


def test_what_is_missing_leaves_the_costs_of_coordination():
    turns = Turns({
        "system": ["one"] * 4, "episode": [0, 1, 2, 2], "turn": [0, 0, 0, 1], "agent": ["a"] * 4,
        "success": [True, True, None, None], "tokens_out": [100, None, 300, 100], "answer": [None, None, "x", "x"],
    })  # fmt: skip
    row = coordination(turns, baseline="one").row(0, named=True)
    assert row["success_per_1k"] == pytest.approx(10.0)
    assert row["redundancy"] == pytest.approx(0.5)
    paid = turns.with_column(success=pl.Series([True] * 4), tokens_out=pl.Series([100, 100, 200, 400]))
    assert coordination(paid, baseline="one")["success_per_1k"].to_list() == pytest.approx([3 / 0.8])
    unknown = turns.with_column(success=pl.Series([None] * 4, dtype=pl.Boolean))
    assert coordination(unknown, baseline="one").row(0, named=True)["failure_ratio"] is None


def test_a_turn_without_a_score_is_neither_right_nor_wrong():
    turns = {"episode": [0] * 3, "turn": [0, 1, 2], "agent": ["a"] * 3, "success": [None] * 3}
    for unknown in (None, float("nan")):
        found = flips(Turns({**turns, "score": [1.0, unknown, 0.0]}))
        assert found.drop("turn").sum_horizontal().sum() == 0


def test_wrong_turns_are_counted_beside_the_baselines() -> None:
    turns = Turns(
        {
            "system": ["one", "team", "team"], "run": ["0", "1", "1"], "group": [0, 0, 0], "episode": [0, 0, 0],
            "turn": [0, 0, 1], "agent": ["a", "a", "b"], "score": [0.0, 0.0, 0.0], "success": [False, False, False],
        }
    )  # fmt: skip
    assert coordination(turns, baseline="one")["error_amplification"].to_list() == [1.0, 2.0]
    assert coordination(Turns(turns.frame.drop("score")), baseline="one")["error_amplification"].to_list() == [None] * 2


def test_a_law_with_products_advises_what_it_has_not_seen() -> None:
    rows = [
        {"task": f"{t}", "architecture": name, "members": n, "baseline": t / 20, "tokens": float(n),
         "success": None if t % 2 else (t / 20 if n == 1 else 0.5)}
        for t in range(20) for name, n in (("one", 1), ("team", 4))
    ]  # fmt: skip
    frame = pl.DataFrame(rows, infer_schema_length=None)
    features, products = ("members", "baseline"), [("members", "baseline")]
    advised = dict(advise(frame, features, products).select("task", "architecture").iter_rows())
    assert (advised["1"], advised["19"]) == ("team", "one")
    assert ScalingLaw(features, products).held_out(frame, "task") > 0.95
    unknown = frame.with_columns(pl.col("success").fill_null(float("nan")))
    assert ScalingLaw(features, products).held_out(unknown, "task") > 0.95
    assert set(advise(frame, features, products, tokens=2)["architecture"]) == {"one"}
    assert set(advise(frame, features, products, tokens=4)["architecture"]) == {"one", "team"}, "just within the budget"
    assert len(set(advise(frame, features, by="average")["architecture"])) == 1
    with pytest.raises(InputError, match="no feature"):
        ScalingLaw(["members"], products)


def test_what_a_law_knows_nothing_of_is_not_advised() -> None:
    rows = {
        "task": ["t1", "t1", "t2", "t2", "new", "new", "dark", "dark"], "architecture": ["solo", "team"] * 4,
        "success": [0.2, 0.8, 0.1, 0.9, None, None, None, None], "tools": [1, 3, 1, 3, None, 3, None, None],
    }  # fmt: skip
    frame = pl.DataFrame(rows)
    assert advise(frame, ["tools"]).rows() == [("dark", None, None), ("new", "team", pytest.approx(0.85, abs=0.01))]
    holed = frame.with_columns(tools=pl.when(pl.int_range(pl.len()) != 2).then("tools"))
    assert advise(holed, ["tools"])["architecture"].to_list() == [None, "team"], "a hole in what was tried"
    assert np.isfinite(ScalingLaw(["tools"]).held_out(holed, "task"))
    unseen = frame.with_columns(architecture=pl.Series([*["solo", "team"] * 2, "duo", "solo", "duo", "trio"]))
    assert advise(unseen, ["tools"], by="average").rows() == [
        ("dark", None, None),
        ("new", "solo", pytest.approx(0.15)),
    ]
    with pytest.raises(InputError, match="no row has a 'success' and all of tools"):
        advise(frame.with_columns(tools=None), ["tools"])


def test_a_law_by_hand() -> None:
    """Standardised -1 and 1 with success 1 and 3: a slope of 2 / (2 + 1 · 2); members count by their logarithm."""
    rows = {"x": [0.0, 2.0], "members": [0.0, np.exp(2) - 1], "success": [1.0, 3.0]}
    frame, other = pl.DataFrame(rows), pl.DataFrame({"x": [4.0, 1.0], "members": [np.exp(4) - 1, np.exp(1) - 1]})
    for name in ("x", "members"):
        law = ScalingLaw([name], ridge=1.0).fit(frame)
        assert law.coefficients == pytest.approx({"": 2.0, name: 0.5})
        assert law.predict(other).tolist() == pytest.approx([3.5, 2.0])


def test_a_law_that_knows_only_the_mean_of_the_others_is_worse_than_the_mean_of_all() -> None:
    """Of 0, 1 and 2 it says 1.5, 1 and .5: 1 - 4.5 / 2."""
    frame = pl.DataFrame({"x": [0.0] * 3, "task": ["a", "b", "c"], "success": [0.0, 1.0, 2.0]})
    assert ScalingLaw(["x"]).held_out(frame, "task") == pytest.approx(-1.25)


def test_a_turn_with_several_calls_of_tools_is_one_turn() -> None:
    """Readers of traces write a row for each further call, with what it called and nothing else."""
    turn = {"system": "s", "episode": 0, "agent": "a", "success": True}
    rows = [turn | {"turn": n, "answer": f"step {n}", "tokens_out": 5, "score": float(n)} for n in range(2)]
    more = [turn | {"turn": n, "tool": f"f{i}"} for n in range(2) for i in range(2)]
    whole = coordination(Turns(pl.DataFrame([*rows, *more], infer_schema_length=None)), baseline="s")
    assert whole.equals(coordination(Turns(pl.DataFrame(rows)), baseline="s"))
    assert whole.select("turns", "success_per_1k").row(0) == (2.0, 100.0)
