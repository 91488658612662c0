"""Votes: what most answers agree on, as a label where there is no truth, and several verdicts as one.

Left out: weighing votes by confidence or by rater (`credit.preferences`).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl

from palaestra.algebra.codes import Codes, code_column, combine
from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.keys import joined
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    fill_missing,
    per_turn,
    register,
    standardise,
    total,
    where,
)
from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError, InputError, nearest
from palaestra.rewards.match.words import column

OnError = Literal["ignore", "missing", "no"]


@register()
def vote(answer: str, *, over: Keys = "group", ignore_null: bool = True, strict_majority: bool = False) -> Signal:
    """Signal: 1 where the row's answer is the most common one of its key, else 0; ties go to the first.

    A row without an answer gets 0. ignore_null: otherwise no answer is an answer, which may win, and then all rows of
    the key get 0. strict_majority: the winner needs more than half of the votes. A key without a winner is missing.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"group": [0] * 4, "episode": range(4), "answer": ["7", "8", "7", None]})
    >>> vote("answer").evaluate(turns)
    array([1., 0., 1., 0.])
    """
    return ballots(answer, over=over, ignore_null=ignore_null, strict_majority=strict_majority)


@register()
def cross_label(
    answer: str, *, pair: Keys = "group", view: str = "view", ignore_null: bool = True, strict_majority: bool = False
) -> Signal:
    """Signal: 1 where the row's answer is the majority answer of the *other* view of its pair, else 0.

    view: a column that takes two values in each pair, e.g. the original and a rephrased question. Missing where the
    other view has no winner; see `vote` for the options.

    Raises:
        InputError: a pair has more than two views.
    """
    return ballots(answer, view, over=pair, ignore_null=ignore_null, strict_majority=strict_majority)


@register()
def ballots(
    answer: str, view: str | None = None, *, over: Keys, ignore_null: bool = True, strict_majority: bool = False
) -> Signal:
    """Signal: raw node behind `vote` and, with a `view` column, `cross_label`: 1 where an answer is the majority's."""
    columns = [column(each) for each in (answer, view) if each is not None]
    return Signal(
        "ballots", *columns, over=joined(over), ignore_null=bool(ignore_null), strict_majority=bool(strict_majority)
    )


@kernel("ballots")
def _vote(evaluation: Evaluation, node: Signal) -> np.ndarray:
    turns, options = evaluation.turns, node.options
    series = turns[node.inputs[0].options["name"]]
    given = ~series.is_null().to_numpy()
    answer, electorate = code_column(series), evaluation.codes(options["over"])
    view = node.inputs[1].options["name"] if len(node.inputs) > 1 else None
    if view is not None:
        pair, electorate = electorate, evaluation.codes((*options["over"], view))
    winner = _winners(answer, electorate, given | (not options["ignore_null"]), _first_in_play(turns), options)
    label = winner[electorate.ids] if view is None else _of_the_other(winner, pair, electorate, node)
    return np.where(label < 0, np.nan, given & (answer.ids == label))


def _first_in_play(turns: Turns) -> np.ndarray:
    """A rank of rows that does not depend on the order of the table: by episode, turn and agent's name."""
    frame = turns.frame
    keys = [frame[name].to_numpy() for name in ("episode", "turn") if name in frame.columns]
    keys += [frame["agent"].cast(pl.String).fill_null("").rank("dense").to_numpy()] if "agent" in frame.columns else []
    place = np.empty(frame.height, np.int64)
    place[np.lexsort(keys[::-1]) if keys else np.arange(frame.height)] = np.arange(frame.height)
    return place


def _winners(
    answer: Codes, electorate: Codes, counts: np.ndarray, place: np.ndarray, options: dict[str, object]
) -> np.ndarray:
    """int64[electorate.size]: code of the answer that won, -1 if none."""
    rows, winner = np.flatnonzero(counts), np.full(electorate.size, -1)
    if not len(rows):
        return winner
    ballots = combine(Codes(electorate.ids[rows], electorate.size), Codes(answer.ids[rows], answer.size))
    votes = np.bincount(ballots.ids, minlength=ballots.size)
    first = np.full(ballots.size, len(place))
    np.minimum.at(first, ballots.ids, place[rows])
    key, choice = np.zeros((2, ballots.size), np.int64)
    key[ballots.ids], choice[ballots.ids] = electorate.ids[rows], answer.ids[rows]
    order = np.lexsort((-first, votes, key))  # the last of each key is its winner
    last = np.flatnonzero(np.diff(key[order], append=-1))
    top = order[last]
    enough = votes[top] * 2 > np.bincount(electorate.ids[rows], minlength=electorate.size)[key[top]]
    top = top[enough] if options["strict_majority"] else top
    winner[key[top]] = choice[top]
    return winner


def _of_the_other(winner: np.ndarray, pair: Codes, electorate: Codes, node: Signal) -> np.ndarray:
    owner = np.zeros(electorate.size, np.int64)
    owner[electorate.ids] = pair.ids
    views = np.bincount(owner, minlength=pair.size)
    if (views > 2).any():
        bad = np.flatnonzero(views[pair.ids] > 2)[0]
        number = views[pair.ids[bad]]
        raise InputError(
            f"cross_label: row {bad}: its pair has {number} values of {node.inputs[1].options['name']!r}, not 2"
        )
    both, known = np.zeros((2, pair.size), np.int64)
    np.add.at(both, owner, winner)
    np.add.at(known, owner, 1)
    other = np.where(known[owner] == 2, both[owner] - winner, -1)
    return np.asarray(other[electorate.ids])


@register()
def judge_votes(verdicts: SignalLike, *, n: int | None = None, on_error: OnError = "ignore") -> Signal:
    """Signal: 1 if more than half of the row's verdicts (a list column of 0, 1) are yes, else 0; nulls are left out.

    on_error: what a failed call is. ignore: half of those that came back; missing if none did. no: half of all n.
    missing: the row has no verdict. n: calls that were made; left out, as many as the list has.

    Raises:
        ExpressionError: on_error is unknown or n is not positive.
    """
    choices = ("ignore", "missing", "no")
    if on_error not in choices or (n is not None and n < 1):
        raise ExpressionError(f"judge_votes: {n=}, on_error={on_error!r}{nearest(str(on_error), choices)}")
    given = as_signal(verdicts)
    if on_error == "ignore":
        return per_turn(2.0 * given - 1.0, method="total") > 0.0
    yes = fill_missing(per_turn(given, method="total"), 0.0)
    made = (
        fill_missing(per_turn(0.0 * fill_missing(given, 0.0) + 1.0, method="total"), 0.0) if n is None else as_signal(n)
    )
    if on_error == "no":
        return where(made > 0.0, 2.0 * yes > made)
    back = fill_missing(per_turn(0.0 * given + 1.0, method="total"), 0.0)
    return where((back == made) & (back > 0.0), 2.0 * yes > made)


@register()
def co_reward(answer: str, *, pair: Keys = "group", view: str = "view", ddof: int = 1, eps: float = 1e-6) -> Signal:
    """Signal: [218] Co-Reward's advantage, GRPO within each view of reward `cross_label(answer)`; no label counts as 0.

    Each view of a question is judged by what most answers to its other view say, so that an error which one wording
    causes is not its own teacher. Labels and ties are as in the released code.
    """
    reward = total(fill_missing(cross_label(answer, pair=pair, view=view), 0.0), over="episode")
    return standardise(reward, over=joined(pair, view), unit="episode", ddof=ddof, eps=eps)
