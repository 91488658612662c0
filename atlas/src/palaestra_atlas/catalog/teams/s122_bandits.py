"""[122] Introduction to multi-armed bandits (arXiv 1904.07272): each index where it belongs, and where it does not.

Five Bernoulli arms; an adversary that starves whatever is likeliest; a budget; all played by the seat `bandit` itself.
Left out: proofs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy

from palaestra.agents import BanditPolicy
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

ARMS, PLAYS, CHOICES = np.array([0.6, 0.5, 0.5, 0.45, 0.4]), 2000, 5000
REWARD, COST, BUDGET = np.array([0.9, 0.6, 0.5]), np.array([1.0, 0.3, 0.4]), 300.0


def taught(policy: BanditPolicy, won: Sequence[int], plays: Sequence[int], **told: Any) -> BanditPolicy:
    """A bandit whose arms paid 1 so often in so many plays, and 0 else."""
    arms = np.repeat(np.arange(len(plays)), plays)
    rewards = np.concatenate([np.arange(n) < s for s, n in zip(won, plays)]).astype(float)
    policy.update(arms, rewards, **told)
    return policy


@exact
def upper_bounds() -> None:
    """R + √(2 ln t / n): .6 + .31 against .5 + .97; an arm never taken is first; one that failed comes again."""
    np.testing.assert_allclose(np.sqrt(2 * np.log(110) / np.array([100, 10])), [0.3066, 0.9696], atol=1e-4)
    assert taught(BanditPolicy(2, index="ucb1"), [60, 5], [100, 10]).chances().tolist() == [0.0, 1.0]
    assert taught(BanditPolicy(3, index="ucb1"), [9, 0, 0], [10, 1, 0]).chances().tolist() == [0.0, 0.0, 1.0]
    policy = taught(BanditPolicy(2, index="ucb1"), [60, 0], [100, 1])  # .6 + .30 against 0 + 3.04
    assert policy.chances().tolist() == [0.0, 1.0]


@exact
def thompson_shares() -> None:
    """The chance of each arm is that of its draw from Beta(1 + s, 1 + n - s) being the largest."""
    policy = taught(BanditPolicy(2, index="thompson"), [3, 5], [4, 10])
    x = np.linspace(0, 1, 20_001)[1:-1]
    first, second = scipy.stats.beta(4, 2), scipy.stats.beta(6, 6)
    best = float(np.trapezoid(first.pdf(x) * second.cdf(x), x))
    np.testing.assert_allclose(policy.chances(), [best, 1 - best], atol=2e-3)
    assert 0.7 < best < 0.9


@exact
def importance_weights() -> None:
    """Exp3 divides what was earned by the probability of the choice: 1/.25 and .5/.5, then p ∝ e^{η Σ r/p}, mixed."""
    policy = BanditPolicy(2, index="exp3", rate=0.1)
    policy.update(np.array([0, 1]), np.array([1.0, 0.5]), propensities=np.array([0.25, 0.5]))
    weights = np.exp(0.1 * np.array([4.0, 1.0]))
    np.testing.assert_allclose(policy.chances(), 0.9 * weights / weights.sum() + 0.1 / 2, atol=1e-12)


@exact
def adversary() -> None:
    """An adversary that starves the likeliest arm leaves an index next to nothing, and exponential weights most."""
    plays = 400
    for index, least, most in (("ucb1", 0.0, 0.02), ("exp3", 0.85, 1.05)):
        earned, best = starved(index, 0, plays)
        assert least * best <= earned <= most * best, (index, earned, best)


@exact
def ridge_by_context() -> None:
    """θ = (1 + Σxx')⁻¹ Σrx for each arm and √(x'A⁻¹x) beside it: two kinds of requests, opposite arms."""
    policy = BanditPolicy(2, index="linucb", features=2, shared=False, width=0.5)
    kinds = np.eye(2)[[0, 0, 0, 1, 1, 1, 0, 1]]
    policy.update(np.array([0, 0, 0, 1, 1, 1, 1, 0]), np.array([1.0, 1, 1, 1, 1, 1, 0, 0]), contexts=kinds)
    right, wrong = 3 / 4 + 0.5 * np.sqrt(1 / 4), 0.5 * np.sqrt(1 / 2)
    expected = [[right, wrong], [wrong, right]]
    np.testing.assert_allclose(policy.scores(policy.contexts(np.eye(2))), expected, atol=1e-12)
    seen = [Observation("kind", ("a", "b"), None, kind) for kind in np.eye(2, dtype=np.float32)]
    np.testing.assert_allclose(np.exp(policy.logits(seen).numpy()), np.eye(2), atol=1e-9)


@exact
def reward_for_cost() -> None:
    """By budget .6 for .3 is worth more than .9 for 1."""
    known = {"costs": np.repeat([1.0, 0.3], [1000, 1000])}
    policy = taught(BanditPolicy(2, index="ratio_ucb"), [900, 600], [1000, 1000], **known)
    assert policy.chances().tolist() == [0.0, 1.0]
    assert taught(BanditPolicy(2, index="ucb1"), [900, 600], [1000, 1000]).chances().tolist() == [1.0, 0.0]


def chosen_regret(skills: str = "0.6 0.5 0.5 0.45 0.4") -> Measure:
    """Skill of the best worker less that of the chosen one, mean over the saved choices, per seed."""
    known = np.array([float(each) for each in skills.split()])

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            said = Turns.load(seed / "turns")["action"].cast(str).str.extract(r"(\d+)$", 1).cast(int).to_numpy()
            found.append(float((known.max() - known[said]).mean()))
        return found

    return measured


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
    counts, _, _ = played(policy, CHOICES, rng, lambda _: ((rng.random(5) < ARMS).astype(float), None))
    return float((ARMS.max() - ARMS) @ counts)


def starved(index: Any, seed: int, plays: int = PLAYS) -> tuple[float, float]:
    """Earned, and the best arm's, if the likeliest arm pays nothing."""
    rng = np.random.default_rng(seed)

    def adversary(chances: np.ndarray) -> tuple[np.ndarray, None]:
        rewards = np.ones(len(chances))
        rewards[chances.argmax()] = 0.0
        return rewards, None

    _, earned, best = played(BanditPolicy(2, index=index, rate=0.03), plays, rng, adversary)
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
    "1.3 times UCB1",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Chance, an adversary, a budget."""
    uniform = float((ARMS.max() - ARMS).mean() * CHOICES)
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
