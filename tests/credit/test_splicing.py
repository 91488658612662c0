"""Splices lead from an error to its correction; relabels end where the new goal is reached."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.credit.splicing import relabel, splice
from palaestra.credit.temporal import gae, value_target
from palaestra.errors import InputError, MissingColumnError

GOOD, ILL = 0, 4


def played() -> Turns:
    """A good path of four steps, and a bad one that leaves it after the first."""
    return Turns(
        {
            "group": [0] * 9, "episode": [0] * 4 + [1] * 5, "turn": [0, 1, 2, 3, 0, 1, 2, 3, 4], "agent": ["a"] * 9,
            "observation": ["s0", "s1", "s2", "s3", "s0", "s1", "e", "e2", "e3"],
            "action": ["r", "r", "u", "u", "r", "l", "l", "l", "l"], "action_ids": [[1]] * 9,
            "bad": [0, 0, 0, 0, 0, 1, 1, 1, 1], "reward": [0, 0, 0, 1.0, 0, 0, 0, 0, 0],
            "success": [True] * 4 + [False] * 5, "goal": ["g"] * 9,
            "achieved": ["s1", "s2", "s3", "g", "s1", "e", "e2", "e3", "e3"],
        }
    )  # fmt: skip


def pairs(*both: tuple[int, int]) -> pl.DataFrame:
    return pl.DataFrame({"chosen": [one for one, _ in both], "rejected": [other for _, other in both]})


def test_bad_prefix_revision_and_the_good_path_from_where_they_parted() -> None:
    made, counts = splice(played(), pairs((GOOD, ILL)), marker="wait")
    assert made["action"].to_list() == ["r", "l", "wait", "r", "u", "u"]
    assert made["observation"].to_list() == ["s0", "s1", "e", "s1", "s2", "s3"], "the common prefix is told once"
    assert made["source"].to_list() == ["prefix"] * 2 + ["revision"] + ["good"] * 3
    assert made["loss_mask"].to_list() == [False] * 2 + [True] * 4
    assert made["turn"].to_list() == list(range(6))
    assert made["episode"].unique().to_list() == [2]
    assert made["of_row"].to_list() == [4, 5, 6, 1, 2, 3]
    assert made["action_ids"].to_list()[2] is None, "nobody has encoded the marker yet"
    assert counts["kept"] == 1


def test_without_a_marker_the_good_path_follows_at_once() -> None:
    made, _ = splice(played(), pairs((GOOD, ILL)))
    assert made["action"].to_list() == ["r", "l", "r", "u", "u"]


def test_why_a_pair_gives_no_splice() -> None:
    turns = played()
    _, counts = splice(turns, pairs((GOOD, ILL), (ILL, GOOD)), marker="wait")
    assert counts == {"pairs": 2, "kept": 1, "dropped_no_error": 1, "dropped_shared": 0, "dropped_nothing_after": 0}
    shared = turns.with_column(bad=pl.col("turn") == 0)
    assert splice(shared, pairs((GOOD, ILL)), marker="wait")[1]["dropped_shared"] == 1
    late = turns.with_column(bad=(pl.col("episode") == 1) & (pl.col("turn") == 4))
    assert splice(late, pairs((GOOD, ILL)), marker="wait")[1]["dropped_nothing_after"] == 1
    assert splice(late, pairs((GOOD, ILL)))[1]["kept"] == 1


def test_any_order_of_rows_gives_the_same_examples() -> None:
    turns = played()
    mixed = np.random.default_rng(0).permutation(len(turns))
    shuffled = Turns(turns.frame[mixed])
    at = np.argsort(mixed)
    made, _ = splice(shuffled, pairs((int(at[GOOD]), int(at[ILL]))), marker="wait")
    expected, _ = splice(turns, pairs((GOOD, ILL)), marker="wait")
    assert made.drop("of_row").equals(expected.drop("of_row"))


def test_many_pairs_at_once_are_each_as_alone() -> None:
    rng = np.random.default_rng(1)
    size = rng.integers(2, 7, 40)
    episode = np.repeat(np.arange(40), size)
    turn = np.concatenate([np.arange(each) for each in size])
    rows = {
        "group": episode * 0,
        "episode": episode,
        "turn": turn,
        "observation": rng.integers(0, 3, len(turn)).astype(str),
    }
    turns = Turns(rows | {"action": rng.integers(0, 2, len(turn)).astype(str), "bad": rng.random(len(turn)) < 0.3})
    firsts = np.flatnonzero(turn == 0)
    both = [(int(a), int(b)) for a, b in rng.choice(firsts, (200, 2)) if a != b]
    made, counts = splice(turns, pairs(*both), marker="m")
    alone = [splice(turns, pairs(each), marker="m") for each in both]
    assert counts["kept"] == sum(one[1]["kept"] for one in alone) > 10
    assert made["of_row"].to_list() == [row for one in alone for row in one[0]["of_row"]]
    for (_,), example in made.group_by("episode"):
        assert (example["source"] == "revision").sum() == 1
        assert not example.filter(pl.col("source") == "prefix")["loss_mask"].any()


def test_hindsight_pays_where_the_new_goal_is_reached() -> None:
    made, counts = relabel(played(), texts=())
    assert counts == {"episodes": 2, "kept": 1, "dropped_nothing": 0, "dropped_same": 1}
    assert made["of_row"].to_list() == [4, 5, 6, 7], "e3 is reached by the last but one action"
    assert made["goal"].unique().to_list() == ["e3"]
    assert made["reward"].to_list() == [0, 0, 0, 1]
    assert made["success"].all()
    assert made["source"].unique().to_list() == ["hindsight"]


def test_a_copy_of_a_cut_off_episode_ends_by_its_rules() -> None:
    cut = played().frame.with_columns(value=pl.lit(0.5), truncated=pl.lit(True), terminated=pl.lit(False))
    made, _ = relabel(Turns(cut), texts=())
    assert made["terminated"].all()
    assert not made["truncated"].any()
    assert value_target().evaluate(Turns(made)).tolist() == [1, 1, 1, 1]
    assert gae(lam=0.0).evaluate(Turns(made)).tolist() == [0, 0, 0, 0.5], "no value after the goal"


def test_the_new_goal_is_what_is_read() -> None:
    turns = Turns(
        {"episode": [0], "turn": [0], "observation": ["go to g"], "action": ["x"], "goal": ["g"], "achieved": ["h"]}
    )
    assert relabel(turns)[0]["observation"].to_list() == ["go to h"]


def test_future_goals_are_achieved_from_the_row_on() -> None:
    turns = played()
    made, counts = relabel(turns, method="future", texts=(), rng=np.random.default_rng(0))
    assert counts["episodes"] == 9
    for (_,), example in made.group_by("episode"):
        reached = turns["achieved"].gather(example["of_row"])
        assert (reached == example["goal"]).to_list() == [False] * (len(example) - 1) + [True]
    with pytest.raises(InputError, match="rng"):
        relabel(turns, method="future")
    with pytest.raises(MissingColumnError, match="goal"):
        relabel(Turns(turns.frame.drop("goal")))
