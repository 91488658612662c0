"""[29] OPRL, iStar (arXiv 2509.19199): a process reward model that only knows who won still finds the decisive steps.

The recipe `steps`: twelve steps with four actions; an episode succeeds if three hidden steps were right. The stage
`process_reward` trains a copy of the policy on pairs of success and failure in a group; its reference is the policy
that played; `oprl()` adds its step credit to RLOO. Left out: language models, invalid actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.signals import leave_one_out
from palaestra.algebra.turns import Turns
from palaestra.credit import implicit_reward, oprl
from palaestra.learning.stages.process_reward import process_reward
from palaestra.learning.stages.stage import Context
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

ARMS: dict[str, Any] = {
    "oprl": {"stages": ["process_reward(lr=0.3)"], "credit": "oprl()"},
    "rloo": {"credit": "rloo()"},
}
SETTINGS: dict[str, Any] = {"train": {"iterations": 50}}
RATIOS = [2.0, -1.0, 3.0, 0.0, 1.0]
"""Log-ratio of the process model to the rollout policy in each turn of a success, and of a failure."""


def pair() -> Turns:
    """A success of three turns and a failure of two; the rollout policy as the uniform process model sees it."""
    keys = {"group": [0] * 5, "episode": [0] * 3 + [1] * 2, "turn": [0, 1, 2, 0, 1], "agent": ["a"] * 5}
    told = {"reward": [0.0, 0.0, 1.0, 0.0, 0.0], "state": range(5), "policy": ["chooser"] * 5}
    logprobs = [[np.log(0.5) - each] for each in RATIOS]
    return Turns(keys | told | {"action": ["0"] * 5, "action_ids": [[0]] * 5, "logprobs": logprobs})


def context(iteration: int = 1) -> Context:
    """Of a stage that trains copies of one table."""
    nothing: Any = None
    team = Team(a=TabularPolicy(2, name="chooser"))
    return Context(np.random.default_rng(0), iteration, nothing, team, nothing)


@exact
def step_rewards() -> None:
    """The card's pair: beta times the log-ratio of the stage's model to the rollout policy, scaled, in the credit."""
    turns = process_reward(epochs=0)(pair(), context())
    np.testing.assert_allclose(np.asarray(implicit_reward().evaluate(turns)), [0.1, -0.05, 0.15, 0, 0.05], atol=1e-6)
    scaled = np.array([0.5, -0.25, 0.75, 0, 0.25])
    steps = 1.25 * (scaled - scaled.mean())  # leave-one-out of five
    np.testing.assert_allclose(np.asarray(oprl(0.0).evaluate(turns)), steps, atol=1e-4)
    np.testing.assert_allclose(np.asarray(oprl().evaluate(turns)), steps + np.array([1, 1, 1, -1, -1]), atol=1e-4)


@exact
def pair_loss() -> None:
    """The loss of the pair is that of the scores .0667 and .0250: means over the turns."""
    here = context()
    process_reward()(pair(), here)
    np.testing.assert_allclose(here.metrics["process_loss_chooser"], 0.6725, atol=5e-5)


@exact
def two_groups() -> None:
    """Groups of unlike size, rows in any order, an episode without an outcome, whose step of 9 counts nowhere.

    Sums to the end: -.2, -.6 and .1 in group 0, .2, -.4 and -.3 in group 1; the largest of the batch is .6.
    """
    episode = np.array([1, 0, 4, 3, 0, 2, 3])
    turn, group = [0, 1, 0, 1, 0, 0, 0], np.array([0, 0, 1, 1, 1])[episode]
    step = np.array([0.1, -0.6, 9.0, -0.3, 0.4, 0.2, -0.1])
    keys = {"group": group, "episode": episode, "turn": turn, "agent": ["a"] * 7, "step": step}
    outcome = np.array([1.0, 0.0, 2.0, 0.5, np.nan])
    scores = pl.Series(outcome[episode], nan_to_null=True)
    found = np.asarray(oprl("score", step="step", weight=2.0).evaluate(Turns(keys | {"score": scores})))
    whole = np.array([1.0, -1.0, 1.5, -1.5, np.nan])[episode]  # n/(n - 1) = 2 times the difference from the mean
    by_step, scaled = np.full(7, np.nan), step / (0.6 + 1e-6)
    for number in (0, 1):
        rows = np.flatnonzero((group == number) & (episode != 4))
        by_step[rows] = (scaled[rows] - scaled[rows].mean()) * len(rows) / (len(rows) - 1)
    np.testing.assert_allclose(found, whole + 2 * by_step, atol=1e-9)
    other = oprl("score", step="step", episode=3.0 * leave_one_out("score", over="group", unit="episode"))
    found = np.asarray(other.evaluate(Turns(keys | {"score": scores})))
    np.testing.assert_allclose(found, 3 * whole + by_step, atol=1e-9)


@exact
def who_won() -> None:
    """The action of a success is rewarded in the step where it differs from a failure.

    Later iterations do so in states that the first did not have.
    """
    stage = process_reward(lr=0.1, epochs=10)
    for iteration in (1, 2):
        keys = {"group": [0] * 4, "episode": [0, 0, 1, 1], "turn": [0, 1, 0, 1], "agent": ["a"] * 4}
        told = {"reward": [0.0, 1, 0, 0], "state": np.array([0, 1, 0, 1]) + 2 * iteration, "policy": ["chooser"] * 4}
        acted = {"action": ["1", "0", "0", "0"], "action_ids": [[1], [0], [0], [0]], "logprobs": [[np.log(0.5)]] * 4}
        turns = stage(Turns(keys | told | acted), context(iteration))
        reward = np.asarray(implicit_reward().evaluate(turns))
        assert reward[0] > 0.02 > -0.02 > reward[2], reward
        np.testing.assert_allclose(reward[[1, 3]], 0.0, atol=1e-6)


@reproduction(
    29,
    claim="Step rewards from a process reward model trained on pairs of episodes make learning faster.",
    baseline="the episode's credit alone, RLOO, the method's own choice; same group size and learning rate",
    criterion="mean success over training higher than that of RLOO by > 2 standard errors of the difference, paired by "
    "seed",
    seeds=tuple(range(6)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both arms."""
    arms = train_arms(
        "steps", {name: SETTINGS | arm for name, arm in ARMS.items()}, seeds,
        lambda learned: {"curve": float(np.mean(learned.curve()))},
    )  # fmt: skip
    gain, error = arms.gain("oprl", "rloo", "curve")
    return Outcome(arms.measured() | {"gain": gain, "standard_error": error}, gain > 2 * error)
