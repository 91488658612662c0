"""[163] Words as Beacons (arXiv 2410.08632): sub-goals that pay once and in order make a sparse task quick to learn.

The recipe `maze` on the map `rooms`: fetch the key, open the door, reach the goal; only the goal pays. What is seen
holds the current sub-goal. Sub-goals are right (key, door), or each is right with a chance of 70 % and else a random
cell, as a language model's might be. Left out: language models and MiniGrid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.algebra.fold import milestone_step
from palaestra.algebra.signals import as_signal
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Maze
from palaestra.envs.worlds.maze import key_then_door, listed
from palaestra.rewards import fold, milestone_bonus
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

TRAIN = {"train": {"iterations": 40, "group_size": 8}}
MAP, PAID = {"map": "rooms", "horizon": 60}, 'col("reward") + milestone_bonus(horizon=60)'
ARMS: dict[str, dict[str, Any]] = {
    "none": {**TRAIN, "env": {"options": MAP}},
    "right": {**TRAIN, "env": {"options": {**MAP, "beacons": "KD"}}, "reward": PAID},
    "noisy": {**TRAIN, "env": {"options": {**MAP, "beacons": "KD", "accuracy": 0.7}}, "reward": PAID},
}


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


def visited(*numbers: int | None, horizon: float = 100.0) -> np.ndarray:
    """What an episode is paid that completes these sub-goals turn by turn."""
    keys = {"episode": [0] * len(numbers), "turn": range(len(numbers)), "agent": ["a"] * len(numbers)}
    turns = Turns(keys | {"milestone": numbers})
    paid = np.asarray(milestone_bonus(horizon=horizon).evaluate(turns))
    walked = fold(
        turns,
        milestone_step,
        "milestone",
        0.2 + 0.0 * as_signal("turn"),
        horizon + 0.0 * as_signal("turn"),
        start=(0.0, 0.0),
    )
    np.testing.assert_array_equal(paid, walked)
    return paid


@exact
def in_order_and_once() -> None:
    """Of door, key, door, goal the first door pays nothing; nothing pays twice."""
    np.testing.assert_allclose(visited(1, 0, 1, 2, horizon=1e12), [0.0, 0.2, 0.2, 0.2])
    np.testing.assert_allclose(visited(0, 0, 0, 1, horizon=1e12), [0.2, 0.0, 0.0, 0.2])


@exact
def decay() -> None:
    """The card's bonuses after 10, 30 and 99 steps of 100; the count begins anew with every sub-goal."""
    assert worked_error() < 1e-12
    np.testing.assert_allclose(visited(None, 0, None, 1), [0.0, 0.196, 0.0, 0.196])
    np.testing.assert_allclose(visited(None, None, 0, 1, horizon=2.0), [0.0, 0.0, 0.0, 0.1])  # late: nothing, not less
    keys = {"episode": [0], "turn": [0], "agent": ["a"], "milestone": [0]}
    assert np.asarray(milestone_bonus(value=1.0, horizon=4.0).evaluate(Turns(keys)))[0] == 0.75


@exact
def current_is_seen() -> None:
    """The walker sees the sub-goal that pays next, and the next one once it is reached."""
    env = Maze("S.K.D.G", beacons="KD", horizon=20)
    seen = [env.reset(0)["walker"].text] + [env.step({"walker": "right"}).observations["walker"].text for _ in range(5)]
    assert ["seek (0, 2)" in text for text in seen] == [True, True, False, False, False, False], seen
    assert ["seek (0, 4)" in text for text in seen] == [False, False, True, True, False, False], seen


@exact
def also_played_without_the_list() -> None:
    """Hidden sub-goals are not in the observation, and their completion in order is still told."""
    env = Maze("S.K.D.G", beacons="KD", horizon=20, hidden=1.0)
    texts, told = [env.reset(0)["walker"].text], []
    for _ in range(5):
        step = env.step({"walker": "right"})
        texts.append(step.observations["walker"].text)
        told.append(step.info["milestone"])
    assert all("nothing to seek" in text for text in texts), texts
    assert told == [None, 0, None, 1, None], told
    half = Maze("S.K.D.G", beacons="KD", hidden=0.5)
    shown = ["seek (0, 2)" in half.reset(seed)["walker"].text for seed in range(20)]
    assert 0 < sum(shown) < 20, shown


ASKED: list[str] = []
"""Maps that a teacher was asked about."""


def teacher(text: str) -> str:
    """One who remembers what it was asked."""
    ASKED.append(text)
    return key_then_door(text)


def astray(text: str) -> str:
    """A teacher whose list has a wall, and cells beyond the map on both sides."""
    return "(0, 2), (0, 5), (2, 0), (1, 0)"


@exact
def asked_once() -> None:
    """A teacher lists sub-goals once for a map, however often it is played; what is no floor of it is dropped."""
    ASKED.clear()
    listed.cache_clear()
    worlds = [Maze("rooms", teacher=f"{__name__}:teacher") for _ in range(3)]
    for env in worlds:
        for seed in range(3):
            env.reset(seed)
    assert len(ASKED) == 1, f"asked {len(ASKED)} times"
    assert worlds[0].beacons == ((4, 0), (2, 3)), worlds[0].beacons
    assert Maze("S.#.G/K....", teacher=f"{__name__}:astray").beacons == ((1, 0),)


def success(learned: TrainingResult) -> dict[str, float]:
    """Over training, and over the last ten iterations."""
    curve = learned.curve()
    return {"curve": float(np.mean(curve)), "final": float(np.mean(curve[-10:]))}


@reproduction(
    163,
    claim="Sub-goals that are paid once, in order and less the later, make a sparse task learnable; wrong ones among "
    "them cost part of that.",
    baseline="the sparse reward alone",
    criterion="worked bonuses equal to 1e-12; success over training with right sub-goals at least twice that without, "
    "and above that with 70 % right ones, which is above none, in the mean; in the end > .8 with right ones (held on "
    "both fresh blocks tried; that none succeed without sub-goals, < .2 in the end, failed on one and is not asked)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked bonuses, then the three arms."""
    arms = train_arms("maze", ARMS, seeds, success)
    measured = {"worked_error": worked_error()} | arms.measured()
    none, right, noisy = (arms.mean(name, "curve") for name in ARMS)
    learned = arms.mean("right", "final") > 0.8 and right >= 2 * none
    return Outcome(measured, bool(measured["worked_error"] <= 1e-12 and none < noisy < right and learned))
