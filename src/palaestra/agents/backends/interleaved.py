"""Scoring whole conversations: the answers of one agent with what the others said between them, in one forward pass.

A turn's prompt repeats all that was said before it, so as rows of turns a conversation of T turns is read T times. As
one sequence it is read once: first prompt, answer, context, answer, context, answer. Every answer attends to exactly
what it followed when it was sampled, so its log-probabilities are those of its turn. Context is read, not scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from palaestra.agents.backends.forward import Forward
from palaestra.agents.backends.prefix_trees import WORTH, Tree, cost, grow, sharing
from palaestra.agents.backends.sampling import evaluate, evaluate_at
from palaestra.agents.policy import Scored
from palaestra.algebra.list_columns import ragged
from palaestra.errors import InputError

if TYPE_CHECKING:
    import polars as pl

TOKENS = ("prompt_ids", "action_ids", "context_ids", "context_places")
"""Columns that a row's sequence is made of, the last two only where rows are conversations."""


def evaluate_rows(forward: Forward, rows: pl.DataFrame, *, temperature: float, top_p: float = 1.0) -> Scored:
    """`Scored` (log-probabilities, entropies, with gradient), by a `Forward`, of a polars table's actions.

    Context between sampled tokens is taken into account where the table has it.

    Raises:
        InputError: a row lacks its tokens, or see `interleave`.
    """
    prompts, actions = (_lists(rows, column) for column in ("prompt_ids", "action_ids"))
    if "context_ids" not in rows.columns:
        return evaluate(forward, prompts, actions, temperature=temperature, top_p=top_p)
    contexts, places = (_lists(rows, column, empty=True) for column in ("context_ids", "context_places"))
    return evaluate_interleaved(forward, prompts, actions, contexts, places, temperature=temperature, top_p=top_p)


def trees_of(forward: Forward, rows: pl.DataFrame, limit: int) -> list[Tree] | None:
    """List of prefix `Tree`s, of at most `limit` tokens, of a table's rows for a `Forward`; None if sharing costs more.

    Args:
        forward: A model.
        rows: As for `evaluate_rows`; only `TOKENS` are read.
        limit: Most tokens of a tree of several rows.

    Returns:
        None where trees are not estimated to cost clearly less than distinct prompts and then every row by itself.
    """
    if not sharing() or len(rows) < 2 or not getattr(forward, "shares", False):
        return None
    prompts, actions = (_lists(rows, column) for column in ("prompt_ids", "action_ids"))
    if "context_ids" in rows.columns:
        contexts, places = (_lists(rows, column, empty=True) for column in ("context_ids", "context_places"))
        actions = [np.insert(*each) for each in zip(actions, places, contexts, strict=True)]
    sequences = [np.concatenate(each)[:-1] for each in zip(prompts, actions, strict=True)]
    width = forward.width
    apart = sum(
        cost(1, size, size, width) for size in map(len, {prompt.tobytes(): prompt for prompt in prompts}.values())
    )
    apart += sum(
        cost(1, len(action) - 1, len(sequence), width) for action, sequence in zip(actions, sequences, strict=True)
    )
    trees = grow(sequences, width, limit)
    return trees if sum(cost(1, tree.tokens, tree.tokens, width) for tree in trees) < WORTH * apart else None


def _lists(rows: pl.DataFrame, column: str, *, empty: bool = False) -> list[np.ndarray]:
    """int64 token ids of each row."""
    flat, _, lengths = ragged(rows[column])
    if not (empty or lengths.all()):
        raise InputError(f"LMPolicy.score: row {int(lengths.argmin())} has no {column}: filter such rows first")
    return np.split(flat.astype(np.int64), np.cumsum(lengths)[:-1])


def interleave(
    actions: Sequence[np.ndarray], contexts: Sequence[np.ndarray], places: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Merges id arrays `actions` (sampled) and `contexts` per row by `places`: (int64[rows, longest], bool: sampled).

    Args:
        actions: Sampled tokens of each row, int64[A].
        contexts: Tokens between them that the policy was shown, int64[C].
        places: How many sampled tokens came before each token of context, ascending, int64[C].

    Returns:
        ids, int64[rows, longest], padded with 0 on the right; and which of them were sampled, bool of that shape.

    Raises:
        InputError: places are not ascending from 0 to A, or not as many as there is context.

    >>> interleave([np.array([1, 2, 3])], [np.array([8, 9])], [np.array([1, 1])])
    (array([[1, 8, 9, 2, 3]]), array([[ True, False, False,  True,  True]]))
    """
    said, shown, placed = (np.array([len(each) for each in lists]) for lists in (actions, contexts, places))
    at, flat = np.repeat(np.arange(len(shown)), placed), np.concatenate([*places, np.empty(0, np.int64)])
    sorted_ = np.ones(len(flat), bool)
    sorted_[1:] = (flat[1:] >= flat[:-1]) | (at[1:] != at[:-1])
    wrong = np.flatnonzero(placed != shown)
    if not len(wrong):
        wrong = at[~sorted_ | (flat < 0) | (flat > said[at])]
    if len(wrong):
        raise InputError(
            f"LMPolicy.score: row {wrong[0]}: context_places must say for each of the {shown[wrong[0]]} context_ids,"
            f" ascending, how many of the {said[wrong[0]]} action_ids came before it"
        )
    real = np.arange((said + shown).max()) < (said + shown)[:, None]
    context = np.zeros_like(real)
    context[at, np.arange(len(at)) - np.repeat(np.cumsum(shown) - shown, shown) + flat] = True
    ids = np.zeros(real.shape, np.int64)
    ids[context] = np.concatenate([*contexts, np.empty(0, np.int64)])
    ids[real & ~context] = np.concatenate(actions)
    return ids, real & ~context


def evaluate_interleaved(
    forward: Forward,
    prompts: Sequence[np.ndarray],
    actions: Sequence[np.ndarray],
    contexts: Sequence[np.ndarray],
    places: Sequence[np.ndarray],
    *,
    temperature: float,
    top_p: float = 1.0,
) -> Scored:
    """`Scored` by a `Forward` of id arrays `actions` after `prompts`, with unscored id arrays `contexts` at `places`.

    As `sampling.evaluate`, which knows no context.
    Only hidden states before sampled tokens go through the vocabulary layer.

    Raises:
        InputError: see `interleave`.
    """
    every, sampled = interleave(actions, contexts, places)
    lengths = sampled.sum(1)
    real = np.arange(lengths.max()) < lengths[:, None]
    at = np.zeros(real.shape, np.int64)
    at[real] = np.nonzero(sampled)[1]
    return evaluate_at(forward, prompts, every, real, at, temperature, top_p)
