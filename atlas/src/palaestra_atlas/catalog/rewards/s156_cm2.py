"""[156] CM2: a checklist per turn, compared turn by turn, against one score per episode.

The recipe `talk`: four turns, each has one right thing of six to say, and a scripted judge that does not err (the
recipe's own errs on every tenth transcript, always the same, and a table learns what it is wrong about). Also what
failed judge calls do to a baseline, and the noise of the gradient while the policy is uniform. The published trajectory
score is divided by the number of turns; with Adam the size of credit does not matter, so that costs nothing here, and
what the turn level gains is a gradient with less noise. Left out: models as judges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.signals import Signal, mean
from palaestra.algebra.turns import Turns
from palaestra.rewards.combine.masks import cm2
from palaestra.rewards.judged.criteria import Criteria, onto, utility
from palaestra_atlas.reproductions import Outcome, reached, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

TURNS, ACTIONS, GROUP, NOISE, GROUPS = 4, 6, 8, 0.1, 4000
JUDGE = {"judge": {"options": {"errs": 0.0}}}
ARMS: dict[str, dict[str, Any]] = {
    "turn": {"policies": JUDGE, "credit": 'cm2("reward", judged="judge.fits.ok")'},
    "trajectory": {"policies": JUDGE, "credit": 'cm2(mean("reward", over="episode"), over="group")'},
}


def needed(learned: TrainingResult) -> dict[str, float]:
    """Iterations until four of five dialogues are right in every turn."""
    return {"iterations": reached(learned.curve(), 0.8)}


def signal_to_noise(credit: Signal, seed: int) -> float:
    """|E g|² / E|g - E g|² of the policy gradient of one group, the policy being uniform."""
    rng = np.random.default_rng(seed)
    group, episode, turn = (axis.ravel() for axis in np.indices((GROUPS, GROUP, TURNS)))
    said = rng.integers(ACTIONS, size=group.size)
    verdict = (said == 0) ^ (rng.random(group.size) < NOISE)
    keys = {"group": group, "episode": episode, "turn": turn, "agent": ["a"] * group.size}
    advantage = np.asarray(credit.evaluate(Turns(keys | {"score": verdict.astype(float)})))
    slopes = (advantage[:, None] * (np.eye(ACTIONS)[said] - 1 / ACTIONS)).reshape(GROUPS, GROUP, TURNS, ACTIONS)
    gradient = slopes.sum(axis=1)
    return float(np.square(gradient.mean(axis=0)).sum() / gradient.var(axis=0).sum())


def bias_of_failures(seed: int) -> dict[str, float]:
    """Mean error of the baseline if a fifth of the judge calls fail: left out, and counted as not satisfied."""
    rng = np.random.default_rng(seed)
    groups, size = 500, 16
    truth, failed = rng.random((groups, size)) < 0.7, rng.random((groups, size)) < 0.2
    group, episode = (axis.ravel() for axis in np.indices(truth.shape))
    value = np.where(failed, np.nan, truth).ravel()
    long = pl.DataFrame({"group": group, "episode": episode, "criterion": ["done"] * len(group), "value": value})
    scores = utility(Criteria(long.with_columns(pl.col("value").fill_nan(None))), {"done": 1.0})
    turns = onto(Turns({"group": group, "episode": episode, "turn": group * 0, "agent": ["a"] * len(group)}), scores)
    credit = np.asarray(cm2("utility", judged="judged", over="group").evaluate(turns)).reshape(truth.shape)
    assert (credit[failed] == 0).all()
    baseline = (truth - credit)[~failed].mean()
    return {"left_out": float(baseline - truth.mean()), "as_zero": float((truth & ~failed).mean() - truth.mean())}


@reproduction(
    156,
    claim="Checklist scores compared turn by turn give a less noisy gradient than their average over the dialogue, and "
    "are learned faster.",
    baseline="the same scores averaged over the episode",
    criterion="the turn level needs fewer iterations of the recipe than the trajectory level in every seed, and its "
    "gradient has at least twice the signal-to-noise ratio; leaving failed judge calls out of the baseline biases it "
    "by less than 0.02, counting them as 0 by more than 0.1 (held on both fresh blocks of two seeds tried)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Iterations at both levels, noise of the gradient, bias of the baseline."""
    arms, bias = train_arms("talk", ARMS, seeds, needed), bias_of_failures(seeds[0])
    noise = {
        "turn": signal_to_noise(cm2("score"), seeds[0]),
        "trajectory": signal_to_noise(cm2(mean("score", over="episode"), over="group"), seeds[0]),
    }
    measured = arms.measured() | {f"bias_{name}": value for name, value in bias.items()}
    measured |= {f"signal_to_noise_{level}": value for level, value in noise.items()}
    sooner = bool((arms.values["turn"]["iterations"] < arms.values["trajectory"]["iterations"]).all())
    quiet = noise["turn"] >= 2 * noise["trajectory"]
    return Outcome(measured, sooner and quiet and abs(bias["left_out"]) < 0.02 and bias["as_zero"] < -0.1)
