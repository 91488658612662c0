"""[78] SALT (arXiv 2510.20022): steps that the episodes of a group share become neutral.

For a policy that sees only the state, averaging credit over equal steps (state, action, next state) does not change the
policy gradient at all if every visit counts, because a sum of means is the sum of values. It pays where the policy sees
more: here a walker who also sees the number of the step, with credit shared by the place (`salt(state="place")`). Left
out: language models, losses that divide by each episode's length.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.agents import Team, random_legal
from palaestra.algebra.turns import Turns
from palaestra.credit import grpo, rloo, salt
from palaestra.envs.worlds.corridor import Corridor
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

ARMS = {"salt": {"credit": 'salt(state="place")'}, "grpo": {"credit": "grpo()"}}


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
    lost = turns.with_column(group=[1] * len(turns), reward=[0.0] * len(turns))  # another group shares nothing with it
    both = Turns.concat([lost, turns])
    np.testing.assert_allclose(np.asarray(salt().evaluate(both)), [*(0.0 * expected), *expected], atol=5e-5)


@exact
def repeated_steps() -> None:
    """An episode that waits twice counts once beside one that waits once; with unit="row" it counts twice."""
    keys = {"group": [0] * 5, "episode": [0, 0, 0, 1, 1], "turn": [0, 1, 2, 0, 1], "agent": ["walker"] * 5}
    did = {"state": np.zeros(5, np.uint64), "action": ["wait", "wait", "go", "wait", "go"]}
    turns = Turns(keys | did | {"reward": [0.0, 0.0, 1.0, 0.0, 0.0]})
    high = 1 / np.sqrt(2)
    for signal, waits in ((salt(), 0.0), (salt(unit="row"), high / 3)):
        np.testing.assert_allclose(np.asarray(signal.evaluate(turns)), [waits, waits, high, waits, -high], atol=1e-5)


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


def clocked() -> Turns:
    """Random play in the corridor, of a walker who sees the number of the step."""
    return rollout(
        lambda: Corridor(cells=5, horizon=12, clock=True), Team(walker=random_legal()), groups=4, group_size=16
    )


@exact
def same_gradient() -> None:
    """A policy learns from the sum of credit over what it sees and does: the same without and with, visits counted."""
    turns = clocked()
    gained = [np.asarray(each.evaluate(turns)) for each in (grpo(), salt(unit="row"), salt(unit="row", state="place"))]
    cells = turns.codes("state", "action")
    plain, seen, shared = (np.bincount(cells.ids, each, cells.size) for each in gained)
    np.testing.assert_allclose(seen, plain, atol=1e-9)
    assert np.abs(shared - plain).max() > 0.1, "by place, credit is shared between steps that the walker tells apart"


@exact
def by_place() -> None:
    """A clock makes each observation of an episode unique; with `state="place"` steps are shared as without it."""
    turns, expected = worked()
    seen = turns.with_column(place=turns["state"], state=np.arange(len(turns), dtype=np.uint64))
    np.testing.assert_allclose(np.asarray(salt(state="place").evaluate(seen)), expected, atol=5e-5)
    np.testing.assert_allclose(np.asarray(salt().evaluate(seen)), np.asarray(grpo().evaluate(turns)), atol=1e-9)


@reproduction(
    78,
    claim="Averaging credit over equal steps makes what episodes share neutral: a policy that sees more than the place "
    "learns sooner.",
    baseline="GRPO, same episodes and learning rate",
    criterion="mean success over training higher than GRPO's by > 2 standard errors of the difference, paired by seed",
    seeds=tuple(range(8)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both arms in a corridor whose walker sees the number of the step."""
    settings: dict[str, object] = {
        "env": {"options": {"cells": 5, "horizon": 12, "clock": True}},
        "policies": {"walker": {"kind": "tabular", "options": {"capacity": 256}}},
        "train": {"iterations": 40},
    }
    arms = train_arms(
        "corridor", {name: settings | arm for name, arm in ARMS.items()}, seeds,
        lambda learned: {"curve": float(np.mean(learned.curve()))},
    )  # fmt: skip
    gain, error = arms.gain("salt", "grpo", "curve")
    return Outcome(arms.measured() | {"gain": gain, "standard_error": error}, gain > 2 * error)
