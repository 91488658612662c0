"""A planner that moves tax rates, and workers who answer."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.envs.worlds import TaxEconomy
from palaestra.envs.worlds.exact.taxes import BRACKETS, inequality, saez_rate, saez_rates
from palaestra.errors import InputError


def test_what_the_planner_sees():
    env = TaxEconomy(years=2)
    seen = env.reset(3)["planner_0"]
    assert seen.array.shape == (4 + 4 + 8 + 3,)
    assert seen.array[8:16].sum() == pytest.approx(1.0)
    assert seen.text.startswith("year 0, rates 0/0/0/0, best so far 0/0/0/0, incomes")
    better = env.step({"planner_0": "4 4 4 4"}).observations["planner_0"]
    np.testing.assert_allclose(better.array[:8], 0.2)
    result = env.step({"planner_0": "4 4 4 4"})
    assert not result.observations
    assert result.info["success"]


def test_an_economy_comes_back_from_a_snapshot():
    env = TaxEconomy(candidates=2)
    env.reset(1)
    kept = env.snapshot()
    first = env.step({"planner_0": "3 3 3 3", "planner_1": "2 2 2 2"}).info
    env.restore(kept)
    assert env.step({"planner_0": "3 3 3 3", "planner_1": "2 2 2 2"}).info == first


def test_rates_by_saez():
    env = TaxEconomy(start="saez", years=1)
    env.reset(0)
    np.testing.assert_array_equal(env.state.rates, saez_rates(env.state.skills, np.array(BRACKETS), 0.5))
    assert saez_rates(np.array([5.0, 6.0]), np.array(BRACKETS), 0.5)[1:].tolist() == [0.0, 0.0, 0.0]
    assert inequality(np.zeros(3)) == 0.0
    with pytest.raises(InputError, match="elasticity=0"):
        saez_rates(np.array([5.0]), np.array(BRACKETS), 0)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"start": "none"}, "start='none'"), ({"start": (0.1, 0.2)}, r"start=\(0.1, 0.2\)"),
        ({"timescale": 0}, "timescale=0"), ({"brackets": (0.0, 2.0, 1.0, 3.0)}, "must rise"),
        ({"welfare": "most"}, "welfare='most'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(options, complaint):
    with pytest.raises(InputError, match=complaint):
        TaxEconomy(**options)


def test_a_rate_by_saez_is_that_of_evenly_spread_incomes():
    """Of incomes from 0 to 2z the density at their mean z is 1 / 2z, and half earn more: z · density / share is 1."""
    income = np.arange(0.5, 2000.0)
    weights = 1 / np.maximum(income, 1)
    weight = weights[income >= 1000].mean() / weights.mean()
    (found,) = saez_rates(income, np.array([0.0]), 0.5)
    assert found == pytest.approx(saez_rate(1.0, 0.5, weight), rel=1e-3)
