"""Descriptors of behaviour: given ones, signatures of paths, and codes of an autoencoder that is fitted on the way."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch

from palaestra.errors import InputError


class Descriptor(Protocol):
    """Protocol of a behaviour descriptor: `encode` float64[n, width] -> float64[n, dimensions], `surprise`, `fit`.

    learns: whether `fit` changes anything; then places must be encoded again.
    """

    learns: bool

    def encode(self, seen: np.ndarray) -> np.ndarray:
        """Descriptors of behaviours."""

    def surprise(self, seen: np.ndarray) -> np.ndarray:
        """Reconstruction error of behaviours, float64[n]; 0 for a descriptor that is not learned."""

    def fit(self, seen: np.ndarray, seed: int) -> float:
        """Train on behaviours; returns the mean error after that."""

    def state_dict(self) -> dict[str, Any]:
        """Learned state of the descriptor."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""


class Given:
    """Identity descriptor: the observed behaviour itself."""

    learns = False

    def encode(self, seen: np.ndarray) -> np.ndarray:
        """The behaviours unchanged."""
        return seen

    def surprise(self, seen: np.ndarray) -> np.ndarray:
        """Zeros, float64[n]."""
        return np.zeros(len(seen))

    def fit(self, seen: np.ndarray, seed: int) -> float:
        """No training; returns 0."""
        return 0.0

    def state_dict(self) -> dict[str, Any]:
        """Empty state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """No effect, since there is no state."""


class Signature(Given):
    """Descriptor: path signature of order 2, with time, of rows that are flattened paths of `width` channels each.

    Args:
        width: channels of a path; what was seen is the path flattened, [n, steps · width].
    """

    def __init__(self, width: int) -> None:
        if width < 1:
            raise InputError(f"Signature: width={width} must be at least 1")
        self.width = width

    def encode(self, seen: np.ndarray) -> np.ndarray:
        """`path_signature` of each row."""
        return path_signature(seen.reshape(len(seen), -1, self.width))


def path_signature(paths: np.ndarray) -> np.ndarray:
    """Path signature of order 2 of piecewise linear paths with time as a further channel: float64[n, c + c²].

    Level 1 are the increments Δ_i over the whole path. Level 2 are the iterated integrals
    S_ij = ∫ (x_i(t) - x_i(0)) dx_j(t) = Σ_t (x_i(t) - x_i(0) + ½ dx_i(t)) dx_j(t), so that S_ij + S_ji = Δ_i Δ_j, and
    (S_ij - S_ji) / 2 is the area between path and chord. Time goes from 0 to 1.

    Args:
        paths: float[n, steps, channels].

    Returns:
        float64[n, c + c²] with c = channels + 1.

    Source: signatures as descriptors, arXiv 2203.01027; the sums are the standard ones of Chen for linear pieces.

    >>> path_signature(np.array([[[0.0], [1.0], [2.0]]])).round(3).tolist()
    [[2.0, 1.0, 2.0, 1.0, 1.0, 0.5]]
    """
    count, steps, _ = paths.shape
    time = np.broadcast_to(np.linspace(0, 1, steps)[None, :, None], (count, steps, 1))
    path = np.concatenate([paths, time], 2)
    change = np.diff(path, axis=1)
    middle = path[:, :-1] - path[:, :1] + change / 2
    second = np.einsum("nti,ntj->nij", middle, change)
    return np.concatenate([change.sum(1), second.reshape(count, -1)], 1)


class Autoencoder:
    """Descriptor: the code of a small autoencoder of behaviours, as in TAXONS, STAX (arXiv 2203.01027, 2111.01919).

    tanh layers inputs → hidden → code → hidden → inputs, trained on squared error with Adam. A share of the rows is
    held out, and the parameters that were best on it stay. The published one is convolutional, on images.

    Args:
        inputs: numbers that are seen.
        code: dimensions of the descriptor.
        hidden: width of the layers around it.
        epochs: most passes of one fit, in batches of `batch`.
        rate: of Adam.
        held_out: share of rows for validation.
        seed: of the first parameters.

    Raises:
        InputError: a number is out of range.
    """

    learns = True

    def __init__(
        self,
        inputs: int,
        *,
        code: int = 10,
        hidden: int = 32,
        epochs: int = 100,
        batch: int = 128,
        rate: float = 0.003,
        held_out: float = 0.2,
        seed: int = 0,
    ) -> None:
        if min(inputs, code, hidden, batch) < 1 or epochs < 0 or not rate > 0 or not 0 <= held_out < 1:
            raise InputError(
                f"Autoencoder: {inputs=}, {code=}, {hidden=} and {batch=} at least 1, {epochs=} not negative, {rate=} "
                f"above 0, {held_out=} in [0, 1)"
            )
        self.epochs, self.batch, self.rate, self.held_out = epochs, batch, rate, held_out
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layer = torch.nn.Linear
            self.encoder = torch.nn.Sequential(layer(inputs, hidden), torch.nn.Tanh(), layer(hidden, code))
            self.decoder = torch.nn.Sequential(layer(code, hidden), torch.nn.Tanh(), layer(hidden, inputs))
        self.whole = torch.nn.Sequential(self.encoder, self.decoder).double()

    def encode(self, seen: np.ndarray) -> np.ndarray:
        """Codes of behaviours, float64[n, code]."""
        with torch.no_grad():
            found: np.ndarray = self.encoder(torch.from_numpy(seen)).numpy()
        return found

    def surprise(self, seen: np.ndarray) -> np.ndarray:
        """Mean squared reconstruction error of each behaviour, float64[n]."""
        with torch.no_grad():
            x = torch.from_numpy(seen)
            found: np.ndarray = ((self.whole(x) - x) ** 2).mean(1).numpy()
        return found

    def fit(self, seen: np.ndarray, seed: int) -> float:
        """Train on behaviours; returns the mean squared error on the rows held out, or on all if none is."""
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(seen))
        held = seen[order[: int(self.held_out * len(seen))]]
        train = torch.from_numpy(seen[order[len(held) :]])
        judge = held if len(held) else seen
        best, kept = float(self.surprise(judge).mean()), _copy(self.whole)
        optimiser = torch.optim.Adam(self.whole.parameters(), self.rate)
        for _epoch in range(self.epochs):
            for rows in torch.from_numpy(rng.permutation(len(train))).split(self.batch):
                optimiser.zero_grad()
                loss = ((self.whole(train[rows]) - train[rows]) ** 2).mean()
                loss.backward()
                optimiser.step()
            error = float(self.surprise(judge).mean())
            if error < best:
                best, kept = error, _copy(self.whole)
        self.whole.load_state_dict(kept)
        return best

    def state_dict(self) -> dict[str, Any]:
        """Copy of the parameters."""
        return _copy(self.whole)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.whole.load_state_dict(state)


def _copy(module: torch.nn.Module) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}
