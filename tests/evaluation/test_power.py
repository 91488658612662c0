from __future__ import annotations

import numpy as np
import pytest
from statsmodels.stats.power import NormalIndPower, TTestIndPower, TTestPower

from palaestra.errors import InputError
from palaestra.evaluation import (
    detectable_difference,
    mcnemar_power,
    mcnemar_tasks,
    more_units,
    runs_needed,
    sign_flip_pvalue,
    t_power,
)
from palaestra.evaluation.power import two_way


@pytest.mark.parametrize(("sigma", "delta", "power"), [(1.5, 1, 0.8), (1.5, 2, 0.8), (1.5, 2, 0.95), (0.4, 0.07, 0.9)])
def test_runs_needed_is_what_statsmodels_solves_for(sigma: float, delta: float, power: float) -> None:
    z = NormalIndPower().solve_power(delta / sigma, power=power, alpha=0.05)
    t = TTestIndPower().solve_power(delta / sigma, power=power, alpha=0.05)
    assert runs_needed(sigma, delta, power=power) == int(np.ceil(z))
    assert runs_needed(sigma, delta, power=power, test="t") == int(np.ceil(t))
    paired = TTestPower().solve_power(delta / sigma, power=power, alpha=0.05)
    assert runs_needed(sigma, delta, power=power, paired=True, test="t") == int(np.ceil(paired))
    assert t_power(sigma, delta, 12) == pytest.approx(TTestIndPower().power(delta / sigma, 12, 0.05), abs=1e-6)


def test_mcnemar_power_is_the_rate_at_which_the_exact_test_finds() -> None:
    rng = np.random.default_rng(0)
    drawn = rng.choice([-1.0, 1.0, 0.0], p=[0.08, 0.2, 0.72], size=(1500, 80))
    found = np.mean([sign_flip_pvalue(row) <= 0.05 for row in drawn])
    assert mcnemar_power(0.08, 0.2, 80) == pytest.approx(found, abs=0.04)
    assert mcnemar_power(0.1, 0.1, 200) < 0.05
    enough = mcnemar_tasks(0.08, 0.2)
    assert mcnemar_power(0.08, 0.2, enough) >= 0.8 > mcnemar_power(0.08, 0.2, enough - 15)
    with pytest.raises(InputError, match="100000 tasks"):
        mcnemar_tasks(0.1, 0.1)


def test_a_power_of_just_that_is_enough() -> None:
    assert mcnemar_power(0.0, 1.0, 6) == 1.0
    assert mcnemar_power(0.0, 1.0, 6, alpha=2 / 2**6) == 1.0, "p = alpha is enough"
    assert mcnemar_power(0.0, 1.0, 5) == 0.0, "2 / 2^5 is above alpha"
    assert mcnemar_tasks(0.0, 1.0, power=1.0) == 6


def test_three_cells_of_four_leave_nothing_for_the_rest() -> None:
    assert two_way(np.array([[1.0, np.nan], [2.0, 4.0]]))[2] == 0.0


def test_what_is_needed_but_for_rounding_is_enough() -> None:
    unit = detectable_difference(1.0)
    assert runs_needed(3 / unit, 1, paired=True) == 9
    values = np.array([[-1.0, 1.0, -1.0, 1.0]])  # their variance is 4/3
    assert more_units(values, unit * (4 / 3 / 9) ** 0.5) == (9 - 4, -1)


def test_more_units_are_those_that_give_the_power() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(1, 40))
    more, runs = more_units(values, 0.3)
    assert 40 + more == runs_needed(float(values.std(ddof=1)), 0.3, paired=True)
    assert runs == -1
    crossed = rng.normal(0, 0.5, (6, 1)) + rng.normal(0, 1, (1, 40)) + rng.normal(0, 1, (6, 40))
    run, task, rest = two_way(crossed)
    goal = (0.5 / (1.959964 + 0.841621)) ** 2
    more_tasks, more_runs = more_units(crossed, 0.5)
    if more_runs > 0:
        assert run / (6 + more_runs) + task / 40 + rest / (40 * (6 + more_runs)) <= goal + 1e-9
    assert more_tasks == -1 or run / 6 + task / (40 + more_tasks) + rest / (6 * (40 + more_tasks)) <= goal + 1e-9
    assert more_units(np.zeros((2, 3)), 0.0) == (-1, -1)


def test_two_way_finds_the_components() -> None:
    rng = np.random.default_rng(2)
    found = [
        two_way(rng.normal(0, 1, (12, 1)) + rng.normal(0, 2, (1, 60)) + rng.normal(0, 0.5, (12, 60)))
        for _ in range(200)
    ]
    assert np.mean(found, axis=0) == pytest.approx([1.0, 4.0, 0.25], rel=0.1)
