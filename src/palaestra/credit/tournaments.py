"""Tournaments: a ranking of a group's episodes from comparisons of two, and rewards from it.

A judge is a call, so a tournament is a function of items that fills a column (`by_group`); the signals turn the column
into credit. Where published code breaks, this does not: a group of one has reward 0, and byes go to the top seeds.
Left out: Bradley-Terry and other ratings, which belong to evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import polars as pl

from palaestra.algebra.keys import rank_among
from palaestra.algebra.signals import Signal, SignalLike, as_signal, highest, ratio, register, standardise
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, nearest

Item = TypeVar("Item")
Judge = Callable[[Item, Item], tuple[float, float]]
"""Scores of the first and of the second; it may depend on the order, so both orders are asked."""
Topology = Literal["anchor", "round_robin", "swiss", "single_elimination", "double_elimination", "seeded_single"]
DRAW = (5.0, 5.0)
"""What counts when the judge fails."""


class Standing(NamedTuple):
    """Result of a tournament of answers: a score for each, larger is better, and the number of comparisons.

    score: larger is better, float64[n]; eliminations have no ties. comparisons: pairs judged, in both orders.
    """

    score: np.ndarray
    comparisons: int


def tournament(
    items: Sequence[Item],
    judge: Judge[Item],
    *,
    topology: Topology = "seeded_single",
    rng: np.random.Generator | None = None,
) -> Standing:
    """`Standing`, scores of `items` by function `judge`'s comparisons of two, in the given topology (arXiv 2601.06487).

    Topologies are as in the released code.
    Each pair is judged in both orders and the scores are added; a judge that raises counts as 5 to 5.

    anchor: everyone against item 0, n - 1 comparisons; the score is what the judge gave, item 0's is its mean.
    round_robin: everyone against everyone, n(n - 1)/2; a win 1, a draw 1/2.
    swiss: ⌈log2 n⌉ rounds among equals without rematches, a bye 1 point; ties by the points of those met (Buchholz).
    single_elimination, double_elimination: drawn at random; out after one defeat or two.
    seeded_single: anchor pairs give the seeds, then a bracket in which the best meet late, 2(n - 1) in all. A draw goes
    to whoever stands first in the bracket; those who lose in one round are ordered by their mean points so far.

    Raises:
        InputError: the topology is unknown, or it is drawn and rng is not given.
    """
    if topology not in _TOPOLOGIES:
        raise InputError(f"tournament: topology={topology!r}{nearest(str(topology), _TOPOLOGIES)}")
    if topology in ("single_elimination", "double_elimination") and rng is None:
        raise InputError(f"tournament: {topology} is drawn at random: give rng=np.random.default_rng(seed)")
    floor = _Floor(items, judge)
    if not len(items):
        return Standing(np.zeros(0), 0)
    return Standing(np.asarray(_TOPOLOGIES[topology](floor, rng), float), floor.comparisons)


class _Floor:
    """Where pairs are judged; remembers everyone's points."""

    def __init__(self, items: Sequence[Any], judge: Judge[Any]) -> None:
        self.items, self.judge = items, judge
        self.number = len(items)
        self.comparisons = 0
        self.points: list[list[float]] = [[] for _ in items]

    def meet(self, i: int, j: int) -> float:
        """I's points minus j's."""
        one, other = self._ask(i, j), self._ask(j, i)
        mine, theirs = one[0] + other[1], one[1] + other[0]
        self.comparisons += 1
        self.points[i].append(mine)
        self.points[j].append(theirs)
        return mine - theirs

    def _ask(self, i: int, j: int) -> tuple[float, float]:
        try:
            return self.judge(self.items[i], self.items[j])
        except Exception:  # a judge is a model call or a user's function: whatever it raises, the pair is a draw
            return DRAW

    def average(self, i: int) -> float:
        """Mean points so far."""
        return float(np.mean(self.points[i])) if self.points[i] else 0.0


def _anchor(floor: _Floor, rng: np.random.Generator | None) -> list[float]:
    for other in range(1, floor.number):
        floor.meet(0, other)
    return [floor.average(i) for i in range(floor.number)]


def _round_robin(floor: _Floor, rng: np.random.Generator | None) -> np.ndarray:
    wins = np.zeros(floor.number)
    for i in range(floor.number):
        for j in range(i + 1, floor.number):
            wins[i] += (won := (np.sign(floor.meet(i, j)) + 1) / 2)
            wins[j] += 1 - won
    return wins


def _swiss(floor: _Floor, rng: np.random.Generator | None) -> np.ndarray:
    points, met = np.zeros(floor.number), np.zeros((floor.number, floor.number), bool)
    rested = np.zeros(floor.number, bool)
    for _ in range(min(math.ceil(math.log2(max(floor.number, 1))), floor.number - 1)):
        waiting = [int(i) for i in np.argsort(-points, kind="stable")]
        resting = [i for i in reversed(waiting) if not rested[i]] if len(waiting) % 2 else [-1]
        ways = ((idle, _unmet([i for i in waiting if i != idle], met)) for idle in resting)
        idle, pairs = next((idle, pairs) for idle, pairs in ways if pairs is not None)  # so few rounds leave one
        if idle >= 0:
            rested[idle] = True
            points[idle] += 1
        for i, j in pairs:
            met[i, j] = met[j, i] = True
            points[i] += (won := (np.sign(floor.meet(i, j)) + 1) / 2)
            points[j] += 1 - won
    buchholz = met @ points
    return points + buchholz / (1.0 + 2 * max(float(buchholz.max(initial=0.0)), 1.0))  # breaks ties of 1/2, no more


