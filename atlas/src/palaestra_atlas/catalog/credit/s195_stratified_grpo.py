"""[195] Stratified GRPO (arXiv 2510.06214): compare an episode with those that went about it the same way.

Two trials. Nature assigns the stratum: normalising inside it raises the signal-to-noise ratio of the policy gradient.
The policy chooses the stratum: credit that sums to zero inside each stratum cannot teach the choice, and full
stratification fails where GRPO learns. Left out: search agents.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.parse import parse
from palaestra.algebra.signals import Signal, centre
from palaestra.algebra.turns import Turns
from palaestra.credit import grpo, stratified_grpo
from palaestra.envs.worlds.lookup import Lookup
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

BY_NATURE = np.array([[0.95, 0.80], [0.35, 0.10]])
"""Chance of success by stratum and action."""
GROUP_SIZES, GROUPS = (8, 16, 32), 4000
SETTING = {
    "env": {"make": "native/lookup", "options": {"chances": [[0.45, 0.4, 0.4], [0.2, 0.2, 0.2], [0.95, 0.95, 0.1]]}},
    "learn": {"lr": 0.1},
    "train": {"iterations": 60, "groups": 4, "group_size": 8},
}
ALPHAS = (0.0, 0.6, 1.0)
STRATUM = 'stratum=highest("searches", over="episode")'


def table(stratum: np.ndarray, reward: np.ndarray, **columns: np.ndarray) -> Turns:
    """One turn per episode; axis 0 is the group, axis 1 the episode."""
    group, episode = (axis.ravel() for axis in np.indices(reward.shape))
    keys = {"group": group, "episode": episode, "turn": group * 0, "agent": np.full(len(group), "searcher")}
    return Turns(keys | {"stratum": stratum.ravel(), "reward": reward.ravel().astype(float)} | columns)


REWARD, STRATA = np.array([[1, 0, 1, 1, 0, 0, 0, 1]]), np.repeat([[0, 1]], 4, axis=1)
"""Eight episodes in two strata, worked out by hand."""


@exact
def worked() -> None:
    """The blend of the eight episodes, and either part of it."""
    turns = table(STRATA, REWARD)
    for alpha, expected in (
        (0.0, [1, -1, 1, -1, 1]),
        (0.6, [0.7464, -1.4392, 0.7464, -0.7464, 1.4392]),
        (1.0, [0.5773, -1.7320, 0.5773, -0.5773, 1.7320]),
    ):
        credit = np.asarray(stratified_grpo(stratum="stratum", alpha=alpha).evaluate(turns))
        if alpha == 0.6:
            np.testing.assert_array_equal(credit, np.asarray(stratified_grpo(stratum="stratum").evaluate(turns)))
        np.testing.assert_allclose(credit, np.repeat(expected, [1, 1, 2, 3, 1]), atol=1e-4)


@exact
def variance_removed() -> None:
    """Within strata the mean credit of each is 0; .0625 of the variance .25 is gone, the mean of (μ_k - μ)²."""
    credit = np.asarray(stratified_grpo(stratum="stratum", alpha=1.0).evaluate(table(STRATA, REWARD)))
    np.testing.assert_allclose([credit[:4].sum(), credit[4:].sum()], 0, atol=1e-9)
    within = np.array([0.25 * 0.75] * 2)
    np.testing.assert_allclose(np.square(REWARD - 0.5).mean() - within.mean(), 0.0625)
    for seed in range(10):
        assert max(identity_errors(seed)) <= 1e-12


@exact
def own_structure() -> None:
    """By default episodes of as many turns are one stratum, whatever their numbers; or those of a column."""
    lengths = np.array([1, 2] * 4)
    episode = np.repeat(np.arange(8), lengths)
    turn = np.concatenate([np.arange(length) for length in lengths])
    order = np.array([0, 4, 1, 5, 2, 6, 3, 7])  # the worked episodes, strata taking turns
    reward = np.where(turn == lengths[episode] - 1, REWARD[0, order][episode], 0.0)
    keys = {"group": 0 * episode, "episode": episode, "turn": turn, "agent": ["a"] * len(turn), "reward": reward}
    turns = Turns(keys | {"calls": lengths[episode]})
    expected = np.repeat([0.7464, -1.4392, 0.7464, -0.7464, 1.4392], [1, 1, 2, 3, 1])[order][episode]
    for signal in (stratified_grpo(), stratified_grpo(stratum="calls")):
        np.testing.assert_allclose(np.asarray(signal.evaluate(turns)), expected, atol=1e-4)


@exact
def alone() -> None:
    """The only episode of its stratum has .4 of its credit in the group, and no more."""
    turns = table(np.array([[0, 0, 1]]), np.array([[0, 0, 1]]))
    group = (np.array([0, 0, 1]) - 1 / 3) / np.sqrt(2 / 9)
    np.testing.assert_allclose(np.asarray(stratified_grpo(stratum="stratum").evaluate(turns)), 0.4 * group, atol=1e-5)


@exact
def episodes_count_once() -> None:
    """An episode of many turns is one sample, of its stratum and of its group; eps is added to both deviations."""
    episode = np.array([3, 0, 1, 1, 2, 1, 4])  # rows in any order; episode 1 has three turns
    keys = {"group": 0 * episode, "episode": episode, "turn": [0, 0, 2, 0, 0, 1, 0], "agent": ["searcher"] * 7}
    score, stratum = np.array([2.0, 0.0, 3.0, 1.0, np.nan]), np.array([0, 0, 1, 1, 1])
    scores = pl.Series(score[episode], nan_to_null=True)
    turns = Turns(keys | {"reward": np.ones(7), "score": scores, "stratum": stratum[episode]})
    found = np.asarray(stratified_grpo("score", stratum="stratum", alpha=0.25, eps=0.5).evaluate(turns))
    within = np.array([1.0, -1.0, 1.0, -1.0, np.nan]) / 1.5  # means 1 and 2, deviations 1
    group = (score - 1.5) / (np.sqrt(1.25) + 0.5)
    np.testing.assert_allclose(found, (0.25 * within + 0.75 * group)[episode], atol=1e-12)


@exact
def chosen_stratum() -> None:
    """Where the policy chooses how often it searches, the strata's own credit says nothing about the choice."""
    team = Team(searcher=TabularPolicy(7, name="searcher"))
    turns = rollout(Lookup, team, groups=4, group_size=16)
    credit = parse('stratified_grpo(stratum=highest("searches", over="episode"), alpha=1.0)')
    found = turns.with_column(found=credit).frame.filter(pl.col("turn") == 0)
    sums = found.group_by("group", "searches").agg(pl.col("found").sum())
    np.testing.assert_allclose(sums["found"], 0, atol=1e-9)


