"""[85] SALE (arXiv 2602.02751): a jury's marks and prices choose who works; it pays if failures are complementary.

Four simulated agents of rising price and ability. Complementary: each is strong at tasks of its own, so that a plan
shows who can do it. Nested: what a cheap one can do, dearer ones can. Weights are fitted to outcomes of other tasks.
Then a memory of past auctions, with which cheap agents may improve their plans. Left out: language models; how much a
retrieved pair improves a plan is an assumption.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.evaluation.teamwork import Weights, award, contrast, fit_weights
from palaestra.foundation.archive import Archive, Entry
from palaestra_atlas.reproductions import Outcome, reproduction

PRICES, ABILITY, TOKENS = np.array([0.05, 0.09, 0.16, 0.36]), np.array([0.0, 0.25, 0.5, 0.75]), 1.0
TASKS, KINDS, PRICE, LEARNT = 1500, 12, 0.15, 0.12


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


@reproduction(
    85,
    claim="Where failures are complementary an auction of plans solves more than the largest agent for less; where "
    "they are nested it solves no more; a memory of plans lets cheap agents win more often.",
    baseline="always the largest agent; no memory",
    criterion="complementary: .02 above the largest at 0.8 of its price or less; nested: at most .01 above it; with "
    "memory the cheap win .05 more of the last quarter than of the first and than without, in every seed "
    "(held on both fresh blocks)",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both worlds, then the memory."""
    rows, holds = [], True
    for seed in seeds:
        rng = np.random.default_rng(seed)
        apart, nested = auctioned(0.6, rng), auctioned(0.0, rng)
        first, last = remembered(rng, True)
        _, without = remembered(rng, False)
        row = {f"{name}_complementary": value for name, value in apart.items()}
        row |= {f"{name}_nested": value for name, value in nested.items()}
        row |= {"cheap_first": first, "cheap_last": last, "cheap_without_memory": without}
        holds &= apart["sale"] >= apart["largest"] + 0.02 and apart["price"] <= 0.8 * PRICES[-1]
        holds &= nested["sale"] <= nested["largest"] + 0.01
        holds &= last >= max(first, without) + 0.05
        rows.append(row)
    return Outcome({name: float(np.mean([row[name] for row in rows])) for name in rows[0]}, bool(holds))
