"""[129] BOAD (arXiv 2512.23631): a bandit finds the sub-agents that help, if each is credited in hindsight.

The recipe `staff`: twenty sub-agents, four of which help with .55 of tasks and the others with .1; teams of three play
twelve tasks a round, a judge who errs on a tenth says who helped. Beside it the same bandit credited with the team's
success. And how an archive grows if new sub-agents come with θ / (θ + known). Left out: who writes sub-agents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import binom

from palaestra.agents.bandits import BanditPolicy, new_arm_probability
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

GOOD, ROUNDS = {2, 7, 11, 16}, (10, 40)
GROWTH = {1: 3.0, 10: 7.6, 20: 10.7, 100: 24.1}
TEAM = {"reward": 'mean("solved", over="episode")', "learn": {"options": {"reward": "reward"}}}


def found(learned: TrainingResult) -> dict[str, float]:
    """Share of sub-agents that help among the two with the highest mean."""
    bandit = learned.team.policies["staff"]
    assert isinstance(bandit, BanditPolicy)
    top = bandit.table().sort("reward", descending=True, nulls_last=True)["arm"][:2]
    return {"found": len(GOOD & set(top)) / 2}


def archive(rounds: int, *, slots: int = 3, theta: float = 1.0) -> float:
    """Expected size of an archive: each slot of a round is new with a probability that is computed once a round."""
    sizes = np.zeros(slots * rounds + 1)
    sizes[0] = 1.0
    for _ in range(rounds):
        after = np.zeros_like(sizes)
        for size in np.flatnonzero(sizes[: len(sizes) - slots]):
            new = new_arm_probability(theta, int(size))
            after[size : size + slots + 1] += sizes[size] * binom.pmf(np.arange(slots + 1), slots, new)
        sizes = after
    return float(sizes @ np.arange(len(sizes)))


@reproduction(
    129,
    claim="Credit by hindsight finds the sub-agents that help in a quarter of the rounds that credit by success needs.",
    baseline="the same bandit, credited with the team's success",
    criterion="after ten rounds at least 0.9 of the best two help, ten rounds of hindsight are not behind forty of "
    "success by more than 0.05, and 0.15 ahead of ten, in the mean over seeds; the archive grows as worked out to "
    "0.1 (settings are the card's)",
    seeds=tuple(range(6)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Two credits, at ten rounds and at forty."""
    arms: dict[str, Any] = {"hindsight_10": {"train": {"iterations": ROUNDS[0]}}}
    arms |= {f"success_{rounds}": TEAM | {"train": {"iterations": rounds}} for rounds in ROUNDS}
    measured = train_arms("staff", arms, seeds, found).measured()
    growth = {rounds: archive(rounds) for rounds in GROWTH}
    measured |= {f"archive_{rounds}": size for rounds, size in growth.items()}
    early, late = measured["found_success_10"], measured["found_success_40"]
    hindsight = measured["found_hindsight_10"]
    exact = all(abs(growth[rounds] - size) <= 0.1 for rounds, size in GROWTH.items())
    return Outcome(measured, hindsight >= 0.9 and hindsight >= late - 0.05 and hindsight >= early + 0.15 and exact)
