"""[89] ArCHer (arXiv 2402.19446): a critic of turns that learns from replay needs fewer episodes than returns do.

The corridor of reproduction 62 with 9 cells: fetch the key at the left end, open the door at the right end, 24 turns.
Play and GRPO are on-policy; ArCHer keeps the last 8000 turns, fits the library's tabular critic to them, and moves the
policy at replayed states by newly sampled actions. Both at the learning rate of reproduction 62, and, because that is
slow for GRPO, at the best of a few for each: then the advantage is small. Left out: language models, tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax
from palaestra.credit import Replay, TurnCritic, archer, grpo

CELLS, START, HORIZON = 9, 4, 24
STEPS = np.array([-1, 1, 0])
GROUP, ITERATIONS, GAMMA = 8, 150, 0.95
MEMORY, SIZE = 8000, 512
SOLVED, RECENT = 0.9, 5
"""Solved when the mean success of the last five iterations is 90%."""


def play(policy: np.ndarray, rng: np.random.Generator) -> tuple[Replay, np.ndarray, np.ndarray]:
    """A group of episodes by `policy` float64[18, 3]: turns in order of time, and episode and number of each."""
    cell, key, running = np.full(GROUP, START), np.zeros(GROUP, int), np.ones(GROUP, bool)
    parts = []
    for turn in range(HORIZON):
        state = cell + CELLS * key
        action = sample(policy[state], rng.random(GROUP))
        cell = np.clip(cell + STEPS[action], 0, CELLS - 1)
        key |= cell == 0
        opened = (cell == CELLS - 1) & (key == 1)
        now = (state, action, opened.astype(float), cell + CELLS * key, opened, np.arange(GROUP), np.full(GROUP, turn))
        parts.append([column[running] for column in now])
        running &= ~opened
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Replay(*columns[:5]), columns[5], columns[6]


def episodes_to_solve(method: str, seed: int, *, rate: float = 0.3, batches: int = 20, states: int = 1024) -> int:
    """Episodes played until it is solved, at most 1200; batches for the critic and states for the actor a round."""
    rng = np.random.default_rng(seed)
    theta, critic = np.zeros((2 * CELLS, len(STEPS))), TurnCritic(2 * CELLS, len(STEPS), gamma=GAMMA)
    memory, recent = Replay(*(np.zeros(0, kind) for kind in (int, int, float, int, bool))), []
    for iteration in range(ITERATIONS):
        policy = softmax(theta)
        turns, episode, number = play(policy, rng)
        recent.append(turns.done.sum() / GROUP)
        if len(recent) >= RECENT and np.mean(recent[-RECENT:]) >= SOLVED:
            return GROUP * (iteration + 1)
        if method == "grpo":
            keys = {"group": episode * 0, "episode": episode, "turn": number, "agent": ["walker"] * len(episode)}
            advantage = np.asarray(grpo().evaluate(Turns(keys | {"reward": turns.reward})))
            state, action, weight = turns.state, turns.action, GROUP
        else:
            memory = Replay(*(np.concatenate(pair)[-MEMORY:] for pair in zip(memory, turns, strict=True)))
            critic.fit(memory, lambda s, r: sample(policy[s], r.random(len(s))), rng, batches=batches, size=SIZE)  # noqa: B023
            state = memory.state[rng.integers(len(memory.state), size=states)]
            action = sample(policy[state], rng.random(states))
            columns = {"q": critic.q[:, state, action].min(axis=0), "v": critic.value(state)}
            advantage, weight = np.asarray(archer().evaluate(Turns(columns))), 1
        flat = np.zeros_like(state)
        theta += rate * policy_gradient(policy[None], flat, state, action, advantage)[0] / weight
    return GROUP * ITERATIONS


@reproduction(
    89,
    claim="Actor-critic over turns with replay solves a sparse task in fewer episodes than group-relative returns.",
    baseline="GRPO, same episodes per iteration and learning rate per turn",
    criterion="median number of episodes to 90% success at most 0.6 of GRPO's at the same learning rate; with both "
    "tuned it is reported",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both arms at one learning rate, then each at its own."""
    arms: dict[str, tuple[str, dict[str, Any]]] = {
        "archer": ("archer", {}),
        "grpo": ("grpo", {}),
        "archer_tuned": ("archer", {"rate": 2.0, "batches": 80, "states": 2048}),
        "grpo_tuned": ("grpo", {"rate": 2.0}),
    }
    median = {
        name: float(np.median([episodes_to_solve(method, seed, **how) for seed in seeds]))
        for name, (method, how) in arms.items()
    }
    share = median["archer"] / median["grpo"]
    return Outcome({f"episodes_{name}": value for name, value in median.items()} | {"share": share}, share <= 0.6)
