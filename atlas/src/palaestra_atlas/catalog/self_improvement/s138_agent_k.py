"""[138] Agent K (arXiv 2411.03562): a worker that learns by what its attempts earned, and ratings against many others.

The procedure is reconstructed from the abstract; medals and Elo-MMR are public standards. Left out: Kaggle's
competitions, a language model that writes pipelines, and 5 856 people; pipelines and leaderboards are simulated.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import scipy

from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.ranking import contests, elo_mmr, medal, rank_contests, read_contests
from palaestra.foundation.bayes import maximise
from palaestra.teams.nested_memory import Attempt, NestedMemory, Setup, set_up, solve
from palaestra.teams.pipeline_stream import play_stream
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

EXAMPLE = [
    ([0, 1, 2], [1, 2, 3]), ([0, 1, 2], [1, 1, 3]), ([0, 1, 2], [1, 2, 2]),
    ([3, 0, 1, 2], [1, 2, 3, 4]), ([3, 0, 1, 2], [1, 2, 3, 4]),
]  # fmt: skip
"""The contests that the documentation of Elo-MMR's Python bindings rates."""
PUBLISHED = [
    ([1705, 1500, 1295], [171] * 3, [1744, 1500, 1256]), ([1663, 1555, 1270], [130] * 3, [1618, 1618, 1242]),
    ([1686, 1500, 1312], [111] * 3, [1728, 1393, 1393]),
    ([1767, 1678, 1487, 1291], [171, 100, 100, 100], [1819, 1660, 1459, 1240]),
    ([1809, 1675, 1483, 1279], [130, 94, 94, 94], [1855, 1666, 1471, 1247]),
]  # fmt: skip
"""Ratings, deviations and performances there, in whole numbers, by contest."""
MEDALS = {99: (9, 19, 39), 100: (10, 20, 40), 249: (10, 49, 99), 250: (10, 50, 100), 999: (11, 50, 100),
          1000: (12, 50, 100), 5000: (20, 250, 500)}  # fmt: skip
"""Last rank that wins gold, silver and bronze, by the number of teams."""


@exact
def medal_table() -> None:
    """Thresholds on both sides of each border of the rule; who ties shares the better rank."""
    for teams, last in MEDALS.items():
        for name, rank, other in zip(("gold", "silver", "bronze"), last, ("silver", "bronze", None), strict=True):
            assert (medal(rank, teams), medal(rank + 1, teams)) == (name, other), (teams, rank)
    tied = contests(
        pl.DataFrame({"contest": ["c"] * 20, "system": [*"abcdefghijklmnopqrst"], "score": [9.0] * 3 + [1.0] * 17})
    )
    assert tied.rows["rank"].to_list() == [1.0] * 3 + [4.0] * 17
    won = dict(tied.medals().select("system", "gold").iter_rows())
    assert [won[name] for name in "abcd"] == [1, 1, 1, 0]


@exact
def published_ratings() -> None:
    """Ratings, deviations and performances of the published example, every one to the whole number."""
    rated = elo_mmr([(np.array(who), np.array(rank)) for who, rank in EXAMPLE], 4)
    found = [tuple(np.round(each).astype(int).tolist() for each in row[1:]) for row in rated.history]
    assert found == PUBLISHED, found


