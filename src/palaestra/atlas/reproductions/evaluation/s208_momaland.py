"""[208] MOMAland (arXiv 2407.16312): on the beach, what everybody is paid decides whether one section is given up.

The best spread crowds one section so that all others are at their best. Independent learners, one table each, paid for
their own section spread evenly; paid by the whole beach they find better; paid by the difference that they make to the
beach (the reward without them subtracted) best. Capacity only. Beside it, MOMAland's own reward against the formula.
Left out: the mixture of types, and learning with moves instead of a choice of section.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.atlas.harness import Outcome, reproduction
from palaestra.envs.worlds.exact.objectives import beach_capacity, beach_optimum
from palaestra.evaluation.dominance import eum, hypervolume, simplex_weights

PEOPLE, SECTIONS, PSI = 50, 5, 4.0
ROUNDS, RATE, TAIL = 3000, 0.1, 300
FRONT = ((1.0, 5.0), (3.0, 3.0), (5.0, 1.0), (2.0, 2.0))
KINDS = ("local", "global", "difference")


def learn(kind: str, seeds: Sequence[int]) -> np.ndarray:
    """Total capacity reward per seed, mean over the last rounds: ε-greedy tables, ε falling to 0 by nine tenths."""
    rng = np.random.default_rng([KINDS.index(kind), *seeds])
    people = np.arange(PEOPLE)
    value = rng.normal(0, 1e-3, (len(seeds), PEOPLE, SECTIONS))
    runs, total = np.arange(len(seeds))[:, None], np.zeros(len(seeds))
    for step in range(ROUNDS):
        explore = rng.random((len(seeds), PEOPLE)) < 0.1 * max(0.0, 1 - step / (0.9 * ROUNDS))
        section = np.where(explore, rng.integers(SECTIONS, size=explore.shape), value.argmax(axis=-1))
        crowd = (section[..., None] == np.arange(SECTIONS)).sum(axis=1)
        worth = beach_capacity(crowd, PSI)
        here = crowd[runs, section]
        everything = np.broadcast_to(worth.sum(axis=1, keepdims=True), section.shape)
        reward = {
            "local": beach_capacity(here, PSI),
            "global": everything,
            "difference": beach_capacity(here, PSI) - beach_capacity(here - 1, PSI),
        }[kind]
        value[runs, people, section] += RATE * (reward - value[runs, people, section])
        if step >= ROUNDS - TAIL:
            total += worth.sum(axis=1) / TAIL
    return total


@reproduction(
    208,
    claim="Paid by the difference that they make, independent agents crowd one section of the beach for everybody's "
    "good; paid for their own section, they spread evenly.",
    baseline="the uniform spread; reward of one's own section; reward of the whole beach",
    criterion="worked numbers; mean total of local < global < difference, and difference > 0.85 of the optimum",
    seeds=tuple(range(10)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then three kinds of reward."""
    optimum, _ = beach_optimum(PEOPLE, SECTIONS, PSI)
    measured = {"optimum": optimum, "uniform": float(SECTIONS * beach_capacity(np.array(PEOPLE / SECTIONS), PSI))}
    totals = {kind: float(learn(kind, seeds).mean()) for kind in KINDS}
    measured |= {f"total_{kind}": total for kind, total in totals.items()}
    measured["hypervolume"] = hypervolume(np.array(FRONT), np.zeros(2))
    measured["expected_utility"] = eum(np.array(FRONT), simplex_weights(2, 100_001))
    worked = abs(measured["hypervolume"] - 13) < 1e-9 and abs(measured["expected_utility"] - 4) < 1e-3
    worked &= abs(beach_optimum(100, 6, 7)[0] - 12.88) < 5e-3
    ordered = totals["local"] < totals["global"] < totals["difference"]
    return Outcome(measured, bool(worked and ordered and totals["difference"] > 0.85 * optimum))
