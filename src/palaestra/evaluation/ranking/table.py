"""The ranking: one table with a score, its interval and an interval of ranks for every system, by a method or by test.

Left out: rating matches one after another as they arrive (`elo` does that), and pages (the report draws).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
import scipy

from palaestra.errors import InputError, nearest
from palaestra.evaluation.intervals import RESAMPLES, wilson
from palaestra.evaluation.ranking.alpha_rank import alpha_rank
from palaestra.evaluation.ranking.bradley_terry import bradley_terry
from palaestra.evaluation.ranking.elo import elo, elo_resampled
from palaestra.evaluation.ranking.intransitivity import Transitivity, transitivity
from palaestra.evaluation.ranking.matches import Matches
from palaestra.evaluation.ranking.nash_averaging import nash_averaging
from palaestra.evaluation.ranking.voting import RULES, vote

SCALE, CENTRE = 400 / math.log(10), 1000.0
SMOOTH = ("bradley_terry", "davidson", "average_win_rate", "borda")
METHODS = ("auto", "bradley_terry", "davidson", "elo", "alpha_rank", "nash", *RULES)


@dataclass(frozen=True)
class Ranking:
    """Data of a ranking of systems with intervals, the method that made it, and the transitivity test.

    table: `system, score, low, high, rank, rank_low, rank_high, n, wins, losses, draws`, the best first.

    method: what made the score. transitivity: the test that chose, or would have chosen. note: one sentence.
    """

    table: pl.DataFrame
    method: str
    transitivity: Transitivity
    note: str


def rank(
    matches: Matches, method: str = "auto", *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Ranking:
    """A `Ranking` of the systems of `Matches`, by a method (automatic by default), with intervals.

    method: "bradley_terry" and "davidson" (in Elo points, 400 to a factor 10 of the odds, mean 1000, with a prior of
    one drawn game against an average system), "elo" (mean over 200 random orders), "alpha_rank" (infinite alpha),
    "nash" (expected win share against the Nash average), a voting rule, or "auto": Bradley-Terry unless a cycle is
    significant (`transitivity`), then alpha-Rank.

    low, high: bootstrap over clusters of matches (tasks, if there are several), with an imaginary match against every
    step of the order that no result contradicts (`Matches.with_upsets`). For smooth scores (`SMOOTH`: Bradley-Terry,
    win rates, Borda) the bootstrap's standard deviation with Student's t; else percentiles, which are conservative for
    scores that move in jumps ("alpha_rank", "copeland" and the like) and for "elo", whose draws also carry the luck of
    the order. Simulated with four systems; not for "nash". n: matches of the system.

    Raises:
        InputError: there is no such method.
    """
    if method not in METHODS:
        raise InputError(f"rank: method={method!r}{nearest(method, METHODS)}")
    wins, ties = matches.wins(), matches.ties()
    worth = matches.worth()
    test = transitivity(wins * worth, ties * worth, resamples=resamples, seed=seed)
    chosen = test.trust if method == "auto" else method
    score, drawn = scores(matches, chosen, resamples=resamples, seed=seed)
    clusters = int(matches.cluster.max()) + 1
    if chosen in SMOOTH:
        margin = scipy.stats.t.ppf((1 + level) / 2, max(clusters - 1, 1)) * np.nanstd(drawn, axis=0, ddof=1)
        low, high = score - margin, score + margin
    else:
        low, high = np.nanquantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    groups = matches.groups()
    first, last = rank_intervals(score, drawn, level=level, clusters=clusters, groups=groups)
    table = pl.DataFrame(
        {
            "system": matches.names,
            "score": score,
            "low": low,
            "high": high,
            "rank": ranks(score),
            "rank_low": first,
            "rank_high": last,
            "n": (wins + wins.T + ties).sum(1),
            "wins": wins.sum(1),
            "losses": wins.sum(0),
            "draws": ties.sum(1),
        }
    )
    return Ranking(table.sort("rank", "system"), chosen, test, _note(table, chosen, test, method, groups))


def scores(
    matches: Matches, method: str, *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(scores float64[n], bootstrap draws float64[resamples, n]) of the systems of `Matches` by a ranking method."""
    rng = np.random.default_rng(seed)
    if method == "elo":
        mean = elo(matches, orders=200, seed=seed).mean(axis=0)
        return mean, elo_resampled(matches.with_upsets(), min(resamples, 500), rng)
    wins, ties = matches.with_upsets().resampled(resamples, rng)
    reducer = _reducer(method)
    return reducer(matches.wins()[None], matches.ties()[None])[0], reducer(wins, ties)


