"""[191] DeepTravel (arXiv 2509.21842): a gate, then the details against what tools said; failed tasks once more.

The world `plan` needs a slot that is feasible and four facts, each of which is looked up or invented; an outcome alone
does not see inventions. In the second trial, the recipe `answers`, tasks differ in how many answers are right, and
those whose group failed come back by the stage `failure_replay`. Reconstructions both. Left out: real itineraries
(`roles/itinerary` has made-up ones), and the cache that answers equal calls equally.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

PLAN = {"env": {"make": "native/plan"}}
PLANS: dict[str, Any] = {
    "checked": {**PLAN, "reward": 'deep_travel_reward("gate", "detail")'},
    "outcome": {**PLAN, "reward": 'where(is_last(), col("gate"), 0.0)'},
}
TASKS: dict[str, Any] = {
    "env": {"options": {"tasks": 30, "answers": 24, "right": [8, 3, 1]}},
    "train": {"iterations": 80, "groups": 6},
}
REPLAYS: dict[str, Any] = {"replay": {**TASKS, "stages": ["failure_replay(fraction=1.0)"]}, "fresh": TASKS}


def planned(learned: TrainingResult) -> dict[str, float]:
    """Shares of plans that are feasible and of facts that are invented."""
    turns = learned.play(groups=200)
    details = learned.setup.test().sizes[1:]  # type: ignore[attr-defined]
    invented = turns["invented"].drop_nulls().mean()
    return {"feasible": float(turns["gate"].mean()), "invented": float(invented) / len(details)}  # type: ignore[arg-type]


def hard(learned: TrainingResult) -> dict[str, float]:
    """Success on tasks with one right answer of 24, and on all."""
    turns = learned.play(groups=600).frame
    return {
        "hard": float(turns.filter(pl.col("difficulty") > 0.95)["success"].mean()),  # type: ignore[arg-type]
        "all": float(turns["success"].mean()),  # type: ignore[arg-type]
    }


@reproduction(
    191,
    claim="Checking details behind a gate stops inventions; replay of failed tasks helps hard ones.",
    baseline="the gate alone; no replay",
    criterion="in every seed fewer than 0.1 of the facts are invented, against more than 0.2 in the mean with the gate "
    "alone, feasibility being within 0.05; with replay the hardest third gains at least 0.05 in the mean (held on "
    "both fresh blocks tried)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Inventions, then replay."""
    plans = train_arms("world", PLANS, seeds, planned)
    tasks = train_arms("answers", REPLAYS, seeds, hard)
    gain, error = tasks.gain("replay", "fresh", "hard")
    measured = plans.measured() | tasks.measured() | {"replay_gain": gain, "standard_error": error}
    honest = (plans.values["checked"]["invented"] < 0.1).all() and plans.mean("outcome", "invented") > 0.2
    equal = abs(plans.gain("checked", "outcome", "feasible")[0]) <= 0.05
    return Outcome(measured, bool(honest and equal and gain >= 0.05))
