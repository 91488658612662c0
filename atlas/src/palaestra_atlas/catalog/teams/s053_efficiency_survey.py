"""[53] Survey of efficient agents (arXiv 2601.14192): the best at a budget, the price of a target, and the front.

The worked front, and drawn points, of which only those on the front can change either reading; a price on calls is a
reward (`call_price`). Left out: what the survey says of systems that are not in the atlas.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.evaluation import frontier
from palaestra.evaluation.intervals import wilson
from palaestra.evaluation.teamwork import analyses, cost_at_score, score_at_cost
from palaestra.rewards import call_price
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.taxonomy import place
from palaestra_atlas.verification.measures import Left, Measure, held_out

POINTS = pl.DataFrame({"cost": [1.0, 2.0, 2.0, 3.0, 4.0], "score": [0.2, 0.5, 0.4, 0.5, 0.9]})


def calls_at_success(best: float) -> Measure:
    """Calls of a tool for each held-out task, per seed; not finite where success is below `best` (99 % interval)."""

    def measured(left: Left) -> list[float]:
        found = []
        calls, solved = (held_out(column)(left) for column in ("searches", "success"))
        for each, share, seed in zip(calls, solved, left.seeds(), strict=True):
            table = pl.read_parquet(seed / "evaluation.parquet").filter(pl.col("system") == "after")
            tasks = table.select("task", "group", "episode").n_unique()
            found.append(each if wilson(round(share * tasks), tasks, level=0.99)[1] >= best else np.nan)
        return found

    return measured


@exact
def fixed_budget() -> None:
    """The best score for at most 3 is .5, though .9 is had for 4."""
    assert score_at_cost(POINTS, 3) == 0.5
    assert score_at_cost(POINTS, 4) == 0.9
    assert score_at_cost(POINTS, 0.5) is None


@exact
def matched_score() -> None:
    """A score of .45 costs 2, one of .6 costs 4; nobody has .95."""
    assert [cost_at_score(POINTS, target) for target in (0.45, 0.6, 0.95)] == [2.0, 4.0, None]


@exact
def front() -> None:
    """Three of five points, and one that is equal to one of them."""
    twice = pl.concat([POINTS, POINTS.tail(1)])
    best = frontier(twice).filter("frontier")
    assert best.select("cost", "score").rows() == [(1.0, 0.2), (2.0, 0.5), (4.0, 0.9), (4.0, 0.9)]


@exact
def kinds_of_cost() -> None:
    """Who is cheap in tokens and slow is the best for few tokens, and not for little time."""
    rows = [("slow", 10, 60.0, 0.8), ("quick", 50, 5.0, 0.7)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "points.csv"
        pl.DataFrame(rows, schema=["system", "tokens", "seconds", "score"], orient="row").write_csv(path)
        assert analyses.budget(cost=20, kind="tokens")(path).to_dicts() == [{"score_at_cost": 0.8}]
        assert analyses.budget(cost=20, kind="seconds")(path).to_dicts() == [{"score_at_cost": 0.7}]
        assert analyses.budget(score=0.6, kind="seconds")(path).to_dicts() == [{"cost_at_score": 5.0}]


@exact
def priced_calls() -> None:
    """Each call takes its price from the reward; who calls less earns more."""
    turns = Turns({"reward": [1.0, 1.0, 0.0], "calls": [0, 3, None]})
    np.testing.assert_allclose(np.asarray(call_price(price=0.1).evaluate(turns)), [1.0, 0.7, 0.0])


@exact
def headings() -> None:
    """An archive is memory, a search planning, calls of tools an action."""
    names = ("foundation.archive.Archive", "foundation.search.search", "envs.roles.calls.called")
    found = [place(f"palaestra.{name}")[1] for name in names]
    assert found == ["memory", "cognition: reasoning and planning", "action: tools"]


@reproduction(
    53,
    claim="Effectiveness at a fixed cost and cost at a matched effectiveness are two readings of one front.",
    baseline="all points",
    criterion="the worked front has 3 of 5 points, .5 is had for 3 and .6 costs 4 (exact); on drawn points both "
    "readings are those of the front alone, in every seed",
    seeds=(0, 1, 2),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked points, then drawn ones."""
    best = frontier(POINTS).filter("frontier")
    measured = {
        "on_front": float(len(best)), "score_at_3": score_at_cost(POINTS, 3) or np.nan,
        "cost_at_0.6": cost_at_score(POINTS, 0.6) or np.nan,
    }  # fmt: skip
    same = True
    for seed in seeds:
        rng = np.random.default_rng(seed)
        drawn = pl.DataFrame({"cost": rng.random(200), "score": rng.random(200)})
        front = frontier(drawn).filter("frontier")
        for level in rng.random(20):
            same &= score_at_cost(drawn, level) == score_at_cost(front, level)
            same &= cost_at_score(drawn, level) == cost_at_score(front, level)
    return Outcome(measured, bool(same and measured == {"on_front": 3.0, "score_at_3": 0.5, "cost_at_0.6": 4.0}))
