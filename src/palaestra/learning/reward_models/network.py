"""Reward models that are networks: how they are asked in batches of like length, and what a subclass says of itself.

Rows are encoded once (`Inputs`); a batch of tokens is cut where more than `WASTE` of it would be padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from palaestra.errors import InputError, nearest
from palaestra.foundation.progress import Report
from palaestra.learning.reward_models import losses
from palaestra.learning.reward_models.data import Labels, Preferences, series, together
from palaestra.learning.reward_models.fitting import RANKINGS, Fitting, fit
from palaestra.learning.reward_models.reward_model import RewardModel

WASTE = 0.1
"""Most of a batch that may be padding."""


@dataclass
class Inputs:
    """Data: encoded rows: `data`, a tensor or list of token arrays; `known`, which rows could be encoded.

    lengths: tokens of each row; None where all rows are of one size.
    """

    data: Any
    known: np.ndarray
    lengths: np.ndarray | None = None

    @classmethod
    def of_tokens(cls, tokens: list[np.ndarray | None]) -> Inputs:
        """Inputs from the tokens of each row; None: the row is unknown."""
        known = np.array([each is not None for each in tokens], bool)
        return cls(tokens, known, np.array([0 if each is None else len(each) for each in tokens]))

    def padded(self, index: np.ndarray) -> tuple[Tensor, Tensor]:
        """Ids and mask of the rows `index`, [rows, longest], padded on the right."""
        rows = [self.data[i] for i in index]
        lengths = np.array([len(row) for row in rows])
        mask = np.arange(lengths.max(initial=1)) < lengths[:, None]
        ids = np.zeros(mask.shape, np.int64)
        ids[mask] = np.concatenate(rows)
        return torch.from_numpy(ids), torch.from_numpy(mask)


def by_length(lengths: np.ndarray, size: int, waste: float = WASTE) -> Iterator[np.ndarray]:
    """Generator of batches of row positions, longest first, at most `size` rows of like `lengths`, `waste` of padding.

    >>> [part.tolist() for part in by_length(np.array([3, 100, 4, 97, 99]), 3)]
    [[1, 4, 3], [2], [0]]
    """
    order = np.argsort(-lengths, kind="stable")
    start, real = 0, 0
    for at, row in enumerate(order):
        longest = max(int(lengths[order[start]]), 1)
        if at - start == size or (at > start and real + lengths[row] < (1 - waste) * longest * (at - start + 1)):
            yield order[start:at]
            start, real = at, 0
        real += int(lengths[row])
    if len(order):
        yield order[start:]


class NetworkReward(RewardModel):
    """Base class of reward models that are a torch network: fitting, scores, saving; subclasses encode rows.

    learns: losses of pairs, then of labels; the first of each is the default.
    lr, batch, epochs: defaults of `fit`, batch in pairs, rows or groups. scoring: rows at a time.
    """

    learns: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]] = (("bt",), ("regression", "binary", *RANKINGS))
    lr: ClassVar[float] = 1e-3
    batch: ClassVar[int] = 64
    epochs: ClassVar[int] = 1
    scoring: ClassVar[int] = 256
    module: nn.Module | None = None
    padding: float = 0.0
    """Share of the last fit's or scoring's tokens that were padding."""

    # -- what a subclass says -----------------------------------------------------------------------------------------

    def encode(self, rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None) -> Inputs:
        """Encode rows as inputs of the network; abstract."""
        raise NotImplementedError

    def forward(self, inputs: Inputs, index: np.ndarray) -> Tensor:
        """Outputs of the network for these rows: [rows] or [rows, numbers]; abstract."""
        raise NotImplementedError

    def prepare(self, data: Preferences | Labels, seed: int) -> None:
        """Make the network, before it is fitted, if it is not there yet."""

    def both_sides(self, pairs: Preferences) -> Inputs:
        """Encoded rows of both sides: all chosen, then all rejected."""
        return self.encode(*pairs.both())

    def pair_loss(self, chosen: Tensor, rejected: Tensor, **given: Any) -> Tensor:
        """Loss of pairs from the outputs of both sides: Bradley-Terry by default."""
        return losses.bradley_terry_loss(chosen, rejected, **given)

    def values(self, found: Tensor, condition: pl.DataFrame | None) -> Tensor:
        """Scores from the network's outputs, [rows] or [rows, heads]; the outputs themselves by default."""
        return found

    # -- the rest -----------------------------------------------------------------------------------------------------

    def fit(  # type: ignore[override]
        self,
        data: Preferences | Labels,
        *,
        loss: str | None = None,
        epochs: int | None = None,
        lr: float | None = None,
        batch: int | None = None,
        weight_decay: float = 0.0,
        centre: float = 0.0,
        alpha: float = 0.1,
        temperature: float = 2.0,
        seed: int = 0,
        checkpoints: str | Path | None = None,
        every: int = 100,
        progress: bool | Report = False,
    ) -> dict[str, float]:
        """Train by AdamW with a rate that falls to 0; the same seed gives the same model on one device.

        Args:
            data: pairs or labels, whichever the model learns from.
            loss: bt, mixture or token of pairs; regression, binary, or ranknet, listnet, ce inside groups of labels;
                distill: DeAR's [134], labels of two columns, the label and a teacher's score (`distill_rank_loss`).
            epochs: passes over the data.
            lr: learning rate at first.
            batch: pairs or labels of a step.
            weight_decay: of AdamW.
            centre: of Bradley-Terry (`losses.bradley_terry_loss`).
            alpha: weight of distill, see `distill_rank_loss`.
            temperature: of distill, see `distill_rank_loss`.
            seed: of the order of the data.
            checkpoints: a folder; a call with the same data and options goes on from what is there, bit for bit.
            every: steps between two checkpoints.
            progress: whether to say how far it is, or to whom.
        """
        pairs = isinstance(data, Preferences)
        known = self.learns[0 if pairs else 1]
        if not known:
            raise InputError(f"{self.name}: it learns from {'labels' if pairs else 'pairs'} only")
        what = known[0] if loss is None else loss
        if what not in known:
            raise InputError(f"{self.name}: loss={what!r} of {type(data).__name__.lower()}{nearest(what, known)}")
        self.prepare(data, seed)
        options = Fitting(
            what, epochs or self.epochs, self.lr if lr is None else lr, batch or self.batch, weight_decay, centre,
            alpha, temperature, seed,
        )  # fmt: skip
        return fit(self, data, options, folder=checkpoints, every=every, progress=progress)

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """Score of each row, more is better; null where an input is missing."""
        together(rows, reference=reference, condition=condition)
        self.ready()
        inputs = self.encode(rows, reference, condition)
        at = np.flatnonzero(inputs.known)
        with torch.no_grad():
            found = self.outputs(inputs, at, self.scoring)
        given = None if condition is None else condition[at]
        return series(self.name, self.values(found, given).double().numpy(), inputs.known)

    def outputs(self, inputs: Inputs, at: np.ndarray, size: int) -> Tensor:
        """Outputs of `forward` for rows in their order, computed in batches of like length."""
        if not len(at):
            return torch.zeros(0)
        if inputs.lengths is None:
            return torch.cat([self.forward(inputs, at[i : i + size]) for i in range(0, len(at), size)])
        parts = list(by_length(inputs.lengths[at], size))
        cells = sum(len(part) * int(inputs.lengths[at[part[0]]]) for part in parts)
        self.padding = 1 - float(inputs.lengths[at].sum()) / max(cells, 1)
        found = torch.cat([self.forward(inputs, at[part]) for part in parts])
        back = np.empty(len(at), np.int64)
        back[np.concatenate(parts)] = np.arange(len(at))
        return found[torch.from_numpy(back)]

    def ready(self) -> nn.Module:
        """The network; raises InputError if there is none yet.

        Raises:
            InputError: there is none yet.
        """
        if self.module is None:
            raise InputError(f"{self.name}: it has learned nothing yet; call fit first")
        return self.module

    def offset(self) -> nn.Parameter | None:
        """The parameter that adds a constant to all scores, if any; losses of differences do not move it."""
        return None

    def write(self, folder: Path) -> None:
        """Write model.safetensors."""
        save_file(self.ready().state_dict(), folder / "model.safetensors")

    def read(self, folder: Path) -> None:
        """Inverse of `write`; the network is made from the shapes of its weights."""
        state = load_file(folder / "model.safetensors")
        self.module = self.shaped(state)
        self.module.load_state_dict(state)

    def shaped(self, state: dict[str, Tensor]) -> nn.Module:
        """New network of the shapes of these weights; abstract."""
        raise NotImplementedError
