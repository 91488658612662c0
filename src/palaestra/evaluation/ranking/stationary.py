"""Stationary distributions of Markov chains, also of chains that hardly ever leave a state.

Left out: sparse and iterative solvers.
"""

from __future__ import annotations

import numpy as np
import scipy

from palaestra.errors import InputError

_BLOCK = 24


def stationary_distribution(log_rates: np.ndarray) -> np.ndarray:
    """Stationary distributions float64[..., n] of Markov chains of log rates [..., n, n]; raises if one is not unique.

    By elimination without subtraction (Grassmann, Taksar & Heyman 1985): every entry is right to about machine
    precision, however small, where eigenvectors fail. Rates that underflow are eliminated in logarithms, if there is
    more than one closed class without them. The diagonal is ignored; scaling all rates changes nothing.

    Raises:
        InputError: there are several closed classes even so (a log rate of -inf is an impossible step).

    >>> stationary_distribution(np.log([[1.0, 0.2], [0.6, 1.0]])).round(12).tolist()
    [0.75, 0.25]
    """
    log_rates = np.array(log_rates, float)
    n = log_rates.shape[-1]
    if n == 1:
        return np.ones(log_rates.shape[:-1])
    log_rates[..., np.arange(n), np.arange(n)] = -np.inf
    batch = log_rates.reshape(-1, n, n)
    rates = np.exp(batch - np.maximum(batch.max(axis=(1, 2), keepdims=True), -1e300))
    result = np.empty(batch.shape[:2])
    whole = (rates > 0).sum(axis=(1, 2)) == n * (n - 1)
    if whole.any():
        result[whole] = _eliminate(rates[whole])
    for i in np.flatnonzero(~whole):
        closed = _closed(rates[i])
        if len(closed) == 1:
            result[i] = 0.0
            result[i, closed[0]] = _eliminate(rates[i][np.ix_(closed[0], closed[0])][None])[0]
            continue
        closed = _closed(np.isfinite(batch[i]))
        if len(closed) != 1:
            raise InputError(
                f"stationary_distribution: the chain has {len(closed)} closed classes, so where it ends depends on "
                "where it starts"
            )
        result[i] = 0.0
        result[i, closed[0]] = _eliminate_logs(batch[i][np.ix_(closed[0], closed[0])])
    return result.reshape(log_rates.shape[:-1])


def _closed(rates: np.ndarray) -> list[np.ndarray]:
    """Members of each class that is never left."""
    number, label = scipy.sparse.csgraph.connected_components(scipy.sparse.csr_array(rates > 0), connection="strong")
    out, into = np.nonzero(rates > 0)
    leaves = np.zeros(number, bool)
    leaves[label[out[label[out] != label[into]]]] = True
    return [np.flatnonzero(label == k) for k in np.flatnonzero(~leaves)]


def _eliminate(rates: np.ndarray) -> np.ndarray:
    """rates: float64[b, n, n]. States leave from the last to the first, in blocks so that most is matrix products."""
    rates = rates.copy()
    n = rates.shape[-1]
    for high in range(n, 1, -_BLOCK):
        low = max(high - _BLOCK, 1)
        for k in range(high - 1, low - 1, -1):
            rates[:, :k, k] /= rates[:, k, :k].sum(1)[:, None]
            rates[:, low:k, :k] += rates[:, low:k, k, None] * rates[:, k, None, :k]
            rates[:, :low, low:k] += rates[:, :low, k, None] * rates[:, k, None, low:k]
        rates[:, :low, :low] += rates[:, :low, low:high] @ rates[:, low:high, :low]
    p = np.ones(rates.shape[:2])
    for k in range(1, n):
        p[:, k] = (p[:, :k] * rates[:, :k, k]).sum(1)
        p[:, : k + 1] /= p[:, : k + 1].max(1)[:, None]
    return np.asarray(p / p.sum(1)[:, None])


def _eliminate_logs(a: np.ndarray) -> np.ndarray:
    a = a.copy()
    n = len(a)
    np.fill_diagonal(a, -np.inf)
    for k in range(n - 1, 0, -1):
        a[:k, k] -= np.logaddexp.reduce(a[k, :k])
        a[:k, :k] = np.logaddexp(a[:k, :k], a[:k, k, None] + a[k, None, :k])
    p = np.zeros(n)
    for k in range(1, n):
        p[k] = np.logaddexp.reduce(p[:k] + a[:k, k])
    p = np.exp(p - p.max())
    return np.asarray(p / p.sum())
