"""Exact quantities of small Markov decision processes, for rewards that are designed or learned for one.

transitions: float64[states, actions, states], rows that sum to less than 1 end the episode with what is missing.
reward: float64[..., states, actions]; policy: float64[..., states, actions]. Leading axes are a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from palaestra.errors import InputError


@dataclass(frozen=True)
class Model:
    """Data of an env's exact tabular MDP (transitions, rewards by name, start), as its `model()` returns it.

    keys: `Observation.key()` of each state, the table's column `state`. actions: their names, the column `action`.
    transitions: float64[states, actions, states]. start: float64[states]. rewards: expected, by the name of the column,
    float64[states, actions] each; "reward" is the env's own.
    """

    keys: Sequence[int]
    actions: Sequence[str]
    transitions: np.ndarray
    start: np.ndarray
    rewards: Mapping[str, np.ndarray]

    def rows(self, states: Sequence[int | None], actions: Sequence[str | None]) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the given states and actions in this model, int64 each; -1 for an unknown one."""
        place: dict[str | int | None, int] = {key: number for number, key in enumerate(self.keys)}
        move: dict[str | None, int] = {name: number for number, name in enumerate(self.actions)}
        return np.array([place.get(s, -1) for s in states], int), np.array([move.get(a, -1) for a in actions], int)


def policy_q(transitions: np.ndarray, reward: np.ndarray, policy: np.ndarray, gamma: float) -> np.ndarray:
    """Action values of a policy in a tabular MDP (transitions, reward, gamma), exact: float64[..., states, actions]."""
    _checked(transitions, gamma)
    states = len(transitions)
    step = np.einsum("...sa,sat->...st", policy, transitions)
    now = (policy * reward).sum(axis=-1)
    value = np.linalg.solve(np.eye(states) - gamma * step, now[..., None])[..., 0]
    return np.asarray(reward + gamma * np.einsum("sat,...t->...sa", transitions, value))


def optimal_q(transitions: np.ndarray, reward: np.ndarray, gamma: float) -> np.ndarray:
    """Optimal action values of a tabular MDP (transitions, reward, gamma), exact: float64[states, actions].

    By policy iteration.
    """
    policy = np.eye(transitions.shape[1])[np.zeros(len(transitions), int)]
    for _ in range(1000):
        q = policy_q(transitions, reward, policy, gamma)
        better = q.max(axis=1) > (policy * q).sum(axis=1) + 1e-12
        if not better.any():
            break
        policy[better] = np.eye(transitions.shape[1])[q[better].argmax(axis=1)]
    return q


def occupancy(transitions: np.ndarray, policy: np.ndarray, start: np.ndarray, gamma: float) -> np.ndarray:
    """Discounted state occupancy Σ γ^t P(s_t = s) of a policy, float64[..., states], from `transitions` and `start`."""
    _checked(transitions, gamma)
    step = np.einsum("...sa,sat->...ts", policy, transitions)
    begin = np.broadcast_to(start[:, None], (*step.shape[:-1], 1))
    return np.asarray(np.linalg.solve(np.eye(len(transitions)) - gamma * step, begin)[..., 0])


def _checked(transitions: np.ndarray, gamma: float) -> None:
    if transitions.ndim != 3 or transitions.shape[0] != transitions.shape[2]:
        raise InputError(f"transitions have shape {transitions.shape}, expected (states, actions, states)")
    if not 0 <= gamma <= 1 or (transitions.sum(axis=-1) > 1 + 1e-9).any() or transitions.min() < 0:
        raise InputError(f"transitions must be chances that sum to at most 1, gamma={gamma} must be in [0, 1]")
