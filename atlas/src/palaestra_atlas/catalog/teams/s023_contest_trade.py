"""[23] ContestTrade (arXiv 2508.00554): a contest earns what agents' skill lasts, and nothing where there is no skill.

Eight agents whose hidden skill is an AR(1) process earn it with noise; money goes by the score of the last five days.
Beside equal weights, the last winner, and the same contest where skill does not last, and where there is none. Left
out: markets and language models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.agents.bandits import BanditPolicy
from palaestra.evaluation.teamwork import allocate, contest, factor_reward, recent_scores
from palaestra_atlas.reproductions import Outcome, exact, reproduction

AGENTS, DAYS, WORLDS, NOISE, SKILL, YEAR = 8, 250, 40, 0.015, 0.005, 252


def earned(persistence: float, skill: float, rng: np.random.Generator) -> np.ndarray:
    """Rewards, float64[worlds, days, agents]: skill of a stationary AR(1) process, and noise."""
    state = skill * rng.normal(size=(WORLDS, AGENTS))
    rewards = np.empty((WORLDS, DAYS, AGENTS))
    for day in range(DAYS):
        state = persistence * state + np.sqrt(1 - persistence**2) * skill * rng.normal(size=(WORLDS, AGENTS))
        rewards[:, day] = state + NOISE * rng.normal(size=(WORLDS, AGENTS))
    return rewards


def weights_of(rewards: dict[str, list[float | None]], **options: object) -> dict[str, list[float]]:
    """What the contest gives each agent, day by day."""
    days = len(next(iter(rewards.values())))
    table = pl.DataFrame(
        {
            "day": [day for _ in rewards for day in range(days)],
            "agent": [name for name in rewards for _ in range(days)],
            "reward": [each for row in rewards.values() for each in row],
        },
        schema={"day": pl.Int64, "agent": pl.String, "reward": pl.Float64},
    )
    found = contest(table, **options)  # type: ignore[arg-type]
    return {name: found.filter(agent=name).sort("day")["weight"].to_list() for name in rewards}


@exact
def shares() -> None:
    """In proportion to what is above zero, and nothing where nobody is."""
    assert allocate(np.array([0.5, -0.2, 1.5])).tolist() == [0.25, 0.0, 0.75]
    assert allocate(np.array([-1.0, -2.0, -0.5])).tolist() == [0.0, 0.0, 0.0]


@exact
def who_earned() -> None:
    """The weight of a day goes to those who earned on the days before, and to nobody else."""
    found = weights_of(
        {"earns": [0.03, 0.02, 0.03, 0.02, 0.03, None], "loses": [-0.03, -0.02, -0.03, -0.02, -0.03, None]}
    )
    assert [found["earns"][-1], found["loses"][-1]] == [1.0, 0.0]


@exact
def last_five_days() -> None:
    """Mean over deviation of five days, not of the last one: .01 over .0141 for (.01, .01, -.01, .02, .02)."""
    rewards = np.array([[0.9, 0.01, 0.01, -0.01, 0.02, 0.02, 0.0]]).T[None]
    np.testing.assert_allclose(recent_scores(rewards)[0, -1, 0], 0.01 / np.sqrt(0.00012), rtol=1e-9)


@exact
def steadiness() -> None:
    """Of two with the same mean the steady one gets more: .02/.01 beside .02/.04; so does a seat that learns."""
    steady, wild = [0.01, 0.03, 0.01, 0.03], [-0.02, 0.06, -0.02, 0.06]
    found = weights_of({"steady": [*steady, None], "wild": [*wild, None]}, window=4)
    np.testing.assert_allclose([found["steady"][-1], found["wild"][-1]], [0.8, 0.2])


@exact
def seat() -> None:
    """A seat with the index contest: the same shares of mean over deviation, and a little for everybody."""
    bandit = BanditPolicy(3, index="contest", rate=0.1)
    bandit.update(np.repeat([0, 1, 2], 4), np.array([0.1, 0.3, 0.1, 0.3, -0.2, 0.6, -0.2, 0.6, -1.0, -1.0, -1.0, -1.0]))
    np.testing.assert_allclose(bandit.chances(), 0.9 * np.array([0.8, 0.2, 0.0]) + 0.1 / 3)


@exact
def two_contests() -> None:
    """Of five factors that earn the three best reach the researchers; researchers share the money by their scores."""
    names = ("a", "b", "c", "d", "e")
    factors = weights_of(
        {name: [0.01 * k, 0.01 * k, None] for k, name in enumerate(names, 1)}, window=2, method="top_k"
    )
    np.testing.assert_allclose([factors[name][-1] for name in names], [0, 0, 1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(factor_reward(np.array([2, -1, 1]), np.array([0.1, -0.5, np.nan])), 0.2)  # cut to ±20 %
    money = weights_of({"one": [0.02, 0.04, None], "two": [0.01, 0.01, None]}, window=2)
    np.testing.assert_allclose([money["one"][-1], money["two"][-1]], [0.75, 0.25])


@exact
def past_alone() -> None:
    """Other rewards from a day on leave that day's weights and all earlier ones as they were."""
    assert blind(earned(0.95, SKILL, np.random.default_rng(0))[:2, :40], np.random.default_rng(1))


