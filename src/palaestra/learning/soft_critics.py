"""Tables of inverse soft Q-learning: joint critics, marginalised over what the other agents do (arXiv 2503.04679).

Numbers in NumPy only; `palaestra.learning.inverse_soft_q` is the learner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp


class JointSteps(NamedTuple):
    """Data: joint steps of a team: `here`, int[steps], the state; `went`, int[steps, agents]; `there`, the next state.

    over: bool[steps], nothing follows by the rules of the game, and `there` means nothing.
    """

    here: np.ndarray
    went: np.ndarray
    there: np.ndarray
    over: np.ndarray


def marginal(q: np.ndarray, policies: Sequence[np.ndarray], agent: int) -> np.ndarray:
    """Array Q̄(s, a_i): joint `q` [states, actions of each agent] averaged over others' `policies` [states, actions].

    Args:
        q: float64[states, actions of agent 0, …, actions of agent n - 1].
        policies: of each agent, float64[states, its actions]; that of `agent` itself is not used.
        agent: whose critic it is.

    Returns:
        float64[states, actions of `agent`].

    >>> marginal(np.array([[[4.0, 0.0], [0.0, 2.0]]]), [np.ones((1, 2)), np.array([[0.75, 0.25]])], 0).tolist()
    [[3.0, 0.5]]
    """
    for other in reversed(range(len(policies))):
        if other != agent:
            q = np.moveaxis(q, other + 1, -1)
            chances = policies[other]
            q = (q * chances.reshape(len(chances), *(1,) * (q.ndim - 2), -1)).sum(-1)
    return q


def spread(of_own: np.ndarray, policies: Sequence[np.ndarray], agent: int) -> np.ndarray:
    """Array like Q: gradient by Q of Σ c(s, a_i) Q̄(s, a_i), c = `of_own`, with `policies`; transpose of `marginal`.

    The gradient is float64[states, actions, …].

    Args:
        of_own: c, float64[states, actions of `agent`].
        policies: as in `marginal`.
        agent: whose critic it is.
    """
    made = np.ones((len(of_own), *(1,) * len(policies)))
    for each, chances in enumerate(policies):
        factor = of_own if each == agent else chances
        made = made * factor.reshape(len(factor), *(-1 if axis == each else 1 for axis in range(len(policies))))
    return made


def boltzmann(q: np.ndarray, sharpness: float) -> tuple[np.ndarray, np.ndarray]:
    """Pair (soft value V = log Σ exp(λQ) / λ, float64[states]; Boltzmann policy ∝ exp(λQ), float64[states, actions]).

    Args:
        q: float64[states, actions]; -inf for an illegal action.
        sharpness: λ > 0.
    """
    value = np.asarray(logsumexp(sharpness * q, axis=1)) / sharpness
    return value, np.exp(sharpness * (q - value[:, None]))


def concave(residual: np.ndarray, alpha: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Pair of arrays: χ² regulariser φ(x) = x - x² / 4α of array `residual`, and φ'(x); φ(x) = x if alpha is None.

    >>> concave(np.array([1.0]), 1.0)
    (array([0.75]), array([0.5]))
    """
    if alpha is None:
        return residual, np.ones_like(residual)
    return residual - residual**2 / (4 * alpha), 1 - residual / (2 * alpha)


