"""[26] Clip and Delta (arXiv 2410.15115): a process reward that is summed is farmed; bounded, it is not.

A task of three steps of work, then the answer, which is right in 70% of the cases if all work was careful and in 20%
otherwise. Any number of turns may be spent on saying the same thing again, which changes nothing and which the process
reward model likes a little better (.90) than careful work (.85); sloppy work scores .50. REINFORCE with return-to-go.
Left out: language models, on which the paper's collapse (31 to 11 on MATH) was seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import Signal, evaluate
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.credit import centre, return_to_go
from palaestra.rewards import clip_and_delta, success_reward

WORK, HORIZON, EPISODES, ITERATIONS, RATE = 3, 20, 16, 300, 0.5
CAREFUL, SLOPPY, REPEAT, ANSWER = range(4)
SCORES = np.array([0.85, 0.5, 0.9, 0.9])
RIGHT = (0.7, 0.2)
ARMS: dict[str, Signal] = {
    "success": success_reward(),
    "summed": clip_and_delta(clipped=False, differences=False),
    "clip": clip_and_delta(differences=False),
    "delta": clip_and_delta(clipped=False),
    "clip_delta": clip_and_delta(),
}


def worked_error() -> float:
    """Sums over a trajectory, and over one with ten more good steps in it, against the card."""
    plain, longer = [0.9, 0.6, 0.95, 0.9], [0.9, 0.6, 0.95, *[0.9] * 11]
    expected = {"summed": (3.35, 12.35), "clip": (-0.2, -0.2), "delta": (0.9, 0.9), "clip_delta": (0.0, 0.0)}
    error = 0.0
    for arm, sums in expected.items():
        reward = clip_and_delta(alpha=1.0, clipped=arm.startswith("clip"), differences=arm.endswith("delta"))
        for scores, target in zip((plain, longer), sums, strict=True):
            size = len(scores)
            keys = {"episode": [0] * size, "turn": range(size), "agent": ["a"] * size, "success": [False] * size}
            paid = np.asarray(reward.evaluate(Turns(keys | {"score": scores})))
            error = max(error, abs(float(paid.sum()) - target))
    return error


def play(policy: np.ndarray, streams: Sequence[np.random.Generator]) -> tuple[Turns, np.ndarray]:
    """Episodes of all runs by `policy` float64[runs, 8, 4]; the state is work done, + 4 once it was sloppy."""
    runs = np.arange(len(policy))[:, None]
    luck = uniform(streams, EPISODES, HORIZON + 1)
    done, spoiled = np.zeros((2, len(policy), EPISODES), int)
    running, success = np.ones_like(done, bool), np.zeros_like(done, bool)
    parts = []
    for now in range(HORIZON):
        state = done + (WORK + 1) * spoiled
        action = sample(policy[runs, state], luck[..., now])
        run, episode = np.nonzero(running)
        parts.append((run, episode, np.full(len(run), now), state[running], action[running]))
        spoiled |= running & (action == SLOPPY)
        works = (action <= SLOPPY) & (done < WORK)
        answers = running & (action == ANSWER)
        success |= answers & (done == WORK) & (luck[..., -1] < np.where(spoiled, RIGHT[1], RIGHT[0]))
        done = done + (works & running)
        running &= ~answers
    run, episode, turn, state, action = (np.concatenate(column) for column in zip(*parts, strict=True))
    keys = {"run": run.astype(str), "group": run * 0, "episode": episode, "turn": turn}
    columns = {"agent": np.full(len(run), "solver"), "score": SCORES[action], "success": success[run, episode]}
    return Turns(keys | columns), np.stack([run, state, action])


def train(
    rewards: Sequence[Signal], seeds: Sequence[int], iterations: int = ITERATIONS
) -> tuple[np.ndarray, np.ndarray]:
    """Success and length over the last 30 iterations, float64[rewards, seeds]; all play at once, each by itself."""
    number = len(rewards) * len(seeds)
    streams = [np.random.default_rng(seed) for _ in rewards for seed in seeds]
    theta = np.zeros((number, 2 * (WORK + 1), 4))
    credits = [centre(return_to_go(reward), over="turn") for reward in rewards]
    success, length = [], []
    for _ in range(iterations):
        policy = softmax(theta)
        turns, index = play(policy, streams)
        values = np.stack([np.asarray(value) for value in evaluate(turns, *credits)])
        own = np.take_along_axis(values, index[None, 0] // len(seeds), axis=0)[0]
        theta += RATE * policy_gradient(policy, index[0], index[1], index[2], own) / EPISODES
        first = turns["turn"].to_numpy() == 0
        won = np.bincount(index[0][first], turns["success"].to_numpy()[first].astype(float), number)
        success.append(won / EPISODES)
        length.append(np.bincount(index[0], minlength=number) / EPISODES)
    return tuple(np.mean(curve[-30:], axis=0).reshape(len(rewards), -1) for curve in (success, length))  # type: ignore[return-value]


@reproduction(
    26,
    claim="A summed process reward is farmed by repeating what it likes; clipped, and as differences, it is not.",
    baseline="success alone; the sum of the scores",
    criterion="worked sums equal to 1e-9; in every run success of the summed reward < .1, and the mean of Clip-Delta "
    "at least that of success alone - .03",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked sums, then the five rewards."""
    measured = {"worked_error": worked_error()}
    success, length = train(list(ARMS.values()), seeds)
    for name, won, turns in zip(ARMS, success, length, strict=True):
        measured |= {f"success_{name}": float(won.mean()), f"length_{name}": float(turns.mean())}
    cured = measured["success_clip_delta"] >= measured["success_success"] - 0.03
    farmed = success[list(ARMS).index("summed")].max() < 0.1
    return Outcome(measured, measured["worked_error"] <= 1e-9 and bool(farmed) and cured)
