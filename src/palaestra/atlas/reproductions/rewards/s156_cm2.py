"""[156] CM2: a checklist per turn, compared turn by turn, against one score per episode.

A scripted dialogue of four turns; each has one right action of six, and a judge that errs on every tenth. Also
what failed judge calls do to a baseline. A negative result stands beside the claim: the published trajectory score is
divided by the number of turns, and that alone is the difference in updates; with the sum of the turns' scores both
levels need the same number. What the turn level gains is a gradient with less noise. Left out: models as judges.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.algebra.signals import Signal, mean, total
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.rewards.combine.masks import cm2
from palaestra.rewards.judged.criteria import Criteria, onto, utility

TURNS, ACTIONS, GROUP, NOISE = 4, 6, 8, 0.1
RATE, UPDATES, ENOUGH = 1.0, 600, 0.8
LEVELS = {
    "turn": cm2("score"),
    "trajectory": cm2(mean("score", over="episode"), over="group"),
    "trajectory_sum": cm2(total("score", over="episode"), over="group"),
}


def updates_needed(credit: Signal, seeds: Sequence[int]) -> np.ndarray:
    """Updates until all four turns are right with probability 0.8, for each seed."""
    streams, runs = [np.random.default_rng(seed) for seed in seeds], len(seeds)
    theta = np.zeros((runs, TURNS, ACTIONS))
    run, _, turn = (axis.ravel() for axis in np.indices((runs, GROUP, TURNS)))
    needed = np.full(runs, np.inf)
    for update in range(UPDATES):
        policy = softmax(theta)
        needed[np.isinf(needed) & (policy[..., 0].prod(axis=-1) >= ENOUGH)] = update
        if np.isfinite(needed).all():
            break
        turns, action = play(policy, streams)
        advantage = np.asarray(credit.evaluate(turns))
        theta += RATE * policy_gradient(policy, run, turn, action, advantage) / GROUP
    return needed


def play(policy: np.ndarray, streams: Sequence[np.random.Generator]) -> tuple[Turns, np.ndarray]:
    """A group of episodes for each run, and the actions."""
    run, episode, turn = (axis.ravel() for axis in np.indices((len(policy), GROUP, TURNS)))
    luck = uniform(streams, GROUP, TURNS, 2) if len(streams) > 1 else streams[0].random((len(policy), GROUP, TURNS, 2))
    action = sample(policy[:, None], luck[..., 0])
    verdict = (action == 0) ^ (luck[..., 1] < NOISE)
    keys = {"run": run.astype(str), "group": run * 0, "episode": episode, "turn": turn, "agent": ["a"] * run.size}
    return Turns(keys | {"score": verdict.ravel().astype(float)}), action.ravel()


def signal_to_noise(credit: Signal, seed: int, groups: int = 4000) -> float:
    """|E g|² / E|g - E g|² of the policy gradient of one group, the policy being uniform."""
    policy = np.full((groups, TURNS, ACTIONS), 1 / ACTIONS)
    turns, action = play(policy, [np.random.default_rng(seed)])
    run, turn = turns["run"].cast(int).to_numpy(), turns["turn"].to_numpy()
    gradient = policy_gradient(policy, run, turn, action, np.asarray(credit.evaluate(turns)))
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
    claim="Checklist scores compared turn by turn give a less noisy gradient than their average over the dialogue.",
    baseline="the same scores averaged over the episode, as published; and their sum",
    criterion="the turn level needs at most half the updates of the averaged trajectory level in every seed, and its "
    "gradient has at least twice the signal-to-noise ratio; leaving failed judge calls out of the baseline biases it "
    "by less than 0.02, counting them as 0 by more than 0.1",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Updates at both levels, bias of the baseline."""
    needed = {level: updates_needed(credit, seeds) for level, credit in LEVELS.items()}
    bias = bias_of_failures(seeds[0])
    measured = {f"updates_{level}": float(each.mean()) for level, each in needed.items()}
    measured |= {"largest_ratio": float((needed["turn"] / needed["trajectory"]).max())}
    measured |= {f"bias_{name}": value for name, value in bias.items()}
    noise = {level: signal_to_noise(LEVELS[level], seeds[0]) for level in ("turn", "trajectory")}
    measured |= {f"signal_to_noise_{level}": value for level, value in noise.items()}
    fast = bool((needed["turn"] <= 0.5 * needed["trajectory"]).all()) and noise["turn"] >= 2 * noise["trajectory"]
    return Outcome(measured, fast and abs(bias["left_out"]) < 0.02 and bias["as_zero"] < -0.1)
