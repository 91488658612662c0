"""[218] Co-Reward: the majority of one view labels the other.

Thirty questions with five answers; the solver shares what it learns between two wordings of each. Where every wording
suggests one wrong answer of its own, self-vote locks it in and the other wording corrects it. Where the biases of a
wording are diffuse the difference is small, and both kinds of label end constant and wrong on most questions. Left out:
language models, and how a question is rephrased.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from palaestra.algebra.signals import Signal, standardise
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.rewards.judged.votes import co_reward, vote

QUESTIONS, ANSWERS, GROUP, UPDATES, RATE = 30, 5, 8, 150, 0.5
SUGGESTION, KNOWN = 1.5, {"suggested": 1.0, "diffuse": 0.25}
VIEWS = 2
SELF = standardise(vote("answer", over=("group", "view")), over=("group", "view"), unit="episode")
CO = co_reward("answer")


def biases(kind: str, streams: Sequence[np.random.Generator]) -> np.ndarray:
    """float64[runs, questions, views, answers]: what a wording adds to the logits; answer 0 is right."""
    if kind == "diffuse":
        return np.stack([stream.normal(size=(QUESTIONS, VIEWS, ANSWERS)) for stream in streams])
    suggested = 1 + (uniform(streams, QUESTIONS, VIEWS) * (ANSWERS - 1)).astype(int)
    return np.asarray(SUGGESTION * (suggested[..., None] == np.arange(ANSWERS)))


def train(credit: Signal, kind: str, seeds: Sequence[int]) -> dict[str, np.ndarray]:
    """Accuracy at the start and at the end, and the share of views that are constant and wrong, for each seed."""
    streams, runs = [np.random.default_rng(seed) for seed in seeds], len(seeds)
    bias = biases(kind, streams)
    theta = np.zeros((runs, QUESTIONS, ANSWERS))
    theta[..., 0] = KNOWN[kind]
    run, group, view, number = (axis.ravel() for axis in np.indices((runs, QUESTIONS, VIEWS, GROUP)))
    keys = {"run": run.astype(str), "group": group, "view": view, "episode": view * GROUP + number, "turn": run * 0}
    accuracy = []
    for _ in range(UPDATES):
        policy = softmax(theta[:, :, None] + bias)
        accuracy.append(policy[..., 0].mean(axis=(1, 2)))
        answer = sample(policy[..., None, :], uniform(streams, QUESTIONS, VIEWS, GROUP))
        turns = Turns(keys | {"answer": answer.ravel(), "agent": ["a"] * run.size})
        advantage = np.asarray(credit.evaluate(turns))
        flat = policy.reshape(runs, -1, ANSWERS)
        gradient = policy_gradient(flat, run, group * VIEWS + view, answer.ravel(), advantage)
        theta += RATE * gradient.reshape(policy.shape).sum(axis=2) / GROUP
    policy = softmax(theta[:, :, None] + bias)
    locked = (answer == answer[..., :1]).all(axis=-1) & (answer[..., 0] != 0)
    return {"start": accuracy[0], "end": policy[..., 0].mean(axis=(1, 2)), "locked": locked.mean(axis=(1, 2))}


@reproduction(
    218,
    claim="Labels from the other wording of a question let answers improve further than labels from the own wording.",
    baseline="majority vote within each view",
    criterion="with suggested answers the mean paired difference of the final accuracies is above 0.1 and its 95 % t "
    "interval excludes 0; the diffuse case is reported",
    seeds=tuple(range(10)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both kinds of label, both kinds of bias."""
    measured: dict[str, float] = {}
    lows = {}
    for kind in KNOWN:
        ours, theirs = train(CO, kind, seeds), train(SELF, kind, seeds)
        gain = ours["end"] - theirs["end"]
        lows[kind], high = stats.t.interval(0.95, len(seeds) - 1, gain.mean(), stats.sem(gain))
        found = {"start": ours["start"].mean(), "co": ours["end"].mean(), "self": theirs["end"].mean()}
        found |= {"gain": gain.mean(), "gain_low": lows[kind], "gain_high": high}
        found |= {"locked_co": ours["locked"].mean(), "locked_self": theirs["locked"].mean()}
        measured |= {f"{name}_{kind}": float(value) for name, value in found.items()}
    return Outcome(measured, bool(lows["suggested"] > 0 and measured["gain_suggested"] > 0.1))
