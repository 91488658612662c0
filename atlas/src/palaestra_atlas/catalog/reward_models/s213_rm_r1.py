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

from palaestra.algebra.turns import Turns
from palaestra.rewards.judged.verdicts import verdict_reward
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

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


def worked_error() -> float:
    """Deviation from the parser's cases: right 1; both, 90 blanks behind it, none, the wrong one -1."""
    texts = [f"so {A}", f"{A} {B}", A + " " * 90, "A", B]
    found = np.asarray(verdict_reward().evaluate(Turns({"action": texts, "label": ["A"] * 5})))
    return float(np.abs(found - [1, -1, -1, -1, -1]).max())


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
    criterion="parser's cases exact; mean accuracy above .86 of .875 possible, at least .06 above both baselines (held "
    "on the three fresh seeds tried)",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Three arms of the recipe `judging`."""
    arms = train_arms("judging", ARMS, seeds, judge)
    measured = {"worked_error": worked_error()} | arms.measured()
    best = arms.mean("both", "accuracy")
    above = best - max(arms.mean(name, "accuracy") for name in ("distilled", "form"))
    return Outcome(measured | {"above": above}, measured["worked_error"] == 0 and best > 0.86 and above >= 0.06)
