from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from palaestra.errors import InputError
from palaestra.evaluation.ranking.alpha_rank import alpha_rank, marginals
from palaestra.evaluation.ranking.nash_averaging import nash_averaging, scale_tasks
from palaestra.evaluation.ranking.stationary import stationary_distribution

theirs = pytest.importorskip("open_spiel.python.egt.alpharank")
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("alpha", [0.3, 2.0, 15.0])
@pytest.mark.parametrize("population", [5, 50])
def test_one_population_is_openspiels(alpha: float, population: int) -> None:
    payoffs = RNG.random((6, 6))
    payoffs[2] = payoffs[1]
    payoffs[:, 2] = payoffs[:, 1]
    for selection, local in (("local", True), ("population", False))[: 1 if alpha > 10 else 2]:
        expected = theirs.compute([payoffs], m=population, alpha=alpha, use_local_selection_model=local)[2]
        found = alpha_rank(payoffs, alpha=alpha, population=population, selection=selection)  # type: ignore[arg-type]
        assert np.abs(found - expected).max() < 1e-9


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 2), (2, 2, 2, 3)])
def test_several_populations_are_openspiels(shape: tuple[int, ...]) -> None:
    tables = [RNG.random(shape).round(1) for _ in shape]
    expected = theirs.compute(tables, m=20, alpha=3.0)[2]
    assert np.abs(alpha_rank(tables, alpha=3.0, population=20).ravel() - expected).max() < 1e-9
    expected = theirs.compute(tables, use_inf_alpha=True, inf_alpha_eps=0.01)[2]
    found = alpha_rank(tables)
    assert np.abs(found.ravel() - expected).max() < 1e-9
    assert [m.shape for m in marginals(found)] == [(s,) for s in shape]


def test_infinite_alpha_worked_and_batched() -> None:
    order = np.array([[0.5, 0.6, 0.7], [0.4, 0.5, 0.65], [0.3, 0.35, 0.5]])
    cycle = np.array([[0.5, 0.9, 0.2], [0.1, 0.5, 0.8], [0.8, 0.2, 0.5]])
    found = alpha_rank(np.stack([order, cycle]))
    assert found[0].round(4).tolist() == [0.9802, 0.0148, 0.005]
    assert found[1] == pytest.approx([1 / 3] * 3)
    assert np.abs(found[0] - theirs.compute([order], use_inf_alpha=True, inf_alpha_eps=0.01)[2]).max() < 1e-9


def test_a_small_difference_is_not_a_tie() -> None:
    close = np.array([[0.5, 0.5 + 1e-7], [0.5, 0.5]])
    assert alpha_rank(close) == pytest.approx([0.99, 0.01])
    assert theirs.compute([close], use_inf_alpha=True, inf_alpha_eps=0.01)[2] == pytest.approx([0.5, 0.5])


def test_steep_selection_where_openspiel_gives_up() -> None:
    """Two strict equilibria: rates between them underflow, eigenvectors find two stationary distributions."""
    game = [np.array([[1.0, 0.0], [0.0, 0.9]])] * 2
    with pytest.raises(ValueError, match="Expected 1 stationary"):
        theirs.compute(game, m=50, alpha=5.0)
    assert alpha_rank(game, alpha=5.0)[0, 0] == pytest.approx(1.0)
    mild = alpha_rank(game, alpha=0.2)
    assert np.abs(mild.ravel() - theirs.compute(game, m=50, alpha=0.2)[2]).max() < 1e-9


@settings(max_examples=40)
@given(arrays(float, (5, 5), elements=st.floats(0.01, 1.0)))
def test_stationary_distribution_is_stationary(rates: np.ndarray) -> None:
    np.fill_diagonal(rates, 0.0)
    found = stationary_distribution(np.log(np.where(rates > 0, rates, 1.0)))
    assert found.sum() == pytest.approx(1.0)
    assert found @ rates == pytest.approx(found * rates.sum(1), abs=1e-12)


