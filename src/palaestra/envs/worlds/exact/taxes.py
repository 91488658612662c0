"""Income taxes: marginal rates over brackets, rates by Saez's formula, incomes that are distributed as in the U.S."""

from __future__ import annotations

import numpy as np

from palaestra.errors import InputError

BRACKETS = (0.0, 11.6, 47.15, 100.525)
"""Where brackets begin, in thousands (U.S. 2024, the last three joined)."""
GB2 = (72.40278, 2.0721, 0.48652, 1.14104)
"""μ in thousands, σ, ν and τ of a distribution of U.S. incomes, as LLM Economist [102] draws skills from."""


def bracket_tax(income: np.ndarray, brackets: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Tax on array `income`, Σ_j τ_j (min(z, b_{j+1}) - b_j)⁺: marginal `rates` τ between arrays of lower ends b.

    Args:
        income: float[...], in the unit of the brackets.
        brackets: Lower ends, rising, float[brackets].
        rates: Marginal rates from 0 to 1, float[brackets].

    >>> rates = np.array([0.10, 0.12, 0.22, 0.24])
    >>> bracket_tax(np.array([30.0, 80.0, 200.0]), np.array(BRACKETS), rates).round(4).tolist()
    [3.368, 12.653, 41.0425]
    """
    z = np.asarray(income, float)[..., None]
    return np.asarray((np.clip(z - brackets, 0.0, np.diff(brackets, append=np.inf)) * rates).sum(-1))


def saez_rate(a: float, elasticity: float, weight: float) -> float:
    """Optimal marginal tax rate (Saez 2001), (1 - G) / (1 - G + a ε): tail thickness `a`, `elasticity` ε, `weight` G.

    Args:
        a: Thickness of the tail, z f(z) / (1 - F(z)).
        elasticity: ε of income with respect to 1 - τ.
        weight: G, the mean welfare weight of incomes above z, where the mean of all is 1.

    >>> round(saez_rate(1.5, 0.25, 0.4), 5)
    0.61538
    """
    return (1.0 - weight) / (1.0 - weight + a * elasticity)


def saez_rates(income: np.ndarray, brackets: np.ndarray, elasticity: float, width: float = 0.25) -> np.ndarray:
    """Optimal marginal tax rate of each bracket, `saez_rate` with `elasticity` at its mean income, float64[brackets].

    0 for a bracket without incomes.

    Welfare weights are in proportion to 1 / max(z, 1); the density at z is the share of people within `width` · z.

    Raises:
        InputError: The elasticity is not above 0.
    """
    if not elasticity > 0:
        raise InputError(f"saez_rates: elasticity={elasticity} must be above 0")
    weights = 1.0 / np.maximum(income, 1.0)
    place = np.digitize(income, brackets) - 1
    found = np.zeros(len(brackets))
    for bracket in range(len(brackets)):
        if not (place == bracket).any():
            continue
        z = income[place == bracket].mean()
        above = income >= z
        density = (np.abs(income - z) < width * z).mean() / (2 * width * z)
        found[bracket] = saez_rate(
            z * density / above.mean(), elasticity, min(1.0, weights[above].mean() / weights.mean())
        )
    return found


def inequality(income: np.ndarray) -> float:
    """Gini coefficient of incomes, Σ_ij |z_i - z_j| / (2 n² mean); 0 if nobody earns anything.

    >>> inequality(np.array([10.0, 20.0, 30.0])).__round__(3)
    0.222
    """
    mean = income.mean()
    return float(np.abs(income[:, None] - income).mean() / (2 * mean)) if mean > 0 else 0.0


def gb2(rng: np.random.Generator, size: int, parameters: tuple[float, float, float, float] = GB2) -> np.ndarray:
    """Random incomes float64[size] of the generalised beta distribution of the second kind, μ (B / (1 - B))^(1/σ).

    B is drawn from Beta(ν, τ).
    """
    mu, sigma, nu, tau = parameters
    beta = np.clip(rng.beta(nu, tau, size), 1e-6, 1 - 1e-6)
    return np.asarray(mu * (beta / (1 - beta)) ** (1 / sigma))
