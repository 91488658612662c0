"""[49] SPA-RL (arXiv 2505.20732): progress that is fitted to returns says which step earned them.

The recipe `steps` with twenty steps of three actions each and hidden values, of which only the sum is seen at the end.
The stage `progress()` fits the values of actions to all episodes so far, `spa()` makes credit of them, both by their
defaults. The paper's own use, GAE with the values of a critic, is `spa(value="value")`. Left out: language models;
every action is executed, so the bonus for it cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import spa, spa_reward
from palaestra.learning.stages.progress import progress
from palaestra.learning.stages.stage import Context
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

PLANTED = np.array([0.0, 0.1, 0.3, -0.2, 0.5, 0.05])
ARMS: dict[str, Any] = {
    "spa": {"stages": ["progress()"], "credit": "spa()"},
    "grpo": {"credit": "grpo()"},
}
SETTINGS: dict[str, Any] = {
    "env": {"options": {"steps": 20, "actions": 3, "decisive": 20, "pay": "sum"}},
    "train": {"iterations": 60, "group_size": 8},
}


def three_turns() -> Turns:
    """The card's turns: what each added, whether it was executed, and values for GAE."""
    keys = {"group": [0] * 3, "episode": [0] * 3, "turn": [0, 1, 2], "agent": ["a"] * 3}
    return Turns(
        keys | {"progress": [0.2, -0.1, 0.6], "executed": [1, 0, 1], "value": [0.2, 0.5, 0.4], "truncated": [False] * 3}
    )


def context(iteration: int) -> Context:
    """Of a stage that needs nothing but the table."""
    nothing: Any = None
    return Context(np.random.default_rng(iteration), iteration, nothing, nothing, nothing)


def paid_at_the_end(kinds: np.ndarray, first: int = 0) -> Turns:
    """Episodes of turns of these kinds, int64[episodes, turns], paid in the last turn only."""
    length = kinds.shape[1]
    episode, turn = (axis.ravel() for axis in np.indices(kinds.shape))
    reward = np.where(turn == length - 1, np.repeat(PLANTED[kinds].sum(axis=1), length), 0.0)
    keys = {"group": episode * 0, "episode": episode, "turn": turn, "agent": ["a"] * len(turn)}
    return Turns(keys | {"state": kinds.ravel() + first, "action": ["go"] * len(turn), "reward": reward})


@exact
def turn_rewards() -> None:
    """The card's rewards, each in its turn: what was added, and .5 if it was executed; the last turn always was."""
    turns = three_turns()
    np.testing.assert_allclose(np.asarray(spa_reward(executed="executed").evaluate(turns)), [0.7, -0.1, 1.1], atol=1e-9)
    told = turns.with_column(valid=[None, False, False])  # of the first turn nobody says that it was not executed
    np.testing.assert_allclose(np.asarray(spa_reward().evaluate(told)), [0.7, -0.1, 1.1], atol=1e-9)


@exact
def with_values() -> None:
    """GAE of those rewards over given values, gamma 1 and lambda .95, worked out by hand."""
    credit = np.asarray(spa(executed="executed", value="value").evaluate(three_turns()))
    np.testing.assert_allclose(credit, [1.0 + 0.95 * (-0.2 + 0.95 * 0.7), -0.2 + 0.95 * 0.7, 0.7], atol=1e-9)


@exact
def planted_values() -> None:
    """The stage finds what six kinds of turn add from the sums of 400 episodes; and of new ones, met later."""
    rng, stage = np.random.default_rng(0), progress(ridge=1e-12)
    for iteration in (1, 2):
        kinds = rng.integers(6, size=(400, 10))
        turns = stage(paid_at_the_end(kinds, first=6 * (iteration - 1)), context(iteration))
        np.testing.assert_allclose(turns["progress"], PLANTED[kinds].ravel(), atol=1e-9)


@exact
def together() -> None:
    """Credit of the stage's rewards without values: their return-to-go among the turns of the group."""
    turns = progress(ridge=1e-12)(paid_at_the_end(np.array([[2, 4], [1, 0], [1, 4]])), context(1))
    to_go = np.array([[0.8, 0.5], [0.1, 0.0], [0.6, 0.5]])
    expected = (to_go - to_go.mean(axis=0)) / to_go.std(axis=0, ddof=1)
    np.testing.assert_allclose(np.asarray(spa(executed=1.0).evaluate(turns)), expected.ravel(), atol=1e-4)


@reproduction(
    49,
    claim="Step rewards that were fitted to returns teach twenty independent choices sooner than the return itself.",
    baseline="GRPO on the final reward, same episodes and learning rate",
    criterion="mean share of the best return over training higher than GRPO's by > 2 standard errors of the "
    "difference, paired by seed",
    seeds=tuple(range(6)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both arms."""
    arms = train_arms(
        "steps", {name: SETTINGS | arm for name, arm in ARMS.items()}, seeds,
        lambda learned: {"curve": float(np.mean(learned.curve("reward")))},
    )  # fmt: skip
    gain, error = arms.gain("spa", "grpo", "curve")
    return Outcome(arms.measured() | {"gain": gain, "standard_error": error}, gain > 2 * error)
