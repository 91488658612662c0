"""Scoring whole conversations: the answers of one agent with what the others said between them, in one forward pass.

A turn's prompt repeats all that was said before it, so as rows of turns a conversation of T turns is read T times. As
one sequence it is read once: first prompt, answer, context, answer, context, answer. Every answer attends to exactly
what it followed when it was sampled, so its log-probabilities are those of its turn. Context is read, not scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from palaestra.agents.backends.forward import Forward, precision
from palaestra.agents.backends.sampling import distinct, evaluate
from palaestra.agents.policy import Scored
from palaestra.errors import InputError

if TYPE_CHECKING:
    import polars as pl


def evaluate_rows(forward: Forward, rows: pl.DataFrame, *, temperature: float, top_p: float = 1.0) -> Scored:
    """`Scored` (log-probabilities, entropies, with gradient) of a table's stored actions given their prompts.

    Context between sampled tokens is taken into account where the table has it.

    Raises:
        InputError: a row lacks its tokens, or see `interleave`.
    """
    prompts, actions = (_lists(rows, column) for column in ("prompt_ids", "action_ids"))
    if "context_ids" not in rows.columns:
        return evaluate(forward, prompts, actions, temperature=temperature, top_p=top_p)
    contexts, places = (_lists(rows, column, empty=True) for column in ("context_ids", "context_places"))
    return evaluate_interleaved(forward, prompts, actions, contexts, places, temperature=temperature, top_p=top_p)


def _lists(rows: pl.DataFrame, column: str, *, empty: bool = False) -> list[np.ndarray]:
    """int64 token ids of each row."""
    array = rows[column].to_arrow()
    lengths = array.value_lengths().fill_null(0).to_numpy()
    if not (empty or lengths.all()):
        raise InputError(f"LMPolicy.score: row {int(lengths.argmin())} has no {column}: filter such rows first")
    return np.split(array.flatten().to_numpy().astype(np.int64), np.cumsum(lengths)[:-1])


def interleave(
    actions: Sequence[np.ndarray], contexts: Sequence[np.ndarray], places: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Sampled tokens and context tokens merged per row: (ids int64[rows, longest], mask bool of the sampled ones).

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
    """`Scored` of sampled tokens with context tokens between them, as `sampling.evaluate`; none for the context.

    Only hidden states before sampled tokens go through the vocabulary layer.

    Raises:
        InputError: see `interleave`.
    """
    every, sampled = interleave(actions, contexts, places)
    lengths = sampled.sum(1)
    real = np.arange(lengths.max()) < lengths[:, None]
    at, ids = np.zeros(real.shape, np.int64), np.zeros(real.shape, np.int64)
    at[real], ids[real] = np.nonzero(sampled)[1], np.concatenate(actions)
    unique, rows = distinct(prompts)
    device = forward.device
    with precision(forward):
        hidden = forward.whole(unique, rows.to(device), torch.from_numpy(every).to(device))
        places_ = torch.from_numpy(at).to(device)[..., None].expand(-1, -1, hidden.shape[-1])
        mask = torch.from_numpy(real).to(device)
        return forward.head.score(hidden.gather(1, places_), torch.from_numpy(ids).to(device), mask, temperature, top_p)
