from __future__ import annotations

import sys

import numpy as np
import pytest

gym = pytest.importorskip("gymnasium")

from palaestra.envs.gymnasium import gymnasium  # noqa: E402
from palaestra.errors import EnvError, InputError, MissingExtraError  # noqa: E402
from palaestra.testing.env import check_env  # noqa: E402


@pytest.mark.parametrize("illegal", ["lose", "random"])
@pytest.mark.parametrize(
    ("name", "options", "varied"),
    [
        ("FrozenLake-v1", {"success": 1.0}, True),
        ("CartPole-v1", {}, True),
        ("Taxi-v4", {"max_episode_steps": 40}, True),
        ("Blackjack-v1", {}, True),
        ("CliffWalking-v1", {"max_episode_steps": 40}, False),
    ],
)
def test_real_environments_keep_the_protocol(name, options, varied, illegal):
    check_env(gymnasium(name, illegal=illegal, **options), varied=varied)


def test_it_is_the_same_environment_as_gymnasiums():
    env, raw = gymnasium("CartPole-v1")(), gym.make("CartPole-v1")
    rng = np.random.default_rng(0)
    for seed in range(3):
        seen, (value, _) = env.reset(seed)["player"], raw.reset(seed=seed)
        while True:
            assert seen.array is not None
            np.testing.assert_array_equal(seen.array, value)
            action = int(rng.integers(2))
            value, reward, terminated, truncated, _ = raw.step(action)
            result = env.step({"player": action})
            assert (result.rewards, result.terminated, result.truncated) == ({"player": reward}, terminated, truncated)
            if terminated:
                break
            seen = result.observations["player"]
    assert env.task == "CartPole-v1:2"


def walk(env, moves):
    env.reset(0)
    return [env.step({"player": move}) for move in moves]


def test_actions_have_names_and_success_is_a_threshold():
    names = ["left", "down", "right", "up"]
    env = gymnasium("FrozenLake-v1", actions=names, success=1.0, is_slippery=False)()
    seen = env.reset(0)["player"]
    assert (seen.text, seen.choices) == ("0", tuple(names))
    assert seen.array is not None
    assert seen.array.tolist() == [1.0] + [0.0] * 15
    *_, last = walk(env, ["down", "down", "right", "right", "Down", "right"])
    assert last.rewards == {"player": 1.0}
    assert last.terminated
    assert last.info["success"] is True
    *_, drowned = walk(env, ["down", "right"])
    assert drowned.terminated
    assert drowned.info["success"] is False


def test_features_of_composed_spaces_are_flat():
    seen = gymnasium("Blackjack-v1")().reset(1)["player"]
    numbers = [int(number) for number in seen.text.split()]
    assert len(numbers) == 3
    assert seen.array is not None
    assert seen.array.shape == (32 + 11 + 2,)
    assert np.flatnonzero(seen.array).tolist() == [numbers[0], 32 + numbers[1], 43 + numbers[2]]


def test_time_limits_truncate():
    *_, last = walk(gymnasium("Taxi-v4", max_episode_steps=3)(), ["0"] * 3)
    assert (last.terminated, last.truncated) == (False, True)
    assert not last.observations


def test_an_end_in_the_last_step_of_a_time_limit_is_an_end():
    *_, last = walk(gymnasium("CliffWalking-v1", max_episode_steps=13)(), ["0", *["1"] * 11, "2"])
    assert (last.terminated, last.truncated) == (True, False)


def test_illegal_actions_cost_the_penalty_or_are_replaced():
    (lost,) = walk(gymnasium("CartPole-v1", penalty=-7.0)(), ["jump"])
    assert (lost.rewards, lost.terminated, lost.info["valid"]) == ({"player": -7.0}, True, {"player": False})
    first, second = walk(gymnasium("CartPole-v1", illegal="random")(), ["jump", "1"])
    assert (first.rewards, first.terminated, first.info["valid"]) == ({"player": 1.0}, False, {"player": False})
    assert second.info["valid"] == {"player": True}


def test_a_function_can_make_the_environment():
    env = gymnasium(lambda: gym.make("Taxi-v4"), text=lambda state: f"state {state}")()
    assert env.reset(0)["player"].text.startswith("state ")
    assert env.task == "<lambda>:0"


def test_nobody_plays_out_of_turn():
    env = gymnasium("CartPole-v1")()
    env.reset(0)
    with pytest.raises(EnvError, match="player"):
        env.step({"agent": 0})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("FrozenLak-v1", {}, "did you mean 'FrozenLake-v1'"),
        ("FrozenLake-v1", {"is_slipery": True}, "is_slipery"),
        ("Pendulum-v1", {}, "Discrete"),
        ("CartPole-v1", {"actions": ["left"]}, "names 1 actions, but there are 2"),
    ],
)
def test_what_cannot_be_played_is_refused_with_a_reason(name, options, message):
    with pytest.raises(InputError, match=message):
        gymnasium(name, **options)


@pytest.mark.parametrize(
    ("name", "module", "message"),
    [
        ("LunarLander-v3", "Box2D", "Box2D is not installed"),
        ("phys2d/CartPole-v1", "jax", r'pip install "gymnasium\[jax\]"'),
    ],
)
def test_what_an_env_needs_is_named(name, module, message, monkeypatch):
    for loaded in [each for each in sys.modules if each.startswith(("gymnasium.envs.box2d", "gymnasium.envs.phys2d"))]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=f"Gymnasium's '{name}' needs another package: .*{message}"):
        gymnasium(name)
