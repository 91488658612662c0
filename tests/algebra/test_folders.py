"""Signals over folders: the bits of the table in memory, whatever is cut, killed or changed."""

from __future__ import annotations

import os
import signal as signals
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import palaestra
from palaestra.algebra.folders import Applied, apply
from palaestra.algebra.kernels import KERNELS, Evaluation
from palaestra.algebra.parse import parse
from palaestra.algebra.partition import BATCH, collectable, iteration_nodes
from palaestra.algebra.signals import REGISTRY, Signal, Value, col, evaluate, mean, quantile, standardise, std
from palaestra.algebra.turns import Ragged, Turns
from palaestra.credit import gigpo, grpo, reinforce
from palaestra.errors import DamagedFileError, ExpressionError, InputError, MissingColumnError, RewardError
from palaestra.testing.columns import made
from palaestra.testing.examples import ELSEWHERE, example
from palaestra.testing.signal import sample_turns

NAMES = [n for n, f in REGISTRY.items() if f.__module__.startswith("palaestra.") and n not in ELSEWHERE]
SIGNALS = {f"x_{name}": parse(example(name)) for name in NAMES}
"""Every registered name with example arguments."""


def played(*iterations: int, missing: float = 0.2) -> Turns:
    rng = np.random.default_rng(3)
    tables = [sample_turns(rng, groups=(3, 2, 4, 1), missing=missing, iteration=number) for number in iterations]
    return Turns.concat(tables)


def split(turns: Turns, folder: Path, by: tuple[str, ...] = ("iteration", "group")) -> Turns:
    """A file for each key, and the table that they are together."""
    for key, part in turns.frame.partition_by(by, as_dict=True, maintain_order=True).items():
        Turns(part).save(folder / f"{'-'.join(f'{each:03}' for each in key)}.parquet")
    return Turns.load(folder)


