"""Counterfactual regret minimisation: numbers of OpenSpiel at equal iterations, and of the paper's cards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.evaluation.games import CFR, Game, game_tree, openspiel_tree, read_solver, zero_sum
from palaestra.evaluation.games.cfr import rule
from palaestra.evaluation.games.linear import nash_policy

pyspiel = pytest.importorskip("pyspiel")


def after(game: str, name: str, iterations: int, **options: Any) -> CFR:
    run = CFR(openspiel_tree(game), rule(name, **options))
    for _ in run.run(iterations):
        pass
    return run


def theirs(game: str, name: str) -> Any:
    from open_spiel.python.algorithms import cfr, discounted_cfr

    makers = {"plain": cfr.CFRSolver, "plus": cfr.CFRPlusSolver, "discounted": discounted_cfr.DCFRSolver}
    return makers[name](pyspiel.load_game(game))


@pytest.mark.parametrize("name", ["plain", "plus", "discounted"])
@pytest.mark.parametrize(
    ("game", "looks"),
    [
        ("kuhn_poker", (1, 2, 100)),
        ("kuhn_poker(players=3)", (1, 30)),
        ("leduc_poker", (1, 2)),
    ],
)
def test_exploitability_is_openspiels_at_equal_iterations(game: str, looks: tuple[int, ...], name: str) -> None:
    from open_spiel.python.algorithms import exploitability

    run, solver, loaded = CFR(openspiel_tree(game), rule(name)), theirs(game, name), pyspiel.load_game(game)
    for t in range(1, looks[-1] + 1):
        run.step()
        solver.evaluate_and_update_policy()
        if t in looks:
            expected = exploitability.nash_conv(loaded, solver.average_policy()) / loaded.num_players()
            assert run.tree.exploitability(run.average()) == pytest.approx(expected, abs=1e-6)


def test_policies_are_openspiels_in_every_information_set() -> None:
    run, solver = after("leduc_poker", "plus", 2), theirs("leduc_poker", "plus")
    solver.evaluate_and_update_policy()
    solver.evaluate_and_update_policy()
    average, ours = solver.average_policy(), run.average()
    for i, key in enumerate(run.tree.keys):
        expected = [p for p in average.policy_for_key(key) if p > 0]
        np.testing.assert_allclose(sorted(p for p in ours[:, i] if p > 0), sorted(expected), atol=1e-9)


@pytest.mark.parametrize(
    ("game", "name", "expected", "tolerance"),
    [
        ("kuhn_poker", "plain", 9.4e-4, 0.01),
        ("kuhn_poker", "plus", 8.7e-5, 0.01),
        ("kuhn_poker", "discounted", 1.5e-4, 0.04),
        ("kuhn_poker", "vad", 0.0, 0.0),
        ("kuhn_poker(players=3)", "vad", 0.0, 0.0),
    ],
)
def test_exploitability_after_a_thousand_iterations(game: str, name: str, expected: float, tolerance: float) -> None:
    run = after(game, name, 1000)
    assert run.tree.exploitability(run.average()) == pytest.approx(expected, rel=tolerance, abs=1e-15)


def test_the_exact_solution_has_no_gap_and_the_known_value() -> None:
    for game, value in (("kuhn_poker", -1 / 18), ("leduc_poker", -0.0856064)):
        tree = openspiel_tree(game)
        policy = nash_policy(tree)
        assert tree.exploitability(policy) < 1e-9
        assert tree.value(policy)[0] == pytest.approx(value, abs=1e-6)


def test_nothing_is_averaged_before_vads_start() -> None:
    run = after("kuhn_poker", "vad", 500)
    np.testing.assert_array_equal(run.average(), run.tree.uniform())
    run.step()
    assert run.tree.exploitability(run.average()) < 0.01


def test_a_solver_that_averages_nothing_is_refused() -> None:
    """The uniform policy was the answer."""
    for text in ("cfr(vad, iterations=500)", "cfr(vad, iterations=3, start=3)"):
        with pytest.raises(InputError, match=r"vad averages from iteration start=\d+ on; \d+ give no policy"):
            read_solver(text)
    read_solver("cfr(vad, iterations=4, start=3)")


def test_vads_regrets_are_those_of_a_loop_over_one_information_set() -> None:
    """Matching pennies with uneven pay: each player has one set, so the listing can be followed by hand."""
    matrix = np.array([[120.0, -12.0], [-4.0, 20.0]])
    run = CFR(game_tree(zero_sum(matrix)), rule("vad", start=3))
    regrets, policies, e = np.zeros((2, 2)), np.full((2, 2), 0.5), np.zeros(2)
    cumulated, floored = np.zeros((2, 2)), False
    for t in range(10):
        run.step()
        for i, payoff in enumerate((matrix, -matrix.T)):
            u = payoff @ policies[1 - i]
            r = u - policies[i] @ u
            m = np.abs(r).max()
            e[i] = m if t == 0 else 0.1 * m + 0.9 * e[i]
            v = min(1.0, e[i] / 2)
            alpha = max(0.1, 1.5 - 0.5 * v)
            beta = min(alpha, -0.1 - 0.5 * v)
            boosted = [1.1 * x if x > 0 else x for x in r]

            def discount(x: float, t: int = t, alpha: float = alpha, beta: float = beta) -> float:
                grown = (t + 1) ** (alpha if x >= 0 else beta)
                return float(x * grown / (grown + 1))

            if t >= 3:
                weight = (t + 1) ** min(4, 2 + 1.5 * min(1, m / 2)) / (1 + m**1.5) * max(0.1, (1 + m / 2) ** 0.5)
                cumulated[i] += weight * policies[i]
            regrets[i] = [max(-20, discount(x) + y) for x, y in zip(regrets[i], boosted, strict=True)]
            floored |= bool((regrets[i] == -20).any())
            o = 1 / (1 + t / 100) * (1 - 0.5 * v)
            q = [max(0.0, discount(x) + o * y) ** 1.5 for x, y in zip(regrets[i], boosted, strict=True)]
            policies[i] = np.array(q) / sum(q) if sum(q) > 0 else 0.5
    np.testing.assert_allclose(run.regrets.T, regrets, rtol=1e-12)
    np.testing.assert_allclose(run.current.T, policies, rtol=1e-12)
    np.testing.assert_allclose(run.cumulated.T, cumulated, rtol=1e-12)
    assert floored, "the floor takes part"


def test_on_a_matrix_regret_matching_finds_the_equilibrium() -> None:
    run = CFR(game_tree(zero_sum(np.array([[0.0, -1, 2], [1, 0, -1], [-2, 1, 0]]))), rule("plus"))
    for _ in run.run(2000):
        pass
    np.testing.assert_allclose(run.average()[:, 0], [0.25, 0.5, 0.25], atol=0.02)


def test_a_player_without_a_choice_is_left_alone() -> None:
    run = CFR(game_tree(Game((np.array([[1.0, 2.0]]), np.array([[0.0, 1.0]])))), rule("plain"))
    run.step()
    run.step()
    assert run.current[:, 1].tolist() == [0.0, 1.0]


def test_a_variant_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match=r"no variant 'vat'.*'vad'"):
        rule("vat")
