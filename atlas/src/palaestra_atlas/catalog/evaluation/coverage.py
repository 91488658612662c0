"""Do 95 % intervals hold the truth in 95 % of data sets, and do tests at 5 % err in 5 %? Every one, from known truths.

A study draws one data set, calls the public functions on it, and says which intervals held and which tests spoke. The
studies are in `coverage_trials`, `coverage_hard`, `coverage_parts` and `coverage_ranking`. The reproduction of [132]
runs them all, and `coverage_page` writes the tables of docs/coverage.md.
Left out: the triage's sampling gain, standard errors without an interval (`suite_score`), ranking by the Nash average
(a second per table and more) and by the voting rules that share Copeland's jumps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

Rng = np.random.Generator
Study = Callable[[Rng], Mapping[str, Any]]
STUDIES: list[Study] = []
CONSERVATIVE = frozenset(
    f"coverage_{name}"
    for name in (
        "ece_of_calibrated", "variance_6_runs", "sequence_share", "rank", "elo", "copeland", "alpha_rank",
        "clopper_pearson", "hoeffding", "success_families", "success_lopsided", "difference_lopsided",
        "difference_rare", "difference_rare_gain",
    )
)  # fmt: skip
"""Intervals that promise at least 95 %: whole numbers, scores that move in jumps, exact bounds."""


SHORT = {"heavy_mean": 0.87, "heavy_difference": 0.9}
"""Intervals that are known to fall short, because the tail is not in the data: what they hold at the least."""
HEAVY_TYPE1 = 0.09
"""What a heavy system against a light one may be called better or worse for nothing."""


def study(one: Study) -> Study:
    """Register a study."""
    STUDIES.append(one)
    return one


def studies() -> list[Study]:
    """All of them: their modules register them when they are imported."""
    from palaestra_atlas.catalog.evaluation import coverage_hard, coverage_parts, coverage_ranking, coverage_trials  # noqa: F401

    return STUDIES


def simulate(draws: int, seed: int = 0, *, redrawn: int = 1) -> dict[str, float]:
    """Share of data sets in which each interval held or each test spoke, by name.

    Args:
        draws: Data sets of each study.
        seed: Of the random numbers.
        redrawn: A study with a share that misses its bound is drawn this many times as long, with other random numbers,
            and the longer draw alone decides: of a hundred shares of 2000 data sets (standard error .005) one or two
            stray over a bound by chance.
    """
    found: dict[str, float] = {}
    for one in studies():
        rng = stream(one, seed)
        share = shares(one, rng, draws)
        found |= shares(one, rng, redrawn * draws) if redrawn > 1 and misses(share) else share
    return found


def stream(one: Study, seed: int) -> Rng:
    """The random numbers of a study: its own by its name, whichever other studies there are."""
    return np.random.default_rng([seed, *one.__name__.encode()])


def shares(one: Study, rng: Rng, draws: int) -> dict[str, float]:
    """The same for one study; what holds several intervals of a kind counts by their mean."""
    seen = defaultdict(list)
    for _ in range(draws):
        for name, value in one(rng).items():
            seen[name].append(np.mean(value))
    return {name: float(np.mean(values)) for name, values in seen.items()}


def misses(found: Mapping[str, float], slack: float = 0.0) -> list[str]:
    """Names that break the criterion.

    93-97 % held (at least 93 % if conservative), type I error at most 6.5 %, power more than half; heavy tails have
    their own limits (`SHORT`, `HEAVY_TYPE1`). What is `blind` or `cautioned` is only reported. slack: by how much less
    strict, for few draws.
    """
    broken = {
        "heavy": lambda name, x: (
            x > HEAVY_TYPE1 + slack
            if "type1" in name
            else any(x < least - slack for start, least in SHORT.items() if name.startswith(start))
        ),
        "blind": lambda *_: False,
        "cautioned": lambda *_: False,
        "coverage": lambda name, x: x < 0.93 - slack or (x > 0.97 + slack and name not in CONSERVATIVE),
        "type1": lambda _, x: x > 0.065 + slack,
        "power": lambda _, x: x < 0.5 - slack,
    }
    return [name for name, x in found.items() if broken[name.split("_")[0]](name, x)]


def held(low: Any, high: Any, truth: Any) -> Any:
    """Whether an interval holds the truth; one that is unknown does not."""
    low, high = (np.asarray(x, float) for x in (low, high))
    return (low <= np.asarray(truth) + 1e-9) & (np.asarray(truth) <= high + 1e-9)


def holds(estimate: Any, truth: float) -> Any:
    """The same for anything with `low` and `high`."""
    return held(estimate.low, estimate.high, truth)


def fresh(rng: Rng) -> int:
    """A new seed: with one and the same for all data sets the bootstrap's own luck would not average out."""
    return int(rng.integers(1 << 31))


@lru_cache
def keys(shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Indices of all places of an array, an array per axis."""
    return tuple(axis.ravel() for axis in np.indices(shape))


def table(system: str, **values: np.ndarray) -> pl.DataFrame:
    """Trials from arrays [tasks, trials] or [runs, tasks, trials]."""
    first = next(iter(values.values()))
    places = dict(zip(("run", "task", "trial")[-first.ndim :], keys(first.shape), strict=True))
    return pl.DataFrame({"system": system, "run": 0, **places, **{name: x.ravel() for name, x in values.items()}})
