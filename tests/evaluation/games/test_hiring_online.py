"""Tests of hiring agents whose signals are not known; worked numbers stand with system [20]."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.evaluation.games.hiring import Mechanism, scoring_rule
from palaestra.evaluation.games.hiring_online import explore_then_commit, respond

EVEN, DECIDE = np.array([0.5, 0.5]), np.eye(2)
COSTS = [np.array([0.0, 0.03]), np.array([0.0, 0.05])]


def law(rng: np.random.Generator | None = None) -> np.ndarray:
    """Two agents who see the state with .8 and .7 if they work; or a random law."""
    if rng is not None:
        drawn = rng.random((2, 2, 2, 2, 2))
        return np.asarray(drawn / drawn.sum((3, 4), keepdims=True))
    own = [np.stack([np.full((2, 2), 0.5), np.array([[p, 1 - p], [1 - p, p]])]) for p in (0.8, 0.7)]
    return np.asarray(np.einsum("atx,bty->abtxy", *own))


def gain(mechanism: Mechanism, signals: np.ndarray) -> float:
    """Largest gain of one agent over all efforts and maps of reports, by counting."""
    joint = np.moveaxis(signals, 2, -1) * EVEN
    best = 0.0
    for agent, told in itertools.product(range(2), repeat=2):
        share = mechanism.profile[told].sum() if agent == 0 else mechanism.profile[:, told].sum()
        if share <= 1e-9:
            continue
        values = {}
        for done, said in itertools.product(range(2), itertools.product(range(2), repeat=2)):
            total = -COSTS[agent][done] * share
            for other, seen in itertools.product(range(2), itertools.product(range(2), repeat=2)):
                b, real = ((told, other), (done, other)) if agent == 0 else ((other, told), (other, done))
                report = (said[seen[0]], seen[1]) if agent == 0 else (seen[0], said[seen[1]])
                total += mechanism.profile[b] * float(joint[real][seen] @ mechanism.payments[agent][b][report])
            values[done, said] = total
        best = max(best, (max(values.values()) - values[told, (0, 1)]) / share)
    return float(best)


@pytest.mark.parametrize("seed", range(6))
def test_best_responses_are_those_of_all_maps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    signals = law(rng)
    mechanism = Mechanism(rng.dirichlet(np.ones(4)).reshape(2, 2), rng.random((2, *[2] * 5)), np.zeros(2), 0.0)
    found = respond(mechanism, EVEN, signals, COSTS, DECIDE)
    assert found.gain == pytest.approx(gain(mechanism, signals), abs=1e-9)


@pytest.mark.parametrize("slack", [0.01, 0.05])
def test_slack_is_what_obeying_is_better_by(slack: float) -> None:
    """With a slack below what the effort is worth, a law that is a little off is obeyed all the same."""
    made = scoring_rule(EVEN, law(), COSTS, DECIDE, cap=2.0, slack=slack)
    assert made.value < scoring_rule(EVEN, law(), COSTS, DECIDE, cap=2.0).value
    off = law() + slack / 8 * (law(np.random.default_rng(0)) - law())
    assert respond(made, EVEN, off, COSTS, DECIDE).obeyed == 1.0
    plain = scoring_rule(EVEN, law(), COSTS, DECIDE, cap=2.0)
    assert gain(plain, law()) == pytest.approx(0.0, abs=1e-7)


def test_every_profile_has_its_least_chance() -> None:
    found = scoring_rule(EVEN, law(), COSTS, DECIDE, cap=2.0, least=0.1)
    assert found.profile.min() == pytest.approx(0.1, abs=1e-6)
    assert gain(found, law()) < 1e-7


def test_the_counted_law_comes_near_the_true_one_and_exploration_is_bounded() -> None:
    found = explore_then_commit(EVEN, law(), COSTS, DECIDE, np.random.default_rng(0), rounds=10**9)
    assert found.response.obeyed == 1.0
    assert 0 <= found.best - found.response.value < 0.01
    assert found.regret > 0
    with pytest.raises(InputError, match="3 rounds of exploration of 4 profiles"):
        explore_then_commit(EVEN, law(), COSTS, DECIDE, np.random.default_rng(0), rounds=100, explore=3)
    with pytest.raises(InputError, match="raise the cap"):
        explore_then_commit(EVEN, law(), COSTS, DECIDE, np.random.default_rng(0), rounds=100, cap=0.01)
