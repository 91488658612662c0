"""Team credit: worked numbers, what each kind of credit promises, and coalitions that are played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations, product
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import values

from palaestra.agents.policy import Decision, Request
from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.credit import (
    add_shapley,
    centre,
    coalition_values,
    counterfactual,
    difference_reward,
    interactions_of,
    shapley,
    shapley_of,
    shapley_values,
    shared_reward,
)
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.errors import ExpressionError, InputError
from palaestra.play.monte_carlo import mc_value
from palaestra.testing import check_signal

AGENTS = ("a", "b", "c")


def games(agents: int) -> st.SearchStrategy[np.ndarray]:
    return st.lists(st.floats(-10, 10), min_size=2**agents, max_size=2**agents).map(np.array)


def of(table: np.ndarray, agents: Sequence[str] = AGENTS) -> Any:
    """A value function from a list in the order of bits."""
    return lambda members: float(table[sum(1 << agents.index(each) for each in members)])


def rows(table: np.ndarray) -> Turns:
    n = int(np.log2(len(table)))
    return Turns({"coalition_values": [table.tolist()] * n, "player": list(range(n))})


# -- shared and difference --------------------------------------------------------------------------------------------


def test_shared_reward_is_the_teams_of_the_episode_or_of_the_turn() -> None:
    turns = Turns({"episode": [0] * 4, "turn": [0, 0, 1, 1], "agent": ["a", "b"] * 2, "reward": [1.0, 2, 0, 4]})
    np.testing.assert_array_equal(values(shared_reward(), turns), 7)
    np.testing.assert_array_equal(values(shared_reward(over=("episode", "turn")), turns), [3, 3, 4, 4])


def joint_play(game: np.ndarray, default: int = 0) -> Turns:
    """Every joint action of a matrix game of two as an episode, with what the team gets with a default in each seat."""
    pairs = list(product(*map(range, game.shape)))
    table = [(e, seat, pair[seat], game[pair] / 2) for e, pair in enumerate(pairs) for seat in (0, 1)]
    without = [game[(default, b) if seat == 0 else (a, default)] for a, b in pairs for seat in (0, 1)]
    episode, seat, action, reward = (np.array(column) for column in zip(*table, strict=True))
    keys = {"group": 0 * episode, "episode": episode, "turn": 0 * episode, "agent": np.array(["a", "b"])[seat]}
    return Turns(keys | {"choice": action, "reward": reward, "without": without})


@given(st.lists(st.integers(-9, 9), min_size=9, max_size=9))
def test_whatever_an_agent_changes_in_its_difference_reward_it_changes_in_the_teams(entries: list[int]) -> None:
    game = np.array(entries, float).reshape(3, 3)
    turns = joint_play(game)
    credit = values(difference_reward(), turns).reshape(3, 3, 2)  # first's action, second's action, seat
    for seat in (0, 1):
        np.testing.assert_allclose(np.diff(credit[..., seat], axis=seat), np.diff(game, axis=seat), atol=1e-12)
    shared = values(shared_reward(), turns).reshape(3, 3, 2)
    np.testing.assert_allclose(shared, np.stack([game, game], axis=-1))


def test_difference_reward_is_less_noisy_where_the_others_decide_most() -> None:
    game = np.array([[0.0, 10.0], [1.0, 11.0]])  # the first agent's choice is worth 1, the second's 10
    turns = joint_play(game)
    first = (turns["agent"].cast(pl.String) == "a").to_numpy()
    assert values(shared_reward(), turns)[first].var() == pytest.approx(25.25)
    np.testing.assert_allclose(values(difference_reward(), turns)[first], [0, 0, 1, 1])


# -- counterfactual ---------------------------------------------------------------------------------------------------


def test_coma_adds_no_bias_and_removes_variance_in_a_matrix_game() -> None:
    """All joint actions with their chances: the expected gradient of both softmax policies, exactly."""
    game = np.array([[4.0, -2.0, 1.0], [0.0, 3.0, -5.0]])
    policies = [np.array([0.3, 0.7]), np.array([0.5, 0.2, 0.3])]
    pairs = list(product(range(2), range(3)))
    turns = Turns(
        {
            "episode": np.repeat(np.arange(6), 2),
            "agent": ["a", "b"] * 6,
            "q": np.repeat([game[pair] for pair in pairs], 2),
            "action_values": [row for a, b in pairs for row in (game[:, b].tolist(), game[a].tolist())],
            "probabilities": [policy.tolist() for _ in pairs for policy in policies],
        }
    )
    credit = values(counterfactual(), turns).reshape(6, 2)
    plain = turns["q"].to_numpy().reshape(6, 2)
    chance = np.array([policies[0][a] * policies[1][b] for a, b in pairs])
    for seat, policy in enumerate(policies):
        slope = np.array([np.eye(len(policy))[pair[seat]] - policy for pair in pairs])  # d log π / d logits
        expected = [chance @ (slope * each[:, seat, None]) for each in (credit, plain)]
        np.testing.assert_allclose(*expected, atol=1e-12)
        noise = [chance @ ((slope * each[:, seat, None]) ** 2).sum(1) for each in (credit, plain)]
        assert noise[0] < noise[1]
    assert values(parse("coma()"), turns) == pytest.approx(credit.ravel())


def test_a_policy_that_is_certain_gets_no_counterfactual_credit() -> None:
    turns = Turns({"q": [2.0], "action_values": [[5.0, 2.0]], "probabilities": [[0.0, 1.0]]})
    assert values(counterfactual(), turns) == 0


# -- Shapley ----------------------------------------------------------------------------------------------------------


def test_glove_game_and_a_vote_with_weights() -> None:
    gloves = coalition_values(
        lambda members: float("a" in members and len(members) > 1), AGENTS
    )  # a: the only left one
    np.testing.assert_array_equal(gloves, [0, 0, 0, 1, 0, 1, 0, 1])
    np.testing.assert_allclose(values(shapley(), rows(gloves)), [2 / 3, 1 / 6, 1 / 6])
    votes = {"a": 3, "b": 2, "c": 2, "d": 1}
    passes = shapley_values(lambda members: float(sum(map(votes.__getitem__, members)) >= 5), list(votes))
    np.testing.assert_allclose(passes, [5 / 12, 3 / 12, 3 / 12, 1 / 12])


@given(games(3))
def test_shapley_is_the_mean_gain_over_all_orders(table: np.ndarray) -> None:
    value, gains = of(table), np.zeros(3)
    for order in permutations(range(3)):
        for place, agent in enumerate(order):
            before = frozenset(AGENTS[each] for each in order[:place])
            gains[agent] += value(before | {AGENTS[agent]}) - value(before)
    np.testing.assert_allclose(values(shapley(), rows(table)), gains / 6, atol=1e-9)


@given(games(4), games(4), st.floats(-3, 3))
def test_efficiency_and_linearity(one: np.ndarray, other: np.ndarray, factor: float) -> None:
    both = [values(shapley(), rows(each)) for each in (one, other, one + factor * other)]
    assert both[0].sum() == pytest.approx(one[-1] - one[0], abs=1e-9)
    np.testing.assert_allclose(both[2], both[0] + factor * both[1], atol=1e-9)


@given(games(2), st.floats(-5, 5))
def test_symmetry_and_null_player(table: np.ndarray, alone: float) -> None:
    """b and c count alike in the first game; in the second c adds nothing, in the third always the same."""
    alike = coalition_values(lambda members: table[("a" in members) + 2 * (len(members & {"b", "c"}) > 1)], AGENTS)
    found = values(shapley(), rows(alike))
    assert found[1] == pytest.approx(found[2], abs=1e-9)
    assert values(shapley(), rows(np.tile(table, 2)))[2] == pytest.approx(0, abs=1e-9)
    assert values(shapley(), rows(np.concatenate([table, table + alone])))[2] == pytest.approx(alone, abs=1e-9)


def test_many_agents_are_sampled_efficiently_and_near_the_truth() -> None:
    agents = [f"agent_{number:02}" for number in range(16)]
    worth = dict(zip(agents, np.linspace(0, 1, 16), strict=True))

    def value(members: frozenset[str]) -> float:
        return sum(map(worth.__getitem__, members)) + 8.0 * (agents[0] in members and agents[1] in members)

    found = shapley_values(value, agents, rng=np.random.default_rng(0), orders=400)
    truth = np.array(list(worth.values())) + 4.0 * (np.arange(16) < 2)
    assert found.sum() == pytest.approx(value(frozenset(agents)))
    np.testing.assert_allclose(found[2:], truth[2:], atol=1e-9)  # what does not depend on the order has no error
    np.testing.assert_allclose(found[:2], truth[:2], atol=4 * 4 / 400**0.5)
    with pytest.raises(InputError, match="orders=None of 16 agents are drawn: give at least one, and rng="):
        shapley_values(value, agents)


def test_up_to_twelve_agents_every_coalition_is_weighed() -> None:
    np.testing.assert_allclose(shapley_values(lambda members: len(members) ** 2.0, "abcdefghijkl"), 12)
    everybody = Turns({"coalition_values": [[float(n.bit_count()) for n in range(2**12)]], "player": [11]})
    np.testing.assert_allclose(values(shapley(), everybody), 1)


@given(games(3), st.integers(0, 99))
def test_sampled_values_add_up_too(table: np.ndarray, seed: int) -> None:
    drawn = shapley_values(of(table), AGENTS, rng=np.random.default_rng(seed), orders=5)
    assert drawn.sum() == pytest.approx(table[-1] - table[0], abs=1e-9)


def test_rows_without_values_are_missing_and_teams_may_differ_in_size() -> None:
    table = {"coalition_values": [[0.0, 3.0], None, [0.0, 1.0, 2.0, 6.0], [0.0, 4.0]], "player": [0, 0, 1, None]}
    np.testing.assert_array_equal(values(shapley(), Turns(table)), [3, np.nan, 3.5, np.nan])


@pytest.mark.parametrize(
    ("table", "player", "message"),
    [
        ([0.0, 1.0, 2.0], 0, "row 0 has 3 coalition values and player 0; n agents have 2"),
        ([0.0, 1.0], 1, "row 0 has 2 coalition values and player 1"),
        ([0.0, 1.0], 0.5, "player 0.5"),
    ],
)
def test_lists_and_players_that_do_not_fit_are_named(table: list[float], player: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        shapley().evaluate(Turns({"coalition_values": [table], "player": [player]}))


def test_other_mistakes_are_named() -> None:
    with pytest.raises(ExpressionError, match=r"needs a list of 2\^n numbers and one player"):
        shapley("player").evaluate(Turns({"player": [0]}))
    with pytest.raises(InputError, match="13 agents have 8,192 coalitions; beyond 12 agents draw orders"):
        coalition_values(len, [str(number) for number in range(13)])  # type: ignore[arg-type]
    table = {frozenset[str](): 0.0, frozenset({"a"}): 1.0}
    with pytest.raises(InputError, match=r"the coalition \['b'\] has the value None"):
        shapley_values(table.get, ["a", "b"])  # type: ignore[arg-type]


def test_the_signals_pass_the_conformance_test() -> None:
    check_signal(shared_reward(), promises=["linear", "unscored"])
    check_signal(difference_reward())
    check_signal(counterfactual("value", action_values="entropies", probabilities="logprobs"), complete=False)


# -- coalitions that are played ---------------------------------------------------------------------------------------


class Lift:
    """Two carry a box worth 10 only together, the third adds 1 by itself; all act at once."""

    agents = AGENTS

    def reset(self, seed: int) -> Mapping[str, Observation]:
        return {agent: Observation("a box", choices=("rest", "lift")) for agent in AGENTS}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        up = {agent for agent, action in actions.items() if action == "lift"}
        paid = 10.0 * ({"a", "b"} <= up) + 1.0 * ("c" in up)
        return StepResult({}, dict.fromkeys(AGENTS, paid / 3), terminated=True)

    def snapshot(self) -> Any:
        return ()

    def restore(self, snapshot: Any, seed: int | None = None) -> Mapping[str, Observation]:
        return self.reset(0)


class Plan:
    """What was done in an episode for members of the coalition, a rest for the others."""

    name = "plan"

    def __init__(self, actions: Mapping[str, str]) -> None:
        self.actions = actions

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        return [Decision(self.actions.get(request.agent, "rest")) for request in requests]


def test_shapley_of_episodes_from_coalitions_played_from_a_snapshot() -> None:
    env, rng = Lift(), np.random.default_rng(0)
    env.reset(0)
    start = env.snapshot()
    did = [("lift", "lift", "lift"), ("lift", "rest", "lift")]
    keys = {"group": [0] * 6, "episode": [0] * 3 + [1] * 3, "turn": [0] * 6, "agent": [*AGENTS] * 2}
    turns = Turns(keys | {"action": [action for episode in did for action in episode]})

    def value(episode: Turns, members: frozenset[str]) -> float:
        done = dict(zip(episode["agent"].cast(pl.String), episode["action"], strict=True))
        plan = Plan({agent: done[agent] for agent in members})
        return float(mc_value(env, [start], plan, rng, k=1)[0])

    found = add_shapley(turns, value)
    np.testing.assert_allclose(found["shapley"].to_numpy(), [5, 5, 1, 0, 0, 1], atol=1e-12)
    credit = values(centre("shapley", over=("group", "agent")), found)
    np.testing.assert_allclose(credit, [2.5, 2.5, 0, -2.5, -2.5, 0], atol=1e-12)


def test_shapley_values_are_drawn_a_thousand_times_unless_told() -> None:
    agents = [f"n{i}" for i in range(13)]
    weight = dict(zip(agents, np.random.default_rng(0).normal(size=13), strict=True))

    def worth(members: frozenset[str]) -> float:
        return max((weight[name] for name in members), default=0.0)

    drawn = [shapley_values(worth, agents, rng=np.random.default_rng(1), orders=n) for n in (None, 1000, 999)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    assert drawn[0].sum() == pytest.approx(worth(frozenset(agents)))


# -- tables of games --------------------------------------------------------------------------------------------------


@given(st.integers(2, 4).flatmap(lambda n: st.tuples(games(n), games(n), st.permutations(range(n)))))
def test_tables_keep_the_axioms(drawn: tuple[np.ndarray, np.ndarray, list[int]]) -> None:
    one, other, order = drawn
    n = len(order)
    value = shapley_of(np.stack([one, other]))
    np.testing.assert_allclose(value[0], shapley_values(of(one, range(n)), range(n)), atol=1e-9)
    np.testing.assert_allclose(value.sum(1), [one[-1] - one[0], other[-1] - other[0]], atol=1e-9)  # efficient
    np.testing.assert_allclose(shapley_of(one + other), value.sum(0), atol=1e-9)  # additive
    places = np.array([sum((place >> to & 1) << at for at, to in enumerate(order)) for place in range(2**n)])
    renamed = np.empty(2**n)
    renamed[places] = one
    np.testing.assert_allclose(shapley_of(renamed), value[0][order], atol=1e-9)  # names do not count
    idle = np.concatenate([one, one])  # the last agent changes nothing
    np.testing.assert_allclose(shapley_of(idle), [*value[0], 0.0], atol=1e-9)
    np.testing.assert_allclose(interactions_of(idle)[-1], 0, atol=1e-9)


def test_interactions_are_what_two_bring_beyond_each() -> None:
    found = interactions_of(np.array([0.0, 0, 0, 1, 0, 0, 0, 1]))  # a and b win together, c does not count
    np.testing.assert_allclose(found, [[0, 1, 0], [1, 0, 0], [0, 0, 0]], atol=1e-12)
    with pytest.raises(InputError, match=r"shape \(3,\)"):
        shapley_of(np.zeros(3))
    with pytest.raises(InputError, match="nobody to interact"):
        interactions_of(np.zeros(2))
    with pytest.raises(InputError, match="1 coalitions have no finite value"):
        shapley_of(np.array([0.0, np.nan]))


def test_a_drawn_order_and_its_reverse_are_exact_for_pairs() -> None:
    rng = np.random.default_rng(0)
    alone, pairs = rng.normal(size=14), np.triu(rng.normal(size=(14, 14)), 1)

    def worth(members: frozenset[int]) -> float:
        own = sorted(members)
        return float(alone[own].sum() + pairs[np.ix_(own, own)].sum())

    drawn = shapley_values(worth, range(14), rng=rng, orders=2)  # type: ignore[arg-type]
    np.testing.assert_allclose(drawn, alone + (pairs.sum(0) + pairs.sum(1)) / 2, atol=1e-9)
