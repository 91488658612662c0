"""`QTablePolicy`: the worth of each action in each state, acted on greedily but for some exploration.

The learner `q_learning` writes it. It may act on values that are drawn from what their estimates are sure of. Left out:
other rules of exploration; `tabular` has a softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.special
import torch

from palaestra.agents.tabular import TabularPolicy, padded
from palaestra.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from palaestra.envs.protocol import Observation

GRID = 256
"""Points at which the chances of sampled values are summed."""


class QTablePolicy(TabularPolicy):
    """Q-table policy, ε-greedy: random legal action, or a best one (ties at random); ε falls with updates to `least`.

    ε = max(least, e^(-decay · n)) after n updates. start: worth of what was never tried; a high one makes it try all.
    actions, capacity: as in `TabularPolicy`.

    noise: the greedy action is that of values drawn anew for each decision, normal around the estimates with standard
    deviation noise · √v, as in randomised value functions (arXiv 1402.0635). v is the variance of an estimate from
    outcomes of variance 1: 1 of what was never tried, k²·v + (1 - k)²/n with k = (1 - rate)^n after n outcomes. So a
    constant rate never becomes sure. Sampled values of [214] (arXiv 2508.01287) explore without foresight; that they
    are normal is a reconstruction. 0: the estimates themselves.

    Raises:
        InputError: decay, least or noise is out of range.
    """

    KIND = "q_table"
    SETTINGS: ClassVar[tuple[str, ...]] = ("actions", "name", "capacity", "start", "decay", "least", "noise")

    def __init__(
        self,
        actions: int,
        *,
        name: str = "q_table",
        capacity: int = 4096,
        start: float = 0.0,
        decay: float = 0.02,
        least: float = 0.01,
        noise: float = 0.0,
    ) -> None:
        if not min(decay, noise) >= 0 or not 0 <= least <= 1:
            raise InputError(f"QTablePolicy: {decay=} and {noise=} must be at least 0, least={least} in [0, 1]")
        super().__init__(actions, name=name, capacity=capacity)
        self.noise = float(noise)
        self.start, self.decay, self.least = float(start), float(decay), float(least)
        self.module.requires_grad_(False)  # gradients leave it alone
        self.module.double()
        self.module.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        if noise:
            self.module.register_buffer("sureness", torch.zeros(capacity, actions, dtype=torch.float64))

    @property
    def epsilon(self) -> float:
        """Current ε, the probability of an action drawn uniformly from the legal ones."""
        return max(self.least, float(np.exp(-self.decay * int(self.module.get_buffer("updates")))))

    def places(self, keys: Sequence[int]) -> np.ndarray:
        """Row numbers of states by their keys, int64[states]; a new state gets a row."""
        met = len(self._places)
        found = np.array([self._places.setdefault(key, len(self._places)) for key in keys], np.int64)
        self._make_room(len(self._places))
        self._table[met : len(self._places)] = 0.0
        if self.noise:
            self._sureness[met : len(self._places)] = 0.0
        return found

    @property
    def _sureness(self) -> np.ndarray:
        """1 - v of every pair, float64[capacity, actions]: the buffer's own memory."""
        return self.module.get_buffer("sureness").numpy()

    def _resize(self, capacity: int) -> None:
        super()._resize(capacity)
        if self.noise:
            self.module.register_buffer("sureness", padded(self.module.get_buffer("sureness"), capacity))

    @property
    def _table(self) -> np.ndarray:
        """Worth less `start`, float64[capacity, actions]: the tensor's own memory."""
        return self.module.get_parameter("logits").numpy()

    def values(self, places: np.ndarray) -> np.ndarray:
        """Value of every action in the states of these rows, float64[states, actions]."""
        return np.asarray(self._table[places] + self.start)

    def learn(self, places: np.ndarray, actions: np.ndarray, targets: np.ndarray, rate: float) -> None:
        """Move values of (state, action) pairs towards `targets`, float64[n], by the learning rate `rate`.

        Equal pairs count as if they came one after the other: n of them leave (1 - rate)^n of what was there, and the
        rest is their mean. So nothing depends on the order of rows.
        """
        distinct, of, count = np.unique(places * self.actions + actions, return_inverse=True, return_counts=True)
        mean = np.bincount(of, targets - self.start) / count
        flat, left = self._table.reshape(-1), (1 - rate) ** count
        flat[distinct] += (1 - left) * (mean - flat[distinct])
        if self.noise:
            sure = self._sureness.reshape(-1)
            sure[distinct] = 1 - left**2 * (1 - sure[distinct]) - (1 - left) ** 2 / count

    def count(self) -> None:
        """Count one more update, which reduces exploration."""
        self.module.get_buffer("updates").add_(1)

    def _distribution(self, observations: Sequence[Observation]) -> tuple[np.ndarray, np.ndarray]:
        every = np.ones(self.actions, bool)
        legal = np.array([every if o.mask is None else o.mask for o in observations], bool)
        chances = self._explored([o.key() for o in observations], legal)
        with np.errstate(divide="ignore"):
            return chances, np.where(chances > 0, np.log(chances), 0.0)

    def _explored(self, keys: list[int], legal: np.ndarray) -> np.ndarray:
        """Probability of each action in the states of these keys, float64[n, actions]."""
        worth = np.where(legal, self._known(keys).numpy(), -np.inf)
        if self.noise:
            known = np.array([key in self._places for key in keys])[:, None]
            sure = self._sureness[[self._places.get(key, 0) for key in keys]] * known
            best = _largest(worth, self.noise * np.sqrt(np.maximum(1 - sure, 1e-12)))
        else:
            best = (worth == worth.max(axis=1, keepdims=True)).astype(float)
        chances = (1 - self.epsilon) * best / best.sum(1, keepdims=True)
        chances += self.epsilon * legal / legal.sum(1, keepdims=True)
        return np.asarray(chances)

    def logits(self, observations: Sequence[Observation]) -> torch.Tensor:
        """Logarithms of the probabilities, [observations, actions]."""
        return torch.from_numpy(np.log(np.maximum(self._distribution(observations)[0], 1e-12)))

    def logits_of_rows(self, rows: pl.DataFrame) -> torch.Tensor:
        """Logarithms of the probabilities for rows of a table, [rows, actions], by what is legal in each."""
        chances = self._explored(rows["state"].to_list(), self._legal_of_rows(rows))
        return torch.from_numpy(np.log(np.maximum(chances, 1e-12)))


def _largest(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """P(a draws the largest) = ∫ f_a Π_{b≠a} F_b of normal values, float64[n, actions], over a's quantiles."""
    draws = scipy.special.ndtri((np.arange(GRID) + 0.5) / GRID)
    points = mean[:, :, None] + deviation[:, :, None] * draws
    with np.errstate(invalid="ignore"):
        below = scipy.special.ndtr((points[:, :, None] - mean[:, None, :, None]) / deviation[:, None, :, None])
    own = np.eye(mean.shape[1], dtype=bool)[None, :, :, None]
    found = np.where(own, 1.0, below).prod(axis=2).mean(axis=2)
    return np.asarray(np.where(np.isfinite(mean), found, 0.0))
