"""The value of leaving a decision to a person: the off-switch game (arXiv 1611.08219).

A robot believes that its action is worth U. It acts (U), switches itself off (0), or waits for a human who allows the
action or switches the robot off. The incentive to wait is Δ = E[U · P(allow | U)] - max(E[U], 0).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from palaestra.errors import InputError

ACTIONS = ("act", "off", "wait")


def allowed(utility: np.ndarray | float, error: float = 0.0) -> np.ndarray:
    """Probability that a human allows an action of utility U: σ(U / error), or if `error` is 0 (default) U > 0.

    error: β, in units of utility. 0 is a rational human, who allows what is worth more than 0.

    >>> allowed(np.array([-1.0, 0.0, 1.0]), 1.0).round(3).tolist()
    [0.269, 0.5, 0.731]

    Raises:
        InputError: error is negative.
    """
    if not error >= 0:
        raise InputError(f"allowed: error={error} must be at least 0")
    u = np.asarray(utility, float)
    if error == 0:
        return np.asarray((u > 0).astype(float))
    return np.asarray(scipy.special.expit(u / error))


class Deference(NamedTuple):
    """Data of the expected values of three robot actions in the off-switch game: act, switch off, wait for the human.

    Attributes:
        act: E[U].
        off: 0.
        wait: E[U · P(allow | U)].
    """

    act: float
    off: float
    wait: float

    @property
    def incentive(self) -> float:
        """Incentive to defer, Δ: value of waiting beyond the better of acting and switching off."""
        return self.wait - max(self.act, self.off)

    @property
    def best(self) -> str:
        """The action of largest value, "act", "off" or "wait"; wait only if it adds something."""
        if self.incentive > 1e-12:
            return "wait"
        return "act" if self.act > self.off else "off"


def deference_value(samples: np.ndarray, p_allow: np.ndarray) -> Deference:
    """`Deference` (values of act, off, wait) by array `samples` of the utility and array `p_allow`, P(allow) of each.

    Args:
        samples: draws of U from the robot's belief, float64[n].
        p_allow: P(allow | U) of each draw, float64[n].

    >>> deference_value(np.array([-1.0, 1.0]), np.array([0.0, 1.0])).incentive
    0.5

    Raises:
        InputError: no samples, another number of probabilities, or one outside [0, 1].
    """
    u, p = np.asarray(samples, float), np.asarray(p_allow, float)
    if not u.size or u.shape != p.shape or not np.isfinite(u).all() or not ((p >= 0) & (p <= 1)).all():
        raise InputError(f"deference_value: {u.size} finite samples need as many probabilities in [0, 1], not {p.size}")
    return Deference(float(u.mean()), 0.0, float((u * p).mean()))


def gaussian_deference(mean: float, spread: float, error: float = 0.0, *, points: int = 2001) -> Deference:
    """`Deference` (values of act, off, wait) under the belief U ~ N(mean, spread²) and human error `error`.

    With a rational human waiting is worth mean·Φ(mean / spread) + spread·φ(mean / spread), in closed form; otherwise
    the expectation is a sum over `points` quantiles of the belief with their exact weights.

    >>> [round(gaussian_deference(0.0, 1.0, error).incentive, 4) for error in (0.0, 0.5, 1.0)]
    [0.3989, 0.3029, 0.2066]

    Raises:
        InputError: spread is negative.
    """
    if not spread >= 0:
        raise InputError(f"gaussian_deference: spread={spread} must be at least 0")
    if error == 0 and spread > 0:
        z = mean / spread
        wait = mean * scipy.stats.norm.cdf(z) + spread * scipy.stats.norm.pdf(z)
        return Deference(mean, 0.0, float(wait))
    z = np.linspace(-8, 8, points)  # type: ignore[assignment]
    weights = scipy.stats.norm.pdf(z)
    u = mean + spread * z
    return Deference(mean, 0.0, float((u * allowed(u, error) * weights).sum() / weights.sum()))
