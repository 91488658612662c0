"""Counterfactual risks: the same seeds played again with one thing removed, paired by seed.

The counterfactual itself (an agent alone, no channel, a forced action, see `envs.worlds.forced`) is an env played
again; here is what the two plays say together (arXiv 2603.27771). Left out: the detectors, which are in `triage`.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from palaestra.errors import InputError, nearest, need_columns
from palaestra.evaluation.difference import Difference, paired_difference
from palaestra.evaluation.intervals import Estimate, success_interval


class Risk(NamedTuple):
    """Result of `risk_difference`: rates of flagged episodes in factual and counterfactual arm, and the difference."""

    factual: Estimate
    counterfactual: Estimate
    difference: Difference


def risk_difference(
    found: pl.DataFrame,
    factual: str,
    counterfactual: str,
    *,
    flag: str = "flag",
    arm: str = "arm",
    pair: str = "seed",
    level: float = 0.95,
) -> Risk:
    """`Risk`: rates of `flag` in arms `factual` and `counterfactual` of a table, and their paired difference (McNemar).

    The rates have Wilson's intervals.

    found: a row per episode. A null flag (a detector that could not look) leaves the rate and its pair. Episodes of one
    pair and arm are its trials.

    Raises:
        MissingColumnError: a column is missing.
        InputError: there is no such arm.
    """
    need_columns("risk_difference", found.columns, (flag, arm, pair))
    arms = found[arm].cast(pl.String).unique().sort().to_list()
    for name in (factual, counterfactual):
        if name not in arms:
            raise InputError(f"risk_difference: no arm {name!r}{nearest(name, arms)}")
    trials = found.select(
        system=pl.col(arm).cast(pl.String), run=pl.lit("0"), task=pl.col(pair), success=pl.col(flag).cast(pl.Boolean)
    ).with_columns(trial=pl.int_range(pl.len()).over("system", "task"))
    fact, otherwise = (
        success_interval(trials.filter(pl.col("system") == name), level=level) for name in (factual, counterfactual)
    )
    return Risk(fact, otherwise, paired_difference(trials, factual, counterfactual, level=level))
