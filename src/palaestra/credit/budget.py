"""Budgets: how many rollouts a task deserves and which policy should answer it, from predicted chances of success.

The prediction is made before anything is played, from examples of what a policy solved. Left out: the published value
model (an adapter on text embeddings and a pretrained tabular network, whose weights it needs); `ValueAtStart` has its
interface and its loss with a linear or a kernel predictor, or takes any classifier in its place.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Literal, Protocol

import numpy as np
import scipy

from palaestra.credit.decomposition import pairwise_logistic
from palaestra.errors import InputError, nearest

Utility = Callable[[float, int], float | np.ndarray]
"""Worth of so many rollouts for a task of this chance of success."""


def mixed_group_probability(p: np.ndarray | float, rollouts: np.ndarray | int) -> np.ndarray:
    """Chance 1 - p^B - (1 - p)^B that a group of B rollouts has successes and failures, so that it teaches.

    >>> mixed_group_probability(0.1, np.array([2, 4, 8, 16])).round(4)
    array([0.18  , 0.3438, 0.5695, 0.8147])
    """
    p, number = np.asarray(p, float), np.asarray(rollouts)
    return np.where(number < 2, 0.0, 1 - p**number - (1 - p) ** number)


def rare_success(p: float, rollouts: int) -> float:
    """Utility of `rollouts` = B for a task of success chance p: V₀'s B·(1 - p)·(1 - (1 - p)^(B - 1)).

    arXiv 2602.03584; from secondary text.
    """
    return rollouts * (1 - p) * (1 - (1 - p) ** (rollouts - 1))


def allocate_budget(
    p: np.ndarray, total: int, *, minimum: int = 2, utility: Utility = mixed_group_probability
) -> np.ndarray:
    """Rollouts per task of success chance `p`, int64: `minimum` each, then next where one adds most, `total` in all.

    Where one adds the same, as to tasks that are surely solved, they are shared out evenly.

    Best possible if each further rollout of a task adds less than the one before, as it does for the default from 2 on.

    Raises:
        InputError: p is not a chance, the minimum is negative, or the total less than the minimum for all.

    >>> allocate_budget(np.array([0.05, 0.2, 0.5, 0.95]), 32)
    array([9, 9, 5, 9])
    """
    chances = np.asarray(p, float)
    wrong = chances[~((chances >= 0) & (chances <= 1))]
    if len(wrong):
        raise InputError(f"allocate_budget: p must be chances in [0, 1], found {wrong[:3]}")
    if minimum < 0:
        raise InputError(f"allocate_budget: minimum={minimum} is negative")
    if total < minimum * len(chances):
        raise InputError(f"allocate_budget: {total} rollouts are less than {minimum} for each of {len(chances)} tasks")
    counts = np.full(len(chances), minimum)

    def gain(task: int) -> float:
        chance, number = float(chances[task]), int(counts[task])
        return float(utility(chance, number) - utility(chance, number + 1))  # negative: the heap gives the smallest

    heap = [(gain(task), minimum, task) for task in range(len(chances))]  # of equal gains, the least counted first
    heapq.heapify(heap)
    for _ in range(total - minimum * len(chances) if heap else 0):
        task = heap[0][-1]
        counts[task] += 1
        heapq.heapreplace(heap, (gain(task), int(counts[task]), task))
    return counts


def route(p: np.ndarray, cost: np.ndarray, *, beta: float = 0.5) -> np.ndarray:
    """Index of the policy with the highest β·p + (1 - β)·(1 - cost) for each task, int64[tasks].

    p: float64[tasks, policies]. cost: float64[policies], in [0, 1].

    Raises:
        InputError: p and cost do not match, or one of them is not in [0, 1].

    >>> route(np.array([[0.9, 0.8], [0.9, 0.2]]), np.array([1.0, 0.1]), beta=0.6)
    array([1, 0])
    """
    p, cost = np.asarray(p, float), np.asarray(cost, float)
    if p.ndim != 2 or cost.shape != p.shape[1:]:
        raise InputError(
            f"route: p {p.shape} and cost {cost.shape}; give a chance per task and policy, a cost per policy"
        )
    if not all(((each >= 0) & (each <= 1)).all() for each in (p, cost)):
        raise InputError("route: a chance or a cost is not in [0, 1]; divide costs by the largest")
    return np.asarray((beta * p + (1 - beta) * (1 - cost)).argmax(axis=1))


class Classifier(Protocol):
    """Protocol of a classifier, as in scikit-learn: `fit(features, labels)`, `predict_proba` -> float64[m, 2].

    TabPFN's is one, too.
    """

    def fit(self, features: np.ndarray, labels: np.ndarray) -> Any:
        """Learn from a context of examples: features float64[n, d], labels int64[n]."""

    def predict_proba(self, features: np.ndarray) -> np.ndarray:
        """Probabilities of the classes 0 and 1, float64[m, 2]."""


class ValueAtStart:
    """Model of the chance that a policy solves a task, fitted to its history at tasks ([98] V₀, arXiv 2602.03584).

    loss = pairwise · (mean of -log σ(logit_success - logit_failure) over pairs of the context) + (1 - pairwise) · cross
    entropy + ridge · |w|²/(2n). Labels are hardened at 1/2. Pairs are formed inside one context only: between
    contexts a model could rank policies in place of tasks. As a baseline: reward - the prediction.

    Args:
        kernel: "linear" in the features, or "rbf": in the functions exp(-|x - c|²/(2·width²)) of the context's tasks c,
            with |w|² the norm in their space. width: default the median distance of two tasks.
        classifier: makes a classifier that takes the place of loss and kernel, e.g. `tabpfn.TabPFNClassifier`, which
            the paper uses (behind an adapter on text embeddings) and whose weights are downloaded.
    """

    def __init__(
        self,
        *,
        pairwise: float = 0.25,
        ridge: float = 1.0,
        kernel: Literal["linear", "rbf"] = "linear",
        width: float | None = None,
        classifier: Callable[[], Classifier] | None = None,
    ) -> None:
        if not 0 <= pairwise <= 1 or ridge <= 0 or (width is not None and width <= 0):
            raise InputError(
                f"ValueAtStart: pairwise={pairwise} must lie in [0, 1], ridge={ridge} and width={width} above 0"
            )
        if kernel not in ("linear", "rbf"):
            raise InputError(f"ValueAtStart: kernel={kernel!r}{nearest(str(kernel), ['linear', 'rbf'])}")
        self.pairwise, self.ridge, self.kernel, self.width = pairwise, ridge, kernel, width
        self.classifier = classifier
        self._predict: Callable[[np.ndarray], np.ndarray] | None = None

    def fit(self, features: np.ndarray, solved: np.ndarray) -> ValueAtStart:
        """Learn from a context: features of tasks, float64[n, d], and the policy's outcome at each, 0 to 1.

        Raises:
            InputError: features and outcomes do not match or are not finite; or the context has one outcome only, which
                says nothing of which tasks are harder: add others.
        """
        shape = np.shape(features)
        if (
            len(shape) != 2
            or shape[0] != len(solved)
            or not all(np.isfinite(each).all() for each in (features, solved))
        ):
            raise InputError(
                f"ValueAtStart.fit: features {shape} for {len(solved)} outcomes; give a row of finite features and an "
                "outcome for each task"
            )
        y = (np.asarray(solved) > 0.5).astype(float)
        if y.min(initial=1) == y.max(initial=0):
            raise InputError(f"ValueAtStart.fit: all {len(y)} outcomes are alike; add tasks that came out otherwise")
        if self.classifier is not None:
            model = self.classifier()
            model.fit(features, y.astype(int))
            self._predict = lambda x: np.asarray(model.predict_proba(x)[:, 1], float)
            return self
        expand = self._rbf(features) if self.kernel == "rbf" else np.asarray
        weights = self._weights(expand(features), y)
        self._predict = lambda x: _chance(expand(x) @ weights[:-1] + weights[-1])
        return self

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Chance of success at each task, float64[m].

        Raises:
            InputError: it was not fitted.
        """
        if self._predict is None:
            raise InputError("ValueAtStart.predict: not fitted; call fit() with tasks and their outcomes first")
        return self._predict(features)

    def _rbf(self, context: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Features whose inner products are the kernel: K(x, C)·L⁻ᵀ, K(C, C) = L·Lᵀ (but for 1e-6 on its diagonal)."""
        width = self.width or float(np.median(scipy.spatial.distance.pdist(context))) or 1.0

        def kernel(x: np.ndarray) -> np.ndarray:
            return np.asarray(np.exp(-scipy.spatial.distance.cdist(x, context, "sqeuclidean") / (2 * width**2)))

        root = np.linalg.cholesky(kernel(context) + 1e-6 * np.eye(len(context)))
        return lambda x: np.asarray(np.linalg.solve(root, kernel(x).T).T)

    def _weights(self, features: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Of every feature, and the constant last."""
        x, one = np.hstack([features, np.ones((len(features), 1))]), np.zeros(len(y), int)

        def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
            logit = x @ w
            pairs, slope = pairwise_logistic(logit, y, one)
            entropy = float(np.mean(np.logaddexp(0, logit) - y * logit))
            gradient = self.pairwise * slope + (1 - self.pairwise) * (_chance(logit) - y) / len(y)
            shrunk = self.ridge / len(y) * np.append(w[:-1], 0.0)
            value = self.pairwise * pairs + (1 - self.pairwise) * entropy + float(shrunk @ w) / 2
            return value, x.T @ gradient + shrunk

        return np.asarray(scipy.optimize.minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x)


def _chance(logit: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-np.clip(logit, -700, 700))))
