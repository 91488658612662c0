"""[127] VAD-CFR and SHOR-PSRO (arXiv 2602.16928): what a search over programs found, as functions.

Left out: the search itself, and larger games.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.evaluation.games import CFR, Game, game_tree, openspiel_tree, psro, read_solver, solve, zero_sum
from palaestra.evaluation.games.cfr import rule
from palaestra.evaluation.games.dynamics import shor
from palaestra_atlas.reproductions import Outcome, exact, reproduction

MATRIX = np.array([[120.0, -12.0], [-4.0, 20.0]])
CYCLE = np.array([[0.0, -1, 2], [1, 0, -1], [-2, 1, 0]])
SKEWED = np.array([[0.3, -1.1, 2.0], [0.8, 0.1, -0.7], [-1.5, 1.2, 0.4]])


@exact
def kuhn_after_a_thousand() -> None:
    """VAD-CFR is at the equilibrium of Kuhn poker after 1,000 iterations, plain CFR is not (`solve` says so)."""
    tree = openspiel_tree("kuhn_poker")
    assert solve(tree, "cfr(vad)").gap < 1e-12
    assert abs(solve(tree, "cfr(plain)").gap - 9.376e-4) < 1e-6


@exact
def nothing_averaged_before_the_start() -> None:
    """Until iteration 500 the average is uniform; right after it, it is not."""
    run = CFR(openspiel_tree("kuhn_poker"), rule("vad"))
    for _ in run.run(500):
        pass
    np.testing.assert_array_equal(run.average(), run.tree.uniform())
    run.step()
    assert run.tree.exploitability(run.average()) < 0.01


@exact
def ten_iterations_by_hand() -> None:
    """Regrets, policies and averages of 2x2 matrices after ten iterations of the listing, written out as a loop.

    With the large payoffs volatility is at its limit and regrets reach the floor, with the small ones it moves below 1.
    """
    for matrix in (MATRIX, MATRIX / 100):
        by_hand(matrix)


def by_hand(matrix: np.ndarray) -> None:
    """Compare ten iterations on a matrix with the listing."""
    run = CFR(game_tree(zero_sum(matrix)), rule("vad", start=3))
    regrets, policies, cumulated, size = np.zeros((2, 2)), np.full((2, 2), 0.5), np.zeros((2, 2)), np.zeros(2)
    for t in range(10):
        run.step()
        for i, payoff in enumerate((matrix, -matrix.T)):
            u = payoff @ policies[1 - i]
            r = u - policies[i] @ u
            m = np.abs(r).max()
            size[i] = m if t == 0 else 0.1 * m + 0.9 * size[i]
            v = min(1.0, size[i] / 2)
            alpha = max(0.1, 1.5 - 0.5 * v)
            grown = (t + 1.0) ** np.where(regrets[i] >= 0, alpha, min(alpha, -0.1 - 0.5 * v))
            boosted = np.where(r > 0, 1.1 * r, r)
            if t >= 3:
                weight = (t + 1) ** min(4, 2 + 1.5 * min(1, m / 2)) / (1 + m**1.5) * max(0.1, (1 + m / 2) ** 0.5)
                cumulated[i] += weight * policies[i]
            regrets[i] = np.maximum(-20, regrets[i] * grown / (grown + 1) + boosted)
            grown = (t + 1.0) ** np.where(regrets[i] >= 0, alpha, min(alpha, -0.1 - 0.5 * v))
            share = (1 - 0.5 * v) / (1 + t / 100)
            q = np.maximum(0, regrets[i] * grown / (grown + 1) + share * boosted) ** 1.5
            policies[i] = q / q.sum() if q.sum() > 0 else 0.5
    np.testing.assert_allclose(run.regrets.T, regrets, rtol=1e-9)
    np.testing.assert_allclose(run.current.T, policies, rtol=1e-9)
    np.testing.assert_allclose(run.cumulated.T, cumulated, rtol=1e-9)


@exact
def two_slots_on_kuhn() -> None:
    """PSRO after 8 iterations: SHOR in both slots .0096, with a linear program in the evaluation's slot 0."""
    tree = openspiel_tree("kuhn_poker")
    train = read_solver("shor(training)")
    both = psro(tree, train=train, evaluate=read_solver("shor(evaluation, 1500)"), iterations=8)
    assert abs(both[8].gap - 0.0096) < 2e-4
    assert psro(tree, train=train, iterations=8)[-1].gap < 1e-9
    assert solve(tree, 'psro("nash", "nash", iterations=8)').gap < 1e-9


