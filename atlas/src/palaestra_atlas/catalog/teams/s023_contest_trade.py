"""[23] ContestTrade (arXiv 2508.00554): a contest earns what agents' skill lasts, and nothing where there is no skill.

Eight agents whose hidden skill is an AR(1) process earn it with noise; money goes by the score of the last five days.
Beside equal weights, the last winner, and the same contest where skill does not last, and where there is none. Left
out: markets and language models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.evaluation.teamwork import allocate, recent_scores
from palaestra_atlas.reproductions import Outcome, reproduction

AGENTS, DAYS, WORLDS, NOISE, SKILL, YEAR = 8, 250, 40, 0.015, 0.005, 252


def earned(persistence: float, skill: float, rng: np.random.Generator) -> np.ndarray:
    """Rewards, float64[worlds, days, agents]: skill of a stationary AR(1) process, and noise."""
    state = skill * rng.normal(size=(WORLDS, AGENTS))
    rewards = np.empty((WORLDS, DAYS, AGENTS))
    for day in range(DAYS):
        state = persistence * state + np.sqrt(1 - persistence**2) * skill * rng.normal(size=(WORLDS, AGENTS))
        rewards[:, day] = state + NOISE * rng.normal(size=(WORLDS, AGENTS))
    return rewards


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
    day, weights = DAYS // 2, allocate(recent_scores(rewards))
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
