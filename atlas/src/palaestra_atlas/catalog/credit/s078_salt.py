"""[78] SALT (arXiv 2510.20022): steps that the episodes of a group share become neutral.

For a policy that sees only the state, averaging credit over equal steps (state, action, next state) does not change the
policy gradient at all if every visit counts, because a sum of means is the sum of values. What is left is that an
episode counts once per step, however often it repeats it (`unit="episode"`); in the recipe `corridor` that changes
little. Left out: policies that see a history, and losses that divide by each episode's length.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.keys import edge, joined
from palaestra.algebra.signals import highest, lowest
from palaestra.algebra.turns import Turns
from palaestra.credit import grpo, rloo, salt
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

ARMS = {"salt": {"credit": "salt()"}, "grpo": {"credit": "grpo()"}}


def worked() -> tuple[Turns, np.ndarray]:
    """Four episodes through a graph, worked out by hand: the table and its credit. Only the first succeeds."""
    paths = ["0a 1b 2c", "0a 1d 3e", "0a 1b 2f", "0g 4h"]
    steps = [(episode, turn, *step) for episode, path in enumerate(paths) for turn, step in enumerate(path.split())]
    episode, turn, state, action = (np.array(column) for column in zip(*steps, strict=True))
    reward = (episode == 0) & (turn == 2)
    table = {"group": episode * 0, "episode": episode, "turn": turn, "agent": ["walker"] * len(steps), "reward": reward}
    credit = np.array([1 / 6, 0.5, 1.5, 1 / 6, -0.5, -0.5, 1 / 6, 0.5, -0.5, -0.5, -0.5])
    return Turns(table | {"state": state.astype(np.uint64), "action": action}), credit


@exact
def shared_steps() -> None:
    """The card's edges: what all three take .1667, what two take .5, the way to the goal 1.5, all others -.5."""
    turns, expected = worked()
    np.testing.assert_allclose(np.asarray(salt().evaluate(turns)), expected, atol=5e-5)


@exact
def ways_apart() -> None:
    """With one earlier state in the key, equal steps that were reached from different states keep different values."""
    turns = Turns(
        {
            "group": [0] * 6,
            "episode": [0, 0, 0, 1, 1, 1],
            "turn": [0, 1, 2] * 2,
            "agent": ["walker"] * 6,
            "reward": [0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
            "state": np.array([0, 2, 3, 1, 2, 3], np.uint64),
            "action": ["a", "b", "c", "a", "b", "d"],
        }
    )
    high = 1 / np.sqrt(2)  # of two episodes, one solved
    together, apart = (np.asarray(salt(history=history).evaluate(turns)) for history in (0, 1))
    np.testing.assert_allclose(together, [high, 0, high, -high, 0, -high], atol=1e-5)
    np.testing.assert_allclose(apart, [high] * 3 + [-high] * 3, atol=1e-5)


@exact
def group_advantage() -> None:
    """The mean credit of the steps' episodes is 0 beneath, and another advantage may stand there: RLOO's edges."""
    turns, _ = worked()
    first = turns["turn"].to_numpy() == 0
    credit = np.asarray(salt().evaluate(turns))
    np.testing.assert_allclose(credit[first].sum(), 0, atol=1e-9)
    loo = np.asarray(salt(rloo()).evaluate(turns))
    np.testing.assert_allclose(loo, credit / 1.5, atol=5e-5)  # the successful episode has 1, all others -1/3


def spread() -> Measure:
    """Mean over steps of the range of the saved credit among a group's rows of one (state, action, next state)."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            turns = Turns.load(seed / "turns")
            key = joined("group", edge())
            low, high = (each("advantage", over=key).evaluate(turns) for each in (lowest, highest))
            found.append(float(np.mean(np.asarray(high) - np.asarray(low))))
        return found

    return measured


def gradient_difference(turns: Turns) -> float:
    """Largest difference, with and without, of a sum of credit over a state and an action.

    That sum is all that a policy of the state learns from. Every visit counts (`unit="row"`): an episode that repeats a
    step would else weigh less there.
    """
    plain, shared = (np.asarray(signal.evaluate(turns)) for signal in (grpo(), salt(unit="row")))
    cells = turns.codes("state", "action")
    return float(np.abs(np.bincount(cells.ids, plain - shared, cells.size)).max())


@reproduction(
    78,
    claim="Averaging credit over equal steps makes what episodes share neutral; for a policy of the state alone it "
    "leaves the policy gradient unchanged if every visit counts.",
    baseline="GRPO, same episodes and learning rate",
    criterion="sums of credit over states and actions equal to 1e-9 on every batch of the training, visits counted; "
    "learning curves, with episodes counted once per step, are reported",
    seeds=(0, 1, 2, 3),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both arms, with the identity on what was played."""
    gaps: list[float] = []

    def watch(arm: str, iteration: int, played: Turns) -> None:
        gaps.append(gradient_difference(played))

    settings: dict[str, object] = {
        "env": {"options": {"cells": 5, "horizon": 12}},
        "train": {"iterations": 40, "group_size": 8},
    }
    arms = train_arms(
        "corridor", {name: settings | arm for name, arm in ARMS.items()}, seeds,
        lambda learned: {"curve": float(np.mean(learned.curve()))}, on_turns=watch,
    )  # fmt: skip
    gain, standard_error = arms.gain("salt", "grpo", "curve")
    gap = max(gaps, default=np.inf)
    measured = {"gradient_difference": gap} | arms.measured() | {"gain": gain, "standard_error": standard_error}
    return Outcome(measured, gap <= 1e-9)
