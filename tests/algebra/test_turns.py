"""The table: checked on the way in, whole on the way out, readable by others."""

from __future__ import annotations

import contextlib
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.algebra.signals import col
from palaestra.algebra.turns import SCHEMA, SCHEMA_VERSION, Ragged, Turns, empty
from palaestra.credit import episode_return, grpo
from palaestra.errors import MissingColumnError, PalaestraError, SchemaError, StorageError
from palaestra.testing.signal import sample_turns


def table() -> Turns:
    return sample_turns(np.random.default_rng(0), groups=(2, 3), missing=0.3)


# -- what goes in -----------------------------------------------------------------------------------------------------


def test_known_columns_get_the_type_of_the_schema_and_others_are_kept() -> None:
    turns = Turns({"group": [0, 1], "agent": ["a", "b"], "reward": [1, 0], "action_ids": [[1], []], "mine": ["x", "y"]})
    assert turns.frame.schema["group"] == pl.Int32
    assert turns.frame.schema["agent"] == pl.Categorical
    assert turns.frame.schema["reward"] == pl.Float64
    assert turns.frame.schema["action_ids"] == pl.List(pl.Int32)
    assert turns.frame.schema["mine"] == pl.String
    assert {name: column.dtype for name, column in SCHEMA.items()} == dict(empty().schema)
    assert Turns(empty()).columns == list(SCHEMA)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"group": ["x", "y"]}, r"'group' has type String, expected Int32 \(same task.*rank\('dense'\)"),
        ({"group": [0.5, 1.0]}, "'group' has type Float64.*its values would change"),
        ({"success": [0.5, 1.0]}, "'success' has type Float64.*its values would change"),
        ({"valid": [2, 1]}, "'valid' has type Int64.*its values would change"),
        ({"action_ids": [[1.5], [2.0]]}, "'action_ids' has type .*its values would change"),
        ({"success": [Decimal("0.5"), Decimal(1)]}, "'success' has type Decimal.*its values would change"),
        ({"group": ["01", "1"]}, "'group' has type String.*its values would change"),
        ({"group": [date(2026, 1, 1)]}, "'group' has type Date, expected Int32.*write numbers"),
        ({"reward": [timedelta(seconds=2)]}, "'reward' has type Duration.*write numbers"),
        ({"turn": [2**40, 0]}, "'turn' has type Int64, expected Int32"),
        ({"state": [-1, 0]}, "'state' has type Int64, expected UInt64"),
        ({"reward": ["high", "low"]}, "'reward' has type String, expected Float64"),
        ({"agent": [0, 1]}, "'agent' has type Int64, expected Categorical.*name the role"),
    ],
)
def test_a_wrong_type_is_named(data: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Turns(data)


@pytest.mark.parametrize("data", ["group", 5, b"x", None])
def test_what_is_no_table_is_refused(data: Any) -> None:
    with pytest.raises(SchemaError, match="cannot be made of"):
        Turns(data)


@pytest.mark.parametrize("unit", ["ns", "us", "ms"])
def test_kinds_of_time_and_of_numbers_keep_what_they_say(unit: Any) -> None:
    spans = pl.Series([timedelta(seconds=2), None]).cast(pl.Duration(unit))
    turns = Turns(
        {"duration": spans, "success": [Decimal(1), Decimal(0)], "group": ["07", "7000"], "task": [1.0, None]}
    )
    expected = {"duration": [2.0, None], "success": [True, False], "group": [7, 7000], "task": ["1", None]}
    assert turns.frame.to_dict(as_series=False) == expected


def test_rows_count_to_the_last_of_them() -> None:
    rows = [{"reward": 1} for _ in range(150)] + [{"reward": 0.9, "error": "late"}]
    frame = Turns(rows).frame
    assert frame.row(-1) == (0.9, "late")


@pytest.mark.parametrize(
    "data", [{"a": [1, 2], "b": [1]}, [{"x": 1}, {"x": [1]}], pd.DataFrame({"x": [{"a": 1}, [1]]})]
)
def test_what_makes_no_table_is_said_in_words(data: Any) -> None:
    with pytest.raises(SchemaError, match=r"cannot be made of (dict|list|DataFrame): \S"):
        Turns(data)


def test_other_libraries_tables_are_taken_as_they_are() -> None:
    columns = {"group": [0, 1], "reward": [1.0, None], "agent": ["a", None], "success": [True, None]}
    expected = pl.DataFrame(columns)
    for data in (columns, expected, expected.lazy(), pa.table(columns), pd.DataFrame(columns, index=[7, 9])):
        turns = Turns(data)
        assert turns["reward"].to_list() == [1.0, None], "pandas' NaN is a missing value"
        assert turns["agent"].to_list() == ["a", None]
        assert turns["success"].to_list() == [True, None]
        assert turns.columns == list(columns)
    assert Turns(turns).frame is turns.frame


def test_duckdb_pandas_polars_and_arrow_read_it() -> None:
    turns = table()
    connection = duckdb.connect()
    connection.register("turns", turns)
    rows = connection.sql(
        'select "group", agent, sum(reward) as reward, sum(len(logprobs)) as tokens from turns group by all'
    ).fetchall()
    expected = turns.frame.group_by("group", "agent").agg(
        pl.col("reward").sum(), pl.col("logprobs").list.len().sum().alias("tokens"), pl.col("reward").count().alias("n")
    )
    for group, agent, reward, tokens in rows:
        same = expected.filter(pl.col("group") == group, pl.col("agent").cast(pl.String).eq_missing(agent))
        assert len(same) == 1
        assert reward == pytest.approx(same["reward"].item()) or same["n"].item() == 0
        assert (tokens or 0) == same["tokens"].item()
    assert len(rows) == len(expected)

    frame = pd.DataFrame(pa.table(turns).to_pandas())
    assert frame["reward"].isna().sum() == turns["reward"].null_count()
    assert pl.DataFrame(turns).equals(turns.frame)
    assert pa.table(turns).num_rows == len(turns)


# -- files ------------------------------------------------------------------------------------------------------------


def test_parquet_gives_back_the_same_table_ragged_columns_too(tmp_path: Path) -> None:
    turns = table().with_column(
        deep=col("logprobs") * 2.0, text=pl.lit("ünïcødé\x00\n"), features=[[0.5, float("inf")]] * len(table())
    )
    path = turns.save(tmp_path / "new" / "turns.parquet")
    assert [p.name for p in path.parent.iterdir()] == ["turns.parquet"], "no temporary file is left"
    again = Turns.load(path)
    assert again.frame.equals(turns.frame)
    assert again.frame.schema == turns.frame.schema
    assert again["deep"].dtype == pl.List(pl.Float64)
    assert pl.read_parquet_metadata(path)["palaestra.schema"] == str(SCHEMA_VERSION)


def test_an_empty_table_is_saved_too(tmp_path: Path) -> None:
    assert Turns.load(Turns(empty()).save(tmp_path / "none.parquet")).frame.schema == empty().schema


def test_a_directory_is_loaded_in_order_and_temporary_files_are_left_alone(tmp_path: Path) -> None:
    for name, group in (("seed-1/b", 1), ("seed-0/a", 0), ("seed-1/a", 2)):
        Turns({"group": [group], "agent": [f"agent {group}"]}).save(tmp_path / f"{name}.parquet")
    (tmp_path / ".c.parquet.123.tmp").write_bytes(b"half a file")
    (tmp_path / "notes.txt").write_text("not a table")
    turns = Turns.load(tmp_path)
    assert turns["group"].to_list() == [0, 2, 1]
    assert turns["agent"].to_list() == ["agent 0", "agent 2", "agent 1"]
    empty_directory = tmp_path / "seed-2"
    empty_directory.mkdir()
    with pytest.raises(StorageError, match="no Parquet files"):
        Turns.load(empty_directory)


def test_files_of_another_tool_need_no_version(tmp_path: Path) -> None:
    pl.DataFrame({"group": [0], "reward": [1]}).write_parquet(tmp_path / "logs.parquet")
    assert Turns.load(tmp_path / "logs.parquet")["reward"].to_list() == [1.0]


def test_a_file_of_another_schema_version_is_named(tmp_path: Path) -> None:
    path = tmp_path / "old.parquet"
    pl.DataFrame({"group": [0]}).write_parquet(path, metadata={"palaestra.schema": "0"})
    with pytest.raises(SchemaError, match=r"old.parquet: written with schema version 0, this release reads version 1"):
        Turns.load(tmp_path)


def test_a_file_with_a_wrong_type_is_named(tmp_path: Path) -> None:
    pl.DataFrame({"reward": ["high"]}).write_parquet(tmp_path / "logs.parquet")
    with pytest.raises(SchemaError, match=r"logs.parquet: column 'reward' has type String"):
        Turns.load(tmp_path / "logs.parquet")


def test_a_file_without_a_column_is_loaded_and_the_signal_names_it(tmp_path: Path) -> None:
    path = Turns(table().frame.drop("reward")).save(tmp_path / "turns.parquet")
    with pytest.raises(MissingColumnError, match=r"grpo\(\): column 'reward' is missing \(received"):
        grpo().evaluate(Turns.load(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"none.parquet: no such file"):
        Turns.load(tmp_path / "none.parquet")


@pytest.mark.filterwarnings("ignore")
def test_a_damaged_file_is_named_wherever_the_damage_is(tmp_path: Path) -> None:
    path = table().save(tmp_path / "turns.parquet")
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    damaged = [b"", b"PAR1", whole[: len(whole) // 2], whole[:-3], b"hello world" * 20, whole[:8] + whole[16:]]
    for _ in range(60):  # the end of the file is its table of contents, which Parquet does not check
        broken = bytearray(whole)
        for place in rng.integers(len(whole) - 2000, len(whole), 8):
            broken[place] = rng.integers(256)
        damaged.append(bytes(broken))
    messages = []
    for content in damaged:
        path.write_bytes(content)
        with contextlib.suppress(StorageError, SchemaError):
            try:
                Turns.load(path)
            except PalaestraError as error:
                messages.append(str(error))
                raise
    assert len(messages) > len(damaged) / 2
    assert all("turns.parquet" in message for message in messages)


def test_what_cannot_be_written_is_an_error_and_leaves_the_old_file(tmp_path: Path) -> None:
    path = table().save(tmp_path / "turns.parquet")
    before = path.read_bytes()
    with pytest.raises(StorageError, match="cannot write"):
        table().save(path / "below-a-file.parquet")
    with pytest.raises(StorageError, match="cannot write"):
        table().save(tmp_path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["turns.parquet"]


# -- new tables from old ----------------------------------------------------------------------------------------------


def test_with_column_takes_signals_expressions_and_arrays() -> None:
    turns = Turns({"group": [0, 0], "episode": [0, 1], "reward": [1.0, 3.0], "logprobs": [[-1.0], [-2.0, -3.0]]})
    new = turns.with_column(
        signal=episode_return() / 2,
        expr=pl.col("reward") - pl.col("reward").mean(),
        number=pl.lit(3),
        array=np.array([1.0, np.nan]),
        mask=col("reward") > 2,
        strings=["x", "y"],
        series=pl.Series([4, 5]),
        tokens=col("logprobs") * 2.0,
    )
    assert new["signal"].to_list() == [0.5, 1.5]
    assert new["expr"].to_list() == [-1, 1]
    assert new["number"].to_list() == [3, 3]
    assert new["array"].to_list() == [1.0, None]
    assert new["mask"].to_list() == [False, True]
    assert new["strings"].to_list() == ["x", "y"]
    assert new["series"].to_list() == [4, 5]
    assert new["tokens"].to_list() == [[-2.0], [-4.0, -6.0]]
    assert turns.columns == ["group", "episode", "reward", "logprobs"], "the old table is as it was"
    for wrong in (np.zeros(3), [1.0], pl.Series([1, 2, 3])):
        with pytest.raises(SchemaError, match=r"column 'new' has [13] values for 2 rows"):
            turns.with_column(new=wrong)


def test_ragged_becomes_a_list_column_with_nulls() -> None:
    series = Ragged(np.array([1.0, np.nan, 3.0]), np.array([2, 0, 1])).to_series("x")
    assert series.to_list() == [[1.0, None], [], [3.0]]


def test_filter_takes_signals_and_expressions_and_missing_counts_as_no() -> None:
    turns = Turns({"reward": [1.0, None, 3.0], "valid": [True, True, None], "logprobs": [[0.0]] * 3})
    assert turns.filter(col("reward") > 0)["reward"].to_list() == [1.0, 3.0]
    assert turns.filter(pl.col("reward") > 1)["reward"].to_list() == [3.0]
    assert turns.filter(col("valid"))["reward"].to_list() == [1.0, None]
    assert len(turns.filter(~col("valid"))) == 0
    with pytest.raises(SchemaError, match=r"one per token; wrap it in per_turn\(\)"):
        turns.filter(col("logprobs") < 0)


def test_concat_fills_what_one_table_lacks() -> None:
    one, two = Turns({"group": [0], "agent": ["a"]}), Turns({"group": [1], "reward": [1.0]})
    both = Turns.concat([one, two])
    assert both["agent"].to_list() == ["a", None]
    assert both["reward"].to_list() == [None, 1.0]
    assert Turns.concat([]).columns == list(SCHEMA)
    with pytest.raises(SchemaError, match="do not fit together"):
        Turns.concat([Turns({"x": [1]}), Turns({"x": [[1]]})])


def test_missing_columns_are_named_with_the_nearest() -> None:
    turns = Turns({"reward": [1.0], "quality": [2.0]})
    with pytest.raises(MissingColumnError, match="did you mean 'quality'"):
        turns["qualitty"]
    with pytest.raises(MissingColumnError, match="key 'group': column 'group' is missing"):
        turns.codes("group")


# -- keys -------------------------------------------------------------------------------------------------------------


def test_the_laws_of_keys() -> None:
    turns = Turns({"run": ["x", "y"], "iteration": [0, 0], "group": [0, 0], "episode": [0, 0], "agent": ["a", "a"]})
    assert turns.key_columns([]) == ("run", "iteration")
    assert turns.key_columns(["episode", "agent"]) == ("run", "iteration", "group", "episode", "agent")
    assert turns.key_columns(["group", "episode"]) == ("run", "iteration", "group", "episode")
    assert turns.codes().size == 2, "two runs are two batches"
    assert turns.codes("row").ids.tolist() == [0, 1]
    assert Turns({"episode": [0, 1]}).key_columns(["episode"]) == ("episode",)


def test_cached_keys_are_forgotten_when_their_columns_change() -> None:
    turns = Turns({"group": [0, 0, 1], "episode": [0, 0, 0], "agent": ["a", "b", "a"], "turn": [0, 1, 0]})
    assert turns.codes("group", "agent").size == 3
    assert turns.segments("episode").lengths.tolist() == [2, 1]
    merged = turns.with_column(group=[0, 0, 0])
    assert merged.codes("group", "agent").size == 2
    assert merged.segments("episode").lengths.tolist() == [3]
    turned = turns.with_column(turn=[1, 0, 0])
    assert turned.segments("episode").order is not None
    assert turned.segments("episode").order.tolist() == [1, 0, 2]  # type: ignore[union-attr]
    assert turns.with_column(iteration=[0, 1, 0]).codes("group").size == 3
    assert turns.with_column(other=[1, 2, 3])._cache, "what does not change is kept"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=20))
def test_segments_are_the_rows_of_each_key_in_the_order_of_play(rows: list[tuple[int, int]]) -> None:
    turns = Turns(pl.DataFrame(rows, schema={"episode": pl.Int32, "turn": pl.Int32}, orient="row"))
    segments, codes = turns.segments("episode"), turns.codes("episode")
    order = np.arange(len(rows)) if segments.order is None else segments.order
    expected = sorted(range(len(rows)), key=lambda i: (codes.ids[i], rows[i][1], i))
    assert order.tolist() == expected
    assert segments.lengths.tolist() == np.bincount(codes.ids, minlength=codes.size).tolist()
    assert segments.starts.tolist() == (np.cumsum(segments.lengths) - segments.lengths).tolist()


# -- checks of a rollout ----------------------------------------------------------------------------------------------


def test_rows_whose_prompt_does_not_extend_the_episode_are_marked() -> None:
    turns = Turns(
        {
            "group": [0] * 6,
            "episode": [0, 0, 0, 0, 1, 1],
            "turn": [0, 0, 1, 1, 0, 1],
            "agent": ["a", "b", "a", "b", "a", "a"],
            "prompt_ids": [[1], [5], [1, 2, 3], [6], [1], [1, 9]],
            "action_ids": [[2], [6], [4], [7], [2], [3]],
        }
    )
    assert turns.broken_prefixes().tolist() == [False, False, False, True, False, True]
