"""[184] ERA: credit per turn, a reward for new bests of progress only, and both shaping terms switched off in time.

Worked advantages and payments. Then tokens: with five tokens a turn and a critic whose values are off by independent
noise, targets at the turn's grain vary less than those at the token's. Then the corridor of reproduction 62: fetch the
key, open the door; progress is .5 with the key, 1 at the end. Left out: the context, which shows an agent only its own
running summary, and vision.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from palaestra.algebra.signals import Signal, col, fill_missing, shift, sign, where
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.corridor import CELLS, Play, train
from palaestra.credit import centre, gae, is_last, phase, return_to_go
from palaestra.rewards import cum_max_gain, era_reward

GAMMA = LAM = 0.99
SWITCH, ITERATIONS = 22, 150
EPISODES, TURNS, TOKENS, NOISE = 400, 6, 5, 0.3


def worked_error() -> float:
    """Advantages of four turns, and progress that goes back and forth."""
    keys = {"episode": [0] * 4, "turn": range(4), "agent": ["a"] * 4}
    four = Turns(keys | {"reward": [0, 1, -0.5, 4], "value": [1.0] * 4})
    advantage = np.asarray(gae(gamma=GAMMA, lam=LAM, bootstrap=0).evaluate(four))
    keys = {"episode": [0] * 6, "turn": range(6), "agent": ["a"] * 6}
    moving = Turns(keys | {"progress": [0.0, 0.5, 0.5, 0.25, 0.5, 1.0]})
    paid = np.asarray(sign(cum_max_gain("progress")).evaluate(moving))
    return float(max(np.abs(advantage - [3.2948, 3.3719, 2.4303, 3.0]).max(), np.abs(paid - [0, 1, 0, 0, 0, 1]).max()))


def target_errors(seed: int) -> tuple[float, float]:
    """Standard deviation of the value targets A + V around the truth: per turn, and per token."""
    rng = np.random.default_rng(seed)
    episode, turn = (axis.ravel() for axis in np.indices((EPISODES, TURNS)))
    keys = {"group": episode * 0, "episode": episode, "turn": turn, "agent": np.full(len(turn), "a")}
    found = []
    for grain in (1, TOKENS):
        left = (TURNS - 1 - turn)[:, None] * grain + np.arange(grain)[::-1]
        truth = GAMMA**left  # a reward of one at the end
        values, rewards = truth + NOISE * rng.normal(size=truth.shape), (left == 0).astype(float)
        turns = Turns(keys | {"value": values.tolist(), "reward_": rewards.tolist()})
        target = gae("value", "reward_", gamma=GAMMA, lam=LAM, bootstrap=0) + col("value")
        error = target.evaluate(turns).values.reshape(truth.shape) - truth  # type: ignore[union-attr]
        found.append(float(error.std()))
    return found[0], found[1]


def corridor(shaped: Signal | float, seeds: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Success over the first 50 iterations and over the last 10, one per seed."""
    numbers = itertools.count()
    after = 0.5 * fill_missing(shift("holds", n=-1), 0.0) + where(is_last(), col("success"), 0.0)
    reward = era_reward(after, shaped=shaped)

    def add(batch: Play, policy: np.ndarray) -> Mapping[str, np.ndarray]:
        now = np.full(len(batch.run), next(numbers))
        holds = (batch.state >= CELLS).astype(float)
        return {"holds": holds, "success": batch.reward, "valid": holds == holds, "iteration": now}

    credit = centre(return_to_go(reward, gamma=GAMMA), over="turn")
    curve = train(credit, seeds, ITERATIONS, add).success
    return curve[:50].mean(axis=0), curve[-10:].mean(axis=0)


@reproduction(
    184,
    claim="New bests of progress, paid until they have done their work, speed learning up and cost nothing at the end.",
    baseline="success alone; shaping that is never switched off; values per token",
    criterion="worked numbers equal to 4 decimals; success over the first 50 iterations higher than with success alone "
    "in the mean, final success after switching off at 22 at least the others' - .03; targets per turn err less",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, value targets, then the three rewards on the corridor."""
    measured = {"worked_error": worked_error()}
    by_turn, by_token = np.mean([target_errors(seed) for seed in seeds], axis=0)
    measured |= {"target_error_turn": by_turn, "target_error_token": by_token}
    arms: dict[str, Signal | float] = {"success": 0.0, "shaped": 1.0, "switched": phase(1.0, 0.0, at=SWITCH)}
    for name, shaped in arms.items():
        early, late = corridor(shaped, seeds)
        measured |= {f"early_{name}": float(early.mean()), f"final_{name}": float(late.mean())}
    holds = measured["worked_error"] <= 1e-4 and by_turn < by_token
    holds &= measured["early_switched"] > measured["early_success"]
    final = measured["final_switched"] >= max(measured["final_success"], measured["final_shaped"]) - 0.03
    return Outcome(measured, bool(holds and final))
