"""[9] ONI (arXiv 2410.23022): a bonus for a helpful message must fade fast, or it is farmed.

A corridor of nine cells with the goal at the end; at cell 2 a message that is helpful and can be had again and again.
Q-learning on the cell, with the bonus 0.4 · label / N^β; labels come from an annotator that is asked about the newest
messages between episodes. Left out: NetHack, the label classifier.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.agents import ScriptedPolicy
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import uniform
from palaestra.judges import MessageLabels
from palaestra.rewards.novelty import oni_reward

BETAS, WORKED = (0.0, 1.0, 3.0), {3.0: (0.4, 0.05, 0.01481, 0.0032), 1.0: (0.4, 0.2, 0.1333, 0.08)}
CELLS, GOAL, MESSAGE, HORIZON, EPISODES = 9, 3.0, 2, 20, 800
STEP, GAMMA, EXPLORE, COEFFICIENT = 0.2, 0.95, 0.05, 0.4


def worked_error() -> float:
    """Deviation from the card's bonuses for the 1st, 2nd, 3rd and 5th time."""
    turns = Turns({"episode": [0] * 5, "turn": range(5), "m": ["x"] * 5, "label": [1] * 5, "reward": [0] * 5})
    found = {beta: np.asarray(oni_reward("label", "m", beta=beta).evaluate(turns))[[0, 1, 2, 4]] for beta in WORKED}
    return max(float(np.abs(found[beta] - WORKED[beta]).max()) for beta in WORKED)


def label() -> float:
    """What the annotator says of the message, after it was seen for the first time and asked about."""
    helpful = ScriptedPolicy(lambda request: "LABEL: 1" if "key" in request.observation.text else "LABEL: 0")
    labels = MessageLabels(helpful, "reach the end of the corridor")
    seen = Turns({"observation": ["you see a key", "a wall"]})
    labels.add(seen)
    labels.work()
    return float(labels.add(seen)["label"][0])


def success(seeds: Sequence[int]) -> np.ndarray:
    """Share of the last 100 episodes that reach the goal, float64[betas, seeds]. All learn at once."""
    runs, arms, helpful = len(seeds), len(BETAS), label()
    streams = [np.random.default_rng(seed) for seed in seeds]
    arm, run = np.indices((arms, runs))
    power = np.array(BETAS)[:, None]
    q, reached = np.ones((arms, runs, CELLS, 3)), np.zeros((arms, runs))
    for number in range(EPISODES):
        luck = uniform(streams, HORIZON, arms, 2)
        cell, times = np.zeros((arms, runs), int), np.zeros((arms, runs))
        for turn in range(HORIZON):
            at_random = (luck[:, turn, :, 1].T * 3).astype(int)
            action = np.where(luck[:, turn, :, 0].T < EXPLORE, at_random, q[arm, run, cell].argmax(axis=-1))
            live = cell < CELLS - 1
            after = np.where(live, np.clip(cell + action - 1, 0, CELLS - 1), cell)
            message, done = live & (after == MESSAGE), live & (after == CELLS - 1)
            times += message
            bonus = COEFFICIENT * helpful * message / np.maximum(times, 1) ** power
            target = bonus + GOAL * done + GAMMA * q[arm, run, after].max(axis=-1) * (after < CELLS - 1)
            q[arm, run, cell, action] += STEP * live * (target - q[arm, run, cell, action])
            cell = after
        reached += (cell == CELLS - 1) * (number >= EPISODES - 100) / 100
    return reached


@reproduction(
    9,
    claim="A message bonus divided by the cube of its count is not worth farming; a constant one is.",
    baseline="the same bonus undivided (β = 0) and divided by the count (β = 1)",
    criterion="worked bonuses to 1e-4; success at least 0.9 with β = 3 and at most 0.1 with β = 0 and 1, in every seed",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked bonuses, then the corridor."""
    reached = success(seeds)
    measured = {"worked_error": worked_error()}
    measured |= {f"success_beta_{beta:g}": float(rate.mean()) for beta, rate in zip(BETAS, reached, strict=True)}
    good = (reached[2] >= 0.9).all() and (reached[:2] <= 0.1).all()
    return Outcome(measured, bool(good and measured["worked_error"] < 1e-4))
