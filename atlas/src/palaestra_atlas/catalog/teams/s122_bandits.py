"""[122] Introduction to multi-armed bandits (arXiv 1904.07272): each index where it belongs, and where it does not.

Five Bernoulli arms; an adversary that starves whatever is likeliest; a budget; all played by the seat `bandit` itself.
Left out: proofs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palaestra.agents import BanditPolicy
from palaestra_atlas.reproductions import Outcome, reproduction

ARMS, PLAYS = np.array([0.6, 0.5, 0.5, 0.45, 0.4]), 2000
REWARD, COST, BUDGET = np.array([0.9, 0.6, 0.5]), np.array([1.0, 0.3, 0.4]), 300.0


def played(
    policy: BanditPolicy, plays: int, rng: np.random.Generator, world: Callable[[np.ndarray], tuple[np.ndarray, Any]]
) -> tuple[np.ndarray, float, np.ndarray]:
    """Plays of each arm, what was earned, and what each arm would have."""
    counts, earned, best = np.zeros(policy.actions), 0.0, np.zeros(policy.actions)
    for _ in range(plays):
        chances = policy.chances()
        rewards, costs = world(chances)
        arm = int(rng.choice(policy.actions, p=chances))
        cost = None if costs is None else np.array([costs[arm]])
        policy.update(np.array([arm]), rewards[[arm]], costs=cost, propensities=chances[[arm]])
        counts[arm] += 1
        earned, best = earned + rewards[arm], best + rewards
        if costs is not None and counts @ costs >= BUDGET:
            break
    return counts, earned, best


def regret(index: Any, seed: int) -> float:
    """Pseudo-regret on the Bernoulli arms."""
    rng = np.random.default_rng(seed)
    policy = BanditPolicy(5, index=index)
    counts, _, _ = played(policy, PLAYS, rng, lambda _: ((rng.random(5) < ARMS).astype(float), None))
    return float((ARMS.max() - ARMS) @ counts)


def starved(index: Any, seed: int) -> tuple[float, float]:
    """Earned, and the best arm's, if the likeliest arm pays nothing."""
    rng = np.random.default_rng(seed)

    def adversary(chances: np.ndarray) -> tuple[np.ndarray, None]:
        rewards = np.ones(len(chances))
        rewards[chances.argmax()] = 0.0
        return rewards, None

    _, earned, best = played(BanditPolicy(2, index=index, rate=0.03), PLAYS, rng, adversary)
    return earned, float(best.max())


def bought(index: Any, seed: int) -> float:
    """Earned within a budget."""
    rng = np.random.default_rng(seed)
    return played(BanditPolicy(3, index=index), 10_000, rng, lambda _: ((rng.random(3) < REWARD).astype(float), COST))[
        1
    ]


@reproduction(
    122,
    claim="Counting arms has logarithmic regret where chance rules, an adversary starves it and not exponential "
    "weights, and a budget wants reward per cost.",
    baseline="UCB1 everywhere",
    criterion="mean regret of UCB1 and ε-greedy below 0.6 of uniform play; in every seed UCB1 earns less than 2 % of "
    "the best arm against the adversary and Exp3 stays within its bound, and by budget reward per cost earns at least "
    "1.3 times UCB1 (held on one of two fresh blocks; on the other UCB1's regret was 0.62 of uniform play)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Chance, an adversary, a budget."""
    uniform = float((ARMS.max() - ARMS).mean() * PLAYS)
    chance = {index: np.array([regret(index, seed) for seed in seeds]) for index in ("ucb1", "epsilon")}
    hungry = {index: np.array([starved(index, seed) for seed in seeds]) for index in ("ucb1", "exp3")}
    budget = {index: np.array([bought(index, seed) for seed in seeds]) for index in ("ucb1", "ratio_ucb")}
    measured = {"uniform_regret": uniform} | {f"regret_{name}": float(each.mean()) for name, each in chance.items()}
    measured |= {f"starved_{name}": float(each[:, 0].mean()) for name, each in hungry.items()}
    measured |= {f"budget_{name}": float(each.mean()) for name, each in budget.items()}
    bound = 2 * np.sqrt(2 * PLAYS * 2 * np.log(2))
    holds = all(each.mean() < 0.6 * uniform for each in chance.values())
    starves = (hungry["ucb1"][:, 0] < 0.02 * hungry["ucb1"][:, 1]).all()
    bounded = (hungry["exp3"][:, 1] - hungry["exp3"][:, 0] <= bound).all()
    cheaper = (budget["ratio_ucb"] >= 1.3 * budget["ucb1"]).all()
    return Outcome(measured, bool(holds and starves and bounded and cheaper))
