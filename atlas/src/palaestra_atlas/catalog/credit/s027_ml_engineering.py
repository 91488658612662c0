"""[27] RL for machine-learning engineering agents (arXiv 2509.01684): slow actions count by their time.

Workers that run asynchronously deliver fast actions first, so a short run is trained on too many of them. Weighing each
term by its duration undoes that for raw returns. Not always: with a group baseline (the documented default) the weight
adds little or does harm; that is measured as well. The stage `asynchronous` keeps the workers' clock. Left out:
code-writing models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.credit import duration_aware
from palaestra.envs.protocol import Observation
from palaestra.envs.worlds.jobs import MILESTONES, Jobs
from palaestra.learning.stages.asynchronous import asynchronous
from palaestra.learning.stages.stage import Context
from palaestra.play.plan import Plan
from palaestra.rewards import ml_engineering_reward
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

SETTING = {
    "env": {"make": "native/jobs", "options": {"seconds": 20}},
    "stages": ["asynchronous(budget=60)"],
    "learn": {"lr": 0.05},
    "train": {"iterations": 120},
}


@exact
def weights() -> None:
    """Three actions of 1, 1 and 4 seconds, weighed by half, half and twice; worked out by hand."""
    turns = Turns({"reward": [0.5, -0.5, 1.0], "seconds": [1.0, 1.0, 4.0]})
    credit = np.asarray(duration_aware("reward", duration="seconds").evaluate(turns))
    np.testing.assert_allclose(credit, [0.25, -0.25, 2], atol=1e-9)


@exact
def partial_credit() -> None:
    """Programs of the world that fail after 0, 1, ... 6 milestones: -10, .1, ... .6; one that only says so: -10."""
    turns = played(Jobs(broken=7, boast=True))
    rewards = np.asarray(ml_engineering_reward(log="log", patterns=MILESTONES).evaluate(turns))
    np.testing.assert_allclose(rewards, [0.5 + 0.7, 1 + 0.7, -10, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, -10], atol=1e-9)


@exact
def what_ends_first() -> None:
    """Four workers, two of them slow: the two that end first are learned from, whoever began first."""
    nothing: Any = None
    keys = {"group": range(4), "episode": [0] * 4, "turn": [0] * 4, "agent": ["engineer"] * 4, "task": ["job"] * 4}
    turns = Turns(keys | {"seconds": [20.0, 1.0, 20.0, 1.0]})
    stage = asynchronous(workers=4, batch=2)
    context = Context(np.random.default_rng(0), 1, nothing, nothing, nothing)
    assert stage.plan(Plan(groups=1), context).groups == 4
    assert stage(turns, context)["seconds"].to_list() == [1.0, 1.0]
    assert stage.plan(Plan(groups=1), context).groups == 2, "two workers are still busy"


@exact
def half_improve() -> None:
    """Of the world's tasks half begin from an earlier program, which is shown."""
    env = Jobs(broken=2, improve=0.5)
    asked = [env.reset(seed)["engineer"].text for seed in range(400)]
    assert 0.4 < np.mean([text.startswith("improve the program") for text in asked]) < 0.6
    assert "improve the program broken 1, which fails" in asked


def played(env: Jobs) -> Turns:
    """Every program of a world once."""
    rows = []
    for number, choice in enumerate(env.choices):
        env.reset(number)
        result = env.step({"engineer": choice})
        facts = {name: result.info[name] for name in env.facts}
        rows.append({"episode": number, "turn": 0, "agent": "engineer", "reward": result.rewards["engineer"]} | facts)
    return Turns(pl.DataFrame(rows))


def chance(learned: TrainingResult) -> dict[str, float]:
    """Exact chance of the slow program."""
    seen = Observation("write a program", choices=("fast", "slow"))
    return {"slow": learned.team["engineer"].choice_probabilities([seen])[0][0, 1]}  # type: ignore[attr-defined]


@reproduction(
    27,
    claim="In a short asynchronous run, weighing raw returns by their duration keeps a slow action that pays more from "
    "being crowded out.",
    baseline="the same policy gradient without weights; with GRPO's baseline (the default) both are reported",
    criterion="chance of the slow action (20 s, 60 s to train) at least 0.1 higher with weights, "
    "mean over the seeds (over four at first, whose mean missed it by .0014 on a fresh block)",
    seeds=tuple(range(12)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Trained as by `palaestra train world env.make=native/jobs stages="asynchronous()" …`."""
    credits = {"raw": 'col("reward")', "group": "grpo()"}
    weighted = {f"{name}_weighted": f'duration_aware({text}, duration="seconds")' for name, text in credits.items()}
    texts = credits | weighted
    arms = train_arms("world", {name: SETTING | {"credit": text} for name, text in texts.items()}, seeds, chance)
    gain = arms.gain("raw_weighted", "raw", "slow")[0]
    return Outcome(arms.measured() | {"gain": gain}, gain >= 0.1)
