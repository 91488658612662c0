"""Gradients of inverse soft Q-learning, beside differences of its objective."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.learning.soft_critics import JointSteps, SoftCritics, boltzmann

ACTIONS = (2, 3)


def steps(rng: np.random.Generator, count: int) -> JointSteps:
    """Random joint steps among four states, some of them the last."""
    went = np.stack([rng.integers(size, size=count) for size in ACTIONS], axis=1)
    return JointSteps(rng.integers(4, size=count), went, rng.integers(4, size=count), rng.random(count) < 0.3)


@pytest.mark.parametrize("alpha", [None, 0.5])
@pytest.mark.parametrize("kind", ["joint", "marginal", "independent"])
def test_a_gradient_is_the_slope_of_the_objective(kind: str, alpha: float | None) -> None:
    """E_expert[φ(Q - γ V')] - E_ρ[V - γ V'], by central differences in every entry of each agent's critic."""
    rng = np.random.default_rng(3)
    critics = SoftCritics(ACTIONS, kind=kind, gamma=0.9, alpha=alpha, sharpness=2.0)
    critics.grow(4)
    critics.q = [rng.normal(size=q.shape) for q in critics.q]
    policies, expert, own = critics.policies(), steps(rng, 7), steps(rng, 5)
    parts = [(expert, 0.25 / 7), (own, 0.75 / 5)]

    def found(agent: int) -> tuple[np.ndarray, float]:
        value, policies[agent] = boltzmann(critics.marginals(agent, policies), 2.0)
        return critics._gradient(agent, value, policies, critics._of_others(policies, agent), expert, parts)

    def objective(agent: int) -> float:
        value = boltzmann(critics.marginals(agent, policies), 2.0)[0]
        residual = critics.recovered(agent, expert, policies)
        paid = residual if alpha is None else residual - residual**2 / (4 * alpha)
        ahead = [np.where(rows.over, 0.0, value[rows.there]) for rows, _ in parts]
        soft = [s * (value[rows.here] - 0.9 * a).sum() for (rows, s), a in zip(parts, ahead, strict=True)]
        return float(paid.mean() - sum(soft))

    for agent in range(2):
        gradient, said = found(agent)
        assert said == pytest.approx(objective(agent))
        for at in np.ndindex(gradient.shape):
            sides = []
            for change in (1e-5, -1e-5):
                critics.q[agent][at] += change
                sides.append(objective(agent))
                critics.q[agent][at] -= change
            assert gradient[at] == pytest.approx((sides[0] - sides[1]) / 2e-5, abs=1e-6)


def test_a_step_moves_rare_states_as_far_as_frequent_ones() -> None:
    """Both states are met with the same action, one of them three times as often."""
    here = np.array([0, 1, 1, 1])
    expert = JointSteps(here, np.zeros((4, 2), int), here, np.ones(4, bool))
    critics = SoftCritics(ACTIONS, kind="joint", gamma=0.9, alpha=None, sharpness=1.0)
    critics.grow(2)
    critics.fit(expert, None, online=0.0, rate=0.1, steps=1)
    first = critics.q[0]
    assert first[0] == pytest.approx(first[1])
    assert first[0, 0].max() == pytest.approx(0.1 * (1 - 1 / 6))  # what was done, less what was expected


def test_policies_begin_where_others_take_each_legal_action_alike() -> None:
    """The first agent's second action is worth 0 and 3 beside what the other may do: 1.5, at sharpness 2."""
    critics = SoftCritics(ACTIONS, kind="joint", gamma=0.9, alpha=None, sharpness=2.0)
    critics.grow(1)
    critics.q[0][0] = [[0.0, 0.0, 9.0], [0.0, 3.0, -9.0]]
    critics.legal[1][0] = [True, True, False]
    first, second = critics.policies()
    assert first[0] == pytest.approx(np.array([1, np.exp(3)]) / (1 + np.exp(3)))
    assert second[0] == pytest.approx([0.5, 0.5, 0.0])