def split_rows(turns: Turns, folder: Path, files: int) -> Turns:
    """Files of equally many rows, whatever they cut."""
    size = -(-len(turns) // files)
    for number in range(files):
        Turns(turns.frame.slice(number * size, size)).save(folder / f"{number:03}.parquet")
    return Turns.load(folder)


def column(value: Value) -> pl.Series:
    if isinstance(value, Ragged):
        return Ragged(value.values.astype(float), value.lengths).to_series("x")
    return pl.Series("x", value.astype(float)).fill_nan(None)


@pytest.fixture(scope="module")
def everything() -> Turns:
    turns = played(0, 1)
    for name in sorted({name for signal in SIGNALS.values() for name in signal.needs()} - set(turns.columns)):
        turns = turns.with_column(**{name: made(name, turns, np.random.default_rng(len(name)))})
    return turns


@pytest.mark.parametrize("mode", ["file by file", "cut by rows", "iterations together", "in passes"])
def test_every_registered_signal_is_bit_equal_to_that_of_the_table_in_memory(
    mode: str, everything: Turns, tmp_path: Path
) -> None:
    turns = split_rows(everything, tmp_path / "in", 8) if mode == "cut by rows" else split(everything, tmp_path / "in")
    wide_ones = mode not in ("file by file", "cut by rows")
    chosen = {name: s for name, s in SIGNALS.items() if (s.partition() == BATCH) == wide_ones}
    if mode == "in passes":
        chosen = {name: s for name, s in chosen.items() if all(map(collectable, iteration_nodes(s)))}
    assert len(chosen) > (10 if wide_ones else 150)
    done = apply(chosen, tmp_path / "in", tmp_path / "out", together=0 if mode == "in passes" else 1000)
    assert (done.files, done.turns, done.found) == (8, len(turns), 0)
    assert (done.passes > 1) == (mode == "in passes")
    out = Turns.load(tmp_path / "out")
    for name, value in zip(chosen, evaluate(turns, *chosen.values()), strict=True):
        assert out[name].equals(column(value), null_equal=True), name
    assert out.frame.select(turns.columns).equals(turns.frame)


def test_statistics_of_statistics_take_passes_and_are_bit_equal(tmp_path: Path) -> None:
    turns = split(played(0, 1), tmp_path / "in")
    inner = standardise("reward", over="agent")
    signal = standardise(inner * col("turn"), over=(), unit="episode", where=inner < mean(inner, over=("turn",)))
    done = apply({"x": signal}, tmp_path / "in", tmp_path / "out", together=0)
    assert done.passes == 6  # 2 of the inner one, 1 of its mean, 2 of the outer one, 1 to apply
    assert Turns.load(tmp_path / "out")["x"].equals(column(signal.evaluate(turns)), null_equal=True)


def test_what_is_constant_but_for_rounding_is_so_in_passes(tmp_path: Path) -> None:
    """Below 2.5e-7 of its size a deviation is rounding: a's is, b's and c's are not."""
    near = {"a": (1000.0, 1e-4), "b": (1000.0, 1e-3), "c": (1e-3, 1e-8)}
    for sign in (-1, 1):
        rewards = [mean + sign * gap for mean, gap in near.values()]
        part = {"iteration": 0, "group": sign + 1, "episode": 0, "turn": 0, "agent": [*near], "reward": rewards}
        Turns(part).save(tmp_path / f"in/{sign + 1}.parquet")
    deviations = {"x": std("reward", over="agent", ddof=0), "few": std("reward", over="agent", ddof=2)}
    for together in (0, 99):
        apply(deviations, tmp_path / "in", tmp_path / f"out{together}", together=together)
        found = Turns.load(tmp_path / f"out{together}")
        np.testing.assert_allclose(found["x"].to_numpy(), [0, 1e-3, 1e-8] * 2, rtol=1e-6)
        assert found["few"].to_list() == [0] * 6  # two samples have no deviation with ddof=2


def test_a_computed_key_is_the_same_key_in_every_file(tmp_path: Path) -> None:
    turns = split(played(0), tmp_path / "in")
    signal = mean("reward", over=("agent", col("turn") > 2))
    apply({"x": signal}, tmp_path / "in", tmp_path / "out", together=0)
    assert Turns.load(tmp_path / "out")["x"].equals(column(signal.evaluate(turns)), null_equal=True)


def test_a_reward_comes_first_and_a_replaced_column_keeps_its_place(tmp_path: Path) -> None:
    turns = split(played(0, 1), tmp_path / "in")
    palaestra.apply("grpo()", tmp_path / "in", tmp_path / "out", reward="2 * reward + turn")
    out = Turns.load(tmp_path / "out")
    expected = turns.with_column(reward=2 * col("reward") + col("turn")).with_column(advantage=grpo())
    assert out.columns == [*turns.columns, "advantage"]
    assert out.frame.equals(expected.frame)
    columns = {"reward": "reward - mean(reward, over=agent)", "unused": "whiten(turn)", "x": "reinforce()"}
    apply(columns, tmp_path / "in", tmp_path / "wide", together=0)
    centred = turns.with_column(reward=col("reward") - mean("reward", over="agent"))
    assert Turns.load(tmp_path / "wide")["x"].equals(centred.with_column(x=reinforce())["x"])


def test_rows_can_be_cut_anywhere_if_nothing_ranges_over_them(tmp_path: Path) -> None:
    turns = played(0)
    for number in range(5):
        Turns(turns.frame[number::5]).save(tmp_path / f"in/deep/{number}.parquet")
    said: list[tuple[object, ...]] = []
    done = apply(
        {"x": 2 * col("reward")}, tmp_path / "in", tmp_path / "out", slim=True, progress=lambda *step: said.append(step)
    )
    assert done == Applied(5, len(turns), 0, 1, ("row",))
    assert [step[:3] for step in said] == [("files", number, 5) for number in range(1, 6)]
    out = pl.read_parquet(tmp_path / "out/deep/3.parquet")
    assert out.columns == ["group", "episode", "turn", "agent", "iteration", "x"]
    assert out["x"].equals((2 * turns.frame[3::5]["reward"]).alias("x"), null_equal=True)


def test_two_processes_give_the_same_files(tmp_path: Path) -> None:
    turns = split(played(0, 1), tmp_path / "in")
    apply({"x": "gigpo(gamma=0.95)"}, tmp_path / "in", tmp_path / "two", workers=2)
    assert Turns.load(tmp_path / "two")["x"].equals(turns.with_column(x=gigpo(gamma=0.95))["x"])


# -- what is cut ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("files", [2, 5, 17, 30])
def test_shards_cut_by_rows_give_what_the_table_gives(files: int, tmp_path: Path) -> None:
    """A group goes on over several files, and the columns of a second signal are made from those of a first."""
    turns = split_rows(played(0, 1), tmp_path / "in", files)
    columns = {"x": "grpo()", "y": "gigpo(gamma=0.95) + x - mean(x, over=episode)"}
    done = apply(columns, tmp_path / "in", tmp_path / "out", workers=2 if files == 5 else 1)
    assert (done.files, done.turns) == (files, len(turns))
    expected = turns.with_column(x=grpo()).with_column(y=parse(columns["y"], columns=["x"]))
    assert Turns.load(tmp_path / "out").frame.equals(expected.frame, null_equal=True)


def test_rows_of_a_group_may_be_scattered(tmp_path: Path) -> None:
    turns = played(0)
    for number in range(3):
        Turns(turns.frame[number::3]).save(tmp_path / f"in/{number}.parquet")
    together = Turns.load(tmp_path / "in")
    apply({"x": grpo()}, tmp_path / "in", tmp_path / "out")
    assert Turns.load(tmp_path / "out")["x"].equals(column(grpo().evaluate(together)), null_equal=True)


@pytest.mark.parametrize("kind", [pl.Int64, pl.Float64, pl.String])
@pytest.mark.parametrize("name", ["run", "group"])
def test_keys_of_another_type_are_the_same_keys(name: str, kind: Any, tmp_path: Path) -> None:
    """So each tool writes them: the table of both files has one type."""
    turns = split_rows(played(0).with_column(run=pl.lit("3")), tmp_path / "in", 2)
    last = tmp_path / "in/001.parquet"
    pl.read_parquet(last).with_columns(pl.col(name).cast(pl.Int64).cast(kind)).write_parquet(last)
    for out, signal in (("of groups", "grpo()"), ("of all", "grpo() + mean(reward, over=())")):
        apply({"x": signal}, tmp_path / "in", tmp_path / out)
        expected = column(parse(signal).evaluate(turns))
        assert Turns.load(tmp_path / out)["x"].equals(expected, null_equal=True)


@pytest.mark.parametrize(
    ("first", "last"),
    [(pl.Int32, pl.Int64), (pl.Int32, pl.String), (pl.String, pl.Null), (pl.Null, pl.Enum(["1"])), (pl.Null, pl.Int8)],
)
def test_a_key_of_two_types_is_collected_as_in_one_table(first: Any, last: Any, tmp_path: Path) -> None:
    turns = split_rows(played(0), tmp_path / "in", 2)
    for file, kind in zip(sorted((tmp_path / "in").iterdir()), (first, last), strict=True):
        value = pl.lit(None if kind == pl.Null else "1")
        pl.read_parquet(file).with_columns(family=value.cast(kind)).write_parquet(file)
    together = Turns.load(tmp_path / "in")
    signal = "reward - mean(reward, over='family')"
    assert apply({"x": signal}, tmp_path / "in", tmp_path / "out", together=len(turns) - 1).passes == 2
    expected = column(parse(signal).evaluate(together))
    assert Turns.load(tmp_path / "out")["x"].equals(expected, null_equal=True)


def test_a_key_without_a_common_type_is_named_with_its_file(tmp_path: Path) -> None:
    turns = split_rows(played(0), tmp_path / "in", 2)
    for file, value in zip(sorted((tmp_path / "in").iterdir()), (True, date(2026, 1, 1)), strict=True):
        pl.read_parquet(file).with_columns(family=pl.lit(value)).write_parquet(file)
    with pytest.raises(InputError, match=r"001.parquet: key 'family' has type Date here and Boolean in files before"):
        apply({"x": "mean(reward, over='family')"}, tmp_path / "in", tmp_path / "out", together=len(turns) - 1)


def test_a_changed_neighbour_is_a_changed_file_where_they_share_a_group(tmp_path: Path) -> None:
    split_rows(played(0, 1), tmp_path / "in", 4)
    assert apply({"x": grpo()}, tmp_path / "in", tmp_path / "out").found == 0
    assert apply({"x": grpo()}, tmp_path / "in", tmp_path / "out").found == 4
    last = tmp_path / "in/003.parquet"
    Turns.load(last).with_column(reward=2 * col("reward")).save(last)
    done = apply({"x": grpo()}, tmp_path / "in", tmp_path / "out")
    assert done.found == 1, "three files share the last group"
    expected = column(grpo().evaluate(Turns.load(tmp_path / "in")))
    assert Turns.load(tmp_path / "out")["x"].equals(expected, null_equal=True)


@pytest.mark.parametrize("signal", ["grpo()", "grpo() + whiten(turn)"])
def test_more_cut_groups_than_fit_are_named_with_the_cure(signal: str, tmp_path: Path) -> None:
    """The second signal is collected in passes."""
    turns = played(0, 1).frame
    cut = (turns["iteration"] == 1) & (turns["group"] == 2)
    rows = pl.int_range(len(turns), eager=True)
    late = cut & (rows > rows.filter(cut)[2])
    Turns(turns.filter(~late)).save(tmp_path / "in/a.parquet")
    Turns(turns.filter(late)).save(tmp_path / "in/b.parquet")
    wanted = r"iteration 1, group 2 lies in .*a.parquet and in .*b.parquet \(1 such\).*together=1 .*raise it.*sort the"
    with pytest.raises(InputError, match=wanted):
        apply({"x": signal}, tmp_path / "in", tmp_path / "out", together=1)
    assert not (tmp_path / "out").exists()
    apply({"x": 2 * col("reward")}, tmp_path / "in", tmp_path / "out", together=1)


@pytest.mark.parametrize("kind", ["interleaved", "null", "no scope"])
def test_only_groups_that_are_cut_are_named(kind: str, tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"iteration": 0, "group": [0, 1, 2, 3], "episode": 0, "agent": "a", "reward": [1.0, 2.0, 3.0, 4.0]}
    )
    frame = frame.drop("iteration") if kind == "no scope" else frame
    frame = frame.with_columns(group=pl.col("group").replace(3, None)) if kind == "null" else frame
    Turns(frame[::2]).save(tmp_path / "in/a.parquet")
    Turns(frame[1::2]).save(tmp_path / "in/b.parquet")
    assert apply({"x": grpo()}, tmp_path / "in", tmp_path / "out", together=0).files == 2
    last = frame[-1:]
    Turns(pl.concat([frame[::2], last])).save(tmp_path / "in/a.parquet")
    with pytest.raises(InputError, match=rf"group {last['group'][0]} lies in"):
        apply({"x": grpo()}, tmp_path / "in", tmp_path / "out", together=0)
    apply({"x": grpo()}, tmp_path / "in", tmp_path / "out")


