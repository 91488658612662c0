"""[163] Words as Beacons (arXiv 2410.08632): sub-goals that pay once and in order make a sparse task quick to learn.

A 6 x 6 grid of two rooms: fetch the key, open the door, reach the goal; only the goal pays. Tabular Q-learning whose
state holds the current sub-goal. Sub-goals are right (key, door), or each is right with a chance of 70% and else a
random cell, as a language model's might be. The bonus is not a potential, and that is measured too. Left out: language
models and MiniGrid.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.fold import milestone_step
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.rewards import milestone_bonus

SIZE, WALL, HORIZON, EPISODES, WINDOW, GOAL_SHARE = 6, 3, 100, 400, 20, 0.8
KEY, DOOR, GOAL, START = (0, 4), (WALL, 2), (5, 5), (0, 0)
VALUE, STEP, GAMMA, EPSILON = 0.2, 0.5, 0.95, 0.1
MOVES = np.array([(1, 0), (-1, 0), (0, 1), (0, -1)])
CELLS = [(x, y) for x in range(SIZE) for y in range(SIZE) if x != WALL]
ARMS = ("none", "oracle", "noisy")


def worked_error() -> float:
    """Sub-goals after 10, 30 and 99 steps of a horizon of 100; and one out of order, which pays nothing."""
    errors = []
    for steps, expected in ((10, 0.18), (30, 0.14), (99, 0.002)):
        reached = [None] * (steps - 1) + [0]
        keys = {"episode": [0] * steps, "turn": range(steps), "agent": ["a"] * steps}
        paid = np.asarray(milestone_bonus().evaluate(Turns(keys | {"milestone": reached})))
        errors.append(abs(paid[-1] - expected) + np.abs(paid[:-1]).sum())
    keys = {"episode": [0] * 4, "turn": range(4), "agent": ["a"] * 4}
    paid = np.asarray(milestone_bonus().evaluate(Turns(keys | {"milestone": [1, 0, 0, 1]})))
    return float(max(*errors, np.abs(paid - [0, 0.196, 0, 0.196]).max()))


def beacons(arm: str, rng: np.random.Generator) -> list[tuple[int, int]]:
    """The cells of two sub-goals; (-1, -1) is never reached."""
    if arm == "none":
        return [(-1, -1)] * 2
    wrong = rng.random(2) < (0.3 if arm == "noisy" else 0.0)
    return [CELLS[rng.integers(len(CELLS))] if off else cell for off, cell in zip(wrong, (KEY, DOOR), strict=True)]


def episodes_to_learn(seeds: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Episodes before the first 20 of which 80% succeed, and the largest bonus of an episode: float64[arms, seeds].

    All arms and seeds walk at once; an episode that is over is followed by the next.
    """
    number = len(ARMS) * len(seeds)
    streams = [np.random.default_rng(seed) for _ in ARMS for seed in seeds]
    cells = np.array([beacons(ARMS[k // len(seeds)], rng) for k, rng in enumerate(streams)])
    runs, value, horizon = np.arange(number), np.full(number, VALUE), np.full(number, float(HORIZON))
    q = np.zeros((number, SIZE, SIZE, 2, 3, 4))
    place, key, turn = np.tile(START, (number, 1)), np.zeros(number, int), np.zeros(number, int)
    memory: tuple[np.ndarray, ...] = (np.zeros(number), np.zeros(number))
    won, count, earned, most = (
        np.zeros((number, EPISODES), bool),
        np.zeros(number, int),
        np.zeros(number),
        np.zeros(number),
    )
    learned = np.full(number, float(EPISODES))
    rng = np.random.default_rng(len(seeds))
    while (learned == EPISODES).any() and count.min() < EPISODES:
        index = memory[0].astype(int)
        here = (runs, place[:, 0], place[:, 1], key, index)
        now, luck = q[here], rng.random((2, number))
        greedy = (now + 1e-9 * rng.random(now.shape)).argmax(axis=1)
        action = np.where(luck[0] < EPSILON, (4 * luck[1]).astype(int), greedy)
        after = np.clip(place + MOVES[action], 0, SIZE - 1)
        at_door = (after == DOOR).all(axis=1)
        blocked = (after[:, 0] == WALL) & ~(at_door & (key == 1))
        after = np.where(blocked[:, None], place, after)
        key_after = key | (after == KEY).all(axis=1)
        goal = (after == GOAL).all(axis=1)
        there = (cells == after[:, None, :]).all(axis=2)[runs, np.minimum(index, 1)] & (index < 2)
        memory, bonus = milestone_step(memory, np.where(there, index, -1), value, horizon)
        turn = turn + 1
        next_value = q[runs, after[:, 0], after[:, 1], key_after, memory[0].astype(int)].max(axis=1)
        target = goal + bonus + GAMMA * np.where(goal, 0.0, next_value)
        q[(*here, action)] += STEP * (target - now[runs, action])
        earned = earned + bonus
        most = np.maximum(most, earned)
        over = goal | (turn >= HORIZON)
        place, key, turn = np.where(over[:, None], START, after), np.where(over, 0, key_after), np.where(over, 0, turn)
        memory = tuple(np.where(over, 0.0, each) for each in memory)
        earned = np.where(over, 0.0, earned)
        for k in np.flatnonzero(over & (count < EPISODES)):
            won[k, count[k]] = goal[k]
            count[k] += 1
            if (
                learned[k] == EPISODES
                and count[k] >= 1
                and won[k, max(count[k] - WINDOW, 0) : count[k]].sum() >= GOAL_SHARE * WINDOW
            ):
                learned[k] = max(count[k] - WINDOW, 0)
    return learned.reshape(len(ARMS), -1), most.reshape(len(ARMS), -1)


@reproduction(
    163,
    claim="Sub-goals that are paid once, in order and less the later, make a sparse task learnable in a "
    "fraction of the episodes; wrong ones among them cost part of that.",
    baseline="the sparse reward alone",
    criterion="worked bonuses equal to 1e-12; median episodes before the first window of 20 with 80% success: with "
    "right sub-goals at most half of without, with 70% right ones in between; no episode earns more than .2 a sub-goal",
    seeds=tuple(range(8)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked bonuses, then the three arms."""
    measured = {"worked_error": worked_error()}
    learned, most = episodes_to_learn(seeds)
    for name, found in zip(ARMS, learned, strict=True):
        measured |= {f"episodes_{name}": float(np.median(found)), f"slowest_{name}": float(found.max())}
    none, oracle, noisy = (measured[f"episodes_{name}"] for name in ARMS)
    measured |= {"ratio": none / max(oracle, 1.0), "ratio_noisy": none / max(noisy, 1.0)}
    measured |= {"ratio_to_end_of_window": (none + WINDOW) / (oracle + WINDOW), "largest_bonus": float(most.max())}
    holds = measured["worked_error"] <= 1e-12 and oracle <= none / 2 and oracle <= noisy <= none
    return Outcome(measured, bool(holds and measured["largest_bonus"] <= 2 * VALUE))