def yearly(rewards: np.ndarray) -> dict[str, tuple[float, float, float]]:
    """Of a year, by how money is given: return, its standard error over worlds, and return per deviation."""
    scores = recent_scores(rewards)
    winner = np.zeros_like(rewards)
    winner[:, 1:] = rewards[:, :-1] == rewards[:, :-1].max(-1, keepdims=True)
    ways = {
        "positive": allocate(scores), "top_3": allocate(scores, "top_k"), "equal": allocate(scores, "equal"),
        "last_winner": winner,
    }  # fmt: skip
    found = {}
    for name, weights in ways.items():
        daily = (weights * rewards).sum(-1)
        mean = YEAR * daily.mean(-1)
        ratio = mean / (np.sqrt(YEAR) * daily.std(-1))
        found[name] = (float(mean.mean()), float(mean.std(ddof=1) / np.sqrt(WORLDS)), float(ratio.mean()))
    return found


def blind(rewards: np.ndarray, rng: np.random.Generator) -> bool:
    """Whether other rewards from a day on leave that day's weights as they were."""
    day, weights = rewards.shape[1] // 2, allocate(recent_scores(rewards))
    changed = rewards.copy()
    changed[:, day:] = rng.permutation(changed[:, day:], axis=1)
    again = allocate(recent_scores(changed))
    return bool((again[:, : day + 1] == weights[:, : day + 1]).all() and (again != weights).any())


@reproduction(
    23,
    claim="Money by recent scores earns where skill lasts, and surer than by the last winner; where skill does not "
    "last or there is none it earns nothing.",
    baseline="equal weights; the last winner; skill that does not last; no skill",
    criterion="worked weights (.25, 0, .75) and zeros exact; skill of persistence .95: .2 a year above equal weights, "
    "and 1 more return per deviation than with the last winner; persistence 0 and no skill: within 3 standard errors "
    "of 0; weights do not change with later rewards, in every seed (held on both fresh blocks)",
    seeds=(0, 1),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked, three worlds, look-ahead."""
    exact = allocate(np.array([[0.5, -0.2, 1.5], [-1.0, -2.0, -0.5]])).tolist() == [[0.25, 0.0, 0.75], [0.0, 0.0, 0.0]]
    rows, holds = [], exact
    for seed in seeds:
        rng = np.random.default_rng(seed)
        rewards = earned(0.95, SKILL, rng)
        lasting, fleeting, none = yearly(rewards), yearly(earned(0.0, SKILL, rng)), yearly(earned(0.0, 0.0, rng))
        holds &= lasting["positive"][0] > lasting["equal"][0] + 0.2
        holds &= lasting["positive"][2] > lasting["last_winner"][2] + 1
        holds &= all(abs(mean) <= 3 * error for world in (fleeting, none) for mean, error, _ in world.values())
        holds &= blind(rewards, rng)
        named = {"lasting": lasting, "fleeting": fleeting, "no_skill": none}
        row = {f"{way}_{world}": each[way][0] for world, each in named.items() for way in each}
        rows.append(row | {f"ratio_{way}": each[2] for way, each in lasting.items()})
    return Outcome({name: float(np.mean([row[name] for row in rows])) for name in rows[0]}, bool(holds))
