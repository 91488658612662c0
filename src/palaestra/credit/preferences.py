"""Preferences: the reward of an episode is how often it is preferred to others of the same policy.

No model of rewards is learned, so preferences may be cyclic. `win_rate` is a signal where preferences are known as
numbers or as a matrix; for a judge there are `pairwise` and `win_rates`, to be used with `by_group`. The
solution is the average of what was played, `average_mixture`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import scipy

from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.keys import is_first, joined, rank_among, turn_values
from palaestra.algebra.returns import agent_return
from palaestra.algebra.signals import Keys, Signal, SignalLike, as_signal, highest, mean, ratio, register
from palaestra.algebra.turns import Turns
from palaestra.credit.grouped import dr_grpo
from palaestra.errors import ExpressionError, InputError

Item = TypeVar("Item")
Matrix = tuple[tuple[float, ...], ...]


def pairwise(
    items: Sequence[Item], prefer: Callable[[Item, Item], float], opponents: Sequence[Item] | None = None
) -> np.ndarray:
    """Preference matrix float64[n, m] by function prefer(one, other): items against opponents, else each other.

    Without opponents (a queue of recent ones) the items are compared with each other, once per pair; P[j, i] = 1 -
    P[i, j] and P[i, i] = 1/2.
    """
    if opponents is not None:
        return np.array([[prefer(one, other) for other in opponents] for one in items]).reshape(len(items), -1)
    matrix = np.full((len(items), len(items)), 0.5)
    for i in range(len(items)):
        for j in range(i + 1, len(items)):
            matrix[i, j] = prefer(items[i], items[j])
            matrix[j, i] = 1 - matrix[i, j]
    return matrix


def win_rates(preference: np.ndarray, *, exclude_self: bool = True) -> np.ndarray:
    """Array of the mean of each row of a preference matrix; a square one without its diagonal by default. Alone: 1/2.

    >>> win_rates(np.array([[0.5, 0.9], [0.1, 0.5]]))
    array([0.9, 0.1])
    """
    number, opponents = preference.shape
    if exclude_self and number == opponents:
        others = preference.sum(axis=1) - preference.diagonal()
        return np.asarray(others / (number - 1)) if number > 1 else np.full(number, 0.5)
    return np.asarray(preference.mean(axis=1)) if opponents else np.full(number, 0.5)


@register()
def win_rate(item: SignalLike, *, over: Keys = "group", preference: Matrix | None = None) -> Signal:
    """Signal: share of the key's other episodes with a smaller `item`, or mean chance by `preference`; 1/2 if alone.

    item: a number, of which larger ones are preferred and equal ones count half; or the row of `preference`, a square
    matrix of chances.

    Raises:
        ExpressionError: the preference is not a square matrix of numbers in [0, 1].

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"group": [0] * 3, "episode": [0, 1, 2], "reward": [1.0, 3.0, 1.0]})
    >>> win_rate("reward").evaluate(turns)
    array([0.25, 1.  , 0.25])
    """
    if preference is None:
        last = highest(rank_among(item, over=over, ties="ordinal"), over=over)
        return ratio(rank_among(item, over=over) - 1.0, last - 1.0, 0.5)
    whole = mean(item, over="episode")
    return mean(preferred(whole, over=over, where=is_first(over="episode"), preference=preference), over="episode")


@register()
def preferred(item: SignalLike, *, over: Keys, where: SignalLike, preference: Matrix) -> Signal:
    """Signal: mean chance by matrix `preference` that `item`, its row there, beats the key's others in `where`.

    Rows outside `where`, or without an item, are missing.
    """
    rows = tuple(tuple(float(entry) for entry in row) for row in preference)
    if any(len(row) != len(rows) for row in rows) or not all(0 <= entry <= 1 for row in rows for entry in row):
        raise ExpressionError(f"preferred: preference={rows} is not a square matrix of chances in [0, 1]")
    return Signal("preferred", as_signal(item), over=joined(over), where=as_signal(where), preference=rows)


@kernel("preferred")
def _preferred(evaluation: Evaluation, node: Signal) -> np.ndarray:
    item, keep = turn_values(evaluation, node, (*node.inputs, node.options["where"]))
    chances = np.array(node.options["preference"])
    codes = evaluation.codes(node.options["over"])
    rows = np.flatnonzero((keep == 1) & ~np.isnan(item))
    kind, ids = item[rows].astype(np.int64), codes.ids[rows]
    if ((kind != item[rows]) | (kind < 0) | (kind >= len(chances))).any():
        raise InputError(f"preferred: an item is not a row of the preference, 0 to {len(chances) - 1}")
    counts = np.zeros((codes.size, len(chances)))
    np.add.at(counts, (ids, kind), 1.0)
    others = (chances[kind] * counts[ids]).sum(axis=1) - chances[kind, kind]
    number = counts.sum(axis=1)[ids] - 1
    result = np.full(len(item), np.nan)
    result[rows] = np.where(number > 0, others / np.maximum(number, 1), 0.5)
    return result


@register()
def self_play_preference(item: SignalLike | None = None, *, preference: Matrix | None = None) -> Signal:
    """Signal: [148] SPO (arXiv 2401.04056), the `win_rate` in the group as reward, minus its mean.

    item: what is compared (default: the agent's return); a column that `by_group` filled with `win_rates` needs no
    comparison any more: use `dr_grpo` of it. Self-play of one policy suffices, because the game is symmetric; its
    average, not its last iterate, tends to the minimax winner. From the abstract and known descriptions.
    """
    return dr_grpo(win_rate(agent_return() if item is None else item, preference=preference))


def minimax_winner(preference: np.ndarray) -> np.ndarray:
    """Mixture float64[n] of items that no item beats by preference matrix P: a Nash equilibrium of the game P - 1/2.

    Raises:
        InputError: P is not a square matrix of chances with P[i, j] + P[j, i] = 1.

    >>> minimax_winner(np.array([[0.5, 0.9, 0.2], [0.1, 0.5, 0.8], [0.8, 0.2, 0.5]])).round(6)
    array([0.3, 0.3, 0.4])
    """
    game = np.asarray(preference, float) - 0.5
    if game.shape != (len(game), len(game)) or not np.isfinite(game).all():
        raise InputError(f"minimax_winner: P of shape {game.shape} must be square and finite")
    if np.abs(game).max(initial=0.0) > 0.5 or not np.allclose(game, -game.T, atol=1e-6):
        raise InputError("minimax_winner: P[i, j] must be from 0 to 1, and P[i, j] + P[j, i] must be 1")
    solved = scipy.optimize.linprog(
        np.zeros(len(game)), A_ub=-game.T, b_ub=np.zeros(len(game)), A_eq=np.ones((1, len(game))), b_eq=[1]
    )
    if not solved.success:
        raise InputError(f"minimax_winner: no mixture was found ({solved.message})")
    return np.asarray(solved.x)


def average_mixture(turns: Turns, item: str, number: int) -> np.ndarray:
    """Share of each of 0 to `number` - 1 in column `item` of `Turns`, over all iterations: float64[number].

    Under `self_play_preference` it tends to the minimax winner, while the last policy may go round in circles.

    Raises:
        MissingColumnError: the table lacks the column of items.
        InputError: an item is not a whole number from 0 to `number` - 1.

    >>> average_mixture(Turns({"iteration": [1, 1, 2, 2], "answer": [0, 0, 0, 1]}), "answer", 3)
    array([0.75, 0.25, 0.  ])
    """
    turns._require(item, "average_mixture: ")
    items = np.asarray(as_signal(item).evaluate(turns), float)
    items = items[~np.isnan(items)]
    kind = items.astype(np.int64)
    if ((kind != items) | (kind < 0) | (kind >= number)).any():
        raise InputError(f"average_mixture: an item is not a whole number from 0 to {number - 1}")
    counts = np.bincount(kind, minlength=number)
    return np.asarray(counts / max(counts.sum(), 1))


def preference_exploitability(mixture: np.ndarray, preference: np.ndarray) -> float:
    """Exploitability of a mixture by matrix `preference`: most an item is preferred to it above 1/2, 0 for a winner."""
    return float(((np.asarray(preference) - 0.5) @ mixture).max())