def _unmet(waiting: list[int], met: np.ndarray) -> list[tuple[int, int]] | None:
    """Pairs of neighbours in the order given, who have not met; the first such pairing, None if there is none."""
    if not waiting:
        return []
    i, *rest = waiting
    for j in rest:
        if not met[i, j] and (others := _unmet([k for k in rest if k != j], met)) is not None:
            return [(i, j), *others]
    return None


def _eliminate(floor: _Floor, rng: np.random.Generator | None, lives: int) -> np.ndarray:
    """In every round those with as many defeats are paired at random; an odd one out waits."""
    assert rng is not None
    left, out = np.full(floor.number, lives), []
    while (left > 0).sum() > 1:
        fallen = []
        pools = [rng.permutation(np.flatnonzero(left == each)) for each in range(lives, 0, -1)]
        if all(len(pool) < 2 for pool in pools):  # the last of each pool meet
            pools = [np.concatenate(pools)]
        for pool in pools:
            for i, j in zip(pool[0::2], pool[1::2], strict=False):
                loser = int(j) if floor.meet(int(i), int(j)) >= 0 else int(i)
                left[loser] -= 1
                fallen += [loser] if left[loser] == 0 else []
        out += sorted(fallen, key=floor.average)
    return _placed([*out, *np.flatnonzero(left > 0)])


def _single(floor: _Floor, rng: np.random.Generator | None) -> np.ndarray:
    return _eliminate(floor, rng, 1)


def _double(floor: _Floor, rng: np.random.Generator | None) -> np.ndarray:
    return _eliminate(floor, rng, 2)


def _seeded(floor: _Floor, rng: np.random.Generator | None) -> np.ndarray:
    seeds = np.argsort(-np.array(_anchor(floor, rng)), kind="stable")
    bracket = [0]
    while len(bracket) < floor.number:
        bracket = [place for seed in bracket for place in (seed, 2 * len(bracket) - 1 - seed)]
    alive: list[int | None] = [int(seeds[place]) if place < floor.number else None for place in bracket]
    out: list[int] = []
    while len(alive) > 1:
        through, fallen = [], []
        for i, j in zip(alive[0::2], alive[1::2], strict=True):
            if i is None or j is None:  # a bye; the weaker seeds are the ones who are not there
                through.append(j if i is None else i)
                continue
            winner, loser = (i, j) if floor.meet(i, j) >= 0 else (j, i)
            through.append(winner)
            fallen.append(loser)
        out += sorted(fallen, key=floor.average)
        alive = through
    return _placed([*out, *(i for i in alive if i is not None)])


def _placed(order: Sequence[int]) -> np.ndarray:
    """Scores 0, 1, 2 ... from the order in which items left, the first to leave first."""
    score = np.empty(len(order))
    score[list(order)] = np.arange(len(order))
    return score


_TOPOLOGIES: dict[str, Callable[[_Floor, np.random.Generator | None], Any]] = {
    "anchor": _anchor,
    "round_robin": _round_robin,
    "swiss": _swiss,
    "single_elimination": _single,
    "double_elimination": _double,
    "seeded_single": _seeded,
}


def by_group(
    turns: Turns, function: Callable[[list[Any]], Sequence[float] | np.ndarray], *, name: str, column: str = "action"
) -> Turns:
    """`Turns` with column `name`: `function` of the list of a group's last `column` values, a number for each episode.

    The item of an episode is the column on its last row (of agents that act at once, the last by name), and its number
    stands on all of its rows. Items come in the order of the episodes' numbers. An episode without an item (null or
    NaN) is not in the list, and its number is missing.

    Raises:
        InputError: the function does not give a number for each item.
        MissingColumnError: the table lacks group, episode, turn or the column.
    """
    for needed in ("group", "turn", column):
        turns._require(needed, "by_group: ")
    episode = [name for name in turns.key_columns(["episode"]) if name != "group"] + ["group"]
    order = [pl.col("turn"), *([pl.col("agent").cast(pl.String)] if "agent" in turns.columns else [])]
    last = turns.frame.group_by(episode, maintain_order=True).agg(
        pl.col(column).sort_by(*order, maintain_order=True).last()
    )
    has_item = pl.col(column).is_not_null()
    if last.schema[column].is_float():
        has_item &= pl.col(column).is_not_nan()
    key = [name for name in episode if name != "episode"]
    parts = []
    for group in last.filter(has_item).sort("episode").partition_by(key, maintain_order=True):
        found = np.asarray(function(group[column].to_list()), float)
        if found.shape != (len(group),):
            raise InputError(
                f"by_group: {name!r} has shape {found.shape} for {len(group)} episodes; give one number each"
            )
        parts.append(group.select(episode).with_columns(pl.Series(name, found)))
    if not parts:
        return turns.with_column(**{name: np.full(len(turns), np.nan)})
    joined = turns.frame.join(pl.concat(parts), on=episode, how="left", nulls_equal=True, maintain_order="left")
    return turns.with_column(**{name: joined[name]})


@register()
def arena_rl(score: SignalLike = "arena", *, ddof: int = 1, eps: float = 1e-6) -> Signal:
    """Signal: [100] ArenaRL (arXiv 2601.06487), GRPO of the reward by rank, (last rank - rank) / (last rank - 1).

    score: of a `tournament`, filled by `by_group`. Equals share the better rank; if all are equal, or one is alone, the
    reward is 0. Checked against the released code. There the judge's score is 0.6 · process + 0.4 · answer.
    """
    place = rank_among(-as_signal(score), ties="min")
    last = highest(place, over="group")
    return standardise(ratio(last - place, last - 1.0), over="group", unit="episode", ddof=ddof, eps=eps)
