from __future__ import annotations

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.evaluation import first_significant, sign_flip_pvalue

Looks = list[tuple[float, np.ndarray]]


def training(rng: np.random.Generator, *, gain: float, tasks: int = 60, trials: int = 2, looks: int = 8) -> Looks:
    p = rng.beta(0.5, 0.5, tasks) * (1 - gain)
    start = rng.binomial(trials, p) / trials
    return [
        (10.0 * (k + 1), rng.binomial(trials, p + gain * (k + 1) / looks) / trials - start) for k in range(looks)
    ]  # fmt: skip


def test_looking_repeatedly_does_not_prove_anything() -> None:
    rng = np.random.default_rng(0)
    runs = [training(rng, gain=0.0) for _ in range(300)]
    naive = sum(any(d.mean() > 0 and sign_flip_pvalue(d) <= 0.05 for _, d in looks) for looks in runs)
    assert naive / 300 > 0.08
    assert sum(first_significant(looks, planned=8) is not None for looks in runs) / 300 <= 0.04
    assert sum(first_significant(looks) is not None for looks in runs) / 300 <= 0.04


def test_a_real_improvement_is_found_early() -> None:
    rng = np.random.default_rng(1)
    found = [first_significant(training(rng, gain=0.4, tasks=100, trials=4), planned=8) for _ in range(40)]
    assert all(seconds is not None for seconds in found)
    assert np.mean([s for s in found if s is not None]) < 50


def test_threshold_is_split_over_the_looks() -> None:
    d = np.repeat([1.0, 0.0], [8, 10])  # p = 2 / 2^8 = 0.0078
    assert first_significant([(5.0, d)], planned=1) == 5.0
    assert first_significant([(5.0, d)], planned=6) == 5.0
    assert first_significant([(5.0, d)], planned=7) is None
    assert first_significant([(1.0, 0 * d), (2.0, d)], planned=None) == 2.0  # share 0.05 / 6
    assert first_significant([(1.0, 0 * d), (2.0, 0 * d), (3.0, d)], planned=None) is None  # share 0.05 / 12


def test_a_small_share_of_alpha_gets_the_random_patterns_that_it_needs() -> None:
    d = np.pi * np.arange(1, 14)  # 13 that are on no lattice; of 10 patterns p would be 1 / 11 at least
    assert first_significant([(1.0, d)], planned=1, resamples=10) == 1.0


def test_worse_is_no_proof_and_missing_tasks_are_left_out() -> None:
    d = np.repeat([1.0, np.nan], [20, 5])
    assert first_significant([(1.0, -d)], planned=1) is None
    assert first_significant([(1.0, d)], planned=1) == 1.0
    assert first_significant([(1.0, np.full(3, np.nan))], planned=1) is None
    assert first_significant([]) is None


def test_more_looks_than_planned() -> None:
    with pytest.raises(InputError, match="3 looks, but only 2"):
        first_significant([(1.0, np.zeros(3))] * 3, planned=2)
