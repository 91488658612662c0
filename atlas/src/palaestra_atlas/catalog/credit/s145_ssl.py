"""[145] SSL (arXiv 2601.22491): tiers of nearness to the target give a signal long before the first hit.

A pointer has to be turned to a mark and let go there, which hardly ever happens by chance. The same policy gets either
the hit alone or the hit with tiers. Left out: screens, mazes and the models that act there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.signals import col
from palaestra.algebra.turns import Turns
from palaestra.credit import grpo
from palaestra.envs.worlds.dial import Dial
from palaestra.play.rollout import rollout
from palaestra.rewards import block_share, distance, sweet_spot
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

SETTING = {
    "env": {"make": "native/dial", "options": {"target": 10, "horizon": 30}},
    "learn": {"lr": 0.1, "terms": ["surrogate()", "entropy(0.03)"]},
    "train": {"iterations": 150, "groups": 1, "group_size": 24},
}


def paid(far: Sequence[float] | np.ndarray, success: Sequence[bool] | np.ndarray) -> np.ndarray:
    """Rewards at these distances, with the default tiers."""
    return np.asarray(sweet_spot("distance").evaluate(Turns({"distance": far, "success": success})))


@exact
def tiers() -> None:
    """Unsolved at .05, .2, .25, .5, 1 and 2: half of 1, .6, .6, .3, .1 and 0; the closer, the more, in steps."""
    found = paid([0.05, 0.2, 0.25, 0.5, 1.0, 2.0], [False] * 6)
    np.testing.assert_allclose(found, [0.5, 0.3, 0.3, 0.15, 0.05, 0.0], atol=1e-9)
    np.testing.assert_allclose(paid([0.0, 0.2], [True, True]), [1.5, 1.3])


@exact
def order_kept() -> None:
    """Least reward of a solved episode above the greatest of an unsolved one, over all distances."""
    far = np.linspace(0, 3, 301)
    assert paid(far, np.ones(301, bool)).min() > paid(far, np.zeros(301, bool)).max()


@exact
def relative_distance() -> None:
    """Misses are measured in half widths and half heights of the target: equal ones fall into one tier at any size."""
    boxes = np.array([[40, 45, 60, 55], [48, 49, 52, 51]])
    centre, half = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]) / 2
    points = np.concatenate([centre + np.array([0.5, 0]) * half, centre + np.array([0.6, 0.9]) * half])
    rows = {"point": points, "centre": np.tile(centre, (2, 1)), "box": np.tile(boxes, (2, 1))}
    boxed = Turns({name: each.tolist() for name, each in rows.items()} | {"success": [False] * 4})
    near = distance("point", "centre", box="box")
    np.testing.assert_allclose(np.asarray(near.evaluate(boxed)), [0.5, 0.5, 1.17**0.5, 1.17**0.5])
    np.testing.assert_allclose(np.asarray(sweet_spot(near).evaluate(boxed)), [0.15, 0.15, 0.05, 0.05])


@exact
def dial_pays_tiers() -> None:
    """Who lets go halfway earns the tier of half the way on the last turn alone; GRPO prefers who comes closer."""
    reward, credit = sweet_spot("distance") * col("ended"), grpo(sweet_spot("distance") * col("ended"))
    found = []
    for target in (4, 8):
        hand = ScriptedPolicy(partial(_go, half=target // 2), name="hand")
        turns = rollout(partial(Dial, target=target), Team(hand=hand), groups=1, group_size=1)
        found.append(np.asarray(reward.evaluate(turns)))
    np.testing.assert_allclose(np.concatenate(found), [0, 0, 0.15, 0, 0, 0, 0, 0.15])
    keys = {"group": [0] * 3, "episode": range(3), "turn": [0] * 3, "agent": ["hand"] * 3}
    ends = Turns(keys | {"distance": [0.0, 0.2, 1.0], "success": [True, False, False], "ended": [True] * 3})
    assert np.all(np.diff(np.asarray(credit.evaluate(ends))) < 0)


def _go(request: Any, half: int) -> str:
    return "let go" if request.observation.text == f"at {half}" else "up"


@exact
def blocks() -> None:
    """A grid of which two of four blocks are right in every cell, one of none: shares .5 and 0, rewards .15 and .05."""
    target = np.arange(16).reshape(4, 4)
    half, none = target.copy(), target + 1
    half[:2, 0] = half[2:, 3] = -1
    shares = [block_share(answer, target, (2, 2)) for answer in (target, half, none, half[:2])]
    np.testing.assert_allclose(shares, [1, 0.5, 0, 0])
    np.testing.assert_allclose(paid([1 - share for share in shares[1:3]], [False] * 2), [0.15, 0.05])


@reproduction(
    145,
    claim="Tiers of nearness below the reward of success keep its order and let a policy learn that hardly ever "
    "succeeds.",
    baseline="the binary reward, same policy, seeds and learning rate",
    criterion="share of hits at the end >= 0.9 with tiers, <= "
    "0.3 without, means over the seeds; should hold in 9 of 10 blocks of three fresh seeds",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Trained as by `palaestra train world env.make=native/dial reward=…`."""
    arms = train_arms(
        "world",
        {"tiers": SETTING | {"reward": 'sweet_spot("distance") * col("ended")'}, "binary": SETTING},
        seeds,
        lambda learned: {"hits": np.mean(learned.curve()[-10:])},
    )
    holds = arms.mean("tiers", "hits") >= 0.9 and arms.mean("binary", "hits") <= 0.3
    return Outcome(arms.measured(), holds)
