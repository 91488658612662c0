"""[180] ReSeek (arXiv 2510.00568): what judging a search result earns decides from which odds on it is accepted.

Results come with a cue; a cue's results are useful with a known chance p. A judge that learns from the reward accepts
from p = 0.6 on with the published penalties, from 0.5 on with equal ones. Left out: rerankers, answers, FictionalHot.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.rewards.match.evidence import reseek_reward

USEFUL = np.array([0.3, 0.4, 0.5, 0.55, 0.65, 0.7, 0.8])
BATCH, UPDATES, RATE = 32, 4000, 0.5
PUBLISHED = reseek_reward("judge", "relevance")
EQUAL = reseek_reward("judge", "relevance", accepted=-0.3)


def payoff(reward: Signal) -> np.ndarray:
    """float64[judgement, useful]: what no (0) and yes (1) earn where the text is useless (0) and useful (1)."""
    cases = {"judge": [0, 0, 1, 1], "relevance": [0.1, 0.9, 0.1, 0.9], "episode": range(4), "turn": [0] * 4}
    return np.asarray(reward.evaluate(Turns(cases))).reshape(2, 2)


def expected(reward: Signal, useful: np.ndarray) -> np.ndarray:
    """float64[judgement, cue]: expected reward, exactly."""
    table = payoff(reward)
    return np.asarray(table[:, :1] * (1 - useful) + table[:, 1:] * useful)


def smallest_accepted(reward: Signal, seeds: Sequence[int]) -> np.ndarray:
    """The smallest p that the trained judge accepts, for each seed."""
    table, streams, runs = payoff(reward), [np.random.default_rng(seed) for seed in seeds], len(seeds)
    theta = np.zeros((runs, len(USEFUL), 2))
    run = np.repeat(np.arange(runs), BATCH)
    for _ in range(UPDATES):
        policy = softmax(theta)
        luck = uniform(streams, BATCH, 3).reshape(-1, 3)
        cue = (luck[:, 0] * len(USEFUL)).astype(int)
        judged = sample(policy[run, cue], luck[:, 1])
        earned = table[judged, (luck[:, 2] < USEFUL[cue]).astype(int)]
        theta += RATE * policy_gradient(policy, run, cue, judged, earned - earned.mean()) / BATCH
    accepts = softmax(theta)[..., 1] > 0.5
    return np.asarray(np.where(accepts, USEFUL, np.inf).min(axis=1))


@reproduction(
    180,
    claim="With penalties 0.6 for accepting what is useless and 0.3 for rejecting what is useful, the judge that is "
    "learned accepts from a chance of 0.6 on.",
    baseline="equal penalties of 0.3",
    criterion="exact break-even at 0.6 and 0.5; the smallest accepted chance lies in (0.55, 0.65] in every seed, and "
    "at most at 0.55 with equal penalties",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Break-even points, and what is learned."""
    measured = {}
    for name, reward, point in (("published", PUBLISHED, 0.6), ("equal", EQUAL, 0.5)):
        reject, accept = expected(reward, np.array([point]))
        measured[f"break_even_error_{name}"] = abs(float(accept[0] - reject[0]))
        smallest = smallest_accepted(reward, seeds)
        measured |= {f"smallest_{name}_min": float(smallest.min()), f"smallest_{name}_max": float(smallest.max())}
    exact = max(measured["break_even_error_published"], measured["break_even_error_equal"]) < 1e-12
    learned = measured["smallest_published_min"] > 0.55 and measured["smallest_published_max"] <= 0.65
    return Outcome(measured, exact and learned and measured["smallest_equal_max"] <= 0.55)
