"""Rows of turns as rows of conversations: one sequence for what an agent said in an episode, with the rest as context.

A turn's prompt usually repeats the agent's earlier turns to the token. Where it does, the turns are one sequence: first
prompt, answer, what was said in between, answer, and so on, which a model reads once instead of once per turn. Only
what was sampled is learned from, each token with the advantage of its turn, so a loss that adds up or averages tokens
has the value and gradient that it has on rows of turns. A loss that averages, or takes a ratio, over *rows* has the
conversation for its unit, as the trainers of TRL 1.16 and verl 0.9.1 have when tools are called in between.

Where a prompt does not begin with the turn before it (a history that was cut, edited or rendered anew), another
sequence begins; the metrics count these as `splits`. Episodes that branched off a common history are rows of their own;
a model that can reads what they share once (`agents.backends.prefix_trees`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from palaestra.algebra.list_columns import list_column, ragged
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, LearnerError
from palaestra.learning.batch import Batch
from palaestra.learning.protocol import Metrics

Rows = Literal["turn", "conversation"]
PLACE = ("run", "iteration", "group", "episode", "turn", "agent", "policy", "task")
"""Columns that are those of a sequence's first turn."""
NEEDS = ("group", "episode", "turn", "agent", "prompt_ids", "action_ids")
OPTIONAL = ("label_mask",)
"""Columns that terms read where a table has them."""
OF_TURNS = ("kto", "auxiliary")
"""Terms that are about single turns: KTO's other answers to a prompt, Lucy-SKG's prediction of each reward."""


class SequenceOrder(NamedTuple):
    """Result of `group`: turns grouped into sequences, in each of which a prompt continues the turn before it.

    Attributes:
        order: Row numbers, one sequence after the other, each in the order of play, int64[rows].
        starts: Where in `order` each sequence begins, int64[sequences].
        conversations: Number of (episode, agent) pairs.
    """

    order: np.ndarray
    starts: np.ndarray
    conversations: int

    @property
    def splits(self) -> int:
        """Number of places where a prompt did not continue the agent's turn before it."""
        return len(self.starts) - self.conversations


@dataclass(frozen=True)
class ConversationBatch(Batch):
    """Data: a `Batch` whose rows are sequences of turns; `turns` and `splits` count turns and broken continuations."""

    turns: int = 0
    splits: int = 0

    @property
    def metrics(self) -> Metrics:
        """Metrics `turns` and `splits`, beside those of every batch, whose `rows` are sequences here."""
        return {"turns": self.turns, "splits": self.splits}


def group(rows: pl.DataFrame) -> SequenceOrder:
    """`SequenceOrder` of a table of turns: a turn joins the agent's last one if its prompt begins with those tokens.

    Turns are compared with the agent's previous row *of this table*: an answer in between that takes no part in an
    update is context, for the next prompt holds it.

    Args:
        rows: Turns with `prompt_ids` and `action_ids`, in any order.
    """
    segments = Turns(rows).segments("episode", "agent")
    order = np.arange(len(rows)) if segments.order is None else np.asarray(segments.order)
    prompts, _, given = ragged(rows["prompt_ids"])
    actions, _, said = ragged(rows["action_ids"])
    ends, after = np.cumsum(given), np.cumsum(said)
    begins = np.zeros(len(rows), bool)
    begins[segments.starts] = True
    begins[1:] |= given[order[1:]] < (given + said)[order[:-1]]
    # Row by row, because a comparison in one piece would hold an index for every token of every prompt.
    for place in np.flatnonzero(~begins):
        row, before = order[place], order[place - 1]
        start, middle = ends[row] - given[row], ends[row] - given[row] + given[before]
        begins[place] = not (
            np.array_equal(prompts[start:middle], prompts[ends[before] - given[before] : ends[before]])
            and np.array_equal(
                prompts[middle : middle + said[before]], actions[after[before] - said[before] : after[before]]
            )
        )
    return SequenceOrder(order, np.flatnonzero(begins), len(segments.starts))


