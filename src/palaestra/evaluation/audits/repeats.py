"""Repeat insertion: does doing the same again, for nothing, earn more and more?

A process score that is paid per step grows with every idle step (arXiv 2410.15115 saw training collapse that way). A
bounded reward does not: a bonus paid once, a difference of scores, a punishment only.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.evaluation.audits.cycles import ended, place, steps
from palaestra.evaluation.audits.finding import Finding, per_turn, prove, require

COPIES = (0, 5, 10)
TOLERANCE = 1e-6


def insert_copies(turns: Turns, rows: np.ndarray, copies: int) -> Turns:
    """One episode per given row: that row's own play-through (all its agents), with so many copies put before the row.

    Episodes are numbered 0, 1, … in the order of `rows`, through all groups; `turn` counts anew, and none is cut off.
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
    position = np.arange(len(source)) - ends[number]
    frame = turns.frame[source.tolist()]
    return Turns(frame.with_columns(*ended(turns), episode=pl.Series(number), turn=pl.Series(position)))


def candidates(turns: Turns, values: np.ndarray, *, limit: int) -> np.ndarray:
    """The rows that pay most, at most `limit`, never an agent's last (what ends a game cannot be done twice)."""
    inner = steps(turns)[0]
    return inner[np.argsort(-values[inner], kind="stable")[:limit]]


def repeat_insertion(turns: Turns, reward: Signal, *, gamma: float = 1.0, limit: int = 64) -> Finding:
    """Insert 5 and 10 copies of the rows that pay most: what does an episode earn per copy?

    numbers: `slope` (largest growth per copy from the 5th to the 10th), `before`, `after` (sums of that episode with 0
    and 10 copies), `tried`. Fails if the slope is more than 1e-6 of the largest reward: standing still pays. gamma:
    discount of the return from the row on; below 1 a copy has to pay for the delay of what comes after it.

    Raises:
        MissingColumnError: `episode` or `agent` is missing.
    """
    require(turns, "episode", "agent")
    values = per_turn(turns, reward)
    rows = candidates(turns, values, limit=limit)
    if not len(rows):
        return Finding("repeats", "cannot tell", "every episode has one turn: there is nothing to repeat")
    start, repeated = place(turns)[rows], turns["agent"].cast(pl.String)[rows.tolist()].to_numpy()
    sums = []
    for copies in COPIES:
        table = insert_copies(turns, rows, copies)
        episode = table["episode"].to_numpy()
        delayed = table["agent"].cast(pl.String).to_numpy() == repeated[episode]
        later = np.where(delayed, np.maximum(place(table) - start[episode], 0), 0)
        sums.append(np.bincount(episode, gamma**later * per_turn(table, reward), minlength=len(rows)))
    none, some, many = sums
    slopes = (many - some) / (COPIES[2] - COPIES[1])
    worst = int(np.argmax(slopes))
    slope = float(slopes[worst])
    numbers = {"slope": slope, "before": none[worst], "after": many[worst], "tried": float(len(rows))}
    grows = f"ten idle copies of one row take its episode from {none[worst]:.4g} to {many[worst]:.4g}"
    if slope > TOLERANCE * np.abs(values).max():
        sentence = f"{grows}: {slope:.4g} for each repetition, without end"
        return Finding("repeats", "fail", sentence, numbers, prove(turns, rows[[worst]], values))
    return Finding("repeats", "pass", f"{grows}: repetition does not pay", numbers)
