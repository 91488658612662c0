"""Prefix trees of token sequences: tokens that several rows begin with are read once.

Branches of one conversation, episodes of one task, and the turns of one conversation begin with the same tokens. A tree
is one packed sequence: the shared tokens once, then what each branch adds. A token's position is its place in its own
row, and it attends to its ancestors only, so its hidden state is the one that it has in its row alone.

    rows      1 2 3 4 5      packed     1 2 3 4 5 8 9 7
              1 2 3 8 9      position   0 1 2 3 4 3 4 2
              1 2 7          9 attends to 1 2 3 8 9

Rows in lexicographic order are the leaves of the tree from left to right. A packed token belongs to a run of them, the
rows `first` to `end` - 1, and token k is an ancestor of token q if first_k ≤ first_q < end_k and position_k ≤
position_q. The mask is dense: a tree of N tokens has N² scores. So a row joins a tree only where that is estimated to
cost less than reading it apart, and no tree has more than `MOST` tokens.

Left out: masks in blocks (FlexAttention), which would make large trees of long branches cheaper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

MOST = 8192
"""Tokens of a tree: a mask of so many is 256 MiB in float32."""
PER_WIDTH = 3
"""A token costs as much as PER_WIDTH · hidden size scores of attention. By operations it is 6 where layers hold 12 ·
width² weights; a score costs more time per operation than a product of matrices."""
CALL = 2**15
"""A call of a small model costs as much as so many scores of attention per layer, whatever its tokens: some 0.4 ms."""
REPEATS = 8
"""Rows of a tree have at most so many times the tokens that a piece of an update may have."""
WORTH = 0.9
"""Trees are taken where their estimated cost is below this share of what rows cost apart."""

_SHARING: ContextVar[bool] = ContextVar("sharing", default=True)


@contextmanager
def unshared() -> Iterator[None]:
    """Context manager in which no prefix trees are made, so that rows are computed apart, for comparisons."""
    token = _SHARING.set(False)
    try:
        yield
    finally:
        _SHARING.reset(token)


def sharing() -> bool:
    """Whether prefix trees may be made here, which `unshared` turns off; bool."""
    return _SHARING.get()


class Tree(NamedTuple):
    """Data of a prefix tree: its row numbers in order, tokens shared with the row before, distinct and longest counts.

    Attributes:
        rows: Row numbers in lexicographic order of their tokens, int64[rows].
        common: Number of tokens that each row shares with the one before it, 0 for the first, int64[rows].
        tokens: Number of distinct nodes, which is what is read.
        longest: Tokens of the longest row.
    """

    rows: np.ndarray
    common: np.ndarray
    tokens: int
    longest: int

    @property
    def size(self) -> int:
        """Tokens for which the tree counts in a piece of an update: those it reads, or a share of those it scores."""
        return max(self.tokens, len(self.rows) * self.longest // REPEATS)


class Forest(NamedTuple):
    """Data of prefix trees packed into arrays of one width: ids, positions, span of descendants, place of each token.

    Attributes:
        ids: Tokens, 0 where a sequence is padded, int64[sequences, width].
        positions: Position of each token in its row, of that shape.
        first, end: Range of rows that a token belongs to, of that shape.
        places: Index of each row's tokens in the flattened sequences, int64[rows, longest]; 0 where a row is shorter.
        tokens: Number of tokens without padding.
    """

    ids: np.ndarray
    positions: np.ndarray
    first: np.ndarray
    end: np.ndarray
    places: np.ndarray
    tokens: int


def ancestors(first: Tensor, end: Tensor, positions: Tensor) -> Tensor:
    """Attention mask of packed trees by three fields of a `Forest`, bool[sequences, tokens, places attended to].

    Args:
        first: First row that a token belongs to, int64[sequences, tokens].
        end: The row behind the last one that it belongs to, of that shape.
        positions: Position of a token in its row, of that shape.
    """
    row = first[:, :, None]
    within = (first[:, None] <= row) & (row < end[:, None])
    return within & (positions[:, None] <= positions[:, :, None])


def cost(sequences: int, new: int, places: int, width: int) -> int:
    """Estimated cost, int attention scores per layer, of `new` tokens attending to `places`, at hidden size `width`.

    sequences: how many they are in.
    """
    return sequences * new * (PER_WIDTH * width + places)


def grow(sequences: Sequence[np.ndarray], width: int, limit: int = MOST) -> list[Tree]:
    """Groups token sequences into prefix `Tree`s, by their cost at hidden size `width`, of at most `limit` tokens.

    A list; a row that shares too little for its cost begins a new tree.

    Args:
        sequences: Token ids of each row, at least one.
        width: Hidden size of the model.
        limit: Most tokens of a tree of several rows.
    """
    keys = [sequence.astype(">u4").tobytes() for sequence in sequences]
    order = sorted(range(len(sequences)), key=keys.__getitem__)
    limit = min(limit, MOST)
    found: list[Tree] = []
    rows: list[int] = []
    shared: list[int] = []
    tokens = longest = 0
    for row in order:
        length, common = len(sequences[row]), 0
        if rows:
            common = _common(sequences[rows[-1]], sequences[row])
            new, most = length - common, max(longest, length)
            fits = tokens + new <= limit and (len(rows) + 1) * most <= REPEATS * limit
            grown = cost(1, tokens + new, tokens + new, width) - cost(1, tokens, tokens, width)
            if not (fits and common and grown <= cost(1, length, length, width)):
                found.append(Tree(np.array(rows), np.array(shared), tokens, longest))
                rows, shared, tokens, longest, common = [], [], 0, 0, 0
        rows.append(row)
        shared.append(common)
        tokens, longest = tokens + length - common, max(longest, length)
    return [*found, Tree(np.array(rows), np.array(shared), tokens, longest)]


def _common(one: np.ndarray, other: np.ndarray) -> int:
    """Number of tokens with which both begin."""
    least = min(len(one), len(other))
    differ = one[:least] != other[:least]
    at = int(differ.argmax()) if least else 0
    return at if least and differ[at] else least


def bins(trees: Sequence[Tree]) -> list[list[int]]:
    """Bin packing of prefix `Tree`s, first fit, largest first: lists of tree numbers, at most the largest in size."""
    most = max(tree.tokens for tree in trees)
    room: list[int] = []
    found: list[list[int]] = []
    for number in sorted(range(len(trees)), key=lambda number: -trees[number].tokens):
        tokens = trees[number].tokens
        at = next((at for at, free in enumerate(room) if free >= tokens), len(room))
        if at == len(room):
            room.append(most)
            found.append([])
        room[at] -= tokens
        found[at].append(number)
    return found


def pack(sequences: Sequence[np.ndarray], trees: Sequence[Tree], packed: Sequence[Sequence[int]]) -> Forest:
    """Packs prefix `Tree`s of id arrays `sequences`, in the bins `packed`, into the arrays of a `Forest`.

    Args:
        sequences: Token ids of each row.
        trees: Trees of all rows, see `grow`.
        packed: Numbers of the trees of each sequence, see `bins`.
    """
    chosen = [trees[number] for numbers in packed for number in numbers]
    rows, common = (np.concatenate(each) for each in ([t.rows for t in chosen], [t.common for t in chosen]))
    lengths = np.array([len(sequences[row]) for row in rows])
    place, count = np.arange(lengths.max()), np.arange(len(rows))[:, None]
    begins = common[:, None] <= place  # a row's own tokens; at position 0 of every tree's first row
    since = np.maximum.accumulate(np.where(begins, count, -1), 0)  # row whose own token stands there
    until = np.minimum.accumulate(np.where(begins, count, len(rows))[::-1], 0)[::-1]
    until = np.concatenate([until[1:], np.full((1, len(place)), len(rows))])
    width = max(sum(trees[number].tokens for number in numbers) for numbers in packed)
    own = lengths - common
    starts = np.cumsum(own) - own
    heads = np.cumsum([0, *(sum(len(trees[number].rows) for number in numbers) for numbers in packed)])[:-1]
    sequence = np.searchsorted(heads, np.arange(len(rows)), side="right") - 1
    starts = starts - starts[heads][sequence] + sequence * width
    mine = begins & (place < lengths[:, None])
    flat = (starts - common)[since] + place
    made = np.zeros((4, len(packed) * width), np.int64)
    made[2:] = [[len(rows)], [len(rows) + 1]]  # padding attends to padding
    there = flat[mine]
    made[0, there] = np.concatenate([sequences[row][shared:] for row, shared in zip(rows, common, strict=True)])
    made[1, there], made[2, there], made[3, there] = np.nonzero(mine)[1], np.nonzero(mine)[0], until[mine]
    places = np.zeros_like(flat)
    places[rows] = np.where(place < lengths[:, None], flat, 0)
    ids, positions, first, end = made.reshape(4, len(packed), width)
    return Forest(ids, positions, first, end, places, int(own.sum()))


def plant(sequences: Sequence[np.ndarray], width: int, apart: int) -> Forest | None:
    """`Forest` of id arrays, or None where its estimated `cost` at hidden size `width` is not clearly below `apart`."""
    if not sharing() or len(sequences) < 2:
        return None
    trees = grow(sequences, width)
    if len(trees) == len(sequences):
        return None
    packed = bins(trees)
    widest = max(sum(trees[number].tokens for number in numbers) for numbers in packed)
    return pack(sequences, trees, packed) if cost(len(packed), widest, widest, width) < WORTH * apart else None


def masks(forest: Forest, device: torch.device, at: slice) -> tuple[Tensor, Tensor, Tensor]:
    """Tensors (ids, positions, attention mask) of slice `at` of a `Forest`'s sequences on a device, see `ancestors`."""
    arrays = (forest.ids, forest.positions, forest.first, forest.end)
    ids, positions, first, end = (torch.from_numpy(each[at]).to(device) for each in arrays)
    return ids, positions, ancestors(first, end, positions)
