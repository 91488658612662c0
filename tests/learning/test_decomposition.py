"""LaRe's network decoder and written factors: what is recovered, what is fed back, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.learning.decomposition import NetworkDecomposition


def play(episodes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Factors, episode of each row (shuffled), returns and true step rewards, which are a product of two factors."""
    rng = np.random.default_rng(seed)
    length = rng.integers(3, 9, episodes)
    factors = rng.choice([-1.0, 1.0], (length.sum(), 2))
    episode = np.repeat(np.arange(episodes), length)
    worth = factors.prod(axis=1)
    order = rng.permutation(len(worth))
    return factors[order], episode[order], np.bincount(episode, worth), worth[order]


@pytest.mark.parametrize("method", ["rd", "rrd"])
def test_a_network_finds_step_rewards_that_no_linear_decoder_has(method: str) -> None:
    factors, episode, returns, worth = play(80)
    model = NetworkDecomposition(2, method=method, steps=3, lr=1e-2, seed=1)  # type: ignore[arg-type]
    model.fit(factors, episode, returns, np.random.default_rng(0), updates=400)
    assert np.corrcoef(model.predict(factors), worth)[0, 1] > 0.95
    assert np.abs(np.linalg.lstsq(factors, worth, rcond=None)[0]).max() < 0.1


def test_the_subset_loss_has_the_gradient_of_the_whole_on_average() -> None:
    factors, episode, returns, _ = play(1)

    def step(method: str, seed: int) -> np.ndarray:
        model = NetworkDecomposition(2, hidden=(), method=method, steps=2)  # type: ignore[arg-type]
        model.fit(factors, episode, returns, np.random.default_rng(seed), updates=1)
        return model.network[0].weight.grad.numpy().ravel().copy()

    subsets = np.array([step("rrd", seed) for seed in range(400)])
    error = subsets.std(axis=0, ddof=1) / 20
    assert (np.abs(subsets.mean(axis=0) - step("rd", 0)) < 4 * error + 1e-9).all()


def test_bad_experience_is_named() -> None:
    factors, episode, returns, _ = play(4)
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="and 3 factors; give one row of factors"):
        NetworkDecomposition(3).fit(factors, episode, returns, rng)
    with pytest.raises(InputError, match="some steps per episode"):
        NetworkDecomposition(2).fit(factors, episode, np.append(returns, 1.0), rng)
    with pytest.raises(InputError, match="not finite"):
        NetworkDecomposition(2).fit(factors * np.nan, episode, returns, rng)
    with pytest.raises(InputError, match="did you mean 'rd'"):
        NetworkDecomposition(2, method="r")  # type: ignore[arg-type]
