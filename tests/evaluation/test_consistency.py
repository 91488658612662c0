from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from palaestra.errors import InputError
from palaestra.evaluation import consistency, resource_consistency, sequence_similarity
from palaestra.evaluation.consistency import divergence

text = st.text("abc", max_size=7)


def distance(a: str, b: str) -> int:
    if not a or not b:
        return len(a) + len(b)
    return min(distance(a[1:], b) + 1, distance(a, b[1:]) + 1, distance(a[1:], b[1:]) + (a[0] != b[0]))


@given(st.text("ab", max_size=5), st.text("ab", max_size=5))
def test_levenshtein(a: str, b: str) -> None:
    longest = max(len(a), len(b))
    expected = 1 - distance(a, b) / longest if longest else 1.0
    assert sequence_similarity(a, b) == pytest.approx(expected if a and b else float(len(a) == len(b)))


@given(text, text)
def test_similarity_is_symmetric_and_between_0_and_1(a: str, b: str) -> None:
    for kind in ("levenshtein", "histogram"):
        one, other = sequence_similarity(a, b, kind), sequence_similarity(b, a, kind)  # type: ignore[arg-type]
        assert one == pytest.approx(other)
        assert -1e-12 <= one <= 1 + 1e-12


def test_divergence_is_scipys_squared_distance() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.random((2, 9))
    assert divergence(p, q) == pytest.approx(jensenshannon(p, q, base=2) ** 2)


def test_parts_by_hand() -> None:
    frame = pl.DataFrame(
        {
            "system": "s",
            "run": "0",
            "task": ["a"] * 3 + ["b"] * 2 + ["c"],
            "trial": [0, 1, 2, 0, 1, 0],
            "success": [True, True, False, True, True, True],
            "cost": [1.0, 2.0, 3.0, None, None, 1.0],
            "tools": [["x", "x", "y", "z"], ["x", "y", "z", "z"], ["q"], ["x"], ["x"], []],
        }
    )
    found = {row["part"]: row for row in consistency(frame, actions="tools", resources=["cost"]).to_dicts()}
    assert found["outcome"]["mean"] == pytest.approx(((2 * 2 / 3 - 1) ** 2 + 1) / 2)
    assert found["actions"]["mean"] == pytest.approx((0.9387218755 + 1) / 2)
    assert found["sequence"]["mean"] == pytest.approx((0.5 + 1) / 2)
    assert found["resources"]["mean"] == pytest.approx(math.exp(-0.5))
    first = ((2 * 2 / 3 - 1) ** 2 + (0.9387218755 + 0.5) / 2 + math.exp(-0.5)) / 3
    assert found["overall"]["mean"] == pytest.approx((first + 1) / 2)
    assert (found["outcome"]["n"], found["outcome"]["tasks"]) == (5, 2)
    assert (found["resources"]["n"], found["resources"]["tasks"]) == (3, 1)


def test_what_is_unknown_is_null_and_kinds_are_named() -> None:
    frame = pl.DataFrame({"system": "s", "run": "0", "task": ["a", "b"], "trial": 0, "success": [True, False]})
    assert consistency(frame).is_empty()
    both = pl.concat(
        [frame, frame.with_columns(trial=pl.lit(1), success=pl.lit(None, pl.Boolean))], how="vertical_relaxed"
    )
    assert consistency(both)["mean"].null_count() == 5
    assert math.isnan(resource_consistency([None, 2.0]))
    with pytest.raises(InputError, match="levenshtein"):
        sequence_similarity("a", "b", "levenstein")  # type: ignore[arg-type]


def test_two_resources_are_enough() -> None:
    assert resource_consistency([1, 3]) == pytest.approx(math.exp(-math.sqrt(2) / 2))
    assert resource_consistency([0, 0]) == 1.0
