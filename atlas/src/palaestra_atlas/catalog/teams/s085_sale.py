"""[85] SALE (arXiv 2602.02751): a jury's marks and prices choose who works; it pays if failures are complementary.

Four simulated agents of rising price and ability. Complementary: each is strong at tasks of its own, so that a plan
shows who can do it. Nested: what a cheap one can do, dearer ones can. Weights are fitted to outcomes of other tasks.
Then a memory of past auctions, with which cheap agents may improve their plans. Left out: language models; how much a
retrieved pair improves a plan is an assumption.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.evaluation.teamwork import Weights, award, contrast, fit_weights
from palaestra.foundation.archive import Archive, Entry
from palaestra.play.rollout import rollout
from palaestra.teams import workflows
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

PRICES, ABILITY, TOKENS = np.array([0.05, 0.09, 0.16, 0.36]), np.array([0.0, 0.25, 0.5, 0.75]), 1.0
TASKS, KINDS, PRICE, LEARNT, TEAMS = 1500, 12, 0.15, 0.12, 6


def bidding(own: float, rng: np.random.Generator, tasks: int = TASKS) -> tuple[pl.DataFrame, np.ndarray]:
    """Bids of all agents on all tasks, and who would solve which, bool[tasks, agents]."""
    strength = ABILITY + own * rng.normal(size=(tasks, 4))
    solves = strength > rng.normal(0.15, 0.8, size=(tasks, 1))
    marks = strength[:, :, None] + 0.6 * rng.normal(size=(tasks, 4, 4))
    bids = pl.DataFrame(
        {
            "task": np.repeat(np.arange(tasks), 4), "agent": np.tile(np.arange(4), tasks),
            "price": np.tile(PRICES, tasks), "tokens": np.full(4 * tasks, TOKENS),
            "jury": marks.reshape(-1, 4).tolist(), "worth": (solves - PRICE * PRICES / PRICES[-1]).ravel(),
        }
    )  # fmt: skip
    return bids, solves


def auctioned(own: float, rng: np.random.Generator) -> dict[str, float]:
    """Solved and price of a task: the auction, always the largest, whoever solves it, anybody."""
    weights = fit_weights(bidding(own, rng, 400)[0], "worth")
    bids, solves = bidding(own, rng)
    won = award(bids, weights).filter("winner")["agent"].to_numpy()
    return {
        "sale": float(solves[np.arange(TASKS), won].mean()), "price": float(PRICES[won].mean()),
        "largest": float(solves[:, -1].mean()), "oracle": float(solves.any(1).mean()), "random": float(solves.mean()),
    }  # fmt: skip


def remembered(rng: np.random.Generator, refining: bool, rounds: int = 240) -> tuple[float, float]:
    """Share of tasks that the two cheap agents win, in the first and the last quarter."""
    memory, weights, cheap = Archive(), Weights(2.0, 0.0, 0.25), []
    kinds = rng.normal(size=(KINDS, 6))
    for task in range(rounds):
        kind = int(rng.integers(KINDS))
        near = kinds[kind] + 0.1 * rng.normal(size=6)
        strength = ABILITY + 0.6 * rng.normal(size=4)
        rows = [(task, at, PRICES[at], TOKENS, float(strength[at] + 0.3 * rng.normal()), False) for at in range(4)]
        for at in range(4) if refining else ():
            pairs = sum(win == f"for kind {kind}" for _, win in contrast(memory, near, str(at), 8))
            rows.append((task, at, PRICES[at], TOKENS, rows[at][4] + LEARNT * min(pairs, 8), True))
        bids = pl.DataFrame(rows, schema=["task", "agent", "price", "tokens", "jury", "refined"], orient="row")
        won = int(award(bids.with_columns(pl.col("jury") * 4), weights).filter("winner")["agent"][0])
        for at in range(4):
            memory.add(Entry(str(task), f"for kind {kind}", float(at == won), str(at)), near)
        cheap.append(won < 2)
    return float(np.mean(cheap[: rounds // 4])), float(np.mean(cheap[-rounds // 4 :]))


class Job(TaskEnv):
    """Each of four members is strong at jobs of its own; whether one can do a job is settled with it."""

    def draw(self, seed: int) -> Task:
        """Of a seed."""
        solves = strengths(seed) > difficulty(seed)
        return Task(f"{seed}", f"job {seed}", lambda text: float(text.startswith("done") and solves[int(text[-1]) - 1]))


def strengths(job: int) -> np.ndarray:
    """Of all members at a job, float64[members]."""
    return np.asarray(ABILITY + 0.6 * np.random.default_rng([job, 0]).normal(size=4))


def difficulty(job: int) -> float:
    """Strength that a job asks."""
    return float(np.random.default_rng([job, 1]).normal(0.15, 0.8))


def member() -> Callable[[Request], str]:
    """A bidder says a plan and later does the job, a juror marks all plans; who is alone is the largest."""

    def say(request: Request) -> str:
        question, *_ = request.observation.text.split(" | ")
        job = int(question.split()[1])
        role, _, number = request.agent.partition("-")
        if role == "juror":
            seen = strengths(job) + 0.6 * request.rng.normal(size=4)
            return " ".join(f"{mark:.2f}" for mark in np.clip(1.5 + 1.5 * seen, 0, 5))
        if role == "bidder" and " | " not in request.observation.text:
            return f"I would go about it like this, number {number}"
        return f"done by {number or len(ABILITY)}"

    return say


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of four members of different price, `bidders.yaml`."""
    made = {
        "name": "bidders",
        "env": {"make": f"{__name__}:Job"},
        "policies": {"member": {"kind": "script", "options": {"script": f"{__name__}:member"}}},
        "team": {"*": "member"},
        "credit": "return_to_go()",
        "learn": {"kind": "play"},
        "train": {"iterations": 1, "groups": 500, "group_size": 1},
        "evaluation": {"tasks": 2, "trials": 1, "look_tasks": 2, "look_trials": 1},
    }
    (folder / "bidders.yaml").write_text(json.dumps(made))


