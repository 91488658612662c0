"""Protocol of a forward pass through a causal language model with a cache, and what all of them share.

A model reads prompts once, then extends them token by token. `Generic` (modules.py) calls any Hugging Face model;
`Llama` (llama.py) walks the weights of Llamas, Mistrals and Qwens in float32 by itself, grouped heads, biases and LoRA
included: the same numbers, but a decoding step costs four fifths, because calls outweigh the arithmetic of small
models. Both can read every distinct prompt once, however many rows share it, with and without gradient (512 rows over
12 prompts of 40 tokens: a ninth of the time); both return hidden states, from which a `Head` makes what is asked for;
without gradient both write keys and values in place, and let new rows join those that go on. Left out: tensor
parallelism, quantised and rolling caches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.agents.backends.head import Head
from palaestra.agents.backends.prefix_trees import CALL, Forest, cost

BLIND = -1e30
"""Added to the score of a place that is not to be seen; finite, so that padding may look at padding."""


class State(Protocol):
    """Protocol of a generation state: rows with a cache of the tokens read; `keep(rows)` and `join(other)` in place."""

    joins: bool

    def keep(self, rows: Tensor) -> None:
        """Keep these rows and drop all others."""

    def join(self, other: Self) -> None:
        """Append the rows of `other` to these; without gradient, and if `joins`."""


class Forward(Protocol):
    """Protocol of a causal model's forward pass with cache, which returns hidden states [rows, tokens, width].

    compute: the type in which matrices are multiplied, if not that of the weights; see `precision`.
    shares: whether it can read prefix trees. width: hidden size, by which costs are estimated.
    """

    device: torch.device
    compute: torch.dtype | None

    @property
    def head(self) -> Head:
        """The output head, which maps hidden states to logits."""

    @property
    def shares(self) -> bool:
        """See above."""

    @property
    def width(self) -> int:
        """See above."""

    def read(self, prompts: Sequence[np.ndarray], rows: Tensor, room: int) -> tuple[Tensor, State]:
        """Read `prompts` (ascending in length); row i continues `prompts[rows[i]]` by at most `room` tokens.

        Returns what stands before each row's next token, [rows, 1, width].
        """

    def extend(self, state: State, ids: Tensor) -> Tensor:
        """Append `ids` [rows, tokens]; returns the hidden state after each of them."""

    def whole(self, prompts: Sequence[np.ndarray], rows: Tensor, ids: Tensor) -> Tensor:
        """Hidden state before each of `ids` [rows, tokens], with gradient: [rows, tokens, width]."""

    def trees(self, forest: Forest) -> Tensor:
        """Hidden state after each packed token, with gradient: [sequences, tokens, width]; only if it `shares`."""


def precision(forward: Forward) -> contextlib.AbstractContextManager[Any]:
    """Context manager for a `Forward`'s passes: torch autocast to its `compute` type, or nothing if that is None."""
    compute = getattr(forward, "compute", None)
    return contextlib.nullcontext() if compute is None else torch.autocast(forward.device.type, compute)


def left_pad(sequences: Sequence[np.ndarray], device: torch.device | str) -> tuple[Tensor, Tensor]:
    """Pads numpy id arrays on the left with 0 to tensors: (int64[rows, longest], int64[rows] numbers of zeros)."""
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    width = int(lengths.max())
    padded = np.zeros((len(sequences), width), np.int64)
    padded[np.arange(width) >= (width - lengths)[:, None]] = np.concatenate(sequences)
    return torch.from_numpy(padded).to(device), torch.from_numpy(width - lengths).to(device)


