"""How many members of a team are different: effective channels, and what they can add.

K* = 2^H of the eigenvalues of the Gram matrix of unit vectors ([113], arXiv 2602.03794) is the Vendi score of order 1.
Left out: learned embeddings, which the stage `embed` gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import scipy

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, need_columns
from palaestra.evaluation.teamwork.attribution import unit_vectors

TINY = 1e-12
"""Eigenvalues below that count for nothing, as in the released code."""


def effective_channels(vectors: Any, weights: Any = None) -> float:
    """Effective number of different rows of float64[n, d], K*, a float: 1 if all alike, min(n, d) if orthogonal.

    weights: of the rows; scaled to sum to their number, as the released code does.

    >>> round(effective_channels([[1, 0], [0, 1]]), 4), round(effective_channels([[1, 0], [2, 0]]), 4)
    (2.0, 1.0)
    """
    rows = np.asarray(vectors, float)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise InputError(f"effective_channels: expected finite numbers [rows, dimensions], found shape {rows.shape}")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows / np.where(lengths > 0, lengths, 1.0)
    if weights is not None:
        share = np.asarray(weights, float)
        if share.shape != (len(rows),) or (share < 0).any():
            raise InputError(f"effective_channels: {share.shape} weights for {len(rows)} rows; give one >= 0 for each")
        rows = rows * np.sqrt(share / share.sum() * len(rows))[:, None] if share.sum() > 0 else rows * 0
    gram = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
    values = np.linalg.eigvalsh(gram) if gram.size else np.zeros(0)
    total = values.sum()
    if total <= TINY:
        return 1.0
    share = values[values / total > TINY] / total
    return float(2 ** -(share * np.log2(share)).sum())


def channels(turns: Turns, *, embedding: str = "embedding", over: Sequence[str] = ("group", "turn")) -> pl.DataFrame:
    """Table per key of `Turns`: effective number of different answers, K*; also of right and wrong ones, with a score.

    Columns: the key, answers, channels.

    channels_right, channels_wrong: of turns with a success, or a score of at least 1, and of those without; 1 for a
    single one, null without any; a turn of which that is not known is in neither. effective: right - wrong / 2, the
    paper's signed count (right alone if none are wrong).

    Raises:
        MissingColumnError: there is no such column.
    """
    vectors, known = unit_vectors(turns, embedding)
    columns = turns.key_columns(over)
    need_columns("channels", turns.columns, columns)
    right = None
    if "score" in turns.columns:
        right = turns["score"].cast(pl.Float64).fill_nan(None) >= 1
    elif "success" in turns.columns:
        right = turns["success"].cast(pl.Boolean)
    right = None if right is None else right.cast(pl.Float64).fill_null(np.nan).to_numpy()[known]
    ids = turns.codes(*over).ids[known]
    rows = []
    for key in np.unique(ids):
        at = np.flatnonzero(ids == key)
        first = {name: turns[name][int(known[at[0]])] for name in columns}
        row = {**first, "answers": len(at), "channels": effective_channels(vectors[at])}
        if right is not None:
            of = {kind: at[right[at] == kind] for kind in (True, False)}
            found = {kind: effective_channels(vectors[where]) if len(where) else None for kind, where in of.items()}
            row |= {"channels_right": found[True], "channels_wrong": found[False]}
            good = found[True]
            row["effective"] = None if good is None else good - 0.5 * (found[False] or 0.0)
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def added_channels(
    turns: Turns, *, embedding: str = "embedding", over: Sequence[str] = ("group", "turn")
) -> pl.DataFrame:
    """Table per agent of `Turns`: effective channels that it adds, K* with its turns - K* without them, mean over keys.

    Returns:
        agent, answers (how many keys it has answers in), added; the most first. A copy of somebody else adds next to 0.

    Raises:
        MissingColumnError: there is no such column.
    """
    answers = _answers(turns, embedding, over)
    rows = []
    for agent in sorted({agent for agents, _ in answers for agent in agents}):
        of = [(agents == agent, vectors) for agents, vectors in answers if (agents == agent).any()]
        added = np.mean([effective_channels(vectors) - effective_channels(vectors[~own]) for own, vectors in of])
        rows.append({"agent": agent, "answers": len(of), "added": float(added)})
    schema = {"agent": pl.String, "answers": pl.Int64, "added": pl.Float64}
    return pl.DataFrame(rows, schema=schema).sort("added", "agent", descending=[True, False])


def diverse_members(
    turns: Turns, most: int, *, embedding: str = "embedding", over: Sequence[str] = ("group", "turn")
) -> pl.DataFrame:
    """Table of at most `most` agents of `Turns`, chosen greedily for the most effective channels, in order of choice.

    The first is the one that adds most to all (`added_channels`); then whoever gives those taken the highest mean K*.

    Returns:
        agent, channels (mean K* of it and those above it).

    Raises:
        InputError: most is below 1.
    """
    if most < 1:
        raise InputError(f"diverse_members: most={most}, expected at least 1")
    answers = _answers(turns, embedding, over)

    def together(members: list[str]) -> float:
        return float(np.mean([effective_channels(vectors[np.isin(agents, members)]) for agents, vectors in answers]))

    left = added_channels(turns, embedding=embedding, over=over)["agent"].to_list()
    taken = left[:1]
    rows = [{"agent": name, "channels": together([name])} for name in taken]
    while len(taken) < min(most, len(left)):
        found = {name: together([*taken, name]) for name in left if name not in taken}
        best = max(found, key=lambda name: round(found[name], 9))
        taken.append(best)
        rows.append({"agent": best, "channels": found[best]})
    return pl.DataFrame(rows, schema={"agent": pl.String, "channels": pl.Float64})


def _answers(turns: Turns, embedding: str, over: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """(agents, their unit vectors) of each key."""
    vectors, known = unit_vectors(turns, embedding)
    need_columns("channels", turns.columns, ["agent", *turns.key_columns(over)])
    agents, ids = turns["agent"].cast(pl.String).to_numpy()[known], turns.codes(*over).ids[known]
    return [(agents[ids == key], vectors[ids == key]) for key in np.unique(ids)]


def vote_accuracy(signal: float, members: int, correlation: float) -> float:
    """Accuracy of a vote of `members` by `signal` and correlation ρ: Φ(signal / √(ρ + (1 - ρ) / members)) ([113]).

    The noise of the members is correlated.

    signal: μ, of one channel with noise of variance 1. correlation: ρ between the noise of two.

    >>> [round(vote_accuracy(0.7, n, rho), 3) for n, rho in ((1, 0), (16, 0.9), (2, 0.0))]
    [0.758, 0.769, 0.839]
    """
    if members < 1 or not 0 <= correlation <= 1:
        raise InputError(f"vote_accuracy: {members} members and a correlation of {correlation}; expected >= 1, 0 to 1")
    return float(scipy.stats.norm.cdf(signal / np.sqrt(correlation + (1 - correlation) / members)))
