"""[35] Themis (arXiv 2310.01045): a reward model that calls a tool before it scores, and falls back without one.

Products of two-digit numbers, wrong answers off by 1 or 2, a tool-free judge who estimates 2 % off, a calculator that
works with probability q. Then by recipe: a judge who pays for the tool learns when it is worth its price. Left out:
language models, and the joint loss with the trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.signals import col
from palaestra.envs.worlds import Judging
from palaestra.envs.worlds.judging import examiner
from palaestra.judges import ToolScorer, Verifier
from palaestra.judges.tooled import tooled
from palaestra.play.executors import Local, Plan
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

PRODUCTS, PRICE = 4000, 0.01
TABLE = [[0.51, 0.5, 0.9]]


class _Estimate:
    """How near a response is to a product that is estimated 2 % off."""

    name = "estimate"

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """Minus the distance."""
        true = (rows["a"] * rows["b"]).to_numpy()
        guess = true * (1 + 0.02 * self.rng.normal(size=len(true)))
        return pl.Series(-np.abs(rows["response"].cast(pl.Int64).to_numpy() - guess) - 1)


class _Compare:
    """1 where the response is what the tool says."""

    name = "compare"

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """Right or wrong."""
        return (rows["response"] == rows["observation"]).cast(pl.Float64)


def pair_accuracy(works: float, seed: int, count: int = PRODUCTS) -> tuple[float, float]:
    """(share of pairs won, deviation of the calls' prices from their number), where the tool works with `works`."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(10, 100, (2, count))
    up, off = rng.random(count) < works, rng.choice([-2, -1, 1, 2], count)
    judge = ToolScorer(
        _Compare(), _Estimate(rng), lambda row: str(row["a"] * row["b"]) if row["up"] else None, cost=PRICE
    )
    both, spent = [], 0.0
    for wrong in (0, 1):
        rows = pl.DataFrame({"a": a, "b": b, "up": up, "response": (a * b + wrong * off).astype(str)})
        both.append(judge.score(rows).to_numpy())
        spent += float(judge.calls.filter(pl.col("role") == "judge")["cost"].sum())
    return float((both[0] > both[1]).mean()), abs(spent - 2 * count * PRICE)


def multiply(row: Mapping[str, Any]) -> str | None:
    """The tool: what a times b is, where it is up."""
    return str(row["a"] * row["b"]) if row["up"] else None


@exact
def tool_before_score() -> None:
    """Products are judged rightly by what the tool says; by an estimate alone no better than by a coin."""
    assert pair_accuracy(1.0, 35, count=1000)[0] == 1.0
    assert pair_accuracy(0.0, 35, count=1000)[0] < 0.6


@exact
def which_tool() -> None:
    """Who takes the tool that fits the kind of the task is right as often as that tool."""
    table = [[0.9, 0.5], [0.5, 0.9]]
    team = Team(judge=ScriptedPolicy(examiner(right=1.0), name="fits"))
    played = Local().play(lambda: Judging(accuracy=table), team, Plan(groups=800, group_size=1, seed=35))
    assert abs(float(played.frame["result"].drop_nulls().mean()) - 0.9) < 0.04  # type: ignore[arg-type]


@exact
def falls_back() -> None:
    """Where the tool is down half of the time, a tool-free scorer that is right in .8 leaves .9; calls are priced."""
    rng = np.random.default_rng(35)
    rows = pl.DataFrame({"a": 3, "b": 4, "up": rng.random(4000) < 0.5, "guess": rng.random(4000) < 0.8})
    scorer = tooled(_Compare(), Verifier(col("plain")), f"{__name__}:multiply", cost=PRICE)
    right = rows.with_columns(response=pl.lit("12"), plain=pl.col("guess").cast(pl.Float64))
    wrong = rows.with_columns(response=pl.lit("13"), plain=1 - pl.col("guess").cast(pl.Float64))
    lead = scorer.score(right) - scorer.score(wrong)
    assert abs(float((lead > 0).mean()) - 0.9) < 0.02, lead  # type: ignore[arg-type]
    assert abs(float(scorer.calls["cost"].sum()) - 40.0) < 1e-9
    assert scorer.calls["ok"].to_list() == rows["up"].to_list()


def calls(learned: TrainingResult) -> dict[str, float]:
    """How often the trained judge calls the tool, and is right."""
    frame = learned.play(groups=400).frame
    looked = frame.filter(pl.col("result").is_null())["way"]
    return {"called": float((looked == 2).mean()), "accuracy": float(frame["result"].drop_nulls().mean())}  # type: ignore[arg-type]


@reproduction(
    35,
    claim="A reward model with a tool is right where the tool works and as before where it does not, and a judge "
    "learns to call it if it is worth its price.",
    baseline="the same scorer without the tool; the same recipe with a tool that costs more than it brings",
    criterion="accuracy within .015 of q + (1 - q)·(accuracy without the tool) for q = 1, .9, .5, prices add up, "
    "without the tool below .6; the cheap tool is called in more than .8 of the cases, the dear one in less than .2 "
    "(held on the three fresh seeds tried)",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Scores with a tool that works more or less often, then training by the recipe `judging`."""
    alone = float(np.mean([pair_accuracy(0.0, seed)[0] for seed in seeds]))
    measured, worst, unpaid = {"alone": alone}, 0.0, 0.0
    for works in (1.0, 0.9, 0.5):
        found = np.mean([pair_accuracy(works, seed) for seed in seeds], axis=0)
        measured[f"with_{works:g}"] = float(found[0])
        worst, unpaid = max(worst, abs(float(found[0]) - works - (1 - works) * alone)), max(unpaid, float(found[1]))
    short: dict[str, Any] = {"train": {"iterations": 40, "groups": 16, "group_size": 8}}
    worlds = {
        name: short | {"env": {"make": "native/judging", "options": {"accuracy": TABLE, "costs": [0, 0, price]}}}
        for name, price in (("cheap", 0.1), ("dear", 1.5))
    }
    arms = train_arms("judging", worlds, seeds, calls)
    measured |= {"deviation": worst, "unpaid": unpaid} | arms.measured()
    paid = arms.mean("cheap", "called") > 0.8 and arms.mean("dear", "called") < 0.2
    return Outcome(measured, worst <= 0.015 and unpaid < 1e-6 and alone < 0.6 and paid)
