"""[80] Global and episodic bonuses (arXiv 2306.03236): their product does well where either alone may not.

Exact: corridors that are always the same or alternate, which an episodic count cannot tell apart. Learned: a four-step
code that is drawn afresh for each episode and shown step by step, no reward but the bonus, how often the end is
reached. Where all episodes share one map, the case of the global count, there is only the exact contrast. Left out:
networks, MiniHack.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import uniform
from palaestra.rewards.novelty import count_bonus, elliptical, episodic_global_bonus

ARMS = ("none", "global", "episodic", "product")
CODE, CUES, HORIZON, EPISODES = 4, 5, 12, 800
STEP, GAMMA, EXPLORE = 0.2, 0.9, 0.02
WORKED = (10.0, 0.90909, 0.47619, 10.0, 0.69795)


def corridors(*, alternate: bool) -> dict[str, float]:
    """Total bonus of eight walks through corridors of four cells: always the first, or the four in turn."""
    episode, cell = np.repeat(np.arange(8), 4), np.tile(np.arange(4), 8)
    state = cell + 4 * (episode % 4 if alternate else episode * 0)
    turns = Turns({"group": episode * 0, "episode": episode, "turn": cell, "agent": ["a"] * 32, "state": state})
    signals = {"episodic": count_bonus("state"), "global": count_bonus("state", scope="all", form="inv_sqrt")}
    signals["product"] = episodic_global_bonus("state")
    return {name: float(np.asarray(signal.evaluate(turns)).sum()) for name, signal in signals.items()}


def elliptical_error() -> float:
    """Deviation from the card's bonuses, ridge 0.1."""
    features = [[1.0, 0.0]] * 3 + [[0.0, 1.0], [0.6, 0.8]]
    turns = Turns({"episode": [0] * 5, "agent": ["a"] * 5, "turn": range(5), "features": features})
    return float(np.abs(np.asarray(elliptical("features").evaluate(turns), float) - WORKED).max())


def reach_rates(seeds: Sequence[int]) -> np.ndarray:
    """Share of the last quarter of the episodes that reached the end, float64[arms, seeds]. All arms learn at once.

    Q-learning on (depth, cue); the right action leads one deeper, a wrong one nowhere. Counts are of depths.
    """
    runs, arms = len(seeds), len(ARMS)
    streams = [np.random.default_rng(seed) for seed in seeds]
    q, total = np.zeros((arms, runs, CODE + 1, CUES, CUES)), np.zeros((arms, runs, CODE + 1))
    arm, run = np.indices((arms, runs))
    reached = np.zeros((arms, runs))
    for number in range(EPISODES):
        code = (uniform(streams, CODE + 1) * CUES).astype(int)
        luck = uniform(streams, HORIZON, arms, 2)
        depth, seen = np.zeros((arms, runs), int), np.zeros((arms, runs, CODE + 1))
        seen[..., 0] += 1
        total[..., 0] += 1
        for turn in range(HORIZON):
            cue = code[run, depth]
            at_random = (luck[:, turn, :, 1].T * CUES).astype(int)
            ties = 1e-9 * ((np.arange(CUES) + at_random[..., None]) % CUES)  # equal values: any of them
            best = (q[arm, run, depth, cue] + ties).argmax(axis=-1)
            action = np.where(luck[:, turn, :, 0].T < EXPLORE, at_random, best)
            live = depth < CODE
            after = depth + live * (action == cue)
            seen[arm, run, after] += live
            total[arm, run, after] += live
            first, often = seen[arm, run, after] == 1, 1 / np.sqrt(np.maximum(total[arm, run, after], 1))
            bonus = np.choose(arm, [0.0 * often, often, 1.0 * first, first * often])
            follow = q[arm, run, after, code[run, after]].max(axis=-1) * (after < CODE)
            old = q[arm, run, depth, cue, action]
            q[arm, run, depth, cue, action] = old + STEP * live * (bonus + GAMMA * follow - old)
            depth = after
        reached += (depth == CODE) * (number >= EPISODES * 3 // 4) / (EPISODES // 4)
    return reached


@reproduction(
    80,
    claim="Episodic counts cannot tell fresh places from known ones, global counts fade; their product keeps both.",
    baseline="no bonus; either count alone",
    criterion="elliptical bonuses to 1e-5; corridors: episodic 32 and 32, global 17.49 and 27.31; codes: the product "
    "reaches the end at least 0.9 of the time and 0.3 more often than without a bonus, in every seed",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked bonuses, corridors, codes."""
    measured = {"elliptical_error": elliptical_error()}
    for name, alternate in (("same", False), ("alternate", True)):
        measured |= {f"{bonus}_{name}": value for bonus, value in corridors(alternate=alternate).items()}
    exact = abs(measured["global_same"] - 17.49) < 0.01 and abs(measured["global_alternate"] - 27.31) < 0.01
    exact &= measured["episodic_same"] == measured["episodic_alternate"] == 32
    rates = reach_rates(seeds)
    measured |= {f"reached_{arm}": float(rate.mean()) for arm, rate in zip(ARMS, rates, strict=True)}
    learned = (rates[3] >= 0.9).all() and (rates[3] >= rates[0] + 0.3).all()
    return Outcome(measured, bool(exact and learned and measured["elliptical_error"] < 1e-5))
