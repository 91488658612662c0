"""[121] Phase transition (arXiv 2601.17311): whether a tree of majorities keeps a weak signal is one number.

The closed form beside a simulated tree of votes, with messages that flip and voters that copy one shared draw; and a
budget that is split over the leaves. The recursion was derived again. Left out: trees of averages; how β, ρ and γ are
measured in a run, which are given here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from palaestra.evaluation.teamwork import best_team, best_tree, majority_gain, synergy, tree_signal
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

CASES = ((3, 0.0), (3, 0.5), (3, 0.95), (5, 0.5))
FIDELITY, LEAF, DEPTH, TREES = 0.9, 0.1, 4, 40_000


@exact
def slopes() -> None:
    """f'(0) = 1.5, 1.875, 2.1875, 2.4609; α = 1.35 and s = .2732 of three children with fidelity .9."""
    np.testing.assert_allclose([majority_gain(b) for b in (3, 5, 7, 9)], [1.5, 1.875, 2.1875, 2.4609], atol=5e-5)
    np.testing.assert_allclose(synergy(3, 0.9)[:2], [1.35, 0.2732], atol=5e-5)
    np.testing.assert_allclose(synergy(3, 0.9, 0.5)[:2], [1.125, 0.1072], atol=5e-5)


@exact
def dies_by_correlation() -> None:
    """Errors correlated by .8 bring α to .990, and the signal dies."""
    found = synergy(3, 0.9, 0.8)
    np.testing.assert_allclose([found.alpha, found.fixed_point], [0.990, 0.0], atol=5e-4)
    assert tree_signal(0.1, branch=3, depth=60, fidelity=0.9, correlation=0.8) < 0.1


@exact
def dies_by_fidelity() -> None:
    """Fidelity .66 is not enough, .67 is; the limit there is √(3 - 2/γ)."""
    below, above = synergy(3, 0.66), synergy(3, 0.67)
    np.testing.assert_allclose([below.alpha, above.alpha], [0.990, 1.005], atol=5e-4)
    np.testing.assert_allclose([below.fixed_point, above.fixed_point], [0.0, np.sqrt(3 - 2 / 0.67)], atol=1e-4)


@exact
def winners() -> None:
    """Budget 729, leaf .02 x^β, fidelity .95: the tree wins at β = .3, one agent at .5, with α above 1."""
    given = {"branch": 3, "scale": 0.02, "fidelity": 0.95}
    for beta, rho, wins, signal in ((0.3, 0.0, True, 0.166), (0.5, 0.0, False, 0.54), (0.1, 0.5, True, 0.056),
                                    (0.2, 0.5, False, 0.0747)):  # fmt: skip
        depth, found = best_tree(729, exponent=beta, correlation=rho, **given)  # type: ignore[arg-type]
        assert (depth > 0) == wins, (beta, rho, depth)
        np.testing.assert_allclose(found, signal, rtol=0.02)
    advice = best_team(729, scale=0.02, exponent=0.5, fidelity=0.95, branches=(3,))
    assert (advice.depth, synergy(3, 0.95).alpha > 1) == (0, True)


@exact
def saturates() -> None:
    """Endless trees come to .8819 and .7454, so that more leaves than that takes are of no use."""
    for rho, limit in ((0.0, 0.8819), (0.5, 0.7454)):
        np.testing.assert_allclose(synergy(3, 0.9, rho).fixed_point, limit, atol=5e-5)
        np.testing.assert_allclose(
            tree_signal(0.1, branch=3, depth=80, fidelity=0.9, correlation=rho), limit, atol=5e-4
        )
    signals = [tree_signal(0.1, branch=3, depth=depth, fidelity=0.9) for depth in (16, 20)]
    assert signals[1] - signals[0] < 0.002, signals


@exact
def window_limits() -> None:
    """A node that reads 40 tokens hears no more than ⌊40 / 12⌋ = 3 messages of 12; with room it would hear nine."""
    given = {"scale": 0.05, "exponent": 0.1, "fidelity": 0.95}
    assert best_team(729, **given).branch > 3  # type: ignore[arg-type]
    for window in (40, 59):  # three messages, or four and almost five, of which an odd number is heard
        assert best_team(729, window=window, message=12, **given).branch == 3  # type: ignore[arg-type]
    assert best_team(729, window=20, message=12, **given).depth == 0  # type: ignore[arg-type]


def advised() -> Measure:
    """Signal at the root of a simulated team that is made as advised, budget 729, leaf .02 x^.5, fidelity .95.

    Whoever is told of α alone splits the budget down to single leaves where it is above 1.
    """

    def measured(left: Left) -> list[float]:
        (row,) = json.loads(left.stdout)
        depth = row["depth"] if "depth" in row else 6 if row["survives"] else 0
        leaf = min(1.0, 0.02 * (729 / row["branch"] ** depth) ** 0.5)
        rng = np.random.default_rng(0)
        return [simulated(row["branch"], 0.0, rng, depth=depth, leaf=leaf, fidelity=0.95)]

    return measured


def simulated(
    branch: int,
    correlation: float,
    rng: np.random.Generator,
    *,
    depth: int = DEPTH,
    leaf: float = LEAF,
    fidelity: float = FIDELITY,
) -> float:
    """The signal at the root of trees of votes; with probability ρ a node's children share one draw."""
    level = rng.random((max(TREES // branch ** max(depth - 3, 1), 1000), branch**depth)) < (1 + leaf) / 2
    for below in range(depth):
        width = branch ** (depth - below - 1)
        children = level.reshape(len(level), width, branch)
        shared = rng.random((len(level), width)) < correlation
        voted = np.where(shared, children[:, :, 0], children.sum(2) > branch / 2)
        level = voted ^ (rng.random(voted.shape) < (1 - fidelity) / 2)
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
