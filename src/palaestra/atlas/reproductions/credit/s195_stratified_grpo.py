"""[195] Stratified GRPO (arXiv 2510.06214): compare an episode with those that went about it the same way.

Two trials. Nature assigns the stratum: normalising inside it raises the signal-to-noise ratio of the policy gradient.
The policy chooses the stratum: credit that sums to zero inside each stratum cannot teach the choice, and full
stratification fails where GRPO learns; the published blend loses part of the way. Left out: search agents.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import Signal, centre
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.credit import grpo, stratified_grpo

BY_NATURE = np.array([[0.95, 0.80], [0.35, 0.10]])
"""Chance of success by stratum and action."""
BY_CHOICE = np.array([[0.40, 0.42, 0.43, 0.45], [0.20, 0.23, 0.27, 0.30], [0.95, 0.05, 0.05, 0.05]])
"""Chance of success by number of searches and strategy."""
GROUP_SIZES, GROUPS = (8, 16, 32), 4000
GROUP, ITERATIONS, RATE, RELUCTANCE = 8, 400, 0.2, 1.5
ALPHAS = (0.0, 0.3, 0.6, 1.0)


def table(stratum: np.ndarray, reward: np.ndarray, **columns: np.ndarray) -> Turns:
    """One turn per episode; axis 0 is the group, axis 1 the episode."""
    group, episode = (axis.ravel() for axis in np.indices(reward.shape))
    keys = {"group": group, "episode": episode, "turn": group * 0, "agent": np.full(len(group), "searcher")}
    return Turns(keys | {"stratum": stratum.ravel(), "reward": reward.ravel().astype(float)} | columns)


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
    policy = np.full((GROUPS, 2, 2), 0.5)
    credit_of = np.asarray(credit.evaluate(turns))
    gradient = policy_gradient(policy, turns["group"].to_numpy(), stratum.ravel(), action.ravel(), credit_of)
    gradient = gradient[:, :, 0]
    return float((gradient.mean(axis=0) ** 2).sum() / gradient.var(axis=0).sum())


def final_return(alpha: float, seeds: Sequence[int]) -> np.ndarray:
    """Chance of success after training, per seed, where the policy chooses how often to search."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    runs = np.arange(len(seeds))[:, None]
    number, strategies = BY_CHOICE.shape
    search, strategy = np.zeros((len(seeds), 1, number)), np.zeros((len(seeds), number, strategies))
    search[:, :, 0] = RELUCTANCE
    credit = stratified_grpo(stratum="stratum", alpha=alpha)
    flat = np.repeat(np.arange(len(seeds)), GROUP)
    for _ in range(ITERATIONS):
        choose, act = softmax(search), softmax(strategy)
        luck = uniform(streams, GROUP, 3)
        stratum = sample(choose, luck[..., 0])
        action = sample(act[runs, stratum], luck[..., 1])
        turns = table(stratum, luck[..., 2] < BY_CHOICE[stratum, action])
        advantage = np.asarray(credit.evaluate(turns))
        search += RATE * policy_gradient(choose, flat, flat * 0, stratum.ravel(), advantage) / GROUP
        strategy += RATE * policy_gradient(act, flat, stratum.ravel(), action.ravel(), advantage) / GROUP
    return np.asarray((softmax(search)[:, 0] * (softmax(strategy) * BY_CHOICE).sum(axis=-1)).sum(axis=-1))


@reproduction(
    195,
    claim="Normalising inside strata removes exactly the variance between them and sharpens the gradient inside; where "
    "the policy chooses its stratum, full stratification cannot teach the choice.",
    baseline="GRPO (α = 0)",
    criterion="identities equal to 1e-12; signal-to-noise >= 1.2 times GRPO's for groups of 8, 16 and 32; with a "
    "chosen stratum the final return of α = 1 is at least 0.2 below that of α = 0",
    seeds=tuple(range(40)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Identities, strata by nature, strata by choice."""
    identity, variance = np.max([identity_errors(seed) for seed in seeds], axis=0)
    measured = {"identity_error": identity, "variance_error": variance}
    holds = max(measured.values()) <= 1e-12
    stratified = stratified_grpo(stratum="stratum", alpha=1.0)
    for size in GROUP_SIZES:
        plain, ours = (signal_to_noise(credit, size, seeds[0]) for credit in (grpo(ddof=0), stratified))
        measured |= {f"signal_to_noise_{size}_grpo": plain, f"signal_to_noise_{size}_strata": ours}
        holds &= ours >= 1.2 * plain
    returns = {alpha: float(final_return(alpha, seeds).mean()) for alpha in ALPHAS}
    measured |= {f"final_return_alpha_{alpha}": value for alpha, value in returns.items()}
    return Outcome(measured, bool(holds and returns[1.0] <= returns[0.0] - 0.2))
