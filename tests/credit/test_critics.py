"""Critics: the fixed point of [89] against the Bellman solution, worked numbers of [56], and its planning loop."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.credit import PrefixCritic, Replay, TurnCritic, archer, refine, sequential_advantage
from palaestra.credit.critics import Fresh
from palaestra.errors import InputError


def test_the_fixed_point_is_the_bellman_solution() -> None:
    """Two states, two actions: stay (reward 0.1 in state 0, 0.5 in state 1) or go on to the next or to the end."""
    gamma, policy = 0.9, np.array([[0.3, 0.7], [0.6, 0.4]])
    reward, after, done = np.array([[0.1, 0], [0.5, 1]]), np.array([[0, 1], [1, 1]]), np.array([[0, 0], [0, 1]])
    state, action = (axis.ravel() for axis in np.indices((2, 2)))
    replay = Replay(state, action, reward.ravel(), after.ravel(), done.ravel())

    flow = np.zeros((2, 2))
    np.add.at(flow, (state, after.ravel()), (policy * (1 - done)).ravel())
    v = np.linalg.solve(np.eye(2) - gamma * flow, (policy * reward).sum(axis=1))
    q = reward + gamma * (1 - done) * v[after]

    critic = TurnCritic(2, 2, gamma=gamma, tau=1.0, rate=1.0)
    critic.q[:] = critic.q_target[:] = q
    critic.v[:] = critic.v_target[:] = v
    expected = critic.q.copy()
    rng = np.random.default_rng(0)
    critic.fit(replay, Fresh(state, 0 * state), rng, batches=1)
    np.testing.assert_allclose(critic.q, expected, atol=1e-12)  # Q does not move at the solution …
    np.testing.assert_allclose(critic.v, np.tile(q[:, 0], (2, 1)))  # … and V is Q of what the policy sampled

    greedy = TurnCritic(2, 2, gamma=gamma, rate=1.0)
    greedy.fit(replay, Fresh(state, 0 * state + 1), rng, batches=1000, size=16)
    value = np.array([gamma, 1.0])  # always going on
    np.testing.assert_allclose(greedy.v, np.tile(value, (2, 1)), atol=1e-6)
    np.testing.assert_allclose(greedy.q[0], reward + gamma * (1 - done) * value[after], atol=1e-6)
    np.testing.assert_allclose(greedy.advantage(state, action).reshape(2, 2)[:, 1], 0, atol=1e-6)
    np.testing.assert_allclose(greedy.value(np.array([0])), gamma, atol=1e-6)


def test_with_a_stochastic_policy_values_are_right_on_average() -> None:
    replay = Replay(np.array([0, 0]), np.array([0, 1]), np.array([0.0, 1.0]), np.array([0, 0]), np.array([1, 1]))
    critic = TurnCritic(1, 1, rate=0.05)
    critic.grow(1, 2)
    assert critic.q.shape == critic.q_target.shape == (2, 1, 2)
    wide = TurnCritic(2, 2)
    wide.grow(3, 1)
    assert (wide.q.shape, wide.v.shape, wide.v_target.shape) == ((2, 3, 2), (2, 3), (2, 3))
    fresh = Fresh(np.zeros(10, int), (np.arange(10) < 3).astype(int))
    critic.fit(replay, fresh, np.random.default_rng(0), batches=400)
    np.testing.assert_allclose(critic.v, 0.3, atol=0.03)
    np.testing.assert_allclose(critic.advantage(np.array([0, 0]), np.array([0, 1])), [-0.3, 0.7], atol=0.03)


def test_archer_is_the_difference_and_bad_critics_are_named() -> None:
    np.testing.assert_allclose(archer().evaluate(Turns({"q": [1.0, 0.5], "v": [0.4, 0.5]})), [0.6, 0])
    with pytest.raises(InputError, match="tau=0"):
        TurnCritic(1, 1, tau=0)
    empty = Replay(*(np.zeros(0, int) for _ in range(5)))
    with pytest.raises(InputError, match="no transitions"):
        TurnCritic(1, 1).fit(empty, Fresh(*empty[:2]), np.random.default_rng(0))
    one = Replay(*(np.full(1, value) for value in (5, 0, 1, 0, 1)))
    with pytest.raises(InputError, match="needs 6 states and 1 actions, the critic has 2 and 3"):
        TurnCritic(2, 3).fit(one, Fresh(*one[:2]), np.random.default_rng(0))
    with pytest.raises(InputError, match="1 states, 2 joint actions, 1 returns"):
        PrefixCritic().fit(["s"], [("a",), ("b",)], [1.0])


Q = np.array([[8.0, 2.0], [4.0, 6.0]])


def test_the_agents_advantages_add_up_to_the_joint_one() -> None:
    critic = PrefixCritic().fit(["s"] * 4, [(i, j) for i in (0, 1) for j in (0, 1)], Q.ravel().tolist())
    assert critic.value("s") == 5
    assert [critic.advantage("s", (i,)) for i in (0, 1)] == [0, 0]
    assert [[critic.advantage("s", (i, j)) for j in (0, 1)] for i in (0, 1)] == [[3, -3], [-1, 1]]
    rows = [(i, j, agent) for i in (0, 1) for j in (0, 1) for agent in (0, 1)]
    turns = Turns(
        {
            "episode": [2 * i + j for i, j, _ in rows], "turn": [0] * 8, "agent": ["x", "y"] * 4,
            "prefix_value": [critic.value("s", (i, j)[: agent + 1]) for i, j, agent in rows], "value": [5.0] * 8,
        }
    )  # fmt: skip
    found = np.asarray(sequential_advantage().evaluate(turns)).reshape(4, 2)
    np.testing.assert_allclose(found, [[0, 3], [0, -3], [0, -1], [0, 1]])
    np.testing.assert_allclose(found.sum(axis=1), Q.ravel() - 5)


def test_what_was_never_played_has_the_value_of_what_is_known_of_it() -> None:
    critic = PrefixCritic().fit(["s", "t"], [("a",), ("b",)], [1.0, 3.0])
    assert (critic.value("s", ("z",)), critic.value("unknown", ("a",))) == (1, 2)
    assert PrefixCritic().value("s") == 0
    forgets = PrefixCritic(rate=0.5).fit(["s"] * 4, [()] * 4, [0.0, 0.0, 0.0, 1.0])
    assert (forgets.value("s"), PrefixCritic().fit(["s"] * 4, [()] * 4, [0.0, 0.0, 0.0, 1.0]).value("s")) == (0.5, 0.25)


def test_a_planner_is_asked_again_until_its_plan_is_good_enough() -> None:
    heard: list[str | None] = []

    def propose(decided: list[int], feedback: str | None) -> int:
        heard.append(feedback)
        return len(heard)

    assert refine(propose, lambda decided, plan: plan - 3.0, threshold=0.0, max_queries=5, agents=2) == ([3, 4], 4)
    assert heard[0] is heard[3] is None
    assert "-2.000, below 0.000" in str(heard[1])


def test_after_the_last_query_the_best_proposal_is_taken() -> None:
    proposals = iter([0.3, 0.7, 0.5])
    plans, queries = refine(
        lambda d, f: next(proposals), lambda d, plan: plan, threshold=1, max_queries=3, order="joint"
    )
    assert (plans, queries) == ([0.7], 3)
    alike = iter(["first", "second"])
    assert refine(lambda d, f: next(alike), lambda d, plan: 0.0, threshold=1, max_queries=2) == (["first"], 2)
    with pytest.raises(InputError, match="did you mean 'joint'"):
        refine(lambda d, f: 0, lambda d, p: 0.0, order="jont")  # type: ignore[arg-type]