def test_a_group_without_a_number_that_starts_two_files_is_cut(tmp_path: Path) -> None:
    for name in "ab":
        Turns({"group": [None], "episode": [0], "reward": [1.0]}).save(tmp_path / f"in/{name}.parquet")
    with pytest.raises(InputError, match="group None lies in"):
        apply({"x": grpo()}, tmp_path / "in", tmp_path / "out", together=0)


def test_what_cannot_be_collected_is_refused_by_name(tmp_path: Path) -> None:
    split(played(0), tmp_path / "in")
    signal = grpo() + quantile("reward", q=0.5, over=())
    with pytest.raises(InputError, match=r"quantile\(.* lie in 4 files, and cannot be collected .*together="):
        apply({"x": signal}, tmp_path / "in", tmp_path / "out", together=10)
    assert apply({"x": signal}, tmp_path / "in", tmp_path / "out", together=len(played(0))).passes == 1


def test_an_iteration_of_one_file_is_read_however_long_it_is(tmp_path: Path) -> None:
    turns = split(played(0, 1), tmp_path / "in", by=("iteration",))
    signal = grpo() + quantile("reward", q=0.5, over=())
    assert apply({"x": signal}, tmp_path / "in", tmp_path / "out", together=10).passes == 1
    assert Turns.load(tmp_path / "out")["x"].equals(column(signal.evaluate(turns)), null_equal=True)


