"""Ranking: rewards and weights from the order of the episodes of a group rather than from their values."""

from __future__ import annotations

import numpy as np

from palaestra.algebra import samples
from palaestra.algebra.codes import Codes
from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.keys import is_first, joined, rank_among, turn_values
from palaestra.algebra.returns import agent_return, episode_score
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    Ties,
    as_signal,
    count,
    fill_missing,
    is_missing,
    lowest,
    mean,
    per_turn,
    rank,
    ratio,
    register,
    standardise,
    total,
    where,
)
from palaestra.errors import ExpressionError


@register()
def rank_reward(
    score: SignalLike, *, over: Keys = "group", unit: Keys = "episode", best: float = 1.0, ties: Ties = "average"
) -> Signal:
    """Signal: reward best · (1 - k/(n - 1)) of the k-th best of the n units in the key, k from 0: from `best` to 0.

    A unit that is alone gets `best`.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"group": [0] * 4, "episode": [0, 1, 2, 3], "reward": [5.0, 1.0, 5.0, 3.0]})
    >>> rank_reward("reward").evaluate(turns).round(4)
    array([0.8333, 0.    , 0.8333, 0.3333])
    """
    place = rank_among(-as_signal(score), over=over, unit=unit, ties=ties) - 1.0
    number = count(mean(score, over=unit), over=over, where=is_first(over=unit))
    return best * (1.0 - ratio(place, number - 1.0))


@register()
def dominance(first: SignalLike, second: SignalLike, *, over: Keys = "group", unit: Keys = "episode") -> Signal:
    """Signal: number of other units in the key that are smaller in both signals (each as its mean over the unit).

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"group": [0] * 3, "episode": [0, 1, 2], "reward": [1.0, 2.0, 3.0], "cost": [1.0, 3.0, 2.0]})
    >>> dominance("reward", "cost").evaluate(turns)
    array([0., 1., 1.])
    """
    values = (mean(first, over=unit), mean(second, over=unit))
    return mean(smaller_in_both(*values, over=over, where=is_first(over=unit)), over=unit)


@register()
def smaller_in_both(first: SignalLike, second: SignalLike, *, over: Keys, where: SignalLike) -> Signal:
    """Signal: number of the key's rows in `where` that are smaller in both signals; missing outside `where`."""
    inputs = (as_signal(first), as_signal(second))
    return Signal("smaller_in_both", *inputs, over=joined(over), where=as_signal(where))


@kernel("smaller_in_both")
def _dominance(evaluation: Evaluation, node: Signal) -> np.ndarray:
    a, b, keep = turn_values(evaluation, node, (*node.inputs, node.options["where"]))
    rows = np.flatnonzero((keep == 1) & ~np.isnan(a + b))
    result = np.full(len(a), np.nan)
    a, b = (samples.without_noise(each[rows]) for each in (a, b))
    result[rows] = _smaller_in_both(a, b, evaluation.codes(node.options["over"]).ids[rows])
    return result