def by_nature(seed: int, directory: Path) -> None:
    """`turns.parquet`: groups of 16 episodes whose numbers of searches nature draws, and what each action earned."""
    rng = np.random.default_rng(seed)
    searches, action = (rng.random((2, 2000, 16)) < 0.5).astype(int)
    reward = rng.random(action.shape) < BY_NATURE[searches, action]
    table(searches, reward, searches=searches.ravel(), action=action.ravel().astype(str)).save(
        directory / "turns.parquet"
    )


def clearness() -> Measure:
    """Signal-to-noise ratio of the policy gradient inside the strata that `by_nature` drew."""

    def measured(left: Left) -> list[float]:
        turns = Turns.load(left.directory / "credit.parquet")
        shape = (-1, 16)
        first, searches, credit = (
            turns[name].to_numpy().reshape(shape) for name in ("action", "searches", "advantage")
        )
        return [ratio_of(credit, first.astype(str) == "0", searches)]

    return measured


def identity_errors(seed: int) -> tuple[float, float]:
    """Of R - μ = (R - μ_k) + (μ_k - μ), and of the variance that the strata remove: mean (μ_k - μ)²."""
    rng = np.random.default_rng(seed)
    turns = table(rng.integers(3, size=(1, 30)), rng.random((1, 30)))
    within, overall = (
        np.asarray(centre("reward", over=key).evaluate(turns)) for key in (("group", "stratum"), "group")
    )
    reward, stratum = turns["reward"].to_numpy(), turns["stratum"].to_numpy()
    between = np.array([reward[stratum == k].mean() for k in range(3)])[stratum] - reward.mean()
    removed = np.mean(overall**2) - np.mean(within**2)
    return float(np.abs(overall - within - between).max()), float(abs(removed - np.mean(between**2)))


def signal_to_noise(credit: Signal, size: int, seed: int) -> float:
    """|E g|² / E|g - E g|² of the policy gradient inside the strata, for groups of this size; the policy is uniform."""
    luck = np.random.default_rng(seed).random((3, GROUPS, size))
    stratum, action = (luck[:2] < 0.5).astype(int)
    turns = table(stratum, luck[2] < BY_NATURE[stratum, action])
    advantage = np.asarray(credit.evaluate(turns)).reshape(GROUPS, size)
    return ratio_of(advantage, action == 0, stratum)


def ratio_of(credit: np.ndarray, first: np.ndarray, stratum: np.ndarray) -> float:
    """|E g|² / E|g - E g|² of a group's gradient by the logits of the first of two even actions, one per stratum."""
    per_logit = credit * (first - 0.5)
    gradient = np.stack([np.where(stratum == k, per_logit, 0.0).sum(axis=1) for k in (0, 1)], axis=1)
    return float((gradient.mean(axis=0) ** 2).sum() / gradient.var(axis=0).sum())


@reproduction(
    195,
    claim="Normalising inside strata removes exactly the variance between them and sharpens the gradient inside; where "
    "the policy chooses its stratum, full stratification cannot teach the choice.",
    baseline="GRPO (α = 0)",
    criterion="signal-to-noise >= 1.2 times GRPO's for groups "
    "of 8, 16 and 32; with a chosen stratum the success of α = 1 at the end is at least 0.2 below that of α = 0, means "
    "over the seeds; should hold in 9 of 10 blocks of four fresh seeds",
    seeds=(0, 1, 2, 3),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Strata by nature; then trained as by `palaestra train world env.make=native/lookup credit=…`."""
    measured: dict[str, float] = {}
    holds = True
    stratified = stratified_grpo(stratum="stratum", alpha=1.0)
    for size in GROUP_SIZES:
        plain, ours = (signal_to_noise(credit, size, seeds[0]) for credit in (grpo(ddof=0), stratified))
        measured |= {f"signal_to_noise_{size}_grpo": plain, f"signal_to_noise_{size}_strata": ours}
        holds &= ours >= 1.2 * plain
    arms = train_arms(
        "world",
        {f"alpha_{alpha}": SETTING | {"credit": f"stratified_grpo({STRATUM}, alpha={alpha})"} for alpha in ALPHAS},
        seeds,
        lambda learned: {"success": np.mean(learned.curve()[-15:])},
    )
    lost = -arms.gain("alpha_1.0", "alpha_0.0", "success")[0]
    return Outcome(measured | arms.measured(), bool(holds and lost >= 0.2))
