"""Repeat insertion: does doing the same again, for nothing, earn more and more?

A process score that is paid per step grows with every idle step (arXiv 2410.15115 saw training collapse that way). A
bounded reward does not: a bonus paid once, one that fades, a difference of scores, a punishment only.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.algebra.codes import code_array
from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.evaluation.audits.cycles import not_truncated, steps, turn_positions
from palaestra.evaluation.audits.finding import Finding, evidence_rows, per_turn, require
from palaestra.evaluation.audits.growth import CHECKS, beyond_chance, endless

COPIES = (0, 5, 10)
TOLERANCE = 1e-6


def insert_copies(turns: Turns, rows: np.ndarray, copies: int) -> Turns:
    """`Turns` with one episode per row in array `rows`: the row's own, with `copies` of the row inserted before it.

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
    return Turns(frame.with_columns(*not_truncated(turns), episode=pl.Series(number), turn=pl.Series(position)))


def candidates(turns: Turns, values: np.ndarray, *, limit: int, each: int = 16) -> tuple[np.ndarray, np.ndarray, int]:
    """(at most `limit` row numbers to repeat, their kinds, number of kinds) of `Turns` by array `values`.

    A kind: agent, state, action.

    Never an agent's last row: what ends a game cannot be done twice. Up to `each` examples of a kind; of more than
    `limit` rows those of the kinds whose best row pays most. Without states and actions, what pays alike is a kind.
    """
    inner = steps(turns)[0]
    names = [name for name in ("agent", "state", "action") if name in turns.columns]
    if set(names) == {"agent"}:
        kind = code_array(np.append(values[inner], 0.0)).ids[:-1]
    else:
        kind = turns.codes(*names).ids[inner]
    order = np.lexsort((-values[inner], kind))
    inner, kind = inner[order], kind[order]
    first = np.flatnonzero(np.diff(kind, prepend=-1))
    size = np.diff(first, append=len(kind))
    place = np.arange(len(kind)) - np.repeat(first, size)
    step = np.repeat(np.maximum(size / each, 1.0), size)
    spread = np.floor(place / step) != np.floor((place - 1) / step)  # evenly from the best to the worst
    best = np.repeat(values[inner[first]], size) if len(first) else values[:0]
    inner, kind, best = inner[spread], kind[spread], best[spread]
    chosen = np.lexsort((kind, -best))[:limit]
    _, number = np.unique(kind[chosen], return_inverse=True)
    return inner[chosen], number, len(first)


def repeat_insertion(turns: Turns, reward: Signal, *, gamma: float = 1.0, limit: int = 1024) -> Finding:
    """Audit (`Finding`) of a reward `Signal` on `Turns`: whether an episode earns more with 5, 10 copies of a row.

    numbers: `slope` (largest growth per copy from the 5th to the 10th), `before`, `after` (sums of that episode with 0
    and 10 copies), `tried` (rows). A kind is what an agent did in a state. Fails if the growth of a kind is more than
    1e-6 of the largest reward, and more than chance over its examples, and does not fade: then standing still pays. It
    cannot tell if what pays may be chance, or not every kind was tried. gamma: discount of the return from the row on;
    below 1 a copy has to pay for the delay of what comes after it.

    Raises:
        MissingColumnError: `episode` or `agent` is missing.
    """
    require(turns, "episode", "agent")
    values = per_turn(turns, reward)
    rows, kind, kinds = candidates(turns, values, limit=limit)
    if not len(rows):
        return Finding("repeats", "cannot tell", "every episode has one turn: there is nothing to repeat")
    none, some, many = (_sums(turns, reward, rows, copies, gamma) for copies in COPIES)
    slopes = (many - some) / (COPIES[2] - COPIES[1])
    tolerance = TOLERANCE * float(np.abs(values).max())
    slopes = np.where(np.abs(slopes) > tolerance, slopes, 0.0)
    tried = int(kind.max()) + 1
    mean, sure = beyond_chance(slopes, kind, tried)
    pays = np.flatnonzero((slopes > 0) & (mean[kind] > tolerance))
    later = np.stack([_sums(turns, reward, rows[pays], copies, 1.0) for copies in CHECKS], axis=-1)
    pays = pays[endless(later)] if len(pays) else pays
    certain = pays[sure[kind[pays]]]
    among = certain if len(certain) else pays if len(pays) else np.arange(len(rows))
    worst = int(among[np.argmax(slopes[among])])
    numbers = {"slope": float(slopes[worst]), "before": none[worst], "after": many[worst], "tried": float(len(rows))}
    grows = f"ten idle copies of one row take its episode from {none[worst]:.4g} to {many[worst]:.4g}"
    if len(certain):
        sentence = f"{grows}: {slopes[worst]:.4g} for each repetition, and still so after {CHECKS[-1]}"
        return Finding("repeats", "fail", sentence, numbers, evidence_rows(turns, rows[[worst]], values))
    if len(pays):
        sentence = f"{grows}, but rows of its kind pay now more, now less: on average this may be chance"
        return Finding("repeats", "cannot tell", sentence, numbers, evidence_rows(turns, rows[[worst]], values))
    if tried < kinds:
        return Finding("repeats", "cannot tell", f"{grows}; of {kinds} kinds of rows only {tried} were tried", numbers)
    why = "each pays less than the last, up to a limit" if slopes[worst] > 0 else "repetition does not pay"
    return Finding("repeats", "pass", f"{grows}: {why}", numbers)


def _sums(turns: Turns, reward: Signal, rows: np.ndarray, copies: int, gamma: float) -> np.ndarray:
    """Return of each row's episode with so many copies put before the row: float64[rows]."""
    start, repeated = turn_positions(turns)[rows], turns["agent"].cast(pl.String)[rows.tolist()].to_numpy()
    table = insert_copies(turns, rows, copies)
    episode = table["episode"].to_numpy()
    delayed = table["agent"].cast(pl.String).to_numpy() == repeated[episode]
    later = np.where(delayed, np.maximum(turn_positions(table) - start[episode], 0), 0)
    return np.bincount(episode, gamma**later * per_turn(table, reward), minlength=len(rows))
