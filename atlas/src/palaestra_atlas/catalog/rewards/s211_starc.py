"""[211] STARC (arXiv 2309.15257): a distance of rewards that is as large as the regret, where EPIC is not.

Random decision processes of 4 states and 2 actions. Rewards are mixed with shaping, with redistribution over s' and
with another reward, in 60 steps each; the exact regret of every mix is known. Left out: Reacher, a simulator.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import spearmanr

from palaestra.evaluation.audits import epic, regret, starc
from palaestra_atlas.reproductions import Outcome, reproduction

STATES, ACTIONS, GAMMA, MIXES = 4, 2, 0.9, 60


@reproduction(
    211,
    claim="STARC ignores what no policy can notice (shaping, redistribution over s') and follows regret more closely "
    "than EPIC does.",
    baseline="EPIC on the same rewards",
    criterion="the card's counter-example in every world: regret and STARC below 1e-6, EPIC above .2; and over all "
    "mixes the Spearman correlation with exact regret is higher for STARC",
    seeds=tuple(range(10)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The counter-example world by world, and the correlation over all mixes."""
    mixes, counters = zip(*(world(seed) for seed in seeds))
    by_starc, by_epic, exact = np.concatenate(mixes).T
    ours, theirs = (float(spearmanr(by, exact).statistic) for by in (by_starc, by_epic))
    hidden, seen, lost = np.array(counters).T
    measured = {
        "spearman_starc": ours,
        "spearman_epic": theirs,
        "redistributed_starc": float(hidden.max()),
        "redistributed_epic_least": float(seen.min()),
        "redistributed_regret": float(lost.max()),
    }
    return Outcome(measured, bool(hidden.max() < 1e-6 and lost.max() < 1e-6 and seen.min() > 0.2 and ours > theirs))


def world(seed: int) -> tuple[np.ndarray, tuple[float, ...]]:
    """(STARC, EPIC, regret) of every mix, float64[60, 3], and of a redistribution alone."""
    rng = np.random.default_rng(seed)
    T = rng.dirichlet(np.ones(STATES), (STATES, ACTIONS))
    R, other, Z = rng.normal(size=(3, *T.shape))
    phi = rng.normal(size=STATES)
    Z = Z - (T * Z).sum(2, keepdims=True)
    shaping = GAMMA * phi - phi[:, None, None]
    mixed = [(1 - a) * R + a * other + rng.normal() * Z + rng.normal() * shaping for a in np.linspace(0, 1, MIXES)]
    measures = (starc, epic, regret)
    found = np.array([[distance(R, each, T, GAMMA) for distance in measures] for each in mixed])
    return found, tuple(distance(R, R + 2 * Z, T, GAMMA) for distance in measures)
