"""Gems: who goes alone is paid, gems grow back, and experts never go to the same one."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.agents import Team
from palaestra.agents.joint import JointPolicy
from palaestra.envs.worlds import Gems
from palaestra.envs.worlds.exact.joint_soft import gem_expert, joint_soft_policy
from palaestra.errors import InputError
from palaestra.play.rollout import rollout


def test_a_gem_taken_is_missing_for_one_step():
    env = Gems(pays=(1.0, 2.0), horizon=3)
    every, none = frozenset({0, 1}), frozenset()
    assert env.outcome(every, [0, 1]) == ([1.0, 2.0], none)
    assert env.outcome(none, [0, 1]) == ([0.0, 0.0], every)
    assert env.outcome(every, [1, 1]) == ([-1.0, -1.0], every)
    assert env.outcome(every, [None, 1]) == ([0.0, 2.0], frozenset({0}))


def test_totals_and_clashes_are_told():
    env = Gems(pays=(1.0, 2.0), horizon=2)
    env.reset(0)
    env.step(dict.fromkeys(env.agents, "gem 0"))
    result = env.step({"collector_0": "gem 0", "collector_1": "gem 1"})
    assert result.terminated
    assert result.info["clashes"] == 1
    assert not result.info["success"]
    assert result.info["total"] == -2 + sum(result.rewards.values())


@pytest.mark.parametrize("options", [{"collectors": 0}, {"pays": (1.0,)}, {"horizon": 0}])
def test_what_is_out_of_range_is_named(options):
    with pytest.raises(InputError, match="Gems"):
        Gems(**options)


def test_soft_policies_know_what_comes_next():
    following, reward = np.array([[0, 1], [1, 1]]), np.array([[0.0, 0.0], [1.0, 1.0]])
    policy = joint_soft_policy(following, reward, gamma=0.5, temperature=0.1)
    assert policy[0, 1] > 0.99
    np.testing.assert_allclose(policy.sum(1), 1.0)
    assert joint_soft_policy(following, reward, gamma=0.0, temperature=0.1)[0, 0] == pytest.approx(0.5)
    with pytest.raises(InputError, match="gamma"):
        joint_soft_policy(following, reward, gamma=1.0, temperature=0.1)


def test_experts_split_the_gems():
    env = Gems()
    experts = JointPolicy(gem_expert(env), env.agents)
    rows = rollout(Gems, Team(dict.fromkeys(env.agents, experts)), groups=40, seed=0).frame
    assert rows["error"].null_count() == len(rows)
    assert rows["success"].mean() > 0.5
    with pytest.raises(InputError, match="sum to 1"):
        JointPolicy({"a": np.ones((2, 2))}, env.agents)
    with pytest.raises(InputError, match="probabilities"):
        JointPolicy({"a": np.array([[1.5, -0.5], [0.0, 0.0]])}, env.agents)
    assert JointPolicy({"a": np.array([[1.0, 0.0], [0.0, 0.0]])}, env.agents).agents == env.agents
