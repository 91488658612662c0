from __future__ import annotations

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from palaestra.errors import InputError
from palaestra.evaluation.tolerance import check_fresh_seeds, check_rerun, series_match


def test_series() -> None:
    assert series_match([1.0, 2.03, 9.0], [1.0, 2.0, 3.0]) == pytest.approx(2 / 3)
    assert series_match([1.0], [1.0, 2.0]) == 0.5, "a missing point is wrong"
    assert series_match([np.nan, 1.0], [1.0, 1.0]) == 0.5
    assert series_match([1.0], [1.0, 0.0]) == 0.5, "also where the truth is 0"
    assert series_match([1.0305, -1.0305], [1.0, -1.0]) == 0.0, "the tolerance of .03 is the truth's"
    with pytest.raises(InputError, match="finite"):
        series_match([1.0], [np.nan])


def test_rerun() -> None:
    assert check_rerun([1.0, 2.0], [1.0, 2.0]).reproduced
    invented = check_rerun([1.0, 2.0], [1.0, 2.3])
    assert not invented.reproduced
    assert invented.deviation == pytest.approx(0.3)
    for reported, rerun in (([1.0], [1.0, 2.0]), ([1.0, 2.0, 3.0], [1.0, 2.0]), ([], [])):
        found = check_rerun(reported, rerun)
        assert (found.reproduced, found.match, np.isnan(found.deviation)) == (False, 0.0, True)
    assert not check_rerun([1.0305], [1.0]).reproduced
    assert not check_rerun([1.0], [np.nan]).reproduced


def test_fresh_seeds() -> None:
    found = check_fresh_seeds(2.0, [0.0, 1.0, -1.0, 0.0, np.nan])
    assert (found.runs, found.p) == (4, 0.2)
    assert found.excess == pytest.approx(2 / np.std([0, 1, -1, 0], ddof=1))
    assert check_fresh_seeds(2.0, [1.0, 2.0, 0.0, 1.0]).p == 0.4, "one that is as good reaches it"
    assert np.isnan(check_fresh_seeds(2.0, [1.0, 1.0]).excess), "equal re-runs have no spread"
    with pytest.raises(InputError, match="at least 2"):
        check_fresh_seeds(1.0, [0.5])


def test_zero_of_thirty_is_not_zero() -> None:
    """What the cards ask to be printed: 0/30 up to 11.35 %, 1/15 from 1.2 to 29.8 %."""
    assert proportion_confint(0, 30, method="wilson")[1] == pytest.approx(0.1135, abs=5e-5)
    assert proportion_confint(1, 15, method="wilson") == pytest.approx((0.012, 0.298), abs=5e-4)
