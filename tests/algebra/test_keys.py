"""Keys: ranks, halves, teams and edges range over the rows that they say."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tables import values

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.credit import calls, centre, edge, is_first, is_last, joined, mean, rank_among, team, upper_half
from palaestra.errors import ExpressionError


def test_first_and_last_go_by_turn_not_by_place_in_the_table() -> None:
    turns = Turns({"episode": [0, 0, 0, 0], "agent": ["a", "b", "a", "b"], "turn": [2, 1, 0, 3]})
    assert values(is_first(), turns).tolist() == [0, 1, 1, 0]
    assert values(is_last(), turns).tolist() == [1, 0, 0, 1]
    assert values(is_last(over="episode"), turns).tolist() == [0, 0, 0, 1]


def test_rank_counts_an_episode_once_however_long_it_is() -> None:
    turns = Turns({"group": [0] * 6, "episode": [0, 1, 1, 1, 2, 3], "cost": [5.0, 1.0, 1.0, 4.0, 5.0, None]})
    np.testing.assert_array_equal(values(rank_among("cost"), turns), [2.5, 1, 1, 1, 2.5, np.nan])
    np.testing.assert_array_equal(values(rank_among("cost", ties="min"), turns), [2, 1, 1, 1, 2, np.nan])


@pytest.mark.parametrize(
    ("metric", "high"),
    [
        ([0.9, 0.8, 0.7, 0.3, 0.2, 0.1], [1, 1, 1, 0, 0, 0]),
        ([0.1, 0.2, 0.3], [0, 1, 1]),  # an odd one goes up
        ([0.5, 0.5, 0.5, 0.5], [0, 0, 1, 1]),  # ties by episode number
        ([0.2, None, 0.1], [1, np.nan, 0]),
        ([0.2], [1]),
    ],
)
def test_upper_half(metric: list[float | None], high: list[float]) -> None:
    n = len(metric)
    turns = Turns({"group": [0] * n, "episode": range(n), "cost": metric})
    np.testing.assert_array_equal(values(upper_half("cost"), turns), high)
    shuffled = np.random.default_rng(0).permutation(n)
    np.testing.assert_array_equal(
        values(upper_half("cost"), Turns(turns.frame[shuffled.tolist()])), np.array(high)[shuffled]
    )


def test_upper_half_refuses_a_share_outside_the_unit_interval() -> None:
    with pytest.raises(ExpressionError, match=r"upper_half: q=1.5 is outside \[0, 1\]"):
        upper_half("cost", q=1.5)


def test_calls_counts_turns_whose_text_matches() -> None:
    turns = Turns({"episode": [0, 0, 0, 1], "action": ["<search>a", "think", "<search>b", None]})
    np.testing.assert_array_equal(values(calls(pattern="<search>"), turns), [2, 2, 2, np.nan])


def test_team_puts_agents_together_by_name_or_by_list() -> None:
    names = ["attacker_0", "attacker_1", "judge", "defender1", "defender2"]
    turns = Turns({"agent": names, "reward": [1.0, 2.0, 3.0, 4.0, 6.0]})
    np.testing.assert_array_equal(values(mean("reward", over=team()), turns), [1.5, 1.5, 3.0, 5.0, 5.0])
    listed = parse("mean(reward, over=team(('attacker_0', 'judge'), ('attacker_1', 'defender2')))")
    np.testing.assert_array_equal(values(listed, turns), [2.0, 4.0, 2.0, 4.0, 4.0])


def test_edges_end_in_the_next_state_and_in_the_outcome() -> None:
    turns = Turns(
        {
            "group": [0] * 6,
            "episode": [0, 0, 1, 1, 2, 2],
            "turn": [0, 1] * 3,
            "agent": ["a"] * 6,
            "state": np.array([7, 8, 7, 8, 7, 9], np.uint64),
            "action": ["x", "y", "x", "y", "x", "y"],
            "reward": [0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        }
    )
    codes = values(centre("episode", over=joined("group", edge())), turns)
    assert codes.tolist() == [-0.5, 0, 0.5, 0, 0, 0]  # (7, x, 8) is shared, (8, y) ends differently
    assert len(edge(history=2)) == len(edge()) + 2
    with pytest.raises(ExpressionError, match="history=-1 is negative"):
        edge(history=-1)
