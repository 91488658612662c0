"""STARC, EPIC and DARD on random decision processes: what they must ignore, and what they must not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.evaluation.audits import canonicalise, dard, epic, epic_canonical, optimal_policy, regret, starc
from palaestra.evaluation.audits.distance import METHODS, policy_values

GAMMA = 0.9


def world(seed: int = 0, states: int = 4, actions: int = 2) -> tuple[np.ndarray, ...]:
    """T, R, a potential, and a redistribution over s' that no policy notices."""
    rng = np.random.default_rng(seed)
    T = rng.dirichlet(np.ones(states), (states, actions))
    R, phi, Z = rng.normal(size=T.shape), rng.normal(size=states), rng.normal(size=T.shape)
    return T, R, phi, Z - (T * Z).sum(2, keepdims=True)


def test_worked_numbers_of_the_card() -> None:
    T, R, phi, Z = world()
    shaped, moved = 3 * R + GAMMA * phi - phi[:, None, None], R + 2 * Z
    for method in ("val", "minimal", "minimal_potential", "val_potential"):
        assert starc(R, shaped, T, GAMMA, method=method) == pytest.approx(0, abs=1e-7)
        assert starc(R, -R, T, GAMMA, method=method) == pytest.approx(1)
    assert starc(R, moved, T, GAMMA) == pytest.approx(0, abs=1e-7)
    assert starc(R, moved, T, GAMMA, method="minimal") == pytest.approx(0, abs=1e-7)
    assert starc(R, moved, T, GAMMA, method="val_potential") == pytest.approx(0.475, abs=5e-4)
    assert starc(R, moved, T, GAMMA, method="minimal_potential") == pytest.approx(0.52, abs=5e-3)
    assert starc(R, moved, T, GAMMA, method="dard") == pytest.approx(0.51, abs=5e-3)
    assert epic(R, moved, T, GAMMA) == pytest.approx(0.51, abs=5e-3)
    assert regret(R, moved, T, GAMMA) == 0  # the counter-example: EPIC sees half the way to the opposite
    assert epic(R, shaped, T, GAMMA) == pytest.approx(0, abs=1e-7)
    assert dard(R, shaped, T, GAMMA) == pytest.approx(0, abs=1e-7)
    assert [epic(R, -R, T, GAMMA), dard(R, -R, T, GAMMA)] == pytest.approx([1, 1])


@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_the_unit_of_a_reward_does_not_matter(size: float) -> None:
    T, R, phi, _ = world()
    assert starc(R, size * R, T, GAMMA) == pytest.approx(0, abs=1e-7)
    assert starc(size * R, -size * R, T, GAMMA) == pytest.approx(1)
    assert [measure(size * R, R, T, GAMMA) for measure in (epic, dard)] == pytest.approx([0, 0], abs=1e-7)
    assert regret(size * R, -size * R, T, GAMMA) == pytest.approx(1)
    assert starc(R, size * (0 * R + GAMMA * phi - phi[:, None, None]), T, GAMMA) == pytest.approx(
        0.5
    )  # shaping alone is zero


@given(st.integers(0, 10_000), st.sampled_from([m for m in METHODS if m != "none"]), st.floats(0.0, 0.99))
@settings(max_examples=60, deadline=None)
def test_every_method_is_linear_and_ignores_shaping(seed: int, method: str, gamma: float) -> None:
    T, R, phi, Z = world(seed, states=5, actions=3)
    shaped = R + gamma * phi - phi[:, None, None]
    canon = canonicalise(R, T, gamma, method)
    np.testing.assert_allclose(canonicalise(shaped, T, gamma, method), canon, atol=1e-7)
    np.testing.assert_allclose(
        canonicalise(R + 2 * Z, T, gamma, method), canon + 2 * canonicalise(Z, T, gamma, method), atol=1e-7
    )
    if method in ("val", "minimal"):
        np.testing.assert_allclose(canonicalise(Z, T, gamma, method), 0, atol=1e-7)


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_starc_is_a_pseudometric_between_0_and_1(seed: int) -> None:
    rng = np.random.default_rng(seed)
    T = world(seed)[0]
    a, b, c = rng.normal(size=(3, *T.shape))
    ab, bc, ac = (starc(x, y, T, GAMMA) for x, y in ((a, b), (b, c), (a, c)))
    assert 0 <= ab <= 1
    assert ab == pytest.approx(starc(b, a, T, GAMMA))
    assert ac <= ab + bc + 1e-12


def test_canonical_reward_keeps_the_order_of_policies() -> None:
    T, R, *_ = world(3)
    canon = canonicalise(R, T, GAMMA)
    rng = np.random.default_rng(0)
    policies = rng.dirichlet(np.ones(2), (20, 4))
    before, after = ([policy_values(r, T, GAMMA, p).mean() for p in policies] for r in (R, canon))
    assert np.corrcoef(before, after)[0, 1] == pytest.approx(1)
    assert (optimal_policy(R, T, GAMMA) == optimal_policy(canon, T, GAMMA)).all()
    assert regret(R, -R, T, GAMMA) == pytest.approx(1)


def test_canonical_form_on_a_table_is_the_sample_version() -> None:
    turns = Turns(
        {
            "episode": [0, 0, 1, 1],
            "turn": [0, 1, 0, 1],
            "agent": ["a"] * 4,
            "state": [1, 2, 1, 2],
            "reward": [1.0, 3.0, 0.0, 1.0],
        }
    )
    # m(1) = 0.5, m(2) = 2, m = 1.25; r + m(s') - m(s) - m, and 0 after the last turn
    assert epic_canonical().evaluate(turns) == pytest.approx(
        [1 + 2 - 0.5 - 1.25, 3 - 2 - 1.25, 2 - 0.5 - 1.25, 1 - 2 - 1.25]
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gamma": 1.0}, "gamma=1.0 must be in"),
        ({"T": np.ones((2, 2, 2))}, "distribution over states"),
        ({"T": np.ones((2, 2))}, "give probabilities"),
        ({"R": np.ones((3, 2))}, "R has shape"),
        ({"R": np.full((2, 2, 2), np.nan)}, "must be finite"),
        ({"method": "vla"}, "method 'vla' is unknown"),
    ],
)
def test_what_is_wrong_is_named(change: dict, message: str) -> None:
    options = {"R": np.ones((2, 2, 2)), "T": np.full((2, 2, 2), 0.5), "gamma": 0.9, "method": "val"} | change
    with pytest.raises(InputError, match=message):
        canonicalise(**options)