@exact
def five_steps_of_shor() -> None:
    """Last mixtures and average of a 3x3 matrix after five steps in training's setting, written out as a loop."""
    blend, temperature, momentum, diversity = 0.3, 0.5, 0.5, 0.05
    mixtures, regrets, before = (np.full((2, 3), value) for value in (1 / 3, 0.0, 0.0))
    total = np.zeros((2, 3))
    for _ in range(5):
        for i, payoff in enumerate((SKEWED, -SKEWED.T)):
            u = payoff @ mixtures[1 - i]
            c = u - u.mean()
            g = (1 + momentum) * c - momentum * before[i] + diversity * (1 - mixtures[i])
            before[i], regrets[i] = c, np.maximum(0, regrets[i] + g / np.abs(g).max())
            soft = np.exp(u / temperature)
            mixtures[i] = (1 - blend) * regrets[i] / regrets[i].sum() + blend * soft / soft.sum()
            total[i] += mixtures[i]
    options: dict[str, Any] = {"blend": blend, "temperature": temperature, "momentum": momentum, "diversity": diversity}
    np.testing.assert_allclose(shor(zero_sum(SKEWED), 5, **options), mixtures)
    np.testing.assert_allclose(shor(zero_sum(SKEWED), 5, **options, average=True), total / 5)
    done = 2 / 75  # of the schedules, with three strategies
    start: dict[str, Any] = {
        "blend": 0.3 - 0.25 * done,
        "temperature": 0.5 - 0.49 * done,
        "diversity": 0.05 - 0.049 * done,
    }
    for role, wanted in (
        ("training", shor(zero_sum(SKEWED), 5, **start, momentum=0.5, average=True)),
        ("evaluation", shor(zero_sum(SKEWED), 5, blend=0.01, temperature=0.001, momentum=0.2, diversity=0.0)),
    ):
        np.testing.assert_allclose(read_solver(f"shor({role}, 5)")(zero_sum(SKEWED)), wanted)


@exact
def no_equilibrium_solver() -> None:
    """The caution: centred on the mean payoff, the last iterate keeps an exploitability of .739."""
    game: Game = zero_sum(CYCLE)
    assert abs(solve(game, "shor(steps=3000)").gap - 0.739) < 1e-3
    assert solve(game, "shor(steps=3000, centre=value)").gap < 0.02


@reproduction(
    127,
    claim="VAD-CFR reaches the equilibrium of Kuhn poker in fewer iterations than CFR, CFR+ and DCFR.",
    baseline="CFR, CFR+ and DCFR at the same number of iterations",
    criterion="after 1,000 iterations with two and three players the exploitability is below a tenth of the best other",
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Exploitability of all four on Kuhn poker; nothing is random."""
    measured: dict[str, float] = {}
    holds = True
    for players in (2, 3):
        tree = openspiel_tree(f"kuhn_poker(players={players})")
        gaps = {name: abs(solve(tree, f"cfr({name})").gap) for name in ("plain", "plus", "discounted", "vad")}
        measured |= {f"{name}_{players}": gap for name, gap in gaps.items()}
        holds &= gaps["vad"] < min(gaps[name] for name in ("plain", "plus", "discounted")) / 10
    return Outcome(measured, holds)
