"""[27] RL for machine-learning engineering agents (arXiv 2509.01684): slow actions count by their time.

Workers that run asynchronously deliver fast actions first, so a short run is trained on too many of them. Weighing each
term by its duration undoes that for raw returns. Not always: with a group baseline (the documented default) the weight
adds little or does harm; that is measured as well. The stage `asynchronous` keeps the workers' clock. Left out:
code-writing models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import duration_aware
from palaestra.envs.protocol import Observation
from palaestra.rewards import ml_engineering_reward
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

PATTERNS = tuple(f"milestone {number}: reached" for number in range(7))
SETTING = {
    "env": {"make": "native/jobs", "options": {"seconds": 20}},
    "stages": ["asynchronous(budget=60)"],
    "learn": {"lr": 0.05},
    "train": {"iterations": 120},
}


def partial_credit() -> np.ndarray:
    """Reward of programs that fail after 0, 1, … 7 milestones."""
    logs = ["\n".join(PATTERNS[:number]) for number in range(len(PATTERNS) + 1)]
    turns = Turns({"metadata": logs, "reward": [None] * len(logs)})
    return np.asarray(ml_engineering_reward(patterns=PATTERNS).evaluate(turns))


def worked_error() -> float:
    """Three actions of 1, 1 and 4 seconds, weighed by half, half and twice; worked out by hand."""
    turns = Turns({"reward": [0.5, -0.5, 1.0], "seconds": [1.0, 1.0, 4.0]})
    return float(
        np.abs(np.asarray(duration_aware("reward", duration="seconds").evaluate(turns)) - [0.25, -0.25, 2]).max()
    )


def chance(learned: TrainingResult) -> dict[str, float]:
    """Exact chance of the slow program."""
    seen = Observation("write a program", choices=("fast", "slow"))
    return {"slow": learned.team["engineer"].choice_probabilities([seen])[0][0, 1]}  # type: ignore[attr-defined]


@reproduction(
    27,
    claim="In a short asynchronous run, weighing raw returns by their duration keeps a slow action that pays more from "
    "being crowded out; milestones order programs that fail.",
    baseline="the same policy gradient without weights; with GRPO's baseline (the default) both are reported",
    criterion="worked weights exact; chance of the slow action (20 s, 60 s to train) at least 0.1 higher with weights, "
    "mean over the seeds; rewards of failing programs strictly rising; should hold in 9 of 10 blocks of four",
    seeds=(0, 1, 2, 3),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Milestones; then trained as by `palaestra train world env.make=native/jobs stages="asynchronous()" …`."""
    credits = {"raw": 'col("reward")', "group": "grpo()"}
    weighted = {f"{name}_weighted": f'duration_aware({text}, duration="seconds")' for name, text in credits.items()}
    texts = credits | weighted
    arms = train_arms("world", {name: SETTING | {"credit": text} for name, text in texts.items()}, seeds, chance)
    rewards = partial_credit()
    measured = {
        "worked_error": worked_error(),
        "smallest_step_between_milestones": float(np.diff(rewards).min()),
    } | arms.measured()
    gain = arms.gain("raw_weighted", "raw", "slow")[0]
    return Outcome(measured, bool(measured["worked_error"] <= 1e-9 and gain >= 0.1 and (np.diff(rewards) > 0).all()))
