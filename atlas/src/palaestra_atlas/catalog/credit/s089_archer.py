"""[89] ArCHer (arXiv 2402.19446): a critic of turns that learns from replay, and an actor at replayed states.

The recipe `corridor`: fetch the key at one end, open the door at the other. The stage `q_critic()` keeps the last 8000
turns, fits two Q and two V, and adds replayed states with newly sampled actions, which alone train by `archer()`. A
longer corridor of 9 cells, where a reward is rare, is reported; no difference is seen there. Left out: language models,
tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.credit import Replay, TurnCritic
from palaestra.credit.critics import Fresh
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

ARMS: dict[str, Any] = {"archer": {"stages": ["q_critic()"], "credit": "archer()"}, "grpo": {"credit": "grpo()"}}
GAMMA = 0.9


def bellman_error() -> float:
    """Two states, actions to stay (0.1, 0.5) or to go on, from the second to the end for 1: values of going on."""
    reward, after, done = np.array([0.1, 0, 0.5, 1]), np.array([0, 1, 1, 1]), np.array([0, 0, 0, 1])
    state, action = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    critic = TurnCritic(2, 2, gamma=GAMMA, rate=1.0)
    fresh = Fresh(state, np.ones(4, int))
    critic.fit(Replay(state, action, reward, after, done), fresh, np.random.default_rng(0), batches=1000, size=16)
    value = np.array([GAMMA, 1.0])
    q = reward + GAMMA * (1 - done) * value[after]
    found_q, found_v = critic.values(state, action)
    return float(max(np.abs(found_q - q).max(), np.abs(found_v - value[state]).max()))


@reproduction(
    89,
    claim="A critic of turns reaches the Bellman solution; actor-critic over replayed turns with fresh actions learns "
    "a sparse task sooner than group-relative returns.",
    baseline="GRPO, same episodes per iteration and learning rate; a longer corridor is reported",
    criterion="values equal to the Bellman solution to 1e-6; mean success over training higher than GRPO's by > 2 "
    "standard errors of the difference, paired by seed",
    seeds=tuple(range(3000, 3040)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The fixed point, then both arms in the corridor, and in a longer one."""

    def curve(learned: object) -> dict[str, float]:
        return {"curve": float(np.mean(learned.curve()))}  # type: ignore[attr-defined]

    settings: dict[str, Any] = {"train": {"iterations": 40}}
    arms = train_arms("corridor", {name: settings | arm for name, arm in ARMS.items()}, seeds, curve)
    longer = settings | {"env": {"options": {"cells": 9}}}
    rare = train_arms("corridor", {f"{name}_9_cells": longer | arm for name, arm in ARMS.items()}, seeds[:20], curve)
    gain, error = arms.gain("archer", "grpo", "curve")
    measured = {"bellman_error": bellman_error()} | arms.measured() | rare.measured()
    measured |= {"gain": gain, "standard_error": error}
    return Outcome(measured, measured["bellman_error"] <= 1e-6 and gain > 2 * error)