def test_large_chain_is_eliminated_in_blocks_and_logs_agree() -> None:
    rates = RNG.random((90, 90))
    found = stationary_distribution(np.log(rates))
    np.fill_diagonal(rates, 0.0)
    assert np.abs(found @ rates - found * rates.sum(1)).max() < 1e-12
    from palaestra.evaluation.ranking.stationary import _eliminate_logs

    with np.errstate(divide="ignore"):
        assert np.abs(_eliminate_logs(np.log(rates)) - found).max() < 1e-12


def test_bad_input_is_named() -> None:
    with pytest.raises(InputError, match="2 closed classes"):
        stationary_distribution(np.full((2, 2), -np.inf))
    with pytest.raises(InputError, match="square"):
        alpha_rank(np.zeros((2, 3)))
    with pytest.raises(InputError, match="3 players"):
        alpha_rank([np.zeros((2, 2))] * 3)
    with pytest.raises(InputError, match="did you mean 'population'"):
        alpha_rank(np.zeros((2, 2)), selection="populatio")  # type: ignore[arg-type]


def test_nash_average_is_an_equilibrium_and_copies_share() -> None:
    game = RNG.normal(size=(9, 9))
    game -= game.T
    found = nash_averaging(game)
    x = found.equilibrium[0]
    assert x.sum() == pytest.approx(1.0)
    assert found.skill[0].max() < 1e-6
    cycle = np.array([[0, 1, -1, -1], [-1, 0, 1, 1], [1, -1, 0, 0], [1, -1, 0, 0.0]])
    assert nash_averaging(cycle).equilibrium[0] == pytest.approx([1 / 3, 1 / 3, 1 / 6, 1 / 6], abs=1e-6)
    dominated = np.array([[0.0, 1, 2], [-1, 0, 1], [-2, -1, 0]])
    assert nash_averaging(dominated).equilibrium[0] == pytest.approx([1, 0, 0], abs=1e-6)
    assert nash_averaging(np.zeros((3, 3))).equilibrium[0] == pytest.approx([1 / 3] * 3)
    many = np.repeat([0, 1, 2], [20, 10, 10])
    crowd = nash_averaging(np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])[many][:, many])
    assert crowd.equilibrium[0] == pytest.approx(np.repeat([1 / 60, 1 / 30], 20), abs=1e-6)


@pytest.mark.parametrize(("unit", "shift"), [(1e-8, 0.0), (1e-13, 0.0), (1e-8, 1e-4), (1.0, 1e4)])
def test_an_equilibrium_does_not_depend_on_the_unit_of_payoffs(unit: float, shift: float) -> None:
    payoffs = np.array([[0.3, 0.7], [0.6, 0.2]]) * unit + shift
    rows, columns = nash_averaging(payoffs).equilibrium
    assert rows == pytest.approx([0.5, 0.5], abs=1e-6)
    assert columns == pytest.approx([0.625, 0.375], abs=1e-6)


def test_agents_against_tasks() -> None:
    scores = np.array([[3.0, 0.2, 0.5], [1.0, 0.9, 0.5], [2.0, 0.5, 0.5]])
    payoffs = scale_tasks(scores)[:, :2]
    found = nash_averaging(payoffs)
    x, y = found.equilibrium
    value = x @ payoffs @ y
    assert (payoffs @ y).max() == pytest.approx(value, abs=1e-6)
    assert (x @ payoffs).min() == pytest.approx(value, abs=1e-6)
    assert scale_tasks(scores)[:, 2].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("options", [{"alpha": 0.0}, {"population": 1}, {"epsilon": 0.0}, {"epsilon": 0.5}])
def test_the_ends_of_its_numbers_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="alpha_rank: alpha="):
        alpha_rank(np.array([[0.5, 0.9], [0.1, 0.5]]), **options)


def test_the_scale_of_rates_changes_nothing() -> None:
    rates = np.array([[0.0, 1.0, -2.0], [0.5, 0.0, 1.5], [-1.0, 2.0, 0.0]])
    for shift in (600.0, -600.0):
        np.testing.assert_allclose(stationary_distribution(rates + shift), stationary_distribution(rates))
