"""[2] Risk-averse equilibrium (arXiv 2205.15434): less variance caused by the others, for less expected payoff.

The rule is reconstructed from the abstract. Left out: the driving simulator, and learned oracles.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.evaluation.games import Game, empirical_game, risk_averse_response, solve
from palaestra.evaluation.games.risk import moments, risk_averse_equilibrium, tremble_mixture
from palaestra_atlas.reproductions import Outcome, exact, reproduction

if TYPE_CHECKING:
    from palaestra_atlas.verification.measures import Left

STAG = np.array([[5.0, -10.0], [3.0, 2.0]])
CRASH = np.array([[0.12, 0.03], [0.0, 0.0]])
"""Chance of a crash of who overtakes (first row) or waits, beside one who does."""


def played(seed: int, episodes: int = 200) -> Turns:
    """Episodes of all pairs of drivers: overtaking pays 6 and a crash costs 20, waiting pays about 2.5."""
    rng = np.random.default_rng(seed)
    rows: dict[str, list[object]] = {name: [] for name in ("group", "episode", "turn", "agent", "policy", "reward")}
    for group in range(4 * episodes):
        a, b = group % 2, group // 2 % 2
        for agent, own, other in (("a", a, b), ("b", b, a)):
            paid = 2.5 + 0.3 * rng.normal() if own else 6.0 - 20.0 * (rng.random() < CRASH[own, other])
            values = (group, 0, 0, agent, ("overtake", "wait")[own], float(paid))
            for name, value in zip(rows, values, strict=True):
                rows[name].append(value)
    return Turns(rows)


def written(seed: int, folder: Path) -> None:
    """The table that the command reads."""
    played(seed).save(folder / "crashes.parquet")


def crash_rate() -> Callable[[Left], list[float]]:
    """Measure: chance that the first driver crashes, both play the printed mixtures, and `CRASH` is the law."""

    def measured(left: Left) -> list[float]:
        shares = [row["probability"] for row in json.loads(left.stdout)["profile"]]
        return [float(np.array(shares[:2]) @ CRASH @ shares[2:])]

    return measured


@exact
def one_shot_responses() -> None:
    """Stag hunt against (.95, .05): the risky share is 1 up to lam .05, then .6267 and .2777."""
    mean, cov = moments(Game((STAG, STAG.T)), 0, [np.array([0.95, 0.05])])
    np.testing.assert_allclose(mean, [4.25, 2.95])
    np.testing.assert_allclose(cov, [[10.6875, 0.7125], [0.7125, 0.0475]])
    found = [risk_averse_response(mean, cov, lam)[0] for lam in (0.05, 0.1, 0.2)]
    np.testing.assert_allclose(found, [1.0, 0.6267, 0.2777], atol=1e-4)


@exact
def fictitious_play_moves_to_safety() -> None:
    """From (.99, .01) it stays on the risky action at lam .05 and goes to the safe one at .07 and .1."""
    start = (np.array([0.99, 0.01]),) * 2
    for lam, risky in ((0.05, 1.0), (0.07, 0.0), (0.1, 0.0)):
        x, _ = risk_averse_equilibrium(Game((STAG, STAG.T)), lam, 0.05, 600, start)
        assert abs(x[0] - risky) < 0.02


@exact
def a_pure_opponent_shows_no_variance() -> None:
    """Against a pure opponent the covariance is 0 unless its mixture is smoothed; smoothed, lam .1 leaves the risk."""
    game = Game((STAG, STAG.T))
    assert not moments(game, 0, [np.array([1.0, 0.0])])[1].any()
    smooth = tremble_mixture(np.array([1.0, 0.0]), 0.05)
    np.testing.assert_allclose(smooth, [0.95, 0.05])
    start = (np.array([1.0, 0.0]),) * 2
    assert risk_averse_equilibrium(game, 0.1, 0.05, 600, start)[0][0] < 0.02
    one = risk_averse_equilibrium(game, 0.1, 0.05, 1, start)  # half way from 1 to the response .6267 to (.95, .05)
    np.testing.assert_allclose([x[0] for x in one], 0.81336, atol=1e-4)


@exact
def covariance_between_own_actions() -> None:
    """With the diagonal alone the responses at lam .1 and .2 would be .6099 and .3072."""
    mean, cov = moments(Game((STAG, STAG.T)), 0, [np.array([0.95, 0.05])])
    found = [risk_averse_response(mean, cov, lam)[0] for lam in (0.1, 0.2)]
    np.testing.assert_allclose(found, [0.6267, 0.2777], atol=1e-4)


@exact
def spread_within_a_cell_counts() -> None:
    """The second player's three strategies against (.25, .75): the cells' own variances are on the diagonal."""
    paid, own = np.array([[0.0, 4.0, 2.0], [4.0, 0.0, 2.0]]), np.array([[4.0, 0.0, 8.0], [0.0, 4.0, 4.0]])
    game = Game((0 * paid, paid), variance=(0 * own, own))
    mean, cov = moments(game, 1, [np.array([0.25, 0.75])])
    np.testing.assert_allclose(mean, [3.0, 1.0, 2.0])
    np.testing.assert_allclose(cov, [[3.0 + 1.0, -3.0, 0.0], [-3.0, 3.0 + 3.0, 0.0], [0.0, 0.0, 5.0]])


@exact
def population_form() -> None:
    """Populations grown with a risk-averse oracle and solver have less risk: the spread of returns counts."""
    game = empirical_game(played(0))
    averse = solve(
        game, 'psro("risk_averse(.1, .05, 200)", "risk_averse(.1, .05, 200)", iterations=3, risk=.1)', draws=0
    )
    plain = solve(game, 'psro("risk_averse(0., .05, 200)", "risk_averse(0., .05, 200)", iterations=3)', draws=0)
    assert averse.risk is not None
    assert plain.risk is not None
    assert averse.risk[0] < plain.risk[0] - 10
    assert averse.mixtures()[0][1] > 0.5
    assert plain.mixtures()[0][1] < 0.1


@reproduction(
    2,
    claim="Populations that pay for variance end with a strategy of less risk.",
    baseline="the same populations with a weight of 0",
    criterion="the variance of the first driver's return is at most half of the baseline's, for each seed",
    seeds=(0, 1),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Risk of both, on tables of play that are drawn."""
    rows = []
    for seed in seeds:
        game = empirical_game(played(seed))
        averse = solve(game, 'psro("risk_averse(.1, .05, 200)", "risk_averse(.1, .05, 200)", 3, .1)', draws=0)
        plain = solve(game, 'psro("risk_averse(0., .05, 200)", "risk_averse(0., .05, 200)", 3)', draws=0)
        assert averse.risk is not None
        assert plain.risk is not None
        crashes = [float(own @ CRASH @ other) for own, other in (averse.mixtures(), plain.mixtures())]
        waiting = game.payoffs[0][1, 1]
        rows.append((averse.risk[0], plain.risk[0], averse.value[0], plain.value[0], *crashes, waiting))
    names = (
        "risk_averse", "risk_plain", "value_averse", "value_plain", "crash_averse", "crash_plain", "value_waiting",
    )  # fmt: skip
    averse_risk, plain_risk, *_ = np.array(rows).T
    measured = dict(zip(names, np.mean(rows, axis=0).tolist(), strict=True))
    return Outcome(measured, bool((averse_risk <= plain_risk / 2).all()))
