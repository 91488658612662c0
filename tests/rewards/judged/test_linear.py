"""Differences of features to weights: the optimum, to the digits, whatever the chunks and the type."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from palaestra.errors import InputError
from palaestra.rewards.judged import linear
from palaestra.rewards.judged.linear import fit_differences


def decided(rng: np.random.Generator, count: int, columns: int) -> np.ndarray:
    """Differences whose sign follows Bradley-Terry with weights that fall off."""
    truth = 2.0 / (1 + np.arange(columns))
    gap = rng.normal(size=(count, columns))
    return gap * np.where(rng.random(count) < 1 / (1 + np.exp(-gap @ truth)), 1.0, -1.0)[:, None]


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_optimum_that_scipy_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "CHUNK", 64)
    monkeypatch.setattr(linear, "ENOUGH", 16)  # most steps are steered by a part of the rows
    rng = np.random.default_rng(seed)
    gap, margin, weight = decided(rng, 500, 4), rng.uniform(0, 1, 500), rng.integers(0, 3, 500).astype(float)

    def loss(w: np.ndarray) -> float:
        return float((weight * np.logaddexp(0, margin - gap @ w)).sum() / weight.sum() + 0.01 / 2 * w @ w)

    found = fit_differences(gap, margin=margin, weight=weight, ridge=0.01)
    other = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-9}).x
    np.testing.assert_allclose(found, other, atol=1e-6)
    doubled = np.repeat(gap, weight.astype(int), axis=0)
    again = fit_differences(doubled, margin=np.repeat(margin, weight.astype(int)), ridge=0.01)
    np.testing.assert_allclose(found, again, atol=1e-9)
    single = fit_differences(gap.astype(np.float32), margin=margin, weight=weight, ridge=0.01)
    np.testing.assert_allclose(found, single, atol=1e-4)


def test_what_separates_perfectly_ends_by_the_ridge() -> None:
    found = fit_differences(np.array([[1.0, 0.0], [2.0, 0.0]]), ridge=1e-3)
    assert 3 < found[0] < 10
    assert found[1] == 0


def test_nothing_to_learn_from_is_said() -> None:
    with pytest.raises(InputError, match="no pair"):
        fit_differences(np.zeros((0, 2)))
    with pytest.raises(InputError, match="no pair"):
        fit_differences(np.ones((3, 2)), weight=np.zeros(3))
    with pytest.raises(InputError, match="not finite"):
        fit_differences(np.array([[1.0], [np.nan]]))
