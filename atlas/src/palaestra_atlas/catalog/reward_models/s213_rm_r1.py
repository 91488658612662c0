"""[213] RM-R1 (arXiv 2505.02387): a judge that reasons, trained by distillation and then by a verifiable reward.

The world `judging`: two kinds of task and two ways to look, right with [[.95, .6], [.6, .8]]; a table is first shown an
examiner who takes the fitting way in 5 of 8 cases, then learns from +1 and -1. Left out: language models, and so what a
rubric says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Judging
from palaestra.envs.worlds.judging import examiner
from palaestra.play.executors import Local, Plan
from palaestra.rewards.judged.verdicts import verdict_reward
from palaestra.runs.inline import learn
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

A, B = "<answer>[[A]]</answer>", "<answer>[[B]]</answer>"
SHOWN: dict[str, Any] = {
    "script": "palaestra.envs.worlds.judging:examiner",
    "options": {"right": 0.25},
    "groups": 64,
    "steps": 60,
    "batch": 64,
    "lr": 0.1,
}
ARMS: dict[str, dict[str, Any]] = {
    "both": {"warm_start": SHOWN},
    "distilled": {"warm_start": SHOWN, "learn": {"lr": 1e-9}},
    "form": {"warm_start": SHOWN, "reward": 'fill_missing(col("formatted"), 0.0)'},
}


@exact
def strict_parser() -> None:
    """The right tag at the end earns 1; the wrong one, both, none, or 90 blanks behind it earn -1."""
    texts = [f"so {A}", f"{A} {B}", A + " " * 90, "A", B]
    found = np.asarray(verdict_reward().evaluate(Turns({"action": texts, "label": ["A"] * 5})))
    np.testing.assert_array_equal(found, [1, -1, -1, -1, -1])


@exact
def fitting_ways() -> None:
    """Who takes the way of the kind that is shown, and says what it sees, is right in .95 and .8 of both kinds."""
    team = Team(judge=ScriptedPolicy(examiner(right=1.0), name="examiner"))
    frame = Local().play(Judging, team, Plan(groups=1200, group_size=1, seed=213)).frame
    right = dict(frame.drop_nulls("result").group_by("kind").agg(pl.col("result").mean()).iter_rows())
    assert abs(right[0] - 0.95) < 0.04, right
    assert abs(right[1] - 0.8) < 0.06, right


@exact
def distilled_start() -> None:
    """After it was shown an examiner, the judge's first batch is right far more often than a coin."""
    short = {"warm_start": SHOWN, "train": {"iterations": 1, "groups": 64}, "evaluation": {"controls": {}}}
    found = learn("judging", short, seed=213).curve()[0]
    assert found > 0.65, found


def judge(learned: TrainingResult) -> dict[str, float]:
    """Held-out accuracy, early accuracy, and how often the fitting way is taken for each kind of task."""
    frame = learned.play(groups=800).frame
    looks = frame.filter(pl.col("result").is_null() & pl.col("way").is_not_null())
    fit = looks.group_by("kind").agg((pl.col("way") == pl.col("kind")).mean()).sort("kind")["way"].to_list()
    early = float(np.mean(learned.curve()[:3]))
    return {"accuracy": float(frame["result"].drop_nulls().mean()), "early": early, "fitting": float(min(fit))}  # type: ignore[arg-type]


@reproduction(
    213,
    claim="A judge that was shown verdicts and is then rewarded for right ones learns which way of reasoning fits "
    "which task, beyond whom it was shown.",
    baseline="the same judge without the second stage, and with a reward for the form of a verdict alone",
    criterion="mean accuracy above .86 of .875 possible, at least .06 above both baselines (held "
    "on the three fresh seeds tried)",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Three arms of the recipe `judging`."""
    arms = train_arms("judging", ARMS, seeds, judge)
    best = arms.mean("both", "accuracy")
    above = best - max(arms.mean(name, "accuracy") for name in ("distilled", "form"))
    return Outcome(arms.measured() | {"above": above}, best > 0.86 and above >= 0.06)