def pack(batch: Batch, columns: Mapping[str, str] | Iterable[str] = ()) -> ConversationBatch:
    """Pack a `Batch` of turns as a `ConversationBatch`: turns that continue each other become one row, a sequence.

    Its table has a row per sequence: `prompt_ids` of its first turn, `action_ids` and `logprobs` of all its turns,
    `context_ids` that stood between them, and `context_places`, how many of the `action_ids` came before each.

    Args:
        batch: Rows of one policy.
        columns: Columns that terms read, with the names of the terms if known. One that has the same value on all
            turns of a sequence keeps it; numbers that differ are repeated for each token of their turn.

    Raises:
        LearnerError: a row lacks its prompt.
        InputError: a column has values that differ within a sequence and cannot be said per token.
    """
    rows = batch.rows
    if not len(rows):
        return ConversationBatch(**vars(batch))
    prompts, _, given = ragged(rows["prompt_ids"])
    if not given.all():
        raise LearnerError(f"rows='conversation': row {int(given.argmin())} has no prompt_ids; nothing was updated")
    found = group(rows)
    order, starts = found.order, found.starts
    said, shown = batch.lengths[order], given[order]
    first = np.zeros(len(order), bool)
    first[starts] = True
    sequence = np.cumsum(first) - 1
    before = np.cumsum(said) - said  # sampled tokens before each turn, of all sequences and then of its own
    before -= before[starts][sequence]
    between = np.where(first, 0, shown - np.roll(shown + said, 1))  # tokens of context in front of each turn
    context = prompts[_spans(np.cumsum(given)[order] - between, between)]
    lengths = np.add.reduceat(said, starts)
    contexts = np.add.reduceat(between, starts)
    tokens = _spans(batch.offsets[order], said)
    heads = order[starts]
    actions = ragged(rows["action_ids"])[0]
    packed = rows.select(name for name in (*PLACE, "prompt_ids") if name in rows.columns)[heads].with_columns(
        list_column("action_ids", actions[tokens], lengths),
        list_column("logprobs", batch.old[tokens], lengths),
        list_column("context_ids", context, contexts),
        list_column("context_places", np.repeat(before, between).astype(np.int32), contexts),
    )
    terms = columns if isinstance(columns, Mapping) else dict.fromkeys(columns, "")
    more = [
        _column(rows[name][order], said, starts, sequence, lengths, term)
        for name, term in terms.items()
        if name in rows.columns and name not in packed.columns
    ]
    return ConversationBatch(
        rows=packed.with_columns(more),
        advantage=batch.advantage[tokens],
        old=batch.old[tokens],
        offsets=np.cumsum(lengths) - lengths,
        lengths=lengths,
        counts=np.add.reduceat(batch.counts[order], starts),
        size=given[heads] + lengths + contexts,
        credited=np.logical_or.reduceat(batch.credited[order], starts),
        entropy=batch.entropy,
        turns=len(order),
        splits=found.splits,
    )


def check(policies: Iterable[Any], terms: Iterable[str], heads: Iterable[Any], sequential: str | None) -> None:
    """Raise InputError if a policy, term or option cannot learn from conversations.

    Args:
        policies: Those that learn.
        terms: Names of the objective's terms.
        heads: Modules of the terms.
        sequential: Option of the learner.

    Raises:
        InputError: it cannot; names the option.
    """
    option = "learn.rows: 'conversation'"
    for policy in policies:
        if not getattr(policy, "reads_context", False):
            raise InputError(
                f"{option}: policy {policy.name!r} ({type(policy).__name__}) has no conversations of tokens: only"
                " language models that learn here (lm, tiny, served) can be scored on them; write learn.rows: turn"
            )
    for term in terms:
        if term.partition("#")[0] in OF_TURNS:
            raise InputError(f"{option}: term {term} is about single turns; write learn.rows: turn")
    if any(getattr(head, "level", None) == "turn" for head in heads):
        raise InputError(f"{option}: term value predicts one number per turn; write value(level='token')")
    if sequential is not None:
        raise InputError(
            f"{option}: learn.sequential={sequential!r} takes turns one after the other; write learn.rows: turn"
        )


def _column(
    values: pl.Series, said: np.ndarray, starts: np.ndarray, sequence: np.ndarray, lengths: np.ndarray, term: str
) -> pl.Series:
    """A column of turns, in the order of play, as one of sequences."""
    if values.dtype.base_type() in (pl.List, pl.Array):
        flat, missing, given = ragged(values)
        if (given != said).any():
            raise _refused(values.name, term, "has lists that are not as long as the actions")
        found = list_column(values.name, flat, lengths)
        return found if not missing.any() else list_column(values.name, np.where(missing, np.nan, flat), lengths)
    heads = values[starts]
    if values.eq_missing(heads[sequence]).all():
        return heads
    if not values.dtype.is_numeric() or values.has_nulls():
        raise _refused(values.name, term, "differs between turns and is no column of numbers without gaps")
    return list_column(values.name, np.repeat(values.cast(pl.Float64).to_numpy(), said), lengths)


def _refused(name: str, term: str, why: str) -> InputError:
    reader = f"term {term}" if term else "a term"
    return InputError(
        f"learn.rows: 'conversation': column {name!r}, which {reader} reads, {why}: give all turns of a conversation"
        " one value, or write learn.rows: turn"
    )


def _spans(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Places begins[i], begins[i] + 1, … of every span, one span after the other.

    >>> _spans(np.array([7, 2]), np.array([2, 3])).tolist()
    [7, 8, 2, 3, 4]
    """
    return np.repeat(begins - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))