def _smaller_in_both(a: np.ndarray, b: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """For each i, how many j of the same id have a_j < a_i and b_j < b_i; O(n log n), all ids at once.

    Each element has a place by a within its id. In the order of b, all of them fall through the bits of their place (a
    wavelet tree): whoever goes right where others went left before has met a smaller a with a smaller b. Equal a are
    placed, and equal b visited, in the order in which they do not count.
    """
    number = len(ids)
    by_place = np.lexsort((-b, a, ids))
    sizes = np.bincount(ids)
    place = np.empty(number, np.int64)
    place[by_place] = np.arange(number) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    visit = np.lexsort((-place, b, ids))
    node = ids.astype(np.int64)
    below = np.zeros(number)
    for bit in reversed(range(int(sizes.max(initial=1) - 1).bit_length())):
        right = (place[visit] >> bit) & 1
        start = np.flatnonzero(np.diff(node[visit], prepend=-1))
        left_so_far = np.cumsum(1 - right)
        before_node = np.repeat(left_so_far[start] - (1 - right[start]), np.diff(start, append=number))
        below[visit] += right * (left_so_far - before_node)
        node = 2 * node + ((place >> bit) & 1)
        visit = visit[np.argsort(node[visit], kind="stable")]
    return below


@register()
def ndcg(order: SignalLike, gain: SignalLike, *, over: Keys = "group", unit: Keys = "episode") -> Signal:
    """Signal: NDCG of an order, how well it puts large gains first: its DCG over the best order's; one value per key.

    DCG = Σ gain / log2(rank + 1), rank 1 for the largest `order`; equal ones share their discounts. 1 if all gains are
    0 and no order is better than another.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"group": [0] * 3, "episode": [0, 1, 2], "reward": [1.0, 0.5, 0.0], "cost": [1.0, 2.0, 3.0]})
    >>> ndcg("cost", "reward").evaluate(turns).round(4)
    array([0.6199, 0.6199, 0.6199])
    """
    one, by_unit, value = is_first(over=unit), mean(order, over=unit), mean(gain, over=unit)
    both = ~is_missing(by_unit) & ~is_missing(value)  # who has no place, or no gain, is in neither sum
    by_unit, value = where(both, by_unit), where(both, value)

    def discounted(by: Signal) -> Signal:
        return total(value * discount(by, over=over, where=one), over=over, where=one)

    return ratio(discounted(by_unit), discounted(value), otherwise=1.0)


@register()
def discount(order: SignalLike, *, over: Keys = "group", where: SignalLike) -> Signal:
    """Signal: DCG's discount 1 / log2(rank + 1) among the key's rows in `where`, rank 1 for the largest `order`.

    Missing elsewhere.
    Equal ones share the mean of their discounts.
    """
    return Signal("discount", as_signal(order), over=joined(over), where=as_signal(where))


@kernel("discount")
def _discount(evaluation: Evaluation, node: Signal) -> np.ndarray:
    by, keep = turn_values(evaluation, node, (*node.inputs, node.options["where"]))
    rows = np.flatnonzero((keep == 1) & ~np.isnan(by))
    ids, size = evaluation.codes(node.options["over"])
    inside, every = Codes(ids[rows], size), np.ones(len(rows), bool)
    first, last = (samples.rank(-by[rows], inside, every, ties).astype(int) for ties in ("min", "max"))
    each = 1.0 / np.log2(np.arange(2.0, len(rows) + 2.0))  # of ranks 1, 2, ...
    until = np.append(0.0, np.cumsum(each))
    result = np.full(len(by), np.nan)
    result[rows] = np.where(first == last, each[first - 1], (until[last] - until[first - 1]) / (last - first + 1))
    return result


# -- named methods ----------------------------------------------------------------------------------------------------


@register()
def comam_reward(local: SignalLike | None = None, outcome: SignalLike = "success") -> Signal:
    """Signal: reward of [147] CoMAM (2603.12631), own return + w · R; w: NDCG of R by own return, sum 1 over agents.

    r_a is the agent's own reward in the episode (default: its return), R >= 0 the outcome of the whole, c_a the NDCG of
    R in the order of r_a over the group's episodes: who ranks episodes as the outcome does gets most of it.
    """
    score = agent_return() if local is None else as_signal(local)
    own, whole = mean(score, over=("episode", "agent")), mean(outcome, over="episode")
    c = ndcg(score, whole, over=("group", "agent"), unit=("episode", "agent"))
    each = c / count(over=("group", "agent"))  # c stands on all rows of the agent
    return own + ratio(c, total(each, over="group")) * whole


@register()
def comam(local: SignalLike | None = None, outcome: SignalLike = "success") -> Signal:
    """Signal: [147] CoMAM, GRPO of `comam_reward`, each agent by itself: key (group, agent), every episode one sample.

    From secondary text; there is no code.
    """
    return standardise(comam_reward(local, outcome), over=("group", "agent"), unit="episode")


@register()
def entropy_rank_reward(
    entropies: SignalLike = "entropies",
    *,
    among: SignalLike = True,
    top: float = 0.1,
    best: float = 1.0,
    ties: Ties = "average",
) -> Signal:
    """Signal: R³'s reward [83] by rank in the group: i beats j if its peak entropy is higher, its mean entropy lower.

    Peak: mean of the episode's top max(1, ⌊top·L⌋) token entropies. The reward falls evenly from `best` to 0 in the
    order of episodes beaten. among: mask of the episodes that are ranked; others have none. Equals share the mean of
    their places; ties="ordinal" goes by the order of the table.

    Raises:
        ExpressionError: top is outside (0, 1].
    """
    if not 0 < top <= 1:
        raise ExpressionError(f"entropy_rank_reward: top={top} is outside (0, 1]")
    given = as_signal(entropies)
    place = rank(-given, over="episode", ties="ordinal")
    chosen = (place <= top * count(given, over="episode")) | (place == 1.0)
    if not (isinstance(among, bool) and among):
        given = where(among, given)
    peak, typical = mean(given, over="episode", where=chosen), mean(given, over="episode")
    return rank_reward(dominance(per_turn(peak), -per_turn(typical)), best=best, ties=ties)


@register()
def r3_score(
    score: SignalLike | None = None, *, failed: float = 0.0, top: float = 0.1, best: float = 1.0, ties: Ties = "average"
) -> Signal:
    """Signal: R³ [83], the episode's score, but `entropy_rank_reward` in groups whose every episode failed or was cut.

    failed: the highest score that counts as a failure. Episodes without a score stay without one, and are not ranked.
    """
    r = episode_score(score)
    lost = lowest((r <= failed) | fill_missing("truncated", False), over="group", where=~is_missing(r))
    ranked = entropy_rank_reward(among=~is_missing(r), top=top, best=best, ties=ties)
    return where(~is_missing(r), where(lost, ranked, r))