def worth() -> Measure:
    """Jobs solved less .15 of the price of who did them, as a share of the largest price, per seed.

    What bids and marks cost is not counted, as their length beside that of the work is not known here.
    """

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            last = Turns.load(seed / "turns").frame.sort("turn").group_by("group", "episode").last()
            numbers = last["agent"].cast(pl.String).str.extract(r"(\d)$").cast(pl.Int64).fill_null(len(PRICES))
            price = PRICES[numbers.to_numpy() - 1] / PRICES[-1]
            found.append(float((last["success"].cast(float).to_numpy() - PRICE * price).mean()))
        return found

    return measured


class Anything(TaskEnv):
    """An answer of any kind."""

    def draw(self, seed: int) -> Task:
        """Always the same."""
        return Task("any", "how?", lambda text: 1.0)


def awarded(plans: Sequence[str], marks: Sequence[str], weight: float) -> str:
    """Who carries out its plan, of bidders with the prices 1 and 4."""
    lines = {f"bidder-{at}": [plan, "done"] for at, plan in enumerate(plans, 1)}
    lines |= {f"juror-{at}": [said] for at, said in enumerate(marks, 1)}
    script = ScriptedPolicy(lambda request: lines[request.agent].pop(0))
    env = workflows.strategy_auction(Anything, [1, 4], weight)
    frame = rollout(env, Team(dict.fromkeys(lines, script)), groups=1, seed=0).frame
    return str(frame.sort("turn")["agent"][-1])


PLANS = ("two words", "a plan of five words")
BIDS = pl.DataFrame(
    {"task": [0] * 3, "agent": ["a", "b", "c"], "price": [1.0, 2.0, 4.0], "tokens": [10, 10, 10],
     "entropy": [0.0, 0.0, 6.0], "jury": [[1.0, 1], [9, 9], [9, 9]]}
)  # fmt: skip


@exact
def least_wins() -> None:
    """Of 10 - 2, 20 - 18 and 40 - 18 the second wins; in the workflow the one with the higher marks, at a low price."""
    found = award(BIDS)
    assert found["score"].to_list() == [8.0, 2.0, 22.0]
    assert found.filter("winner")["agent"].to_list() == ["b"]
    assert [awarded(PLANS, ["3 5", "2 5"], 0.01) for _ in range(2)] == ["bidder-2"] * 2
    assert [awarded(PLANS, ["5 3", "5 2"], 0.01) for _ in range(2)] == ["bidder-1"] * 2


@exact
def price_of_plans() -> None:
    """Price times length: 1 · 2 - 5 beside 4 · 5 - 10, so the cheap one acts; without marks the cheapest wins."""
    assert awarded(PLANS, ["3 5", "2 5"], 1.0) == "bidder-1"
    assert award(BIDS, Weights(1.0, 0.0, 0.0)).filter("winner")["agent"].to_list() == ["a"]
    assert award(BIDS, Weights(1.0, 0.0, 0.0))["score"].to_list() == [10.0, 20.0, 40.0]


