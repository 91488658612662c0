"""Lists of a column as flat arrays, and the way back."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.list_columns import list_column, ragged


@pytest.mark.parametrize("dtype", [pl.Int32, pl.Float32])
def test_a_ragged_column_is_flat_with_its_missing_values_and_lengths(dtype: type[pl.DataType]) -> None:
    lists = pl.Series("ids", [[1, 2], None, [], [None, 3]], dtype=pl.List(dtype))
    values, missing, lengths = ragged(lists)
    assert lengths.tolist() == [2, 0, 0, 2], "a missing list is as long as an empty one"
    assert missing.tolist() == [False, False, True, False]
    assert values[~missing].tolist() == [1, 2, 3]


def test_rows_that_were_filtered_away_leave_nothing_behind() -> None:
    lists = pl.Series("ids", [[9, 9, 9], [1], [7], [2, 3]])
    values, _, lengths = ragged(lists.filter(pl.Series([False, True, False, True])))
    assert (values.tolist(), lengths.tolist()) == ([1, 2, 3], [1, 2])
    values, _, lengths = ragged(lists[1:3])
    assert (values.tolist(), lengths.tolist()) == ([1, 7], [1, 1])


def test_lists_of_fixed_length_and_no_lists_at_all() -> None:
    values, _, lengths = ragged(pl.Series("a", [[0.5, 1.5]], dtype=pl.Array(pl.Float64, 2)))
    assert (values.tolist(), lengths.tolist()) == ([0.5, 1.5], [2])
    values, missing, lengths = ragged(pl.Series("ids", [], dtype=pl.List(pl.Int32)))
    assert len(values) == len(missing) == len(lengths) == 0


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float64, np.bool_])
def test_a_column_keeps_type_empty_lists_and_missing_rows(dtype: type[np.generic]) -> None:
    values, lengths = np.array([1, 0, 1, 1, 0]).astype(dtype), np.array([2, 0, 0, 3])
    made = list_column("a", values, lengths, missing=np.array([False, False, True, False]))
    assert made.name == "a"
    assert made.dtype == pl.List(pl.Series(values).dtype)
    assert made.to_list() == [values[:2].tolist(), [], None, values[2:].tolist()]
    back, missing, found = ragged(made)
    assert np.array_equal(back, values)
    assert not missing.any()
    assert found.tolist() == lengths.tolist()


def test_a_nan_becomes_null_if_one_says_so() -> None:
    values, lengths = np.array([0.5, np.nan, 2.0]), np.array([1, 2])
    assert list_column("a", values, lengths, nan_to_null=True).to_list() == [[0.5], [None, 2.0]]
    assert np.isnan(list_column("a", values, lengths).to_list()[1][0])


@pytest.mark.parametrize("lists", [[["a"], ["b", None]], [[True, None], []], [["a", "b"]]])
def test_texts_and_gaps_come_back(lists: list[list[object]]) -> None:
    values, _, lengths = ragged(pl.Series(lists))
    assert list_column("a", values, lengths).to_list() == lists


def test_values_in_steps_of_two_are_those_of_the_array() -> None:
    assert list_column("a", np.arange(6)[::2], np.array([1, 2])).to_list() == [[0], [2, 4]]


def test_a_run_that_plays_and_learns_does_not_import_pandas() -> None:
    """Half a second in each process, wherever somebody has it."""
    code = (
        "import sys\nfrom palaestra.runs.inline import learn\n"
        "learn('corridor', {'train': {'iterations': 1, 'groups': 1, 'group_size': 4}})\n"
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
