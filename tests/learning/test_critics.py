"""Networks of ArCHer: the Bellman solution on a chain, learning through features, and what a token's baseline sees."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.turns import Ragged, Turns
from palaestra.credit import Replay, archer
from palaestra.credit.critics import Fresh
from palaestra.errors import InputError
from palaestra.learning.critics import NetworkCritic, TokenBaseline, ValueNetwork

GAMMA = 0.5


def chain() -> tuple[Replay, np.ndarray, np.ndarray]:
    """Two states, two actions: "go" leads on and out of the second state with reward 1, "stay" pays 0.1."""
    state, action = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    reward, after = np.array([0.0, 0.1, 1.0, 0.1]), np.array([1, 0, 1, 1])
    done = np.array([False, False, True, False])
    # uniform policy: V0 = (γ V1 + .1 + γ V0) / 2, V1 = (1 + .1 + γ V1) / 2
    v1 = 1.1 / (2 - GAMMA)
    v0 = (0.1 + GAMMA * v1) / (2 - GAMMA)
    q = np.array([GAMMA * v1, 0.1 + GAMMA * v0, 1.0, 0.1 + GAMMA * v1])
    turn = np.eye(4)  # an action's feature is the pair, so that a linear function is a table
    return Replay(np.eye(2)[state], turn[2 * state + action], reward, np.eye(2)[after], done), q, np.array([v0, v1])


class EveryRow:
    """Stands for a generator: the whole replay as a batch."""

    def integers(self, high: int, *, size: int) -> np.ndarray:
        return np.arange(4)


def test_the_fixed_point_on_a_chain_is_the_bellman_solution() -> None:
    replay, q, v = chain()
    critic = NetworkCritic(2, 4, hidden=(), gamma=GAMMA, tau=0.5)
    for rate in (0.03, 0.01, 0.003, 0.001, 0.0001, 0.00001):
        critic.optimiser.param_groups[0]["lr"] = rate
        critic.fit(replay, Fresh(*replay[:2]), EveryRow(), batches=150)  # type: ignore[arg-type]
    found_q, found_v = critic.values(replay.state, replay.action)
    np.testing.assert_allclose(found_q, q, atol=1e-6)
    np.testing.assert_allclose(found_v, v[[0, 0, 1, 1]], atol=1e-6)


def test_a_deep_critic_ranks_what_it_never_saw() -> None:
    """The reward is a product of features; held-out turns are ranked by Q."""
    rng = np.random.default_rng(0)
    state, action = rng.normal(size=(2000, 3)), rng.choice([-1.0, 1.0], (2000, 1))
    replay = Replay(state, action, state[:, 0] * action[:, 0], state, np.ones(2000, bool))
    critic = NetworkCritic(3, 1, hidden=(32,), lr=3e-3, seed=1)
    critic.fit(replay, Fresh(state, rng.choice([-1.0, 1.0], (2000, 1))), rng, batches=150)
    fresh = rng.normal(size=(500, 3))
    q, v = critic.values(fresh, np.ones((500, 1)))
    assert np.corrcoef(q, fresh[:, 0])[0, 1] > 0.95
    assert np.abs(v).mean() < 0.25
    again = NetworkCritic(3, 1, hidden=(32,), lr=3e-3, seed=1).values(fresh, np.ones((500, 1)))
    assert np.array_equal(again[0], NetworkCritic(3, 1, hidden=(32,), seed=1).values(fresh, np.ones((500, 1)))[0])


def test_a_value_network_says_zero_and_then_what_it_learned() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    goal = np.where(rng.random(300) < 0.2, np.nan, x[:, 0] * x[:, 1])
    value = ValueNetwork(3)
    assert not value.predict(x).any()
    value.fit(x, goal, rng, steps=300, batch=64)
    assert np.corrcoef(value.predict(x), x[:, 0] * x[:, 1])[0, 1] > 0.97
    twin = ValueNetwork(3, seed=1)
    twin.load_state_dict(value.state_dict())
    assert np.array_equal(twin.predict(x), value.predict(x))


def test_a_baseline_explains_what_the_tokens_before_decided() -> None:
    """The first token decides the advantage: before it nothing is known, after it everything."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(2, size=(2, 400))
    third = rng.integers(1, 3, size=400)  # ragged: two or three tokens
    ids = [[int(a), 2 + int(b), 4][: n + 1] for a, b, n in zip(first, second, third, strict=True)]
    table = Turns({"prompt_ids": [[5]] * 400, "action_ids": ids, "advantage": 2.0 * first - 1.0})
    baseline = TokenBaseline(6, lr=1e-2).fit(table, rng, steps=120)
    found = baseline.predict(table)
    assert found.lengths.tolist() == (third + 1).tolist()
    start = np.cumsum(found.lengths) - found.lengths
    assert np.ptp(found.values[start]) < 1e-6, "the prompt is the same, and its own token is not seen"
    assert abs(found.values[start[0]]) < 0.2
    np.testing.assert_allclose(found.values[start + 1], 2.0 * first - 1.0, atol=0.1)
    columns = {"q": 2.0 * first, "v": np.ones(400)}
    credit = archer(baseline="baseline").evaluate(table.with_column(**columns, baseline=found))
    assert isinstance(credit, Ragged)
    assert np.abs(credit.values[start + 1]).mean() < 0.1
    assert np.abs(credit.values[start]).mean() > 0.8


def test_no_experience_is_named() -> None:
    empty = Replay(*(np.zeros((0, 1)) for _ in range(2)), np.zeros(0), np.zeros((0, 1)), np.zeros(0))
    with pytest.raises(InputError, match="no transitions"):
        NetworkCritic(1, 1).fit(empty, Fresh(*empty[:2]), np.random.default_rng(0))
    with pytest.raises(InputError, match="tau=0"):
        NetworkCritic(1, 1, tau=0)
    nothing = Turns({"action_ids": [[1]], "advantage": [None]})
    with pytest.raises(InputError, match="no row has action_ids and a finite 'advantage'"):
        TokenBaseline(2).fit(nothing, np.random.default_rng(0))