class SoftCritics:
    """Soft Q-tables of joint actions, one per agent of a team, and the Boltzmann policies of their marginals.

    Agent i ascends E_expert[φ(x)] - E_ρ[V̄_i(s) - γ V̄_i(s')] in its critic Q_i, with the inverse Bellman residual
    x = Q_i(s, a) - γ V̄_i(s'), V̄_i the soft value of its marginal Q̄_i, and V̄_i = 0 after the end. Others' policies are
    those of this round, and no gradient goes through them. Agents take turns, so that each answers the newest policies.

    Three kinds of critic:

    * joint: x has the critic of the experts' joint action. Which joint actions experts avoid is then in Q_i, and the
      marginal turns it into what is good against what the others do.
    * marginal: x has Q̄_i(s, a_i). The objective depends on Q_i through Q̄_i alone, and every Q̄_i is the marginal of a
      critic that ignores the others. So its optimum is that of
    * independent: Q_i(s, a_i), inverse soft Q-learning (IQ-Learn, arXiv 2106.12142) by each agent for itself.

    Args:
        actions: number of actions of each agent. kind: "joint", "marginal" or "independent". gamma: γ in [0, 1].
        alpha: α of φ; None for no regulariser. sharpness: λ.
    """

    def __init__(
        self, actions: Sequence[int], *, kind: str, gamma: float, alpha: float | None, sharpness: float
    ) -> None:
        self.actions, self.kind = tuple(actions), kind
        self.gamma, self.alpha, self.sharpness = gamma, alpha, sharpness
        n = len(self.actions)
        self.shapes = [
            tuple(size if kind != "independent" or own == agent else 1 for agent, size in enumerate(self.actions))
            for own in range(n)
        ]
        self.q = [np.zeros((0, *shape)) for shape in self.shapes]
        self.legal = [np.ones((0, size), bool) for size in self.actions]

    @property
    def states(self) -> int:
        """Number of states that there are places for."""
        return len(self.legal[0])

    def grow(self, states: int) -> None:
        """Enlarge the tables to so many states, the new ones with zeros and every action legal."""
        more = states - self.states
        self.q = [np.concatenate([q, np.zeros((more, *q.shape[1:]))]) for q in self.q]
        self.legal = [np.concatenate([each, np.ones((more, each.shape[1]), bool)]) for each in self.legal]

    def marginals(self, agent: int, policies: Sequence[np.ndarray]) -> np.ndarray:
        """Marginal Q̄ of an agent, -inf where an action is illegal, float64[states, actions]."""
        return np.where(self.legal[agent], marginal(self.q[agent], self._of_others(policies, agent), agent), -np.inf)

    def policies(self, start: Sequence[np.ndarray] | None = None) -> list[np.ndarray]:
        """Boltzmann policies of the critics, one agent after the other; from uniform ones, or those of a round."""
        found = [legal / legal.sum(1, keepdims=True) for legal in self.legal] if start is None else list(start)
        for agent in range(len(found)):
            found[agent] = boltzmann(self.marginals(agent, found), self.sharpness)[1]
        return found

    def fit(self, expert: JointSteps, own: JointSteps | None, *, online: float, rate: float, steps: int,
            start: Sequence[np.ndarray] | None = None) -> tuple[list[np.ndarray], list[float]]:  # fmt: skip
        """Train by gradient steps of all agents; returns the policies and each agent's last objective.

        A state's gradient is divided by its share in ρ, so that `rate` means the same in rare and frequent states.

        Args:
            expert: steps of the experts.
            own: steps of the team.
            online: share of ρ that is the team's own steps; 0 is offline.
            rate: length of a step.
            steps: number of steps.
            start: policies of the round before.
        """
        share = online if own is not None and len(own.here) else 0.0
        parts = [(expert, (1.0 - share) / len(expert.here))]
        if own is not None and share:
            parts.append((own, share / len(own.here)))
        mass = np.zeros(self.states)
        for rows, weight in parts:
            mass += weight * np.bincount(rows.here, minlength=self.states)
        scale = np.divide(rate, mass, out=np.zeros_like(mass), where=mass > 0)
        policies, said = self.policies(start), [0.0] * len(self.actions)
        for _ in range(steps):
            for agent in range(len(self.actions)):
                others = self._of_others(policies, agent)
                value, policies[agent] = boltzmann(self.marginals(agent, policies), self.sharpness)
                gradient, said[agent] = self._gradient(agent, value, policies, others, expert, parts)
                self.q[agent] += gradient * scale.reshape(-1, *(1,) * len(self.actions))
                policies[agent] = boltzmann(self.marginals(agent, policies), self.sharpness)[1]
        return policies, said

    def recovered(self, agent: int, rows: JointSteps, policies: Sequence[np.ndarray]) -> np.ndarray:
        """Reward read back from a critic, r̂ = Q_i(s, a) - γ V̄_i(s'), float64[steps]; Q̄_i(s, a_i) if not `joint`."""
        q = self.marginals(agent, policies)
        value = boltzmann(q, self.sharpness)[0]
        ahead = np.where(rows.over, 0.0, value[np.where(rows.over, 0, rows.there)])
        taken = self._joint_q(agent, rows) if self.kind == "joint" else q[rows.here, rows.went[:, agent]]
        return np.asarray(taken - self.gamma * ahead)

    def _joint_q(self, agent: int, rows: JointSteps) -> np.ndarray:
        return np.asarray(self.q[agent][(rows.here, *rows.went.T)])

    def _of_others(self, policies: Sequence[np.ndarray], agent: int) -> list[np.ndarray]:
        """Policies as the critic of an agent has axes for them: of one action, if it ignores the others."""
        if self.kind != "independent":
            return list(policies)
        return [each if k == agent else np.ones((len(each), 1)) for k, each in enumerate(policies)]

    def _gradient(self, agent: int, value: np.ndarray, policies: Sequence[np.ndarray], others: Sequence[np.ndarray],
                  expert: JointSteps, parts: Sequence[tuple[JointSteps, float]],
                  ) -> tuple[np.ndarray, float]:  # fmt: skip
        """Gradient of the objective by Q_i, and the objective."""
        weight = 1.0 / len(expert.here)
        phi, slope = concave(self.recovered(agent, expert, policies), self.alpha)
        taken = np.zeros((self.states, self.actions[agent]))
        gradient = np.zeros_like(self.q[agent])
        if self.kind == "joint":
            np.add.at(gradient, (expert.here, *expert.went.T), weight * slope)
        else:
            np.add.at(taken, (expert.here, expert.went[:, agent]), weight * slope)
        of_value = np.zeros(self.states)
        goes_on = ~expert.over
        of_value -= self.gamma * weight * np.bincount(expert.there[goes_on], slope[goes_on], self.states)
        objective = weight * phi.sum()
        for rows, share in parts:
            on = ~rows.over
            of_value -= share * np.bincount(rows.here, minlength=self.states)
            of_value += share * self.gamma * np.bincount(rows.there[on], minlength=self.states)
            objective -= share * (value[rows.here].sum() - self.gamma * value[rows.there[on]].sum())
        taken += of_value[:, None] * policies[agent]
        return gradient + spread(taken, others, agent), float(objective)
