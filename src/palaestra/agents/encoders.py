"""Encoders of what an agent saw in its last turns: from a window of observations to a context vector.

A window is float32[rows, steps, 1 + features] as `palaestra.envs.recent` makes it: the newest turn last, each turn
begins with 1, turns before the agent's first one are zeros.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PrefixEncoder(nn.Module):
    """One layer of self-attention over the turns of a window, their mean, and a tanh layer of `size` units.

    Each turn's place counts from the newest one. Turns that were not played take no part.

    Args:
        features: of an observation. steps: turns of a window. size: of the context. width: of the layer.
    """

    def __init__(self, features: int, steps: int, size: int, *, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Linear(features, width)
        self.place = nn.Parameter(0.1 * torch.randn(steps, width))
        self.layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, size)

    def forward(self, windows: Tensor) -> Tensor:
        """[rows, size], each number in (-1, 1); of a window without turns it is no number."""
        present = windows[..., 0] > 0
        units = self.embed(windows[..., 1:]) + self.place
        units = self.layer(units, src_key_padding_mask=~present) * present[..., None]
        return torch.tanh(self.head(units.sum(1) / present.sum(1, keepdim=True)))
