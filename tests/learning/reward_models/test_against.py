"""References among the answers of a group."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.signals import col
from palaestra.errors import InputError, MissingColumnError
from palaestra.judges import Verifier
from palaestra.learning.reward_models import AgainstBest


def test_the_best_others_of_a_group_are_the_references() -> None:
    rows = pl.DataFrame({"group": [0, 0, 0, 1, 1], "worth": [0.0, 1.0, None, 2.0, 2.0]})
    found = AgainstBest(Verifier(col("worth")), best=2).score(rows).to_list()
    lead = 1 / (1 + np.exp(-1))
    np.testing.assert_allclose([found[at] for at in (0, 1, 3, 4)], [1 - lead, lead, 0.5, 0.5])
    assert found[2] is None


def test_a_row_without_another_has_none_and_a_scorer_of_pairs_may_compare() -> None:
    rows = pl.DataFrame({"group": [0, 1, 1], "worth": [1.0, 2.0, 3.0]})
    pairwise = Verifier(col("worth") - col("reference.worth"))
    scorer = AgainstBest(Verifier(col("worth")), pairwise=pairwise)
    assert scorer.score(rows).to_list() == [None, -1.0, 1.0]


def test_what_it_refuses() -> None:
    with pytest.raises(InputError, match="at least 1"):
        AgainstBest("stub()", best=0)
    with pytest.raises(MissingColumnError, match="group"):
        AgainstBest(Verifier(col("worth"))).score(pl.DataFrame({"worth": [1.0]}))
