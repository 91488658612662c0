"""Answers of several parts."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.rewards import every_part
from palaestra.rewards.match.parts import names_right_parts


@pytest.mark.parametrize(
    ("said", "gold", "right"),
    [
        ("a cat|dog", ["cat"], False),
        ("The Cat.", ["cat"], True),
        ("dog|cat", ["cat", "dog"], True),
        ("dog", ["cat", "dog"], True),
        ("cat|", ["cat"], False),
        ("", ["cat"], False),
        ("cat", [], False),
    ],
)
def test_all_parts_must_be_among_the_right_ones(said: str, gold: list[str], right: bool) -> None:
    assert names_right_parts(said, gold) is right
    answers = {"said": [said, None], "gold": pl.Series([gold, gold], dtype=pl.List(pl.String))}
    found = every_part("said", "gold").evaluate(Turns(answers))
    np.testing.assert_array_equal(found, [float(right), np.nan])


def test_lists_that_are_all_empty_have_nothing_right() -> None:
    found = every_part("said", "gold").evaluate(Turns({"said": ["ann", "bob"], "gold": [[], []]}))
    assert np.asarray(found).tolist() == [0.0, 0.0]
