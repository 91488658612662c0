"""Every ranking, rating and lottery on small games with ties and cycles gives what it gave; see `tests.frozen`."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.frozen import Case, changed, kinds, write

from palaestra.evaluation import ranking as r
from palaestra.evaluation.intervals import wilson
from palaestra.evaluation.ranking import intransitivity, stationary, voting
from palaestra.evaluation.ranking.adaptive import PayoffEstimate, ResponseGraph
from palaestra.evaluation.ranking.alpha_rank import alpha_rank, marginals
from palaestra.evaluation.ranking.elo import elo_resampled
from palaestra.evaluation.ranking.matches import RowCounts
from palaestra.evaluation.ranking.nash_averaging import nash_averaging, scale_tasks
from palaestra.evaluation.ranking.table import _nash, _shares

FROZEN = Path(__file__).with_name("frozen.json")
FEW = 40
CHANCES = np.array([[0.5, 0.7, 0.4, 0.8], [0.3, 0.5, 0.75, 0.6], [0.6, 0.25, 0.5, 0.5], [0.2, 0.4, 0.5, 0.5]])
TABLES = {
    "a cycle": np.array([[0, 9, 1], [1, 0, 9], [9, 1, 0]]),
    "an order": np.array([[0, 5, 6, 9], [2, 0, 4, 7], [1, 3, 0, 4], [0, 1, 3, 0]]),
    "two pairs": np.array([[0, 2, 0, 0], [2, 0, 0, 0], [0, 0, 0, 3], [0, 0, 1, 0]]),
    "equals": np.array([[0, 3], [3, 0]]),
    "hard": np.array([[0, 8, 2, 5], [2, 0, 7, 5], [8, 3, 0, 5], [5, 5, 5, 0]]),
    "a weak cycle": np.array([[0, 3, 2], [2, 0, 3], [3, 2, 0]]),
}
TIES = {n: 2 * np.triu(np.arange(n * n).reshape(n, n) % 3, 1) for n in (2, 3, 4)}


@cache
def played(kind: str) -> r.Matches:
    """Matches of four; with draws, weights, tasks, or none but draws."""
    rng = np.random.default_rng(len(kind))
    a, b = rng.integers(0, 4, 36), rng.integers(1, 4, 36)
    b = (a + b) % 4
    score = (rng.random(36) < CHANCES[a, b]).astype(float)
    if "draws" in kind:
        score[::3] = 0.5
    if "only" in kind:
        score[:] = 0.5
    if "clear" in kind:
        score = (a < b).astype(float)
    if "apart" in kind:
        keep = (a < 2) == (b < 2)
        a, b, score = a[keep], b[keep], score[keep]
    weight = rng.integers(1, 4, len(a)).astype(float) if "weights" in kind else None
    task = pl.Series([None, *(rng.integers(0, 9, len(a) - 1)).tolist()]) if "tasks" in kind else None
    names = np.array([*"dbca"])
    return r.matches(names[a].tolist(), names[b].tolist(), score, weight, task)


KINDS = (
    "plain",
    "draws",
    "only draws",
    "clear",
    "apart",
    "weights and draws",
    "tasks and draws",
    "tasks, weights, draws",
)


def of_matches() -> Iterator[tuple[str, Case]]:
    for kind in KINDS:
        yield (
            f"counts, {kind}",
            lambda k=kind: [played(k).wins(), played(k).ties(), played(k).groups(), len(played(k)), played(k)],
        )
        yield f"upsets, {kind}", lambda k=kind: played(k).with_upsets()
        yield f"resampled, {kind}", lambda k=kind: played(k).resampled(9, np.random.default_rng(1))
        yield f"wins, {kind}", lambda k=kind: r.win_table(played(k))
        yield (
            f"elo, {kind}",
            lambda k=kind: [
                r.elo(played(k)),
                r.elo(played(k), k=16, initial=0, base=2, scale=100),
                r.elo(played(k), orders=3, seed=2),
                elo_resampled(played(k), 3, np.random.default_rng(2)),
                elo_resampled(played(k), 2, np.random.default_rng(3), k=10),
            ],
        )
    for method in (*r.METHODS,):
        for kind in ("draws", "clear", "tasks and draws", "apart", "only draws"):
            rough = "~" if method in ("nash", "maximal_lottery") else ""
            yield f"rank, {method}, {kind}{rough}", lambda m=method, k=kind: r.rank(played(k), m, resamples=FEW)
    some = pl.Series(["t", "u", None, None, "t"])
    yield "some tasks are missing", lambda: r.matches([*"aaabb"], [*"bccca"], np.ones(5), task=some)
    for won in ("ab ac", "ac ab", "ad bc", "ac bd", "da cb", "db ca", "ab ac bd cd", "ba ca db dc"):
        a, b = (list(side) for side in zip(*won.split(), strict=True))
        partly = r.matches(a, b, np.ones(len(a)))
        yield f"upsets of {won}", lambda m=partly: m.with_upsets()
    for score in (0.0, 0.5, 1.0):
        once = r.matches(["x"], ["y"], np.array([score]))
        yield f"one match, {score}", lambda m=once: [r.rank(m, k, resamples=9) for k in ("bradley_terry", "copeland")]
    cycle = TABLES["a cycle"]
    pairs = [(i, j) for i in range(3) for j in range(3) for _ in range(int(cycle[i, j]))]
    turn = r.matches([*map(str, (i for i, _ in pairs))], [*map(str, (j for _, j in pairs))], np.ones(len(pairs)))
    yield "rank of a cycle", lambda: r.rank(turn, resamples=FEW, level=0.9)
    trials = pl.DataFrame(
        {
            "system": [*"aaabbbccc"],
            "run": "0",
            "task": ["t", "t", "u"] * 3,
            "success": [True, False, True, True, False, False, None, True, True],
            "score": [0.5, 1.0, 0.25, 0.5, 0.5, 0.5, 1.0, 0.0, math.nan],
        }
    )
    for value in ("success", "score"):
        for tie in (0.0, 0.25, 0.2):
            yield f"from trials, {value}, {tie}", lambda v=value, t=tie: r.matches_from_trials(trials, value=v, tie=t)
    yield (
        "from clusters",
        lambda: r.matches_from_trials(trials.with_columns(cluster=pl.col("task").replace({"u": "t"}))),
    )
    files: dict[str, Any] = {
        "a row has no result": {
            "a": ["x", "x", "y"],
            "b": ["y", "z", "z"],
            "winner": ["x", None, "tie"],
            "weight": [1, 2, 0.5],
        },
        "a name is missing": {"a": ["x", " ", "y"], "b": ["y", "z", "z"], "winner": ["x", "z", "z"]},
        "itself": {"a": ["x", "x"], "b": ["y", "x"], "winner": ["x", "x"]},
        "no weight": {"a": ["x"], "b": ["y"], "score": [1], "weight": [0]},
        "too heavy": {"a": ["x"], "b": ["y"], "score": [1], "weight": [1e15]},
        "nothing": {"a": ["x"], "b": ["y"], "score": [None]},
        "tasks": {"a": [1, 1], "b": [2, 3.0], "score": [0.5, 0], "task": ["t", "t"]},
        "questions": {"a": ["x"] * 3, "b": ["y"] * 3, "score": [1] * 3, "question": [5, 5, 6]},
        "two of three": {"model_a": ["x"], "model_b": ["y"], "winner_model_a": [1], "winner_model_b": [1]},
        "none of two": {
            "model_a": ["x"] * 3,
            "model_b": ["y"] * 3,
            "winner_model_a": [0, 1, None],
            "winner_model_b": [0, 0, 0],
        },
        "signs": {"a": ["x"] * 3, "b": ["y"] * 3, "result": [-1, 1, 0]},
        "from one": {"a": ["x"] * 2, "b": ["y"] * 2, "winner": [1, 2]},
        "either": {"a": ["x"], "b": ["y"], "winner": [1]},
        "goals": {"home": ["x"] * 3, "away": ["y"] * 3, "home_goals": [1, 2, 0], "away_goals": [1, 0, 2]},
        "not a score": {"a": ["x"], "b": ["y"], "score": [0.7]},
        "away": {"home": ["x", "x", "x"], "away": ["y", "y", "y"], "result": ["H", "A", "D"]},
        "won": {"winner": ["x", "y"], "loser": ["y", "x"], "tie": ["1", "0"]},
        "names": {"a": ["x"], "b": ["y"], "winner": ["q"]},
    }
    for name, columns in files.items():
        yield f"file, {name}", lambda c=columns: r.read_matches(pl.DataFrame(c, strict=False))
    counted = RowCounts(9, 7, 2, {"without": 2, "other": 0})
    yield "said of rows", lambda: [str(counted), str(RowCounts(3, 3, 0, {"without": 0}))]


def of_tables() -> Iterator[tuple[str, Case]]:
    for name, wins in TABLES.items():
        n, ties = len(wins), TIES[len(wins)]
        ties = ties + ties.T
        for prior in (0.0, 0.5, 1.0):
            yield (
                f"bradley-terry, {name}, {prior}",
                lambda w=wins, t=ties, p=prior: [
                    r.bradley_terry(w, prior=p),
                    r.bradley_terry(w, t, prior=p),
                    r.bradley_terry(w, t, model="davidson", prior=p),
                    r.bradley_terry(np.stack([w, w.T]), np.stack([t, 0 * t]), model="davidson", prior=p),
                    r.draw_parameter(w, t, prior=p),
                ],
            )
        yield f"chances, {name}", lambda w=wins: r.win_chance(np.log1p(w.sum(1)))
        yield (
            f"transitivity, {name}",
            lambda w=wins, t=ties: [
                r.transitivity(w, resamples=FEW),
                r.transitivity(w, t, resamples=FEW, seed=3),
                r.transitivity(20 * w, resamples=FEW),
            ],
        )
        yield (
            f"strongest, {name}",
            lambda w=wins: [
                intransitivity._strongest(w.astype(float), (w + w.T).astype(float)),
                intransitivity._cycle(w.astype(float), (w + w.T).astype(float)),
            ],
        )
        half = (wins + ties / 2).astype(float)
        for rule in voting.RULES:
            yield (
                f"vote, {rule}, {name}{'~' * (rule == 'maximal_lottery')}",
                lambda p=half, rule=rule: [r.vote(p, rule), r.vote(p.T, rule)],
            )
        shares = np.where(half + half.T > 0, half / np.maximum(half + half.T, 1), 0.5)
        for alpha in (math.inf, 3.0):
            yield (
                f"alpha-rank, {name}, {alpha}",
                lambda p=shares, a=alpha: [
                    alpha_rank(p, alpha=a),
                    alpha_rank(p, alpha=a, population=7, epsilon=0.1),
                    alpha_rank(np.stack([p, p.T]), alpha=a),
                ],
            )
        yield f"population, {name}", lambda p=shares: alpha_rank(p, alpha=2.0, selection="population", population=5)
        yield (
            f"several populations, {name}",
            lambda p=shares: [marginals(alpha_rank([p, 1 - p], alpha=a)) for a in (1.0, math.inf)],
        )
        yield f"nash, {name}~", lambda p=shares: [nash_averaging(p), nash_averaging(p - p.T), scale_tasks(p)]
        assert n
    for bad in (
        {"alpha": 0.0},
        {"population": 1},
        {"population": 2},
        {"epsilon": 0.0},
        {"epsilon": 0.5},
        {"epsilon": 0.49},
    ):
        yield f"alpha-rank, {bad}", lambda b=bad: alpha_rank(CHANCES, **b)
    yield "alpha-rank of equals", lambda: [alpha_rank(np.full((3, 3), 0.5), alpha=a) for a in (1.0, math.inf)]
    yield "alpha-rank of nearly equals", lambda: alpha_rank(np.array([[0.5, 0.5 + 1e-14], [0.5, 0.5]]))
    votes = np.array([[3.0, 1, 2, 3], [0, 1, np.nan, 2], [2, 2, 2, 2]])
    tied = np.array([[0.0, 1e-14], [0.0, 0.0]])  # the gain is the least that counts
    yield "alpha-rank at a tie", lambda: [alpha_rank(tied, alpha=a) for a in (1.0, 2.0, math.inf)]
    for name, wins in TABLES.items():
        yield f"steps of newton, {name}", lambda w=wins: few_steps(w, TIES[len(w)])
        yield (
            f"transitivity at its own p, {name}",
            lambda w=wins: [
                r.transitivity(w, resamples=FEW, alpha=p)
                for found in (r.transitivity(w, resamples=FEW),)
                for p in (found.cycle_p, found.fit_p)
            ],
        )
    coins = np.array([[0.0, 1], [0, -1], [0, 1], [0, -1]])
    leaning = np.array([[0.0, 1, 2], [0, 1, 2], [0, 1, 2], [0, -1, 2]])
    for level in (0.5, 0.6):
        yield (
            f"ranks at a tie, {level}",
            lambda lev=level: [
                *(r.rank_intervals(np.array([0.0, gap]), coins, level=lev) for gap in (0.5, 1.0, 2.0)),
                *(r.rank_intervals(np.array([0.0, gap, 9.0]), leaning, level=lev) for gap in (1.0, 5.0)),
                r.rank_intervals(np.array([0.0, 1e-9, 2e-9]), np.zeros((3, 3)) + np.arange(3), level=lev),
            ],
        )
    yield "ballots", lambda: [r.ballots(votes), r.plurality(votes), r.ranks(np.array([1.0, 3, 3, 2, 1 + 1e-10]))]
    far = np.array([[0.0, -900, -2000], [-1, 0, -800], [-3, -1500, 0]])
    yield (
        "rare steps",
        lambda: [
            stationary.stationary_distribution(far),
            stationary.stationary_distribution(np.stack([far, far.T]) / 500),
        ],
    )
    wide = np.random.default_rng(0).normal(size=(30, 30))
    yield "many states", lambda: stationary.stationary_distribution(wide)
    yield (
        "one way",
        lambda: stationary.stationary_distribution(np.array([[0, 0, -np.inf], [-np.inf, 0, 0.5], [-np.inf, 0, 0]])),
    )
    yield (
        "two ends",
        lambda: stationary.stationary_distribution(np.array([[0, -np.inf, -np.inf], [0, 0, 0], [-np.inf, -np.inf, 0]])),
    )
    drawn = np.random.default_rng(1).normal(size=(50, 4)) * 0.3
    for level, clusters, groups in (
        (0.95, None, None),
        (0.8, 5, None),
        (0.95, 2, None),
        (0.95, None, np.array([0, 0, 1, 1])),
    ):
        for score in (np.array([0.0, 1.0, 1.0, 5.0]), np.array([0.0, 0.1, 0.0, 0.6]), np.zeros(4)):
            yield (
                f"rank intervals, {level}, {clusters}, {groups is None}, {score}",
                lambda s=score, lev=level, c=clusters, g=groups: [
                    r.rank_intervals(s, s + drawn, level=lev, clusters=c, groups=g),
                    r.rank_intervals(s, s + 0 * drawn, level=lev, groups=g),
                    r.rank_intervals(s, s + np.round(drawn), clusters=c),
                ],
            )
    scores = np.array([[3.0, 1, 2], [2, 2, 2], [1, 3, 2], [1, 1, 1], [0, 0, 3]])
    for out in (0, 1, 2, (1, 0, 2), (0, 3, 0)):
        yield (
            f"swiss, {out}",
            lambda o=out: [
                r.swiss(scores, eliminate=o, simulations=200),
                r.swiss(scores, eliminate=o, exact=True),
                r.swiss(scores[:4], eliminate=o, exact=True, names=[*"abcd"]),
            ],
        )
    yield "swiss of two", lambda: [r.swiss(scores[:2], simulations=9), r.swiss(scores[:2], exact=True)]
    yield "logs", lambda: stationary._eliminate_logs(np.log(np.array([[1, 2, 3.0], [4, 1, 6], [7, 8, 1]])))
    yield "most of kemeny", lambda: voting.kemeny(np.triu(np.ones((voting._MOST, voting._MOST)), 1))
    yield "swiss of six", lambda: r.swiss(np.arange(12.0).reshape(6, 2) % 5, exact=True)
    for bad in (scores[:1], scores[0], np.full((2, 2), np.nan), np.zeros((7, 1))):
        yield f"swiss, {bad.shape}", lambda b=bad: r.swiss(b, exact=True)
    for drop in (-1, (0, 1)):
        yield f"swiss, eliminate {drop}", lambda d=drop: r.swiss(scores, eliminate=d, simulations=9)
    yield "failures", lambda: r.failure_sensitivity(scores, simulations=100)
    yield "shares", lambda: [_shares(TABLES["two pairs"].astype(float)), _nash(CHANCES), wilson(1, 2)]


def few_steps(wins: np.ndarray, ties: np.ndarray) -> object:
    """Where Newton's method is after two steps: its derivatives show."""
    fit = sys.modules["palaestra.evaluation.ranking.bradley_terry"]
    ties = ties + ties.T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "_STEPS", 2)
        return [
            found(x, t, prior=prior)
            for x, t in ((wins, ties), (np.stack([wins, wins.T]), np.stack([ties, 0 * ties])))
            for found in (r.bradley_terry, partial(r.bradley_terry, model="davidson"), r.draw_parameter)
            for prior in (0.5, 1.0)
        ]