def _reducer(method: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    if method in ("bradley_terry", "davidson"):
        model = "half" if method == "bradley_terry" else "davidson"
        return lambda wins, ties: CENTRE + SCALE * bradley_terry(wins, ties, model=model, prior=1.0)

    def preferred(wins: np.ndarray, ties: np.ndarray) -> np.ndarray:
        return wins + ties / 2

    if method == "alpha_rank":
        return lambda wins, ties: alpha_rank(_shares(preferred(wins, ties)))
    if method == "nash":
        return lambda wins, ties: np.array([_nash(p) for p in _shares(preferred(wins, ties))])
    return lambda wins, ties: np.array([vote(p, method) for p in preferred(wins, ties)])


def _shares(preferred: np.ndarray) -> np.ndarray:
    """Win shares; 1/2 for pairs that never met."""
    games = preferred + preferred.swapaxes(-1, -2)
    return np.where(games > 0, preferred / np.where(games > 0, games, 1.0), 0.5)


def _nash(shares: np.ndarray) -> np.ndarray:
    return np.asarray(shares @ nash_averaging(shares - shares.T).equilibrium[0])


def ranks(score: np.ndarray) -> np.ndarray:
    """Ranks of scores, int[n]: 1 for the largest; equals share the better rank.

    >>> ranks(np.array([0.5, 2.0, 0.5])).tolist()
    [2, 1, 2]
    """
    return np.asarray(scipy.stats.rankdata(-np.round(score, 9), method="min").astype(int))


def rank_intervals(
    score: np.ndarray,
    drawn: np.ndarray,
    *,
    level: float = 0.95,
    clusters: int | None = None,
    groups: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Confidence intervals of ranks, (first, last), int[n] each, from scores and their bootstrap draws.

    Mogstad, Romano, Shaikh & Wilhelm 2024.

    One more than the number of systems that are surely better, and n less those that are surely worse; "surely" by the
    bootstrap of studentised differences to *all* others at once, and, for scores that move in jumps, few draws turn the
    order of the two around. So it is conservative: the true rank is inside at least 95 % of the time,
    far more often where systems are well apart or equal: ranks are whole numbers. Percentiles of bootstrapped ranks
    have no such guarantee among systems that are close.

    clusters: what was drawn from; few of them widen the interval as Student's t does. groups: int[n]; between systems
    of different groups nothing is sure.
    """
    n = len(score)
    few = 1.0
    if clusters is not None:
        few = float(scipy.stats.t.ppf((1 + level) / 2, max(clusters - 1, 1)) / scipy.stats.norm.ppf((1 + level) / 2))
    better, worse = np.zeros(n, int), np.zeros(n, int)
    for i in range(n):
        gap, spread = score - score[i], drawn - drawn[:, i : i + 1]
        error = spread.std(axis=0)
        use = error > 1e-12
        turned = (np.sign(spread) != np.sign(gap)).mean(axis=0)
        surely = np.where(use, False, np.abs(gap) > 1e-9)
        if use.any():
            z = np.abs(spread - spread.mean(axis=0))[:, use] / error[use]
            surely[use] = np.abs(gap[use]) > np.quantile(z.max(axis=1), level) * few * error[use]
        surely &= turned <= (1 - level) / max(n - 1, 1)
        surely &= groups is None or groups == groups[i]
        better[i], worse[i] = (surely & (gap > 0)).sum(), (surely & (gap < 0)).sum()
    return 1 + better, n - worse


def _note(table: pl.DataFrame, chosen: str, test: Transitivity, asked: str, groups: np.ndarray) -> str:
    top = table.sort("rank", "system")
    leader = top["system"][0]
    rivals = top.filter((pl.col("rank_low") == 1) & (pl.col("system") != leader))["system"].to_list()
    settled = f"{leader} is first" if not rivals else f"cannot tell who is first: {', '.join([leader, *rivals][:6])}"
    why = f"{chosen}: {test.reason}" if asked == "auto" else f"{chosen}, as asked; {test.reason}"
    apart = ""
    if groups.max() > 0:
        names = [
            ", ".join(table.filter(pl.Series(groups == g))["system"].to_list()[:6]) for g in range(groups.max() + 1)
        ]
        apart = f"; never met, not even through others: {' | '.join(names[:6])}"
    matches = round(test.matches)
    return f"{settled} ({matches} match{'es' * (matches != 1)}, {why}){apart}"


def win_table(matches: Matches) -> pl.DataFrame:
    """Table, a row per ordered pair of systems that met in `Matches`: share won (draws half) with interval, games n.

    Columns: `system, opponent, share, low, high, n`; each pair has two rows.
    """
    points = matches.wins() + matches.ties() / 2
    games = points + points.T
    i, j = np.nonzero(games > 0)
    low, high = wilson(points[i, j], games[i, j])
    names = np.array(matches.names)
    columns = {"system": names[i], "opponent": names[j], "share": points[i, j] / games[i, j], "low": low, "high": high}
    return pl.DataFrame(columns | {"n": games[i, j]})