@exact
def ranked() -> None:
    """A file of contests is rated by `rank` in time order, with the intervals of its deviations and its medals."""
    rows = [(c, f"p{w}", r) for c, (who, rank) in enumerate(EXAMPLE) for w, r in zip(who, rank, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "contests.csv"
        pl.DataFrame(rows, schema=["contest", "system", "rank"], orient="row").write_csv(path)
        read = read_contests(path)
    assert read is not None
    table = rank_contests(read, "elo_mmr").table
    assert table["system"].to_list() == ["p3", "p0", "p1", "p2"]
    assert table["score"].round().to_list() == [1809, 1675, 1483, 1279]
    assert table["gold"].to_list() == [2, 3, 1, 0]
    assert rank_contests(read, "bradley_terry").table["system"][0] == "p3"


@exact
def by_reward() -> None:
    """The memory proposes what earned most again, and not what failed; a new stage may try it, the same one may not."""
    memory, rng = NestedMemory(), np.random.default_rng(0)
    for fix, reward in ((0, -1.0), (1, 1.0), (2, -1.0)):
        memory.remember(Attempt("dates", fix, reward))
    memory.remember(Attempt("text", 3, -1.0))
    memory.begin()
    assert {memory.propose("dates", 5, rng) for _ in range(20)} == {1}
    assert {memory.propose("text", 5, rng) for _ in range(50)} == {0, 1, 2, 4}
    memory.remember(Attempt("dates", 1, -1.0))
    assert {memory.propose("dates", 5, rng) for _ in range(50)} == {3, 4}


@exact
def nested() -> None:
    """On the second task of a kind every stage passes at once; in one stage nothing that failed is tried again."""
    tasks = stream(3, tasks=2, kinds=4, fixes=4, stages=4)
    tasks = tasks.with_columns(
        pl.Series("kinds", [tasks["kinds"][0]] * 2), pl.Series("needed", [tasks["needed"][0]] * 2)
    )
    first, second = play_stream(tasks, NestedMemory(), tries=4, budget=4).to_dicts()
    assert first["valid"], first
    assert first["attempts"] > 4, first
    assert (second["first"], second["attempts"]) == (4, 4), second


@exact
def unit_tested() -> None:
    """Stages come one after the other: nothing goes on behind a test that failed, and what is submitted is whole."""
    rng = np.random.default_rng(0)
    results = [set_up(Setup(["a", "b", "c"], [0, 1, 2], 3), NestedMemory("none"), rng, tries=2) for _ in range(50)]
    assert all(all(each.passed[:-1]) for each in results)
    assert all(each.valid == (len(each.passed) == 3 and each.passed[-1]) for each in results)
    assert 0 < sum(each.valid for each in results) < 50


def _nearness(optimum: np.ndarray, point: np.ndarray) -> float:
    return -float(((point - optimum) ** 2).sum())


@exact
def ensemble() -> None:
    """The search comes nearer to the optimum than as many random settings; the best models are averaged."""
    best: dict[str, list[float]] = {"search": [], "random": []}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        optimum = rng.uniform(0.2, 0.8, 2)
        points, values = maximise(functools.partial(_nearness, optimum), 2, 16, rng)
        assert points.shape == (16, 2)
        best["search"].append(values.max())
        best["random"].append(max(_nearness(optimum, x) for x in rng.random((16, 2))))
    assert np.mean(best["search"]) > np.mean(best["random"]) / 5, {k: np.mean(v) for k, v in best.items()}
    rng, truth = np.random.default_rng(0), np.linspace(-1, 1, 200)
    made = lambda x: truth + rng.normal(0, 0.5, 200)  # noqa: E731
    predicted, members = solve(made, lambda p: -float(((p - truth) ** 2).mean()), 2, rng)
    assert members == 3
    assert float(((predicted - truth) ** 2).mean()) < 0.12
    models = iter(np.array([[3.0, 0], [1, 0], [-1, 0], [0, 2]]))
    predicted, members = solve(lambda x: next(models), lambda p: -float((p**2).mean()), 2, rng, budget=4)
    assert (predicted.tolist(), members) == ([0, 0], 2), "the two best; the third would make it worse"


def stream(
    seed: int, *, tasks: int = 20, kinds: int = 6, fixes: int = 6, stages: int = 4, teams: int = 200
) -> pl.DataFrame:
    """Competitions whose set-up has errors of few kinds, each with one fix, and leaderboards of `teams` - 1 others."""
    rng = np.random.default_rng(seed)
    right = rng.integers(fixes, size=kinds)
    rows = []
    for number in range(tasks):
        drawn = rng.integers(kinds, size=stages)
        rows.append({
            "contest": f"c{number:02}", "kinds": [f"error {kind}" for kind in drawn],
            "needed": [int(right[kind]) for kind in drawn], "fixes": fixes,
            "optimum": rng.uniform(0.2, 0.8, 2).tolist(),
            "leaderboard": (-rng.gamma(4, 0.02, teams - 1)).tolist(),
        })  # fmt: skip
    return pl.DataFrame(rows)


def tasks_file(seed: int, folder: Path) -> None:
    """Twenty competitions as `tasks.json`."""
    (folder / "tasks.json").write_text(json.dumps(stream(seed).to_dicts()), encoding="utf-8")


@reproduction(
    138,
    claim="A worker whose long-term memory is asked by reward solves more set-up stages on repeated kinds of error "
    "than one whose memory gives any attempt of the kind; no weight changes. Elo-MMR recovers who is better.",
    baseline="the same worker with random retrieval of as many attempts, and with none; skills of simulated players",
    criterion="stages solved of 80 (means over seeds): at least 1.3 times those of random retrieval; Spearman of the "
    "ratings of 20 players after 15 contests with their skills above .8",
    seeds=(0, 1, 2),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Streams with three kinds of retrieval, and contests of players with known skills."""
    solved: dict[str, list[int]] = {"reward": [], "random": [], "none": []}
    valid, medals, order = [], [], []
    for seed in seeds:
        for retrieve, found in solved.items():
            done = play_stream(stream(seed), NestedMemory(retrieve), seed=seed)  # type: ignore[arg-type]
            found.append(int(done["passed"].sum()))
            if retrieve == "reward":
                valid.append(float(done["valid"].mean()))  # type: ignore[arg-type]
                medals.append(len(done["medal"].drop_nulls()))
        rng = np.random.default_rng(seed)
        skill = rng.normal(0, 1, 20)
        ranks = [(np.arange(20), scipy.stats.rankdata(-(skill + rng.normal(0, 0.7, 20)))) for _ in range(15)]
        order.append(float(scipy.stats.spearmanr(elo_mmr(ranks, 20).mu, skill).statistic))
    measured = {name: float(np.mean(found)) for name, found in solved.items()}
    measured |= {"valid": float(np.mean(valid)), "medals": float(np.mean(medals)), "spearman": min(order)}
    better = measured["reward"] >= 1.3 * measured["random"]
    return Outcome(measured, better and measured["spearman"] > 0.8)


@exact
def command() -> None:
    """The command works through a file of competitions; what it leaves is a table of contests."""
    with tempfile.TemporaryDirectory() as folder:
        tasks_file(0, Path(folder))
        found = analyze("pipelines(budget=4)", Path(folder) / "tasks.json")
    assert len(found) == 20
    assert contests(found).rows["teams"].to_list() == [200] * 20


def solved_stages() -> Measure:
    """Set-up stages that passed their test, over all competitions."""

    def measured(left: Left) -> list[float]:
        return [float(sum(row["passed"] for row in json.loads(left.stdout)))]

    return measured