def test_a_kernel_that_does_not_say_what_it_ranges_over_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kernel(evaluation: Evaluation, node: Signal) -> np.ndarray:
        return evaluation.codes(()).ids.astype(float)

    monkeypatch.setitem(KERNELS, "hidden", kernel)
    split(played(0), tmp_path / "in")
    with pytest.raises(ExpressionError, match="ranges over the iteration, which its key does not say"):
        apply({"x": Signal("hidden", col("reward"), over=("group",))}, tmp_path / "in", tmp_path / "out")


# -- what is there already --------------------------------------------------------------------------------------------


def test_finished_files_are_recognised_by_what_they_were_made_of(tmp_path: Path) -> None:
    turns = split(played(0, 1), tmp_path / "in")
    source, out = tmp_path / "in", tmp_path / "out"
    files = sorted(source.rglob("*.parquet"))

    def again(text: str = "grpo()", **options: Any) -> int:
        return apply({"x": text}, source, out, **options).found

    assert [again(), again(), again("grpo(eps=0.1)"), again(slim=True), again()] == [0, 8, 0, 0, 0]
    (out / files[3].name).unlink()
    (out / files[4].name).write_bytes(b"half a file")
    (out / f".{files[5].name}.123.tmp").write_bytes(b"left by a kill")
    os.utime(files[0])  # its name and content are the same
    assert again() == 6
    changed = turns.frame.filter(iteration=0, group=1).with_columns(reward=pl.lit(7.0))
    Turns(changed).save(files[1])
    assert again() == 7
    assert [p.name for p in sorted(out.iterdir())] == [file.name for file in files]
    assert again("reinforce()", together=0) == 0
    assert again("reinforce()", together=0) == 8
    Turns(changed.with_columns(reward=pl.lit(1.0))).save(files[1])
    assert again("reinforce()", together=0) == 0, "its mean is in every file"
    assert Turns.load(out)["x"].equals(Turns.load(source).with_column(x=reinforce())["x"])


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(12):
        Turns(sample_turns(rng, groups=(40,) * 10, iteration=number)).save(tmp_path / f"in/{number:02}.parquet")
    code = "import sys; from palaestra.algebra.folders import apply; apply({'x': 'gigpo()'}, sys.argv[1], sys.argv[2])"
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "in"), str(tmp_path / "out")])
    try:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("out/*.parquet"))) < 2 and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        process.send_signal(signals.SIGKILL)
        process.wait()
    before = {file: file.stat().st_mtime_ns for file in tmp_path.glob("out/*.parquet")}
    (tmp_path / f"out/.11.parquet.{process.pid}.tmp").touch()
    other = tmp_path / f"out/.11.parquet.{os.getppid()}.tmp"  # of a run that goes on beside this one
    other.touch()
    done = apply({"x": "gigpo()"}, tmp_path / "in", tmp_path / "out")
    other.unlink()
    assert done.found == len(before) >= 2
    assert all(file.stat().st_mtime_ns == then for file, then in before.items())
    expected = Turns.load(tmp_path / "in").with_column(x=gigpo())
    assert Turns.load(tmp_path / "out")["x"].equals(expected["x"])
    assert len(list((tmp_path / "out").iterdir())) == 12


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        ("empty folder", DamagedFileError, "no Parquet files"),
        ("cut file", DamagedFileError, r"001-000.parquet: not a readable Parquet file"),
        ("in place", InputError, "one folder lies in the other"),
        ("other tables", InputError, "holds stray.parquet, which .* does not"),
        ("no reward", InputError, r"001-000.parquet: has no column 'reward', which 000-000.parquet has"),
        ("infinite", RewardError, r"001-000.parquet: .*is not finite in .* rows, first"),
        ("nowhere", MissingColumnError, "column 'score' is missing"),
    ],
)
def test_what_is_wrong_is_named(damage: str, error: type[Exception], message: str, tmp_path: Path) -> None:
    source, out, text = tmp_path / "in", tmp_path / "out", "grpo()"
    split(played(0, 1), source)
    victim = source / "001-000.parquet"
    match damage:
        case "empty folder":
            source = tmp_path / "nothing"
            source.mkdir()
        case "cut file":
            victim.write_bytes(victim.read_bytes()[:300])
        case "in place":
            out = source
        case "other tables":
            played(0).save(out / "stray.parquet")
        case "no reward":
            Turns(Turns.load(victim).frame.drop("reward")).save(victim)
        case "infinite":
            Turns(Turns.load(victim).frame.with_columns(reward=pl.lit(float("inf")))).save(victim)
        case "nowhere":
            text = "grpo('score')"
    with pytest.raises(error, match=message):
        apply({"x": text}, source, out)
