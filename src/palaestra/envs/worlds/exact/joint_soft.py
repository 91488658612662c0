"""Soft-optimal joint policies of small games: expert teams for learning from demonstrations.

Members' actions depend on each other even when the state is known, which no team of independent policies can repeat.
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy.special import logsumexp

from palaestra.envs.worlds.gems import Gems
from palaestra.errors import InputError


def joint_soft_policy(following: np.ndarray, reward: np.ndarray, *, gamma: float, temperature: float) -> np.ndarray:
    """Soft-optimal joint policy ∝ exp(Q / τ), float64[states, joint actions], of tables `following` (states), `reward`.

    Q(s, a) = r(s, a) + γ V(s'), V(s) = τ log Σ_a exp(Q(s, a) / τ), iterated until V moves by less than 1e-10.

    Args:
        following: next state of each state and joint action, int[states, joint actions].
        reward: the team's reward, float[states, joint actions].
        gamma: γ in [0, 1).
        temperature: τ > 0.

    Raises:
        InputError: gamma or temperature is out of range.
    """
    if not 0 <= gamma < 1 or not temperature > 0:
        raise InputError(f"joint_soft_policy: gamma={gamma} must be in [0, 1), temperature={temperature} above 0")
    values = np.zeros(len(reward))
    while True:
        q = reward + gamma * values[following]
        fresh = temperature * np.asarray(logsumexp(q / temperature, axis=1))
        if np.abs(fresh - values).max() < 1e-10:
            return np.asarray(np.exp((q - fresh[:, None]) / temperature))
        values = fresh


def gem_expert(env: Gems, *, temperature: float = 0.4, gamma: float = 0.9) -> dict[str, np.ndarray]:
    """Soft-optimal joint policy of the env `Gems`, {observation text: float64[gems, …], one axis per collector}.

    Args:
        env: the game.
        temperature: τ of `joint_soft_policy`, in units of reward.
        gamma: its discount.

    >>> chances = gem_expert(Gems(pays=(1.0, 1.0)))["there: 0 1"]
    >>> chances.round(3).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    gems, seats = range(len(env.pays)), len(env.agents)
    joint = list(itertools.product(gems, repeat=seats))
    every = [frozenset(each) for size in range(len(gems) + 1) for each in itertools.combinations(gems, size)]
    found = [[env.outcome(there, went) for went in joint] for there in every]
    following = np.array([[every.index(after) for _, after in row] for row in found])
    reward = np.array([[sum(paid) for paid, _ in row] for row in found])
    policy = joint_soft_policy(following, reward, gamma=gamma, temperature=temperature)
    shape = (len(gems),) * seats
    return {env.text(there): row.reshape(shape) for there, row in zip(every, policy, strict=True)}
