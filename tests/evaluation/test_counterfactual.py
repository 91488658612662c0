from __future__ import annotations

import polars as pl
import pytest
from scipy import stats

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.counterfactual import risk_difference


def played() -> pl.DataFrame:
    """20 seeds: with the channel 9 flags, without it 2 of the same seeds; one seed was not looked at."""
    with_channel = [i < 9 for i in range(20)] + [None]
    without = [i < 2 for i in range(21)]
    return pl.DataFrame({
        "seed": [*range(21)] * 2, "arm": ["channel"] * 21 + ["silent"] * 21, "flag": with_channel + without,
    })  # fmt: skip


def test_rates_are_paired_by_seed() -> None:
    risk = risk_difference(played(), "channel", "silent")
    assert risk.factual.mean == pytest.approx(9 / 20)
    assert risk.counterfactual.mean == pytest.approx(2 / 21)
    assert risk.difference.mean == pytest.approx(7 / 20)
    assert risk.difference.dropped == 1
    assert risk.difference.p == pytest.approx(stats.binomtest(0, 7).pvalue)
    assert risk.factual.low < 9 / 20 < risk.factual.high


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match=r"'chanel'; did you mean 'channel'"):
        risk_difference(played(), "chanel", "silent")
    with pytest.raises(MissingColumnError, match=r"'flagged'"):
        risk_difference(played(), "channel", "silent", flag="flagged")