@exact
def marks_and_entropy() -> None:
    """Marks of all jurors count for the plan that they are given to, and so does its entropy."""
    assert award(BIDS, Weights(0.0, 0.0, (1.0, 0.5)))["score"].to_list() == [-1.5, -13.5, -13.5]
    assert award(BIDS, Weights(1.0, 4.0, 1.0)).filter("winner")["agent"].to_list() == ["c"]
    assert awarded(("one plan", "other plan"), ["0 5", "2 3"], 0.01) == "bidder-2"
    assert awarded(("one plan", "other plan"), ["5 0", "3 2"], 0.01) == "bidder-1"
    assert awarded(("one plan", "other plan"), ["9 1", "0 2"], 0.01) == "bidder-2"  # no mark is above 5


@exact
def pairs_of_the_past() -> None:
    """(losing, winning) plans of the most similar tasks, one of which is the agent's own."""
    memory = Archive()
    for task, near in (("old", [1.0, 0.0]), ("far", [0.0, 1.0])):
        for owner, score in (("cheap", 0.0), ("dear", 1.0), ("other", 0.0)):
            memory.add(Entry(task, f"{task} plan of {owner}", score, owner), near)
    assert contrast(memory, np.array([1.0, 0.1]), "cheap", 1) == [("old plan of cheap", "old plan of dear")]


@exact
def rewritten() -> None:
    """A rewritten bid wins if its agent is cheaper than the provisional winner and its score lower, and only then."""
    base = BIDS.drop("entropy").with_columns(refined=pl.lit(False))
    late = {"task": [0], "tokens": [10], "refined": [True]}
    for agent, price, marks, winner in (
        ("a", 1.0, [5.0, 5.0], 3), ("a", 1.0, [3.0, 3.0], 1), ("c", 4.0, [30.0, 30.0], 1),
    ):  # fmt: skip
        more = pl.DataFrame(late | {"agent": [agent], "price": [price], "jury": [marks]}).select(base.columns)
        found = award(pl.concat([base, more]))
        assert found["winner"].to_list() == [at == winner for at in range(4)]


@exact
def fitted_to_outcomes() -> None:
    """Where marks tell who solves a task and prices do not, marks get the weight; equal weights solve less."""
    bids, solves = bidding(0.6, np.random.default_rng(5), 600)
    weights = fit_weights(bids.head(1600), "worth")
    assert float(weights.jury) > 0  # type: ignore[arg-type]
    held = bids.tail(800).with_columns(price=pl.col("price") * 100)
    fitted = fit_weights(bids.head(1600).with_columns(price=pl.col("price") * 100), "worth")
    gains = []
    for each in (fitted, Weights(1.0, 1.0, 1.0)):
        won = award(held.with_columns(entropy=pl.lit(0.0)), each).filter("winner")["agent"].to_numpy()
        gains.append(solves[400:][np.arange(200), won].mean())
    assert gains[0] > gains[1] + 0.1


@reproduction(
    85,
    claim="Where failures are complementary an auction of plans solves more than the largest agent for less; where "
    "they are nested it solves no more; a memory of plans lets cheap agents win more often.",
    baseline="always the largest agent; no memory",
    criterion="complementary: .02 above the largest at 0.8 of its price or less; nested: at most .01 above it; with "
    "memory the cheap win .05 more of the last quarter than of the first and than without, in every seed, in the mean "
    "of six teams (a quarter of one team is 60 tasks, of which chance alone moves the share by .06)",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both worlds, then the memory."""
    rows, holds = [], True
    for seed in seeds:
        rng = np.random.default_rng(seed)
        apart, nested = auctioned(0.6, rng), auctioned(0.0, rng)
        first, last = np.mean([remembered(rng, True) for _ in range(TEAMS)], axis=0)
        without = float(np.mean([remembered(rng, False)[1] for _ in range(TEAMS)]))
        row = {f"{name}_complementary": value for name, value in apart.items()}
        row |= {f"{name}_nested": value for name, value in nested.items()}
        row |= {"cheap_first": first, "cheap_last": last, "cheap_without_memory": without}
        holds &= apart["sale"] >= apart["largest"] + 0.02 and apart["price"] <= 0.8 * PRICES[-1]
        holds &= nested["sale"] <= nested["largest"] + 0.01
        holds &= last >= max(first, without) + 0.05
        rows.append(row)
    return Outcome({name: float(np.mean([row[name] for row in rows])) for name in rows[0]}, bool(holds))
