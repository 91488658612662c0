"""Ranking: dominance against brute force, NDCG against its definition, worked numbers of [83] and [147]."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import values

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.credit import comam, comam_reward, dominance, entropy_rank_reward, ndcg, r3_score, rank_reward
from palaestra.errors import ExpressionError


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from([0, 0, 0, 1, 2])), max_size=40),
    st.randoms(use_true_random=False),
)
def test_dominance_counts_who_is_smaller_in_both(items: list[tuple[int, int, int]], random: object) -> None:
    a, b, group = (np.array(column, float) for column in zip(*items, strict=True)) if items else (np.zeros(0),) * 3
    n = len(items)
    turns = Turns({"group": group.astype(int), "episode": np.arange(n), "reward": a, "cost": b})
    expected = [sum(a[j] < a[i] and b[j] < b[i] and group[i] == group[j] for j in range(n)) for i in range(n)]
    np.testing.assert_array_equal(values(dominance("reward", "cost"), turns), expected)


def test_dominance_leaves_out_what_is_missing_and_counts_episodes_once() -> None:
    turns = Turns(
        {"group": [0] * 5, "episode": [0, 0, 1, 2, 3], "reward": [1.0, 3, 5, 9, None], "cost": [1.0, 1, 2, 3, 0]}
    )
    np.testing.assert_array_equal(values(dominance("reward", "cost"), turns), [0, 0, 1, 2, np.nan])


def test_rank_reward_alone_gets_the_best() -> None:
    np.testing.assert_array_equal(
        values(rank_reward("reward", best=2.0), Turns({"group": [0], "episode": [0], "reward": [0.0]})), [2.0]
    )


# -- [83] R³ ----------------------------------------------------------------------------------------------------------

ENTROPIES = [
    [0.1, 0.2, 0.1, 3, 0.1, 0.2, 0.1, 0.2, 0.1, 0.2],
    [0.8, 0.9] * 5,
    [0.2, 0.3, 0.2, 2, 0.2, 0.3, 0.2, 0.3, 0.2, 0.3],
    [0.5, 0.5, 0.5, 1.5] + [0.5] * 6,
]


def failed(**columns: object) -> Turns:
    """The four answers, each cut into two turns."""
    tokens = [part for row in ENTROPIES for part in (row[:3], row[3:])]
    keys = {"group": [0] * 8, "episode": np.repeat(range(4), 2), "turn": [0, 1] * 4, "agent": ["a"] * 8}
    return Turns(keys | {"entropies": tokens, "reward": [0.0] * 8, "truncated": [False] * 8} | columns)


def test_structural_entropy_worked_numbers() -> None:
    shared = values(entropy_rank_reward(), failed())
    np.testing.assert_allclose(shared, np.repeat([0.8333, 0, 0.8333, 0.3333], 2), atol=1e-4)
    stable = values(entropy_rank_reward(ties="ordinal"), failed())
    np.testing.assert_allclose(stable, np.repeat([1, 0, 0.6667, 0.3333], 2), atol=1e-4)
    with pytest.raises(ExpressionError, match=r"top=0 is outside \(0, 1\]"):
        entropy_rank_reward(top=0)


def test_only_groups_without_any_success_are_ranked() -> None:
    np.testing.assert_allclose(values(r3_score(), failed()), values(entropy_rank_reward(), failed()))
    solved = [0.0] * 7 + [1.0]
    np.testing.assert_array_equal(values(r3_score(), failed(reward=solved)), [0] * 6 + [1, 1])
    cut = failed(reward=solved, truncated=[True] * 8)
    np.testing.assert_allclose(values(r3_score(), cut), values(entropy_rank_reward(), cut))


def test_not_known_to_be_cut_off_is_not_cut_off() -> None:
    solved = [0.0] * 7 + [1.0]
    np.testing.assert_array_equal(
        values(r3_score(), failed(reward=solved, truncated=pl.Series([None] * 8, dtype=pl.Boolean))), [0] * 6 + [1, 1]
    )


@pytest.mark.parametrize(
    "text",
    [
        "opponent('entropies')",
        "dominance('entropies', 'reward')",
        "ndcg('entropies', 'reward')",
        "redistribute('entropies')",
        "win_rate('entropies', preference=((0.5,),))",
    ],
)
def test_what_compares_turns_refuses_values_per_token(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"entropies.* has one value per token; wrap it in per_turn\(\)"):
        parse(text).evaluate(failed())


# -- [147] CoMAM ------------------------------------------------------------------------------------------------------


def memory_team(outcome: list[float]) -> Turns:
    """Four episodes of agents a and b, a acting twice in each; local rewards as in the card."""
    local = {"a": [0.9, 0.6, 0.1, 0.3], "b": [0.1, 0.2, 0.9, 0.8]}
    rows = [(e, agent, local[agent][e] / share) for e in range(4) for agent, share in (("a", 2), ("b", 1), ("a", 2))]
    episode, agent, reward = zip(*rows, strict=True)
    table = {"group": [0] * 12, "episode": episode, "turn": [0, 1, 2] * 4, "agent": agent, "reward": reward}
    return Turns(table | {"outcome": [outcome[e] for e in episode]})


def test_comam_worked_numbers() -> None:
    turns = memory_team([1, 0.5, 0, 0.25])
    a, b = (turns["agent"].cast(str).to_numpy() == name for name in "ab")
    agreement = values(ndcg("reward", "outcome", over=("group", "agent"), unit=("episode", "agent")), turns)
    np.testing.assert_allclose(agreement[a], 1.0)
    np.testing.assert_allclose(agreement[b], 0.5820, atol=1e-4)
    reward = values(comam_reward(outcome="outcome"), turns)
    np.testing.assert_allclose(reward[a][::2], [1.5321, 0.9161, 0.1, 0.458], atol=1e-4)
    np.testing.assert_allclose(reward[b][:2], [0.1 + 0.3679, 0.2 + 0.3679 / 2], atol=1e-4)
    credit = values(comam(outcome="outcome"), turns)
    np.testing.assert_allclose(credit[a][::2].mean(), 0, atol=1e-12)
    np.testing.assert_allclose(credit[b].std(ddof=1), 1, atol=1e-5)


@pytest.mark.parametrize("same", [0.0, 0.7])
def test_equal_outcomes_weigh_all_agents_alike(same: float) -> None:
    turns = memory_team([same] * 4)
    agreement = values(ndcg("reward", "outcome", over=("group", "agent"), unit=("episode", "agent")), turns)
    np.testing.assert_allclose(agreement, 1.0)


def test_ndcg_shares_the_discounts_of_ties() -> None:
    turns = Turns({"group": [0] * 3, "episode": [0, 1, 2], "reward": [1.0, 0.0, 0.0], "cost": [5.0, 5.0, 1.0]})
    np.testing.assert_allclose(values(ndcg("cost", "reward"), turns), (1 + 1 / np.log2(3)) / 2)