def play(profile: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    won = float(rng.random() < CHANCES[profile])
    return np.array([won, 1 - won])


def of_plays() -> Iterator[tuple[str, Case]]:
    for interval in ("hoeffding", "clopper_pearson"):
        for rule in ("uniform_exhaustive", "uniform", "valence", "count"):
            yield (
                f"ucb, {interval}, {rule}",
                lambda i=interval, rule=rule: r.response_graph_ucb(
                    play, (3, 2), interval=i, method=rule, delta=0.2, most=120
                ),
            )
        yield (
            f"ucb, {interval}, split",
            lambda i=interval: r.response_graph_ucb(play, (2, 2), interval=i, split=True, slack=0.1, most=60),
        )
        yield f"bounds, {interval}", lambda i=interval: [filled(i).bounds(), filled(i).bounds((0, 1)), filled(i).mean]
    yield "settled", lambda: [closed(payoff, slack) for payoff in (0.5, 0.75, 1.0) for slack in (0.0, 0.25, 0.5)]
    yield "settled by the first", lambda: [closed(x, y, first=True) for x in (0.5, 0.75, 1.0) for y in (0.0, 0.25, 0.5)]
    yield "settled with equal means", lambda: [lopsided(*plays) for plays in ((1, 20), (20, 1))]
    yield "least played of the open", least_played
    yield "one in a million", lambda: [1e6 * np.array(x) for x in millions()]
    yield "marginals", lambda: marginals(np.array([[0.1, 0.2], [0.3, 0.4]]))
    yield "wrong payoffs", lambda: filled("hoeffding").add((0, 0), np.array([1.5, 0]))
    yield (
        "plays needed",
        lambda: [
            r.plays_needed(g, s, delta=d, payoff_range=w)
            for g, s, d, w in ((0.1, (2, 2), 0.05, 1), (0.3, (3, 2, 2), 0.1, 2))
        ],
    )
    yield "draws of payoffs", lambda: r.alpha_rank_draws(filled("hoeffding"), resamples=3)


def filled(interval: Any) -> PayoffEstimate:
    estimate = PayoffEstimate.empty((2, 3), interval=interval, delta=0.1, split=True, slack=0.01)
    for i in range(9):
        estimate.add((i % 2, i % 2 + i // 7), np.array([i % 3 / 2, 1 - i % 2]))
    return estimate


def closed(payoff: float, slack: float, *, first: bool = False) -> list[object]:
    """Edges that are left with payoffs whose bounds touch: one play each, Hoeffding's margin 1/2 at delta 2 e^-1/2.

    The second strategy pays, or the first.
    """
    estimate = PayoffEstimate.empty((2, 2), interval="hoeffding", delta=2 * math.exp(-0.5), slack=slack)
    graph = ResponseGraph((2, 2))
    for profile in graph.profiles:
        one, other = (bool(strategy) != first for strategy in profile)
        estimate.add(profile, np.array([payoff if one else 0.0, 1 - payoff if other else 0.0]))
    for profile in graph.profiles:
        graph.settle(estimate, profile)
    return [len(graph.open), graph.valence.tolist()]


def lopsided(one: int, other: int) -> list[object]:
    """Edges that are left where nobody ever earned anything, but strategies were not played alike often."""
    estimate = PayoffEstimate.empty((2, 1), slack=0.2)
    graph = ResponseGraph((2, 1))
    for profile, plays in (((0, 0), one), ((1, 0), other)):
        for _ in range(plays):
            estimate.add(profile, np.zeros(2))
    graph.settle(estimate, (0, 0))
    return [len(graph.open), graph.valence.tolist()]


def least_played() -> object:
    """The next match where the least played one is settled."""
    estimate, graph = PayoffEstimate.empty((2, 2)), ResponseGraph((2, 2))
    estimate.n[:] = [[1, 5], [6, 7]]
    graph.valence[:] = [0, 1, 2, 1]
    return r.next_match(graph, estimate, np.random.default_rng(0), "count")


def millions() -> list[object]:
    """Distances from 0 and 1 of the bounds of one success, and of one failure, in a million plays."""
    estimate = PayoffEstimate.empty((2, 1))
    estimate.n[:] = 1_000_000
    estimate.total[:, 0], estimate.total[:, 1] = 1, 999_999
    low, high = estimate.bounds()
    return [low[:, 0], high[:, 0], 1 - low[:, 1], 1 - high[:, 1]]


CASES = dict((*of_matches(), *of_tables(), *of_plays()))


@pytest.mark.parametrize("kind", kinds(CASES))
def test_a_ranking_gives_what_it_gave(kind: str) -> None:
    assert not changed(FROZEN, CASES, kind)


if __name__ == "__main__":
    write(FROZEN, CASES)
