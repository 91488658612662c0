"""Pair builders: who is paired with whom, what is dropped, and that a row's number is the row's."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, MissingColumnError
from palaestra.judges.pairs import (
    PAIRINGS,
    best_vs_worst,
    current_vs_reference,
    hindsight,
    marked,
    pairs,
    siblings,
    verified_vs_corrupted,
)
from palaestra.judges.protocol import PAIRS


def sides(found: pl.DataFrame) -> list[tuple[int, int]]:
    return found.select("chosen", "rejected").rows()


GROUPS = Turns({
    "group": [3, 3, 3, 5, 5, 3], "episode": [0, 1, 2, 0, 1, 0], "turn": [0, 0, 0, 0, 0, 1],
    "reward": [1.0, 0.0, None, 0.2, 0.7, 3.0], "length": [1, 2, 1, 4, 4, 1],
})  # fmt: skip


def test_all_pairs_of_a_group_by_a_score_with_its_margin() -> None:
    found = pairs(GROUPS, "reward")
    assert dict(found.schema) == {"group": pl.Int64, **PAIRS}
    assert sides(found) == [(0, 1), (4, 3)]  # the mean of both turns is 2, the episode without a reward has no pair
    assert found["margin"].to_list() == pytest.approx([2.0, 0.5])
    assert found["group"].to_list() == [3, 5]
    assert not found["tie"].any()


def test_ties_are_dropped_or_kept_and_a_gap_makes_one() -> None:
    assert sides(pairs(GROUPS, "reward", min_gap=0.6)) == [(0, 1)]
    kept = pairs(GROUPS, "reward", min_gap=0.6, ties="keep")
    assert kept["tie"].to_list() == [False, True]
    assert kept["margin"].to_list() == pytest.approx([2.0, 0.0])
    with pytest.raises(InputError, match="'drop' or 'keep'"):
        pairs(GROUPS, "reward", ties="both")  # type: ignore[arg-type]


def test_what_must_match_cannot_decide() -> None:
    assert sides(pairs(GROUPS, "reward", match_on="length")) == [(4, 3)]  # in group 3 the lengths differ


def test_a_judge_of_both_sides_may_decide() -> None:
    def shorter(first: pl.DataFrame, second: pl.DataFrame) -> np.ndarray:
        return np.asarray(np.sign((second["length"] - first["length"]).to_numpy()))

    assert sides(pairs(GROUPS, shorter)) == [(0, 1), (2, 1)]
    with pytest.raises(InputError, match="1, 0 or -1"):
        pairs(GROUPS, lambda first, second: np.full(len(first), 0.5))


def test_best_against_worst_takes_one_pair_of_a_group_and_the_first_of_equals() -> None:
    turns = Turns({"group": [0] * 4 + [1] * 2, "episode": [0, 1, 2, 3, 0, 1], "reward": [1.0, 2.0, 2.0, 1.0, 5.0, 5.0]})
    found = best_vs_worst()(turns)
    assert sides(found) == [(1, 0)]
    assert found["margin"].to_list() == [1.0]
    assert not len(best_vs_worst(min_gap=1.0)(turns))


def test_siblings_compare_the_actions_of_a_state_by_their_mean() -> None:
    turns = Turns({
        "group": [0] * 6, "episode": range(6), "state": [7, 7, 7, 7, 8, 8], "action": ["a", "b", "a", "c", "a", "b"],
        "q": [1.0, 0.5, 0.0, 0.1, 0.3, 0.3],
    })  # fmt: skip
    assert sides(siblings()(turns)) == [(0, 3)]  # a is worth .5 on average, as b is, and met first; c is the lowest
    higher = turns.with_column(q=pl.Series([1.0, 0.6, 0.0, 0.1, 0.3, 0.3]))
    assert sides(siblings()(higher)) == [(1, 3)]


def test_only_what_the_rule_accepts_is_chosen_and_only_what_is_known_to_be_wrong_is_rejected() -> None:
    turns = Turns({
        "group": [0, 0, 0, 0, 1, 1, 2], "episode": [0, 1, 2, 3, 0, 1, 0],
        "rule": [False, True, True, True, False, True, True],
        "corrupted": [None, None, None, "extend", None, "mutate", None],
    })  # fmt: skip
    assert sides(verified_vs_corrupted()(turns)) == [(1, 3)]  # group 1: nothing verified; group 2: nothing corrupted


def test_the_reference_is_ahead_of_everything_that_says_something_else() -> None:
    turns = Turns({
        "group": [0, 0, 0, 1], "episode": [0, 1, 2, 0], "action": ["x", "ref", "ref", "y"],
        "reference": [False, True, False, False],
    })  # fmt: skip
    assert sides(current_vs_reference()(turns)) == [(1, 0)]


def test_hindsight_pairs_an_episode_with_one_that_achieved_something_else() -> None:
    turns = Turns({
        "group": range(40), "episode": [0] * 40, "turn": [0] * 40, "reached": (["n", "e", "s"] * 14)[:40],
    })  # fmt: skip
    found = hindsight("reached", seed=1)(turns)
    goals = turns["reached"].to_numpy()
    assert found["chosen"].to_list() == list(range(40))
    assert (goals[found["rejected"]] != goals[found["chosen"]]).all()
    assert found["criterion"].to_list() == goals.tolist()
    assert len(set(found["rejected"])) > 15
    assert not found.equals(hindsight("reached", seed=2)(turns))
    several = pl.concat([turns.frame.with_columns(turn=pl.lit(1)), turns.frame.with_columns(reached=pl.lit(None))])
    assert hindsight("reached", seed=1)(Turns(several))["criterion"].to_list() == goals.tolist(), "the last turn counts"
    alone = turns.with_column(reached=pl.Series(["n"] * 40))
    assert not len(hindsight("reached")(alone))
    assert not len(hindsight("reached", by="group")(turns))


def test_marked_rows_are_whole_units_once_for_each_pair() -> None:
    turns = Turns({"group": [0] * 4, "episode": [0, 0, 1, 2], "turn": [0, 1, 0, 0], "reward": [1.0, 1.0, 0.0, None]})
    made = marked(turns, pairs(turns, "reward"))
    assert made.frame.select("episode", "turn", "pair", "chosen").rows() == [
        (0, 0, 0, True), (0, 1, 0, True), (1, 0, 0, False), (2, 0, None, None),
    ]  # fmt: skip
    both = marked(turns.with_column(reward=pl.Series([1.0, 1.0, 0.0, 2.0])), pairs(turns, lambda a, b: np.ones(len(a))))
    assert both.frame.group_by("episode").len().sort("episode")["len"].to_list() == [4, 2, 2]


def test_a_pairing_is_found_by_its_text() -> None:
    assert sides(PAIRINGS.build('best_vs_worst("reward", min_gap=0.6)')(GROUPS)) == [(0, 1)]
    assert {"best_vs_worst", "verified_vs_corrupted", "hindsight", "siblings", "current_vs_reference"} <= set(PAIRINGS)


def test_what_a_pairing_lacks_is_named() -> None:
    with pytest.raises(MissingColumnError, match="current_vs_reference: no column 'txt'"):
        current_vs_reference("reward", text="txt")(GROUPS)
    with pytest.raises(MissingColumnError, match="hindsight: no column 'intent'"):
        hindsight("intent")(GROUPS)
    with pytest.raises(InputError, match="min_gap=-1"):
        best_vs_worst("reward", min_gap=-1)


def test_scores_that_differ_by_rounding_are_equal() -> None:
    turns = Turns({
        "group": [0] * 4, "episode": [0, 1, 2, 3], "turn": [0] * 4, "state": [0] * 4, "action": list("abcd"),
        "reward": [0.3, 0.1 + 0.2, 0.1 + 0.2, 0.3],
    })  # fmt: skip
    for name in ("all_pairs('reward')", "best_vs_worst('reward')", "siblings('reward')", "value_pairs('reward')",
                 "value_pairs('reward', per='best_rest')"):  # fmt: skip
        assert not len(PAIRINGS.build(name)(turns)), name
    two = Turns({"group": [0, 0], "episode": [0, 1], "reward": [0.4, 0.3]})  # .4 - .3 is more than .1 to a computer
    for name in ("all_pairs('reward', min_gap=0.1)", "best_vs_worst('reward', min_gap=0.1)",
                 "value_pairs('reward', min_gap=0.1)", "value_pairs('reward', min_chosen=0.4)",
                 "value_pairs('reward', max_rejected=0.2)"):  # fmt: skip
        assert not len(PAIRINGS.build(name)(two)), name
