"""Evidence: SmartSnap's, EARL's and ReSeek's worked numbers, and what a judge gets to see."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.credit import grpo
from palaestra.errors import SchemaError
from palaestra.rewards import (
    deep_travel_reward,
    drop_rejected,
    e_grpo_reward,
    earl_reward,
    reseek_reward,
    semi_join,
    smart_snap_reward,
)

LOOKS = ("look",) * 6 + ("submit",)
Votes = list[bool | None]


def submission(success: Votes, valid: Votes, evidence: list[int], tools: tuple[str, ...] = LOOKS) -> Turns:
    n = len(tools)
    turns = {"group": [0] * n, "episode": [0] * n, "turn": range(n), "agent": ["a"] * n, "tool": list(tools)}
    for name, votes in (("success_votes", success), ("valid_votes", valid)):
        turns[name] = pl.Series([None] * (n - 1) + [votes], dtype=pl.List(pl.Boolean))
    turns["evidence"] = pl.Series([None] * (n - 1) + [evidence], dtype=pl.List(pl.Int32))
    return Turns(turns)


YES, NO, TWO, ONE = [True] * 3, [False] * 3, [True, True, False], [True, False, False]
HALF, SILENT = [True, False, None], [None] * 3


@pytest.mark.parametrize(
    ("success", "valid", "evidence", "tools", "right"),
    [
        (TWO, YES, [0, 1], LOOKS, 1.0),
        (TWO, YES, [0, 1, 2, 3, 4, 5], LOOKS, 0.7),
        (ONE, TWO, [1], LOOKS, 0.0),
        (ONE, ONE, [1], LOOKS, -1.0),
        (YES, YES, [1], ("look",) * 3, -1.0),
        (YES, YES, [1], ("submit", "look", "submit"), -1.0),
        (YES, YES, [1], ("submit", "look", "look"), -1.0),
        (HALF, HALF, [1], LOOKS, -1.0),
        (SILENT, SILENT, [1], LOOKS, -1.0),
        (YES, YES, [9], LOOKS, -1.0),
        (YES, YES, [], LOOKS, 1.0),
    ],
)
def test_smart_snap(success: Votes, valid: Votes, evidence: list[int], tools: tuple[str, ...], right: float) -> None:
    turns = submission(success, valid, evidence, tools)
    found = np.asarray(smart_snap_reward("evidence").evaluate(turns))
    np.testing.assert_allclose(found, [0.0] * (len(tools) - 1) + [right])


def test_earl() -> None:
    selected = [[3, 7], [3, 4, 5, 6, 7, 8, 9], [], [3, 7, 9]]
    turns = Turns({"selected": selected, "gold": [[3, 7, 9]] * 4, "success": [1, 1, 1, 0]})
    found = np.asarray(earl_reward("selected", "gold").evaluate(turns))
    np.testing.assert_allclose(found, [1.4333, 0.8143, 0.5, -0.4], atol=1e-4)


def test_earl_at_its_bounds() -> None:
    """Half of the union is enough for 1; one row is a selection; what is right is the column that is named."""
    turns = Turns({"selected": [[3, 4], [3]], "gold": [[3], [3, 4, 5]], "right": [1, 1], "success": [0, 0]})
    found = np.asarray(earl_reward("selected", "gold", correct="right").evaluate(turns))
    np.testing.assert_allclose(found, [1 + 0.1 + 0.25, 0.5 + 0.1 + 0.5 / 3])


def test_reseek() -> None:
    columns = {"judge": [1, 1, 0, 0, None], "relevance": [0.9, 0.7, 0.9, 0.1, None], "success": [1] * 5}
    turns = Turns({"episode": [0] * 5, "turn": range(5)} | columns)
    found = np.asarray(reseek_reward("judge", "relevance", answer="success").evaluate(turns))
    np.testing.assert_allclose(found, [0.3, -0.6, -0.3, 0.3, 1.0])


def test_deep_travel() -> None:
    columns = {"feasible": [1] * 4 + [0] * 2, "ok": [1, 1, 0, 1, 1, None]}
    turns = Turns({"episode": [0] * 4 + [1] * 2, "turn": [0, 1, 2, 3, 0, 1], "agent": ["a"] * 6} | columns)
    np.testing.assert_allclose(deep_travel_reward("feasible", "ok").evaluate(turns), [0, 0, 0, 0.75, 0, 0])
    strict = np.asarray(deep_travel_reward("feasible", "ok", strict=True).evaluate(turns))
    assert not strict.any()
    nothing = Turns(turns.frame.with_columns(ok=pl.lit(None, pl.Float64)))  # not consistent, but not known to be
    np.testing.assert_array_equal(deep_travel_reward("feasible", "ok").evaluate(nothing), [*[np.nan] * 4, 0, 0])


def test_a_plan_of_two_planners_is_one_plan() -> None:
    """Three of four details hold, two of them one planner's: both are paid .75, each on the own last turn."""
    keys = {"episode": [0] * 4, "turn": [0, 0, 1, 1], "agent": ["a", "b"] * 2}
    turns = Turns(keys | {"feasible": [1] * 4, "ok": [1, 1, 1, 0]})
    np.testing.assert_allclose(deep_travel_reward("feasible", "ok").evaluate(turns), [0, 0, 0.75, 0.75])


def test_outcomes_do_not_pay_for_length() -> None:
    """Two equally perfect episodes of two and of six turns: no credit for either."""
    keys = {"group": [0] * 8, "episode": [0] * 2 + [1] * 6, "turn": [0, 1, *range(6)], "agent": ["a"] * 8}
    columns = {"plan": [1] * 8, "ok": [1.0] * 8, "success": [True] * 8, "text": ["Rome"] * 8, "gold": [["Rome"]] * 8}
    turns = Turns(keys | columns)
    for reward in (deep_travel_reward("plan", "ok"), e_grpo_reward("text", "gold")):
        scored = turns.with_column(reward=reward)
        assert scored.frame.group_by("episode").agg(pl.col("reward").sum())["reward"].to_list() == [1, 1]
        np.testing.assert_allclose(grpo().evaluate(scored), 0)


def test_the_judge_sees_the_cited_rows_only() -> None:
    turns = submission(YES, YES, [0, 4, 4])
    assert semi_join(turns)["turn"].to_list() == [0, 4]
    cited = pl.DataFrame({"group": [0], "episode": [0], "why": [[6]]})
    assert semi_join(turns, cited, column="why")["turn"].to_list() == [6]
    with pytest.raises(SchemaError, match="'evidnce' with lists"):
        semi_join(turns, column="evidnce")


def test_evidence_of_one_episode_says_nothing_of_another() -> None:
    both = Turns.concat([submission(YES, YES, [1]), submission(YES, YES, [2]).with_column(episode=[1] * 7)])
    assert semi_join(both).frame.select("episode", "turn").rows() == [(0, 1), (1, 2)]


def test_rejected_texts_leave_the_context() -> None:
    columns = {"observation": [*list("abcd"), "x"], "bad": [0, 1, 0, 0, None]}
    turns = Turns({"group": [0] * 5, "episode": [0] * 4 + [1], "turn": [0, 1, 2, 3, 0]} | columns)
    assert drop_rejected(turns, "bad").to_list() == [[], ["a"], ["a"], ["a", "c"], []]
    soft = drop_rejected(turns, "bad", label="[useless] ").to_list()
    assert soft == [[], ["a"], ["a", "[useless] b"], ["a", "[useless] b", "c"], []]
