"""Judges whose faults are known, as tables of verdicts."""

from __future__ import annotations

import numpy as np
import polars as pl


def compared(seed: int, *, pairs: int = 60, noise: float = 1.0, bias: float = 0.0, always: float = 0.0) -> pl.DataFrame:
    """Choices between two answers in both orders: 1, 0, or .5 for a tie, with noise of its own in each order.

    bias: added to what stands first, in standard deviations of the difference in quality. always: share of verdicts
    that take the first whatever it is.
    """
    rng = np.random.default_rng(seed)
    gap = np.tile(rng.normal(size=pairs), 2)
    order = np.repeat([0, 1], pairs)
    seen = gap + noise * rng.normal(size=2 * pairs) + np.where(order == 0, bias, -bias)
    value = np.where(np.abs(seen) < 0.2, 0.5, (seen > 0).astype(float))
    value = np.where(rng.random(2 * pairs) < always, 1.0 - order, value)
    columns = {"item": np.tile(np.arange(pairs), 2), "order": order, "value": value, "truth": (gap > 0).astype(float)}
    return pl.DataFrame(columns)


def rated(
    seed: int,
    *,
    prompts: int = 30,
    answers: int = 4,
    length: float = 0.0,
    drift: float = 0.0,
    claim: float = 0.0,
    truth: bool = True,
    levels: int = 10,
) -> pl.DataFrame:
    """Ratings in whole numbers of several answers to each prompt on two criteria, the answers in random order.

    Prompts differ in how hard they are. length, drift, claim: how much a rating follows what it should not, in levels
    per standard deviation of the length, from the first row to the last, and from a claim of no to a claim of yes.
    """
    rng = np.random.default_rng(seed)
    items = prompts * answers
    prompt = rng.permutation(np.repeat(np.arange(prompts), answers))
    good = rng.random(items) < 0.5
    size, says = rng.normal(size=items), rng.random(items) < 0.5
    frames = []
    for criterion in ("right", "clear"):
        x = 0.55 * levels + rng.normal(size=prompts)[prompt] + 1.5 * (2 * good - 1) + 1.2 * rng.normal(size=items)
        x += length * size + drift * np.linspace(-0.5, 0.5, items) + claim * (says - 0.5)
        frames.append(
            pl.DataFrame({
                "item": np.arange(items), "criterion": criterion, "prompt": [f"prompt {n}" for n in prompt],
                "value": np.clip(np.round(x), 1, levels), "length": 100 + 20 * size, "claim": says,
                "truth": good.astype(float),
            })
        )  # fmt: skip
    table = pl.concat(frames).sort("item", maintain_order=True)
    return table if truth else table.drop("truth")


def scored(seed: int, *, groups: int = 60, levels: int = 10) -> pl.DataFrame:
    """Whole-number scores of a right and a wrong answer to each problem."""
    rng = np.random.default_rng(seed)
    right = np.tile([True, False], groups)
    x = 0.55 * levels + np.repeat(rng.normal(size=groups), 2) + 0.15 * levels * (2 * right - 1)
    score = np.clip(np.round(x + 0.12 * levels * rng.normal(size=2 * groups)), 1, levels)
    return pl.DataFrame({"group": np.repeat(np.arange(groups), 2), "score": score, "correct": right})
