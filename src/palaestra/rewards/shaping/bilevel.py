"""Bilevel rewards: an outer loop finds the reward on which the inner loop learns what the primary reward wants.

[39] BARFI (arXiv 2310.19007) on small exact problems: r_φ(s, a) = φ1(s, a) + φ2(s) · primary + φ3(s) · auxiliary. The
policy is a softmax table with L2, so that its fixed point is isolated. Only the abstract and secondary mentions were
read; the parameterisation and the hypergradient are a reconstruction. Left out: the learned discount, sampled
gradients, networks (for these, TorchOpt).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from palaestra.errors import InputError, nearest
from palaestra.rewards.shaping.mdp import occupancy, policy_q

Hypergradient = Literal["exact", "neumann", "unrolled"]


def softmax(theta: np.ndarray) -> np.ndarray:
    """Softmax of logits over the last axis."""
    weights = np.exp(theta - theta.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


@dataclass
class BilevelReward:
    """Bilevel trainer on a tabular MDP: `step()` trains a policy on weighted `primary` + `auxiliary`, moves weights.

    φ follows dJ_primary/dφ.

    dJ/dφ = -(∂J/∂θ)ᵀ (∂Δ/∂θ)⁻¹ (∂Δ/∂φ), where Δ(θ, φ) = 0 is the inner fixed point: `exact` solves, `neumann` sums
    `terms` powers of (I + rate · ∂Δ/∂θ), `unrolled` differentiates the inner steps themselves. φ moves by Adam.

    Args:
        transitions: float64[states, actions, states]; start: float64[states].
        primary, auxiliary: float64[states, actions].
        per_state: φ2 and φ3 by state, else one number each. free: whether φ1 exists at all.

    Raises:
        InputError: the hypergradient is unknown, or shapes do not fit.
    """

    transitions: np.ndarray
    start: np.ndarray
    primary: np.ndarray
    auxiliary: np.ndarray
    gamma: float = 0.95
    hypergradient: Hypergradient = "exact"
    per_state: bool = True
    free: bool = True
    decay: float = 0.01
    rate: float = 2.0
    inner: int = 25
    outer_rate: float = 0.1
    terms: int = 100
    theta: np.ndarray = field(init=False)
    phi: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        states, actions = self.primary.shape
        if self.hypergradient not in get_args(Hypergradient):
            known = get_args(Hypergradient)
            raise InputError(f"BilevelReward: hypergradient={self.hypergradient!r}{nearest(self.hypergradient, known)}")
        if self.auxiliary.shape != (states, actions) or self.transitions.shape != (states, actions, states):
            raise InputError("BilevelReward: primary, auxiliary and transitions disagree on states and actions")
        self.theta = np.zeros((states, actions))
        each = np.eye(states)[:, :, None] if self.per_state else np.ones((1, states, 1))
        own = np.eye(states * actions).reshape(-1, states, actions)[: states * actions if self.free else 0]
        self._basis = np.concatenate([own, each * self.primary, each * self.auxiliary])
        self.phi = np.concatenate([np.zeros(len(own)), np.ones(len(each)), np.ones(len(each))])
        self._first, self._second, self._steps = np.zeros_like(self.phi), np.zeros_like(self.phi), 0

    @property
    def reward(self) -> np.ndarray:
        """The current reward r_φ, float64[states, actions]."""
        return np.asarray(np.tensordot(self.phi, self._basis, axes=1))

    @property
    def weights(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Current weights: φ1 float64[states, actions] (or empty), φ2 and φ3 float64[states] (or [1])."""
        size = self.primary.size if self.free else 0
        second, third = np.split(self.phi[size:], 2)
        return self.phi[:size].reshape(-1, self.primary.shape[1]), second, third

    def objective(self, reward: np.ndarray | None = None) -> float:
        """Expected discounted return of the current policy, by the primary reward or the given one."""
        q = policy_q(self.transitions, self.primary if reward is None else reward, softmax(self.theta), self.gamma)
        return float(self.start @ (softmax(self.theta) * q).sum(axis=1))

    def learn(self, steps: int) -> np.ndarray:
        """Take `steps` policy-gradient steps on r_φ; returns dθ/dφ of these steps (all zeros unless `unrolled`)."""
        reward, size = self.reward, self.theta.size
        change = np.zeros((size, len(self.phi)))
        for _ in range(steps):
            if self.hypergradient == "unrolled":
                slope, moved = self._slope(reward), self._gradients(self._basis).reshape(-1, size).T
                change = change + self.rate * (slope @ change + moved)
            self.theta = self.theta + self.rate * self._update(self.theta, reward)
        return change

    def step(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One outer step: `inner` policy steps, then one of φ; returns the new weights."""
        change = self.learn(self.inner)
        goal = self._gradients(self.primary[None])[0].ravel()
        if self.hypergradient == "unrolled":
            gradient = goal @ change
        else:
            slope, moved = self._slope(self.reward), self._gradients(self._basis).reshape(-1, self.theta.size)
            gradient = moved @ self._solved(slope, goal)
        self._steps += 1
        self._first = 0.9 * self._first + 0.1 * gradient
        self._second = 0.999 * self._second + 0.001 * gradient**2
        first, second = self._first / (1 - 0.9**self._steps), self._second / (1 - 0.999**self._steps)
        self.phi = self.phi + self.outer_rate * first / (np.sqrt(second) + 1e-8)
        return self.weights

    def state_dict(self) -> dict[str, Any]:
        """Policy, weights, and Adam's moments."""
        return {name: getattr(self, name) for name in ("theta", "phi", "_first", "_second", "_steps")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        for name, value in state.items():
            setattr(self, name, value if name == "_steps" else np.asarray(value))

    def _solved(self, slope: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """-(∂Δ/∂θ)⁻¹ᵀ ∂J/∂θ."""
        if self.hypergradient == "exact":
            return np.asarray(np.linalg.solve(-slope.T, goal))
        term, total = self.rate * goal, np.zeros_like(goal)
        for _ in range(self.terms):
            total = total + term
            term = term + self.rate * slope.T @ term
        return total

    def _gradients(self, rewards: np.ndarray, theta: np.ndarray | None = None) -> np.ndarray:
        """∇θ J for each reward (and policy): visits · π · (Q - V); float64[n, states, actions]."""
        policy = softmax(self.theta if theta is None else theta)
        q = policy_q(self.transitions, rewards, policy, self.gamma)
        visits = occupancy(self.transitions, policy, self.start, self.gamma)
        return np.asarray(visits[..., None] * policy * (q - (policy * q).sum(axis=-1, keepdims=True)))

    def _update(self, theta: np.ndarray, reward: np.ndarray) -> np.ndarray:
        """Δ(θ, φ)."""
        return self._gradients(reward, theta) - self.decay * theta

    def _slope(self, reward: np.ndarray) -> np.ndarray:
        """∂Δ/∂θ by central differences, all directions at once: float64[size, size]."""
        width = 1e-5
        nudge = width * np.eye(self.theta.size).reshape(-1, *self.theta.shape)
        ahead, behind = self._update(self.theta + nudge, reward), self._update(self.theta - nudge, reward)
        return np.asarray(((ahead - behind) / (2 * width)).reshape(self.theta.size, -1).T)
