"""[71] ADORA (arXiv 2602.10019): groups whose right answers are not the longest count a tenth.

The estimator's weight is checked on groups worked out by hand and against a loop. Whether length tells the quality of a
group is the world's matter: in `lookup`, where two searches pay, the weight speeds learning; in the same world with the
good strategy at no search it hinders it much more. Left out: language models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.agents import Team, random_legal
from palaestra.algebra.turns import Turns
from palaestra.credit import adora, grpo
from palaestra.envs.worlds.lookup import Lookup
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, exact, reproduction

CAP = 4054
CASES = [
    ([1, 1, 0, 0], [300, 900, 500, 700], 1.0),
    ([1, 0, 0, 0], [400, 500, 700, 900], 0.1),
    ([1, 0, 0, 0], [400, 300, 300, CAP], 1.0),  # with the truncated one the mean would be 1551
]
"""Rewards, lengths, and the weight of the group worked out by hand."""


def table(rewards: np.ndarray, lengths: np.ndarray) -> Turns:
    """A group per row, an episode of one turn per column."""
    group, episode = (axis.ravel() for axis in np.indices(rewards.shape))
    keys = {"group": group, "episode": episode, "turn": group * 0, "agent": ["solver"] * len(group)}
    return Turns(keys | {"reward": rewards.ravel().astype(float), "tokens_out": lengths.ravel()})


@exact
def weights() -> None:
    """The card's groups: the longest right answer against the mean wrong one, without those that were cut off."""
    for rewards, lengths, weight in CASES:
        turns = table(np.array([rewards]), np.array([lengths]))
        plain = np.asarray(grpo().evaluate(turns))
        np.testing.assert_allclose(np.asarray(adora(cap=CAP).evaluate(turns)), weight * plain, atol=1e-12)
    turns = table(np.array([CASES[1][0]]), np.array([CASES[1][1]]))
    np.testing.assert_allclose(np.asarray(adora().evaluate(turns)), [0.15, -0.05, -0.05, -0.05], atol=1e-6)


@exact
def borders() -> None:
    """Borders: a score at `correct` is wrong, a length at the cap is cut off, an equal length is not longer."""
    half = table(np.array([[0.5, 1, 0]]), np.array([[900, 500, 300]]))  # wrong ones: 900 and 300, mean 600
    tie = table(np.array([[1, 0]]), np.array([[500, 500]]))
    cut = table(np.array([[0.4, 0.1]]), np.array([[CAP, CAP]]))  # none is right, and no wrong one is left
    for turns, llm, vlm in ((half, 0.1, 0.1), (tie, 0.1, 0.1), (cut, 0.1, 1.0)):
        plain = np.asarray(grpo().evaluate(turns))
        for credit, weight in ((adora(rule="llm", cap=CAP), llm), (adora(rule="vlm", cap=CAP), vlm)):
            np.testing.assert_allclose(np.asarray(credit.evaluate(turns)), weight * plain, atol=1e-12)
    uncapped = np.asarray(adora().evaluate(half))
    np.testing.assert_allclose(uncapped, 0.1 * np.asarray(grpo().evaluate(half)), atol=1e-12)


@exact
def several_turns() -> None:
    """Lengths add up over an episode's turns, each episode counts once, and another group's lengths are no matter.

    Group 0: a wrong episode of 300 + 300 + 300, one of 300, their mean is 600; group 1: wrong ones of 5000 and 7000.
    """
    episode = np.array([1, 0, 0, 2, 0, 3, 4, 5])
    keys = {"group": episode // 3, "episode": episode, "turn": [0, 2, 0, 0, 1, 0, 0, 0], "agent": ["solver"] * 8}
    score = np.array([0.0, 0.0, 1.0, 1.0, 0.0, 0.0])[episode]
    for right, weight in ((700, 1.0), (500, 0.1)):
        lengths = [300, 300, 300, right, 300, 9000, 5000, 7000]
        turns = Turns(keys | {"score": score, "reward": 0.0 * episode, "tokens_out": lengths})
        expected = np.where(episode < 3, weight, 1.0) * np.asarray(grpo("score").evaluate(turns))
        np.testing.assert_allclose(np.asarray(adora("score").evaluate(turns)), expected, atol=1e-12)


@exact
def quick_answers() -> None:
    """In the line's world: who is right without searching against a wrong search counts .1, who searched twice 1."""
    for chances, weight in (([[1.0], [0.0], [0.0]], 0.1), ([[0.0], [0.0], [1.0]], 1.0)):
        turns = rollout(lambda: Lookup(chances=chances), Team(searcher=random_legal()), groups=2, group_size=12)  # noqa: B023
        plain = np.asarray(grpo().evaluate(turns))
        assert np.abs(plain).min() > 0.1, "right and wrong ones in both groups"
        np.testing.assert_allclose(np.asarray(adora(length="searches").evaluate(turns)), weight * plain, atol=1e-12)


@exact
def one_sided() -> None:
    """Groups in which all are right, or all wrong, have no credit to weigh."""
    turns = table(np.array([[1, 1, 1], [0, 0, 0]]), np.array([[3, 5, 9], [3, 5, 9]]))
    np.testing.assert_allclose(np.asarray(adora().evaluate(turns)), 0.0, atol=1e-12)


@exact
def every_batch_anew() -> None:
    """Two tasks in two batches: when their lengths change places, so do their weights."""
    rewards, lengths = np.array([[1, 1, 0, 0], [1, 1, 0, 0]]), np.array([[300, 900, 500, 700], [300, 400, 500, 700]])
    credit = adora()
    for order in ([0, 1], [1, 0]):
        turns = table(rewards, lengths[order])
        weight = np.repeat(np.array([1.0, 0.1])[order], 4)
        np.testing.assert_allclose(
            np.asarray(credit.evaluate(turns)), weight * np.asarray(grpo().evaluate(turns)), atol=1e-12
        )


@reproduction(
    71,
    claim="ADORA weighs a group's advantages by 1 or 0.1, by whether its longest right answer beats its mean wrong.",
    baseline="GRPO",
    criterion="credit of every group sums to 0 within 1e-9; the weight by a direct loop over 200 random groups a seed "
    "agrees in all of them, by both published rules",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Random groups against a loop."""
    totals, disagreements, reduced = 0.0, 0, []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        rewards, lengths = rng.integers(0, 2, (200, 6)), rng.integers(3000, 4300, (200, 6))
        turns = table(rewards, lengths)
        plain = np.asarray(grpo().evaluate(turns)).reshape(rewards.shape)
        for rule in ("llm", "vlm"):
            credit = np.asarray(adora(rule=rule, cap=CAP).evaluate(turns)).reshape(rewards.shape)
            expected = np.array([_weight(*pair, rule) for pair in zip(rewards, lengths, strict=True)])
            disagreements += int((np.abs(credit - expected[:, None] * plain) > 1e-12).any(axis=1).sum())
            totals = max(totals, float(np.abs(credit.sum(axis=1)).max()))
            reduced.append(np.mean(expected < 1))
    measured = {"largest_total": totals, "disagreements": disagreements, "share_reduced": float(np.mean(reduced))}
    return Outcome(measured, totals <= 1e-9 and not disagreements)


def _weight(rewards: np.ndarray, lengths: np.ndarray, rule: str) -> float:
    right, wrong = lengths[rewards == 1], lengths[(rewards == 0) & (lengths < CAP)]
    if rule == "llm":
        worth = max(right, default=-np.inf) > (wrong.mean() if len(wrong) else -np.inf)
    else:
        worth = not len(right) or max(right) > (wrong.mean() if len(wrong) else np.inf)
    return 1.0 if worth else 0.1