class KeyValueCache:
    """Base class of caches of keys and values: places 0..`length` of every row are used, the first `pad` padding.

    blind: what is added to the scores of places, [rows, 1, 1, places]; None if there is no padding.
    """

    def __init__(self, pad: Tensor, length: int, places: int) -> None:
        self.pad, self.length = pad, length
        self._shade(places)

    def _shade(self, places: int) -> None:
        self.blind: Tensor | None = None
        if bool(self.pad.any()):
            padding = torch.arange(places, device=self.pad.device) < self.pad[:, None]
            self.blind = torch.where(padding, BLIND, 0.0)[:, None, None]

    def places(self, tokens: int) -> Any:
        """Positions of the next `tokens` tokens: a slice, or int64[rows, tokens] where padding differs."""
        if self.blind is None:
            return slice(self.length, self.length + tokens)
        there = torch.arange(self.length, self.length + tokens, device=self.pad.device)
        return (there - self.pad[:, None]).clamp(min=0)

    def bias(self, tokens: int) -> Tensor | None:
        """Attention bias of the next `tokens`: None, [tokens, places] or [rows, 1, tokens, places]."""
        end = self.length + tokens
        blind = None if self.blind is None else self.blind[..., :end]
        if tokens == 1:
            return blind
        future = torch.full((tokens, end), -torch.inf, device=self.pad.device).triu(self.length + 1)
        return future if blind is None else future + blind

    def choose(self, rows: Tensor) -> None:
        """Keep these rows and drop all others."""
        self.pad = self.pad[rows]
        self.blind = None if self.blind is None else self.blind[rows]

    def beside(self, other: KeyValueCache) -> list[tuple[int, int]]:
        """Align with `other` on the right; returns for both (places to cut on the left, padding to add there)."""
        cuts = [int(each.pad.min()) for each in (self, other)]
        longest = max(each.length - cut for each, cut in zip((self, other), cuts, strict=True))
        gaps = [longest - each.length + cut for each, cut in zip((self, other), cuts, strict=True)]
        shifts = [gap - cut for gap, cut in zip(gaps, cuts, strict=True)]
        self.pad = torch.cat([each.pad + shift for each, shift in zip((self, other), shifts, strict=True)])
        self.length = longest
        return list(zip(cuts, gaps, strict=True))


def joined(parts: Sequence[Tensor], lengths: Sequence[int], moves: Sequence[tuple[int, int]], room: int) -> Tensor:
    """Tensor: key or value tensors `parts` joined by rows, each cut to its `lengths`, padded by its `moves` and `room`.

    Of each part places cut to length stay, behind `gap` zeros and before `room` zeros; `moves` are pairs (cut,
    gap).
    [rows, heads, places, size] of each.
    """
    moved = [
        F.pad(part[:, :, cut:length], (0, 0, gap, room))
        for part, length, (cut, gap) in zip(parts, lengths, moves, strict=True)
    ]
    return torch.cat(moved)


def whole_rows_pay(prompts: Sequence[np.ndarray], ids: Tensor, width: int) -> bool:
    """Whether reading every row from its beginning costs less than reading prompts in a call of their own.

    ids: of the answers, int64[rows, T], of which the last is not read. width: hidden size of the model, 0: unknown.
    """
    longest, rows, more = len(prompts[-1]), ids.shape[0], ids.shape[1] - 1
    apart = cost(len(prompts), longest, longest, width) + cost(rows, more, longest + more, width)
    return width > 0 and more > 0 and cost(rows, longest + more, longest + more, width) <= apart + CALL


def prompts_with_answers(prompts: Sequence[np.ndarray], rows: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Pads each row's prompt and answer, without its last token, on the left to tensors, see `left_pad`."""
    said = ids[:, :-1].cpu().numpy()
    both = [np.concatenate([prompts[row], answer]) for row, answer in zip(rows.tolist(), said, strict=True)]
    return left_pad(both, ids.device)


def read_and_extend(forward: Forward, prompts: Sequence[np.ndarray], rows: Tensor, ids: Tensor) -> Tensor:
    """Tensor of hidden states before each of `ids` [rows, T]: a `Forward` reads distinct `prompts`, extends each row.

    It is `Forward.whole` in two steps. rows: the place of each row's prompt among `prompts`, int64[rows].
    """
    hidden, state = forward.read(prompts, rows, ids.shape[1] - 1)
    return hidden if ids.shape[1] == 1 else torch.cat([hidden, forward.extend(state, ids[:, :-1])], 1)
