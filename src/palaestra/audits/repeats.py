"""Repeat insertion: does doing the same again, for nothing, earn more and more?

A process score that is paid per step grows with every idle step (arXiv 2410.15115 saw training collapse that way). A
bounded reward does not: a bonus paid once, a difference of scores, a punishment only.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.audits.cycles import steps
from palaestra.audits.finding import Finding, per_turn, prove, require
from palaestra.signals import Signal
from palaestra.turns import Turns

COPIES = (0, 5, 10)
TOLERANCE = 1e-6


def insert_copies(turns: Turns, rows: np.ndarray, copies: int) -> Turns:
    """One episode per given row: that row's own play-through (all its agents), with so many copies put before the row.

    Episodes are numbered 0, 1, … in the order of `rows`; `turn` counts anew.
    """
    episodes = turns.segments("episode")
    order = np.arange(len(turns)) if episodes.order is None else episodes.order
    owner = turns.codes("episode").ids[rows]
    lengths = episodes.lengths[owner]
    number = np.repeat(np.arange(len(rows)), lengths)
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    source = order[np.repeat(episodes.starts[owner], lengths) + within]
    times = np.where(source == rows[number], copies + 1, 1)
    source, number = np.repeat(source, times), np.repeat(number, times)
    ends = np.searchsorted(number, np.arange(len(rows)))
    scope = [pl.lit(0).alias(c) for c in ("run", "iteration", "group") if c in turns.columns]
    position = np.arange(len(source)) - ends[number]
    frame = turns.frame[source.tolist()].with_columns(*scope, episode=pl.Series(number), turn=pl.Series(position))
    return Turns(frame)


def candidates(turns: Turns, values: np.ndarray, *, limit: int) -> np.ndarray:
    """The rows that pay most, at most `limit`, never an agent's last (what ends a game cannot be done twice)."""
    inner = steps(turns)[0]
    return inner[np.argsort(-values[inner], kind="stable")[:limit]]


def repeat_insertion(turns: Turns, reward: Signal, *, limit: int = 64) -> Finding:
    """Insert 5 and 10 copies of the rows that pay most: what does an episode earn per copy?

    numbers: `slope` (largest growth per copy from the 5th to the 10th), `before`, `after` (sums of that episode with 0
    and 10 copies), `tried`. Fails if the slope is positive: the reward pays for standing still.

    Raises:
        MissingColumnError: `episode` or `agent` is missing.
    """
    require(turns, "episode", "agent")
    values = per_turn(turns, reward)
    rows = candidates(turns, values, limit=limit)
    if not len(rows):
        return Finding("repeat insertion", "cannot tell", "every episode has one turn: there is nothing to repeat")
    sums = []
    for copies in COPIES:
        table = insert_copies(turns, rows, copies)
        sums.append(np.bincount(table["episode"].to_numpy(), per_turn(table, reward), minlength=len(rows)))
    none, some, many = sums
    slopes = (many - some) / (COPIES[2] - COPIES[1])
    worst = int(np.argmax(slopes))
    slope = float(slopes[worst])
    numbers = {"slope": slope, "before": none[worst], "after": many[worst], "tried": float(len(rows))}
    grows = f"ten idle copies of one row take its episode from {none[worst]:.4g} to {many[worst]:.4g}"
    if slope > TOLERANCE:
        sentence = f"{grows}: {slope:.4g} for each repetition, without end"
        return Finding("repeat insertion", "fail", sentence, numbers, prove(turns, rows[[worst]], values))
    return Finding("repeat insertion", "pass", f"{grows}: repetition does not pay", numbers)
