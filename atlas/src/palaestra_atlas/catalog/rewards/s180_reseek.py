"""[180] ReSeek (arXiv 2510.00568): what judging a search result earns decides from which odds on it is accepted.

The world `verdict`: texts come with a cue; a cue's texts are useful with a known chance p. A table that learns from the
reward by the recipe `world` accepts from p = 0.6 on with the published penalties, from 0.5 on with equal ones. Left
out: rerankers, answers, FictionalHot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.rewards.match.evidence import reseek_reward
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

REWARDS = {
    "published": reseek_reward("judge", "relevance"),
    "equal": reseek_reward("judge", "relevance", accepted=-0.3),
}
TEXT = {
    "published": 'reseek_reward("judge", "relevance")',
    "equal": 'reseek_reward("judge", "relevance", accepted=-0.3)',
}
WORLD: dict[str, Any] = {
    "env": {"make": "native/verdict"},
    "credit": 'centre("reward", over="state")',
    "train": {"iterations": 60, "groups": 224, "group_size": 1},
}


def expected(reward: Signal, useful: float) -> np.ndarray:
    """float64[2]: what no and yes earn in expectation, exactly, where a text is of use with this chance."""
    cases = {"judge": [0, 0, 1, 1], "relevance": [0.1, 0.9, 0.1, 0.9], "episode": range(4), "turn": [0] * 4}
    table = np.asarray(reward.evaluate(Turns(cases))).reshape(2, 2)
    return np.asarray(table @ [1 - useful, useful])


def accepted(learned: TrainingResult) -> dict[str, float]:
    """The smallest chance whose texts are accepted more often than not; 1 if none are."""
    turns = learned.play(groups=280).frame.group_by("chance").agg(pl.col("judge").mean())
    smallest = turns.filter(pl.col("judge") > 0.5)["chance"].min()
    return {"smallest": 1.0 if smallest is None else float(smallest)}  # type: ignore[arg-type]


@reproduction(
    180,
    claim="With penalties 0.6 for accepting what is useless and 0.3 for rejecting what is useful, the judge that is "
    "learned accepts from a chance of 0.6 on.",
    baseline="equal penalties of 0.3",
    criterion="exact break-even at 0.6 and 0.5; the smallest accepted chance lies in (0.55, 0.65] in every seed, and "
    "at most at 0.55 with equal penalties (held on both fresh blocks of two seeds tried)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Break-even points, and what is learned."""
    measured = {}
    for name, point in (("published", 0.6), ("equal", 0.5)):
        reject, accept = expected(REWARDS[name], point)
        measured[f"break_even_error_{name}"] = abs(float(accept - reject))
    arms = train_arms("world", {name: {**WORLD, "reward": text} for name, text in TEXT.items()}, seeds, accepted)
    for name in TEXT:
        smallest = arms.values[name]["smallest"]
        measured |= {f"smallest_{name}_min": float(smallest.min()), f"smallest_{name}_max": float(smallest.max())}
    exact = max(measured["break_even_error_published"], measured["break_even_error_equal"]) < 1e-12
    learned = measured["smallest_published_min"] > 0.55 and measured["smallest_published_max"] <= 0.65
    return Outcome(measured, exact and learned and measured["smallest_equal_max"] <= 0.55)
