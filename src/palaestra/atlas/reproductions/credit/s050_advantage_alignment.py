"""[50] Advantage alignment (arXiv 2511.19405): minding the other's advantage turns defection into a trigger strategy.

The iterated prisoner's dilemma (payoffs 3, 0, 5, 1, over 5), 12 rounds, one policy in both seats that remembers the
last round. Without alignment it learns to defect; with it, to cooperate with those who do. Left out: language models,
the buffer of past agents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import entropy_gradient, policy_gradient, softmax, uniform
from palaestra.credit import advantage_alignment

PAYOFF = np.array([[3.0, 0.0], [5.0, 1.0]])
"""By own and the other's action: 0 cooperates, 1 defects."""
ROUNDS, BATCH, UPDATES, RATE, ENTROPY, SCALE = 12, 64, 300, 1.0, 0.01, 5.0
START = 4
"""States 0 to 3 are 2 · own + other of the last round."""


class Trained(NamedTuple):
    """Per seed: mean payoff of a round over the last 20 updates; chance to cooperate by state."""

    payoff: np.ndarray
    cooperates: np.ndarray


def worked_error() -> float:
    """Three rounds worked out by hand: largest deviation of both forms of the weight."""
    one, other = [1, -1, 0.5], [0.5, 2, -1]
    keys = {"group": [0] * 6, "episode": [0] * 6, "turn": [0, 0, 1, 1, 2, 2], "agent": ["x", "y"] * 3}
    turns = Turns(keys | {"a": np.ravel([one, other], order="F")})
    released = advantage_alignment(advantage="a", flavour="code").evaluate(turns)
    inclusive = advantage_alignment(advantage="a", inclusive=True).evaluate(turns)
    gaps = np.asarray(released)[::2] - [1, -0.19, 0.5405], np.asarray(inclusive)[::2] - [1.25, -1.1, 0.295]
    return float(np.abs(gaps).max())


def train(credit: Signal, seeds: Sequence[int]) -> Trained:
    """Self-play; the gradient is summed over rounds, averaged over seats and games."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    runs = np.arange(len(seeds))[:, None, None]
    theta = np.zeros((len(seeds), 5, 2))
    run, game, turn, seat = (axis.ravel() for axis in np.indices((len(seeds), BATCH, ROUNDS, 2)))
    keys = {"run": run.astype(str), "group": run * 0, "episode": game, "turn": turn}
    table = Turns(keys | {"agent": np.array(["first", "second"])[seat]})
    payoffs = []
    for _ in range(UPDATES):
        policy, luck = softmax(theta), uniform(streams, BATCH, ROUNDS, 2)
        state = np.full((len(seeds), BATCH, 2), START)
        states, actions = [], []
        for number in range(ROUNDS):
            states.append(state)
            actions.append((luck[:, :, number] >= policy[runs, state, 0]).astype(int))
            state = 2 * actions[-1] + actions[-1][..., ::-1]
        action = np.stack(actions, axis=2)
        payoff = PAYOFF[action, action[..., ::-1]]
        advantage = np.asarray(credit.evaluate(table.with_column(reward=payoff.ravel() / SCALE)))
        visited = np.stack(states, axis=2).ravel()
        gradient = policy_gradient(policy, run, visited, action.ravel(), advantage) / (2 * BATCH)
        theta += RATE * (gradient + ENTROPY * entropy_gradient(policy))
        payoffs.append(payoff.mean(axis=(1, 2, 3)))
    return Trained(np.mean(payoffs[-20:], axis=0), softmax(theta)[..., 0])


@reproduction(
    50,
    claim="Crediting what helps an opponent with whom one has done well turns learned defection into cooperation.",
    baseline="β = 0: the same group baseline, each player for itself",
    criterion="worked credit to 1e-9; mean payoff of a round >= 2.3 with β = 0.5 and <= 1.3 with β = 0 in every seed",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, both arms, and the strategy that was learned."""
    error = worked_error()
    aligned, selfish = train(advantage_alignment(beta=0.5), seeds), train(advantage_alignment(beta=0.0), seeds)
    released = train(advantage_alignment(beta=0.5, flavour="code"), seeds)
    chances = dict(zip(("cc", "cd", "dc", "dd", "start"), aligned.cooperates.mean(axis=0), strict=True))
    measured = {
        "worked_error": error,
        "payoff_aligned": float(aligned.payoff.mean()),
        "payoff_aligned_lowest": float(aligned.payoff.min()),
        "payoff_selfish": float(selfish.payoff.mean()),
        "payoff_released_form": float(released.payoff.mean()),
    }
    measured |= {f"cooperates_after_{name}": float(chance) for name, chance in chances.items()}
    holds = error <= 1e-9 and aligned.payoff.min() >= 2.3 and selfish.payoff.max() <= 1.3
    return Outcome(measured, bool(holds))
