"""Experimental design: generative models, beliefs about their parameters, and what a design is expected to teach.

The models are those of BoxingGym (kanishkg/boxing-gym) that need no language model. A belief is a set of weighted
particles, so one code serves grids (low dimensions) and samples (high ones). Priors, constants and noise
of location finding, dugongs, peregrines and item response are those of its code. Ours differ in two: the death process
keeps all θ above 0 (the code cuts off at 2 as well), and the discounting offers 100 later, with α 0.1 away from 0.
Left out: the two models whose subject is a language model, Lotka-Volterra, survival.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import scipy

from palaestra.errors import InputError


class DesignModel(Protocol):
    """Protocol of a statistical model for experimental design: `sample` parameters, `simulate`, `loglik`, `mean`.

    Parameters float64[..., d], designs are rows of `designs` float64[n, k].

    outcomes: all outcomes if they are finitely many, else None.
    """

    designs: np.ndarray
    outcomes: np.ndarray | None

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Parameters from the prior, float64[n, d]."""

    def simulate(self, theta: np.ndarray, design: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One simulated outcome of a design per row of theta."""

    def loglik(self, y: np.ndarray, theta: np.ndarray, design: np.ndarray) -> np.ndarray:
        """Log p(y | theta, design); y broadcasts against theta[..., 0]."""

    def mean(self, theta: np.ndarray, design: np.ndarray) -> np.ndarray:
        """Expected outcome E[y | theta, design]."""


@dataclass(frozen=True)
class ParticleBelief:
    """Data of a belief as weighted particles: theta float64[particles, d], weights float64[particles] summing to 1."""

    theta: np.ndarray
    weights: np.ndarray

    def update(self, model: DesignModel, design: np.ndarray, y: float) -> ParticleBelief:
        """The posterior after an outcome, by Bayes' rule.

        Raises:
            InputError: no particle can explain the outcome.
        """
        logs = np.log(np.maximum(self.weights, 1e-300)) + model.loglik(np.array(y), self.theta, design)
        if not np.isfinite(logs.max()):
            raise InputError(f"Belief: no particle explains the outcome {y} of design {design}; take more particles")
        weights = np.exp(logs - logs.max())
        return ParticleBelief(self.theta, weights / weights.sum())

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Random parameters from the belief, float64[*shape, d]."""
        cumulated = self.weights.cumsum()
        return np.asarray(self.theta[np.searchsorted(cumulated, rng.random(shape) * cumulated[-1])])

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation of each parameter, float64[d]."""
        centred = self.theta - self.weights @ self.theta
        return np.asarray(np.sqrt(self.weights @ centred**2))

    def predict(self, model: DesignModel, design: np.ndarray) -> float:
        """Mean predicted outcome of a design."""
        return float(self.weights @ model.mean(self.theta, design))


def prior(model: DesignModel, particles: int = 2000, seed: int = 0) -> ParticleBelief:
    """A `DesignModel`'s prior as a `ParticleBelief` of equally weighted draws."""
    theta = model.sample(particles, np.random.default_rng(seed))
    return ParticleBelief(theta, np.full(particles, 1 / particles))


class Gain(NamedTuple):
    """Data of an expected information gain: `value` in nats, and its Monte Carlo standard error `se`."""

    value: float
    se: float


def eig(
    model: DesignModel,
    design: np.ndarray,
    posterior: ParticleBelief,
    N: int = 1000,
    M: int = 200,
    *,
    correct: bool = True,
    seed: int = 0,
) -> Gain:
    """Expected information `Gain` (nats, error) of a `DesignModel`'s design, array, by a `ParticleBelief`'s draws.

    By nested Monte Carlo; the error is the standard error of the mean.
    Mean over N of log p(y_n | θ_n) - log mean over M of p(y_n | θ_nm).

    It is too high by about E[var_m p / (2 M p̄²)]; `correct` subtracts an estimate of that. The published setting is
    M=10, correct=False, which is too high by as much as half.
    """
    rng = np.random.default_rng(seed)
    theta = posterior.draw((N,), rng)
    y = model.simulate(theta, design, rng)
    inner = model.loglik(y[:, None], posterior.draw((N, M), rng), design)
    top = inner.max(axis=1, keepdims=True)
    p = np.exp(inner - top)
    marginal = np.log(p.mean(axis=1)) + top[:, 0]
    gains = model.loglik(y, theta, design) - marginal
    if correct:
        gains = gains - p.var(axis=1, ddof=1) / (2 * M * p.mean(axis=1) ** 2)
    return Gain(float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(N)))


def exact_eig(model: DesignModel, design: np.ndarray, posterior: ParticleBelief) -> float:
    """Exact expected information gain (nats) of a `DesignModel`'s design of finite outcomes by a `ParticleBelief`.

    Raises:
        InputError: the outcomes are not finitely many.
    """
    if model.outcomes is None:
        raise InputError(f"exact_eig: {type(model).__name__} has infinitely many outcomes; use eig")
    logs = model.loglik(model.outcomes[:, None], posterior.theta[None], design)
    p = np.exp(logs)
    marginal = p @ posterior.weights
    entropy = -scipy.special.xlogy(marginal, marginal).sum()
    return float(entropy + posterior.weights @ scipy.special.xlogy(p, p).sum(axis=0))


