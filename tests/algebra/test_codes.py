"""Dense integer codes of keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.algebra.codes import Codes, code_array, combine, densify, order_rows
from palaestra.algebra.turns import Turns
from palaestra.errors import SchemaError

cells = {
    "integers": st.one_of(st.none(), st.integers(-5, 5)),
    "wide": st.one_of(st.none(), st.integers(-(2**62), 2**62)),
    "floats": st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, -2.25])),
    "booleans": st.one_of(st.none(), st.booleans()),
    "text": st.one_of(st.none(), st.sampled_from(["", "a", "ä"])),
}


TYPES = {"integers": pl.Int64, "wide": pl.Int64, "floats": pl.Float64, "booleans": pl.Boolean, "text": pl.String}


@settings(max_examples=80, deadline=None)
@given(st.lists(st.fixed_dictionaries(cells), max_size=20), st.permutations(list(cells)), st.integers(1, 5))
def test_codes_are_dense_and_equal_iff_the_keys_are(rows: list[dict[str, Any]], names: list[str], n: int) -> None:
    turns = Turns(pl.DataFrame(rows, schema=TYPES))
    codes = turns.codes(*names[:n])
    expected = [tuple(row[name] for name in names[:n]) for row in rows]
    pairs = set(zip(codes.ids.tolist(), expected, strict=True))
    assert len(pairs) == len(set(codes.ids.tolist())) == len(set(expected))
    assert sorted(set(codes.ids.tolist())) == list(range(codes.size))
    assert turns.codes(*names[:n]).ids is codes.ids, "computed once"


def test_codes_of_categories_do_not_depend_on_other_tables() -> None:
    Turns({"agent": [f"other {i}" for i in range(1000)]})
    codes = Turns({"agent": ["a", "b", "a", None]}).codes("agent")
    assert codes.size == 3
    assert codes.ids[0] == codes.ids[2] != codes.ids[1] != codes.ids[3]


def test_lists_cannot_be_keys() -> None:
    with pytest.raises(SchemaError, match="cannot be a key"):
        Turns({"features": [[1.0], [2.0]]}).codes("features")


def test_codes_of_arrays() -> None:
    assert code_array(np.array([0.0, -0.0, np.nan, np.nan, 1.0])).ids.tolist() == [0, 0, 1, 1, 2]
    assert densify(np.array([], np.int64)).size == 0
    assert densify(np.array([10**12, 5, 10**12])).ids.tolist() == [1, 0, 1]


@pytest.mark.parametrize("size", [3, 2**21, 2**40])
def test_several_keys_together_are_their_pairs_whatever_the_sizes(size: int) -> None:
    """Also where the product of the sizes leaves 63 bits."""
    rng = np.random.default_rng(0)
    columns = rng.integers(3, size=(4, 200))
    together = combine(*(Codes(column * (size // 3), size) for column in columns))
    _, expected = np.unique(columns, axis=1, return_inverse=True)
    assert together.size == expected.max() + 1
    assert len(np.unique(np.stack([together.ids, expected.ravel()]), axis=1).T) == together.size


@pytest.mark.parametrize(
    "values",
    [
        [7, 5, 7, 6],
        [2000, 0, 1040],  # spans around what is still counted
        [1035, 0, 3],
        [1036, 0, 3],
        [2**60, 0, 5, 1],  # value and place together would take 64 bits
        [2**62 - 1, -(2**62), 0],
        [2**62, -(2**62), 0],
        [2**63 - 1, -(2**63), 0],
    ],
)
def test_codes_of_integers_are_their_ranks(values: list[int]) -> None:
    expected, size = np.unique(values, return_inverse=True)[1].tolist(), len(set(values))
    for times in (1, 2):
        found = densify(np.array(values * times))
        assert (found.ids.tolist(), found.size) == (expected * times, size)
    assert densify(np.unique(values)).ids.tolist() == list(range(size))


def test_rows_of_a_turn_are_in_the_order_of_seats_also_where_a_key_has_no_row() -> None:
    found = order_rows(Codes(np.array([2, 1, 2]), 4), np.zeros(3, int), lambda: np.array([1, 0, 0]))
    assert found.moments is not None
    assert found.order is not None
    assert [each.tolist() for each in (found.order, found.starts, found.lengths, found.moments)] == [
        [1, 2, 0], [0, 0, 1, 3], [0, 1, 2, 0], [0, 1, 1],
    ]  # fmt: skip
