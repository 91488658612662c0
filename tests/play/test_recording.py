from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.algebra.turns import SCHEMA_VERSION, Turns, empty
from palaestra.errors import StorageError
from palaestra.play.recording import EpisodeRecord, Label, Stored, TurnRecord, frames, stream_parquet, to_frame


def episode(number: int, rows: int, **shared: object) -> EpisodeRecord:
    made = [
        TurnRecord("a", f"seen {turn}", state=2**64 - 1 - turn, turn=turn, policy="p", reward=0.5)
        for turn in range(rows)
    ]
    return EpisodeRecord(group=1, episode=number, seed=2**31 - 1, task="t", rows=made, **shared)  # type: ignore[arg-type]


def test_the_table_has_the_schema_and_the_facts_of_the_episode_on_every_row() -> None:
    frame = to_frame(
        [episode(0, 2, terminated=True), episode(1, 0, error="env: X: no"), episode(2, 1)], Label(iteration=4)
    )
    assert frame.schema == empty().schema
    assert frame.select("iteration", "group", "episode", "turn", "agent", "terminated", "error", "task").rows() == [
        (4, 1, 0, 0, "a", True, None, "t"),
        (4, 1, 0, 1, "a", True, None, "t"),
        (4, 1, 1, 0, None, False, "env: X: no", "t"),
        (4, 1, 2, 0, "a", False, None, "t"),
    ]
    assert frame["state"].to_list() == [2**64 - 1, 2**64 - 2, None, 2**64 - 1]
    assert frame["run"].to_list() == [None] * 4
    assert to_frame([episode(0, 1)], Label("r"))["run"].to_list() == ["r"]


numbers = st.none() | st.lists(st.integers(0, 100), max_size=4)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8))
def test_ragged_columns_keep_lengths_and_nulls(cells: list[tuple[list[int] | None, list[int] | None]]) -> None:
    def array(values: list[int] | None, dtype: type) -> np.ndarray | None:
        return None if values is None else np.array(values, dtype)

    rows = [
        TurnRecord("a", prompt_ids=array(p, np.int32), legal=array(m, np.bool_), features=array(m, np.float32))
        for p, m in cells
    ]
    frame = to_frame([EpisodeRecord(0, 0, 0, rows=rows)])
    assert frame["prompt_ids"].to_list() == [p for p, _ in cells]
    assert frame["features"].to_list() == [m for _, m in cells]
    assert frame["legal"].to_list() == [None if m is None else [bool(v) for v in m] for _, m in cells]


def test_chunks_hold_whole_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaestra.play.recording.CHUNK_ROWS", 5)
    parts = list(frames([episode(number, rows) for number, rows in enumerate([2, 4, 0, 9, 0, 1])]))
    assert [part["episode"].to_list() for part in parts] == [[0, 0, 1, 1, 1, 1], [2] + [3] * 9, [4, 5]]


def test_a_streamed_file_is_a_file_of_turns(tmp_path: Path) -> None:
    parts = [to_frame([episode(number, 3)]) for number in range(4)]
    streamed = stream_parquet(tmp_path / "deep" / "turns.parquet", iter(parts))
    saved = Turns(pl.concat(parts)).save(tmp_path / "saved.parquet")
    assert Turns.load(streamed).frame.equals(Turns.load(saved).frame)
    assert Turns.load(streamed).frame.schema == empty().schema
    assert pl.read_parquet_metadata(streamed)["palaestra.schema"] == str(SCHEMA_VERSION)
    assert pq.ParquetFile(streamed).num_row_groups == 4


def test_chunks_are_written_while_they_come(tmp_path: Path) -> None:
    sizes = []

    def chunks() -> Iterator[pl.DataFrame]:
        rng = np.random.default_rng(0)
        for number in range(3):
            (temporary,) = tmp_path.iterdir()
            assert temporary.name != "turns.parquet"
            sizes.append(temporary.stat().st_size)
            row = TurnRecord("a", prompt_ids=rng.integers(0, 2**31, 50_000, dtype=np.int32))
            yield to_frame([EpisodeRecord(0, number, 0, rows=[row])])

    stream_parquet(tmp_path / "turns.parquet", chunks())
    assert sizes[0] < 1000
    assert sizes[2] - sizes[1] > 100_000
    assert [file.name for file in tmp_path.iterdir()] == ["turns.parquet"]


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    def chunks() -> Iterator[pl.DataFrame]:
        yield to_frame([episode(0, 1)])
        raise RuntimeError("stop")

    path = tmp_path / "turns.parquet"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="stop"):
        stream_parquet(path, chunks())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot write .*turns\.parquet"):
        stream_parquet(tmp_path / "file" / "turns.parquet", iter([]))
    with pytest.raises(StorageError, match="is a directory"):
        stream_parquet(tmp_path, iter([]))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = pq.ParquetWriter
    monkeypatch.setattr(pq, "ParquetWriter", lambda _, *args, **kwargs: real("/dev/full", *args, **kwargs))
    rng = np.random.default_rng(0)
    row = TurnRecord("a", prompt_ids=rng.integers(0, 2**31, 500_000, dtype=np.int32))
    with pytest.raises(StorageError, match="No space left"):
        stream_parquet(tmp_path / "turns.parquet", iter([to_frame([EpisodeRecord(0, 0, 0, rows=[row])])]))
    assert not list(tmp_path.iterdir())


def test_a_stored_table_is_read_when_somebody_looks(tmp_path: Path) -> None:
    path = stream_parquet(tmp_path / "turns.parquet", iter([to_frame([episode(0, 3)])]))
    turns = Stored(path)
    assert "frame" not in vars(turns)
    assert (len(turns), turns["turn"].to_list()) == (3, [0, 1, 2])
    path.unlink()
    assert len(turns.filter(pl.col("turn") > 0)) == 2, "read once"


def test_a_stored_table_is_never_another_one(tmp_path: Path) -> None:
    path = stream_parquet(tmp_path / "turns.parquet", iter([to_frame([episode(0, 3)])]))
    first = Stored(path)
    stream_parquet(path, iter([to_frame([episode(0, 5)])]))
    with pytest.raises(StorageError, match=r"turns.parquet: somebody has changed or removed it"):
        len(first)
    assert len(Stored(path)) == 5


STREAMING = """
import resource, sys
from palaestra.envs.protocol import Observation
from palaestra.play import recording
from palaestra.play.rollout import rollout
from tests.play.test_rollout import Script, Team, Answers, Decision, end

recording.CHUNK_ROWS = 500
team = Team({"*": Answers(lambda _: Decision("yes"))})
peaks = []
for groups in (1_000, 9_000):
    make = lambda: Script(lambda env: {"a": Observation(str(env.seed) * 600)}, end())
    rollout(make, team, groups=groups, sink=sys.argv[1])
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print((peaks[1] - peaks[0]) / 2 ** (20 if sys.platform == "darwin" else 10))
"""


def test_streaming_takes_no_more_memory_for_more_episodes(tmp_path: Path) -> None:
    """The texts of 8,000 more rows are 46 MB."""
    done = subprocess.run(
        [sys.executable, "-c", STREAMING, str(tmp_path / "t.parquet")],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 20
