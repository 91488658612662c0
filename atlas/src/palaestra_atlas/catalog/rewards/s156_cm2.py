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

from palaestra.agents import ScriptedPolicy
from palaestra.algebra.signals import Signal, mean
from palaestra.algebra.turns import Turns
from palaestra.judges import Item, judge
from palaestra.rewards.combine.masks import cm2
from palaestra.rewards.judged.criteria import Criteria, onto, satisfaction, step_advantage, utility
from palaestra_atlas.reproductions import Outcome, exact, reached, reproduction, train_arms

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


SHARES = {"first": 0.3, "second": 0.3, "third": 0.4}
VERDICTS = ("111", "110", "100", "000", "111")


def checklist(rollouts: Sequence[str] = VERDICTS) -> Criteria:
    """Verdicts on three items of one turn, a rollout each."""
    rows = [
        (each, name, float(verdict))
        for each, said in enumerate(rollouts)
        for name, verdict in zip(SHARES, said, strict=True)
    ]
    episode, criterion, value = zip(*rows, strict=True)
    keys = {"group": [0] * len(rows), "episode": episode, "turn": [0] * len(rows), "step": [0] * len(rows)}
    return Criteria(pl.DataFrame(keys | {"criterion": criterion, "value": value}))


@exact
def turn_scores() -> None:
    """The card's scores, and one verdict per item, turn and call of a judge."""
    scores = utility(checklist(), SHARES, by=("episode", "turn"), method="any")["utility"].to_list()
    np.testing.assert_allclose(scores, [1.0, 0.6, 0.3, 0.0, 1.0])
    turns = Turns({"episode": [0, 0], "turn": [0, 1], "observation": ["", ""], "action": ["hello", "bye"]})
    said = judge(
        turns, [Item("greets", "Does it greet?")], level="turn",
        policy=ScriptedPolicy(lambda request: f"VERDICT: {'no' if 'bye' in request.observation.text else 'yes'}"),
    )  # fmt: skip
    assert said.frame["value"].to_list() == [1.0, 0.0]


@exact
def any_step() -> None:
    """An item that was true at step 1 and not at step 3 counts for its turn."""
    steps = {"episode": [0] * 3, "turn": [0] * 3, "step": [1, 2, 3], "criterion": ["a"] * 3, "value": [1.0, 0.0, 0.0]}
    assert utility(Criteria(pl.DataFrame(steps)), {"a": 1.0}, method="any")["utility"].to_list() == [1.0]


@exact
def after_what_it_needs() -> None:
    """An item that was true before the one that it depends on is credited when that one is."""
    steps = {"episode": [0] * 4, "turn": [0] * 4, "step": [1, 2] * 2, "criterion": ["b", "b", "c", "c"]}
    table = Criteria(pl.DataFrame(steps | {"value": [0.0, 1.0, 1.0, 0.0]}))
    assert satisfaction(table, {"c": ["b"]})["done"].to_list() == [2, 2]
    never = Criteria(pl.DataFrame(steps | {"value": [0.0, 0.0, 1.0, 0.0]}))
    assert satisfaction(never, {"c": ["b"]})["done"].to_list() == [None, None]


@exact
def turn_baselines() -> None:
    """The card's advantages, at the turn's own position; four rollouts give none; failed judging counts nowhere."""
    scores = [1.0, 0.6, 0.3, 0.0, 1.0]
    keys = {"group": [0] * 10, "episode": [*range(5)] * 2, "turn": [0] * 5 + [1] * 5, "agent": ["a"] * 10}
    turns = Turns(keys | {"score": [*scores, 1.0, 1.0, 1.0, 1.0, 1.0]})
    credit = np.asarray(cm2("score").evaluate(turns))
    np.testing.assert_allclose(credit, [0.42, 0.02, -0.28, -0.58, 0.42, *[0.0] * 5], atol=1e-9)
    four = turns.filter(pl.col("episode") < 4)
    np.testing.assert_array_equal(np.asarray(cm2("score").evaluate(four)), np.zeros(8))
    six = {"group": [0] * 6, "episode": range(6), "turn": [0] * 6, "agent": ["a"] * 6, "score": [*scores, 0.0]}
    ok = Turns(six | {"ok": [True] * 5 + [False]})
    np.testing.assert_allclose(
        np.asarray(cm2("score", judged="ok").evaluate(ok)), [0.42, 0.02, -0.28, -0.58, 0.42, 0.0], atol=1e-9
    )


@exact
def step_level() -> None:
    """With η = .5 an item open at step 1 and true at step 3 scores .25 until then, less what the group's mean is."""
    rows = [(episode, step, float(step == 3 and episode == 0)) for episode in range(2) for step in range(1, 5)]
    episode, step, value = zip(*rows, strict=True)
    keys = {"group": [0] * 8, "episode": episode, "turn": [0] * 8, "step": step, "criterion": ["a"] * 8, "value": value}
    found = step_advantage(Criteria(pl.DataFrame(keys)), {"a": 1.0}, eta=0.5)["step_advantage"].to_list()
    mean_ = 3 * 0.25 / 7  # three steps of the one, four of the other, which never was
    np.testing.assert_allclose(found, [*[0.25 - mean_] * 3, 0.0, *[-mean_] * 4], atol=1e-9)


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