def gains(model: DesignModel, posterior: ParticleBelief, *, N: int = 300, M: int = 200, seed: int = 0) -> np.ndarray:
    """Expected information gain (nats) of each design of a `DesignModel` by a `ParticleBelief`: array, exact or `eig`.

    Exact if the outcomes are finitely many.
    """
    if model.outcomes is not None:
        return np.array([exact_eig(model, design, posterior) for design in model.designs])
    return np.array([eig(model, design, posterior, N, M, seed=seed).value for design in model.designs])


def standardise_error(errors: np.ndarray, null: np.ndarray) -> np.ndarray:
    """Errors standardised by a baseline's errors `null`, (errors - mean) / sd, elementwise; below 0 is better.

    >>> standardise_error(np.array([1.0, 3.0]), np.array([2.0, 4.0])).tolist()
    [-2.0, 0.0]
    """
    return np.asarray((np.asarray(errors, float) - np.mean(null)) / max(float(np.std(null)), 1e-9))


# -- models -----------------------------------------------------------------------------------------------------------


class _Gaussian:
    """Outcomes with normal noise around `mean`."""

    outcomes: np.ndarray | None = None
    noise: float
    mean: Callable[[np.ndarray, np.ndarray], np.ndarray]

    def simulate(self, theta: np.ndarray, design: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Mean plus noise."""
        centre = self.mean(theta, design)
        return np.asarray(rng.normal(centre, self.noise))

    def loglik(self, y: np.ndarray, theta: np.ndarray, design: np.ndarray) -> np.ndarray:
        """Normal density."""
        z = (y - self.mean(theta, design)) / self.noise
        return np.asarray(-0.5 * z**2 - np.log(self.noise * np.sqrt(2 * np.pi)))


class _Choice:
    """Outcomes 0 and 1, `mean` is the chance of 1."""

    outcomes: np.ndarray | None = np.array([0.0, 1.0])
    mean: Callable[[np.ndarray, np.ndarray], np.ndarray]

    def simulate(self, theta: np.ndarray, design: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A coin."""
        p = self.mean(theta, design)
        return np.asarray((rng.random(p.shape) < p).astype(float))

    def loglik(self, y: np.ndarray, theta: np.ndarray, design: np.ndarray) -> np.ndarray:
        """Bernoulli."""
        p = np.clip(self.mean(theta, design), 1e-12, 1 - 1e-12)
        return np.asarray(np.where(y == 1, np.log(p), np.log1p(-p)))


class Linear(_Gaussian):
    """Experimental design model y = θ x + N(0, 1) noise, θ ~ N(0, 1); its EIG is known, ½ ln(1 + x²)."""

    noise = 1.0
    designs = np.linspace(0, 4, 9)[:, None]

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draws of θ from the prior, float64[n, 1]."""
        return np.asarray(rng.normal(size=(n, 1)))

    def mean(self, theta: np.ndarray, design: np.ndarray) -> np.ndarray:
        """Expected outcome θ x."""
        return np.asarray(theta[..., 0] * design[0])


class DeathProcess:
    """Experimental design model of infections at time t: y ~ Binomial(50, 1 - e^(-θ t)); θ ~ N(1, 1) above 0."""

    population = 50
    designs = np.linspace(0.05, 4, 80)[:, None]
    outcomes: np.ndarray | None = np.arange(51.0)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draws of θ from the prior, float64[n, 1], by inverting the distribution function."""
        return np.asarray(scipy.stats.truncnorm.ppf(rng.random((n, 1)), -1, np.inf, loc=1, scale=1))

    def grid(self, points: int = 200) -> ParticleBelief:
        """The prior as a `ParticleBelief` on its quantiles."""
        theta = scipy.stats.truncnorm.ppf((np.arange(points) + 0.5) / points, -1, np.inf, loc=1, scale=1)
        return ParticleBelief(theta[:, None], np.full(points, 1 / points))

    def mean(self, theta: np.ndarray, design: np.ndarray) -> np.ndarray:
        """Expected number of infected, 50 (1 - e^(-θ t))."""
        return np.asarray(self.population * -np.expm1(-theta[..., 0] * design[0]))

    def simulate(self, theta: np.ndarray, design: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Binomial draws of the number of infected, one per row of theta."""
        return np.asarray(rng.binomial(self.population, self.mean(theta, design) / self.population).astype(float))

    def loglik(self, y: np.ndarray, theta: np.ndarray, design: np.ndarray) -> np.ndarray:
        """Binomial log-likelihood of the number of infected."""
        return np.asarray(scipy.stats.binom.logpmf(y, self.population, self.mean(theta, design) / self.population))


class Discounting(_Choice):
    """Experimental design model of delay discounting: a person takes an amount at once or waits some days for 100.

    Hyperbolic value 100 / (1 + k days), probit.

    θ = (log k, α): log k ~ N(-4.25, 1.5²), α half-normal(2); errors ε = 0.01.
    """

    designs = np.array([[now, days] for now in (10, 30, 50, 70, 90) for days in (5, 20, 60, 180, 360)], float)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draws of (log k, α) from the prior, float64[n, 2]."""
        return np.column_stack([rng.normal(-4.25, 1.5, n), np.abs(rng.normal(0, 2, n)) + 0.1])

    def mean(self, theta: np.ndarray, design: np.ndarray) -> np.ndarray:
        """Probability of waiting."""
        gap = 100 / (1 + np.exp(theta[..., 0]) * design[1]) - design[0]
        return np.asarray(0.01 + 0.98 * scipy.special.ndtr(gap / theta[..., 1]))


class LocationFinding(_Gaussian):
    """Experimental design model of hidden sources in the plane: signal b + Σ a / (m + |x - s|²), noise 0.5."""

    noise, base, floor, strength = 0.5, 0.1, 1e-4, 1.0
    designs = np.array([[x, y] for x in np.linspace(-2, 2, 5) for y in np.linspace(-2, 2, 5)])

    def __init__(self, sources: int = 3) -> None:
        self.sources = sources

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draws of the sources' places from the prior, standard normal."""
        return np.asarray(rng.normal(size=(n, 2 * self.sources)))

    def mean(self, theta: np.ndarray, design: np.ndarray) -> np.ndarray:
        """Expected signal at the design's place."""
        places = theta.reshape(*theta.shape[:-1], self.sources, 2)
        distance = ((places - design) ** 2).sum(axis=-1)
        return np.asarray(self.base + (self.strength / (self.floor + distance)).sum(axis=-1))


class Dugongs(_Gaussian):
    """Experimental design model of growth: length at an age, α - β |λ|^age, with noise 0.25.

    α ~ N(2, .2²), β ~ N(1.5, .5²), λ ~ N(.4, .5²); of sea cows.
    """

    noise = 0.25
    designs = np.linspace(0, 5, 21)[:, None]

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draws of (α, β, λ) from the prior."""
        return np.asarray(rng.normal([2.0, 1.5, 0.4], [0.2, 0.5, 0.5], (n, 3)))

    def mean(self, theta: np.ndarray, design: np.ndarray) -> np.ndarray:
        """Expected length at the design's age."""
        return np.asarray(theta[..., 0] - theta[..., 1] * np.abs(theta[..., 2]) ** design[0])


class Peregrines:
    """Experimental design model of counts: falcons at time 0 to 5, Poisson with a cubic log rate.

    4.5 + 1.2 t + 0.07 t² - 0.24 t³.

    The coefficients are normal, with standard deviations .1, .1, .01, .05.
    """

    designs = np.linspace(0, 5, 21)[:, None]
    outcomes: np.ndarray | None = None

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draws of the four coefficients from the prior."""
        return np.asarray(rng.normal([4.5, 1.2, 0.07, -0.24], [0.1, 0.1, 0.01, 0.05], (n, 4)))

    def mean(self, theta: np.ndarray, design: np.ndarray) -> np.ndarray:
        """Expected count at the design's time."""
        return np.asarray(np.exp(np.minimum(theta @ design[0] ** np.arange(4), 20)))

    def simulate(self, theta: np.ndarray, design: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Poisson draws of the count, one per row of theta."""
        return np.asarray(rng.poisson(self.mean(theta, design)).astype(float))

    def loglik(self, y: np.ndarray, theta: np.ndarray, design: np.ndarray) -> np.ndarray:
        """Poisson log-likelihood of the count."""
        return np.asarray(scipy.stats.poisson.logpmf(y, self.mean(theta, design)))


class ItemResponse(_Choice):
    """Experimental design model of tests, P(right) = σ(a_j (θ_i - b_j)); a design is a (pupil, question) pair.

    All are standard normal, discriminations too: half of the questions are easier for the weak, as in its code.
    """

    designs = np.array([[i, j] for i in range(6) for j in range(6)], float)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draws of abilities, difficulties and discriminations from the prior, float64[n, 18]."""
        return np.asarray(rng.normal(size=(n, 18)))

    def mean(self, theta: np.ndarray, design: np.ndarray) -> np.ndarray:
        """Probability of a right answer by the two-parameter logistic model."""
        i, j = int(design[0]), int(design[1])
        return np.asarray(scipy.special.expit(theta[..., 12 + j] * (theta[..., i] - theta[..., 6 + j])))


MODELS: dict[str, Callable[[], DesignModel]] = {
    "linear": Linear,
    "death_process": DeathProcess,
    "discounting": Discounting,
    "location_finding": LocationFinding,
    "dugongs": Dugongs,
    "peregrines": Peregrines,
    "item_response": ItemResponse,
}
