"""[121] Phase transition (arXiv 2601.17311): whether a tree of majorities keeps a weak signal is one number.

The closed form beside a simulated tree of votes, with messages that flip and voters that copy one shared draw; and a
budget that is split over the leaves. The recursion was derived again. Left out: the paper's limit on context.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.evaluation.teamwork import best_tree, synergy, tree_signal
from palaestra_atlas.reproductions import Outcome, reproduction

CASES = ((3, 0.0), (3, 0.5), (3, 0.95), (5, 0.5))
FIDELITY, LEAF, DEPTH, TREES = 0.9, 0.1, 4, 40_000


def simulated(branch: int, correlation: float, rng: np.random.Generator) -> float:
    """The signal at the root of trees of votes; with probability ρ a node's children share one draw."""
    level = rng.random((TREES // branch, branch**DEPTH)) < (1 + LEAF) / 2
    for depth in range(DEPTH):
        width = branch ** (DEPTH - depth - 1)
        children = level.reshape(len(level), width, branch)
        shared = rng.random((len(level), width)) < correlation
        voted = np.where(shared, children[:, :, 0], children.sum(2) > branch / 2)
        level = voted ^ (rng.random(voted.shape) < (1 - FIDELITY) / 2)
    return float(2 * level.mean() - 1)


@reproduction(
    121,
    claim="At alpha <= 1 the signal dies with depth, above it survives; a team helps where log_b alpha is above the "
    "exponent of a single agent's compute.",
    baseline="one agent with the whole budget",
    criterion="simulated trees within 0.05 of the recursion; weak signals fall where alpha < 1 and rise where it is "
    "above; of four budgets the tree wins exactly the two whose exponent is below log_b alpha (exact)",
    seeds=(0, 1),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Closed form, simulation, budgets."""
    measured: dict[str, float] = {}
    off = 0.0
    for branch, correlation in CASES:
        found = np.mean([simulated(branch, correlation, np.random.default_rng([seed, branch])) for seed in seeds])
        form = tree_signal(LEAF, branch=branch, depth=DEPTH, fidelity=FIDELITY, correlation=correlation)
        measured |= {f"simulated_{branch}_{correlation}": float(found), f"form_{branch}_{correlation}": form}
        off = max(off, abs(float(found) - form))
    falls = all(
        (measured[f"simulated_{branch}_{rho}"] > LEAF) == (synergy(branch, FIDELITY, rho).alpha > 1)
        for branch, rho in CASES
    )
    wins = [
        best_tree(729, branch=3, scale=0.02, exponent=beta, fidelity=0.95, correlation=rho)[0] > 0
        for beta, rho in ((0.3, 0.0), (0.5, 0.0), (0.1, 0.5), (0.2, 0.5))
    ]
    measured["largest_difference"] = off
    return Outcome(measured, off <= 0.05 and falls and wins == [True, False, True, False])
