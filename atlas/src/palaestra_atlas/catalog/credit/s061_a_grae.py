"""[61] A-GRAE (arXiv 2602.05548): group-relative advantages are symmetric; A-GRAE breaks that.

The identities are exact. The optimiser undoes any common factor of the advantages; what it does not undo is how much
positive credit weighs beside negative. That neither speeds up nor widens what a table learns, so the line shows no
gain. Left out: language models, on which the paper's gains were measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.credit import a_grae, grpo
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

GROUP = 8
SETTING = {
    "env": {"options": {"tasks": 2, "answers": 20, "right": 4}},
    "learn": {"lr": 0.1},
    "train": {"iterations": 80, "groups": 4, "group_size": 8},
}
WORKED = {
    0.2: ([0.2293, -0.3821, -0.3821, -0.3821], [0.1057, 0.1057, 0.1057, -1.5856]),
    0.8: ([1.2685, -0.5285, -0.5285, -0.5285], [0.3057, 0.3057, 0.3057, -1.1464]),
}
"""Credit of one success in four and of three, by the batch's mean reward; population deviation, alpha 1."""


def batch(first: Sequence[float], progress: float) -> Turns:
    """A group, and another one with which the batch's mean is `progress`."""
    right = round(progress * 20) - int(sum(first))
    scores = [*first, *([1.0] * right + [0.0] * (16 - right))]
    keys = {"group": [0] * 4 + [1] * 16, "episode": range(20), "turn": [0] * 20, "agent": ["answerer"] * 20}
    return Turns(keys | {"reward": scores})


def groups() -> tuple[Turns, np.ndarray]:
    """A group for every number of successes from 1 to 7 among 8, and those numbers."""
    number = np.repeat(np.arange(1, GROUP), GROUP)
    episode = np.tile(np.arange(GROUP), GROUP - 1)
    table = {"group": number, "episode": episode, "turn": episode * 0, "agent": ["answerer"] * len(number)}
    return Turns(table | {"reward": (episode < number).astype(float)}), np.arange(1, GROUP)


@exact
def card() -> None:
    """The card's groups, hard and easy, early and late; and with the sample deviation, and half of alpha."""
    for progress, (hard, easy) in WORKED.items():
        for rewards, expected in (([1.0, 0, 0, 0], hard), ([1.0, 1, 1, 0], easy)):
            found = np.asarray(a_grae(ddof=0).evaluate(batch(rewards, progress)))[:4]
            np.testing.assert_allclose(found, expected, atol=1e-4)
    early = batch([1.0, 0, 0, 0], 0.2)
    np.testing.assert_allclose(np.asarray(a_grae().evaluate(early))[:4], [0.1986, -0.3309, -0.3309, -0.3309], atol=1e-4)
    np.testing.assert_allclose(np.asarray(a_grae(alpha=0.5, ddof=0).evaluate(early))[0], 2 * 0.2293, atol=2e-4)


@exact
def an_episode_counts_once() -> None:
    """Episodes of one to three turns: the batch's mean is that of episodes, and their credit that of one turn."""
    early = batch([1.0, 0, 0, 0], 0.2)
    rows = np.repeat(np.arange(20), 1 + np.arange(20) % 3)
    longer = Turns(early.frame[rows].with_columns(turn=pl.int_range(pl.len()).over("episode")))
    once, found = (np.asarray(a_grae("reward").evaluate(turns)) for turns in (early, longer))
    np.testing.assert_allclose(found, once[rows], atol=1e-9)


@exact
def identities() -> None:
    """What GRPO's credit adds up to, 2G root(p(1 - p)), both signs alike; and A-GRAE's formula for every p."""
    turns, number = groups()
    plain = np.asarray(grpo(ddof=0, eps=0.0).evaluate(turns)).reshape(GROUP - 1, GROUP)
    ours = np.asarray(a_grae(ddof=0, eps=0.0).evaluate(turns)).reshape(GROUP - 1, GROUP)
    p = number[:, None] / GROUP
    np.testing.assert_allclose(np.abs(plain).sum(axis=1), 2 * GROUP * np.sqrt(p * (1 - p))[:, 0], atol=1e-9)
    np.testing.assert_allclose(np.abs(plain).sum(axis=1)[[0, 1, 3]], [5.2915, 6.9282, 8.0], atol=1e-4)
    np.testing.assert_allclose(plain.sum(axis=1), 0.0, atol=1e-9)
    weighted = plain * (0.25 / np.sqrt(p) + 0.25 / np.sqrt(1 - p))
    np.testing.assert_allclose(ours, np.where(plain > 0, weighted / 2, weighted), atol=1e-9)


@reproduction(
    61,
    claim="Group-relative advantages weigh both signs alike and favour groups that half succeed; A-GRAE's weights "
    "change both, and it learns.",
    baseline="GRPO; its right answers at the end are reported",
    criterion="right answers at the end >= 0.9",
    seeds=(0, 1, 2, 3),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Trained as by `palaestra train answers credit="a_grae()"`, on tasks with several right answers."""
    arms = train_arms(
        "answers",
        {name: SETTING | {"credit": f"{name}()"} for name in ("a_grae", "grpo")},
        seeds,
        lambda learned: {
            "right": np.mean(learned.curve()[-10:]),
            "curve": np.mean(learned.curve()),
            "entropy": np.mean(learned.curve("policies.answerer.entropy")[-10:]),
        },
    )
    return Outcome(arms.measured(), arms.mean("a_grae", "right") >= 0.9)
