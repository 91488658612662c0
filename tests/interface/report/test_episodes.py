from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from palaestra.interface.report.episodes import CLIP, LONGEST, MOST_TURNS, OPEN_TURNS, Text, sample
from palaestra.interface.report.load import load_run


def test_ten_episodes_of_every_kind_from_several_seeds(run_dir: Path) -> None:
    episodes = sample(load_run(run_dir))
    assert len(episodes) == 10
    assert {e.outcome for e in episodes} == {"success", "failure", "error"}
    assert {e.source for e in episodes} >= {"before", "after", "training, iteration 29"}
    assert {e.seed for e in episodes} == {"0", "1", "2"}
    assert all(e.error for e in episodes if e.outcome == "error")
    assert sum(e.open for e in episodes) == 6


def test_the_first_four_show_two_tasks_before_and_after(run_dir: Path) -> None:
    first, second, third, fourth = sample(load_run(run_dir))[:4]
    assert [e.source for e in (first, second, third, fourth)] == ["before", "after", "before", "after"]
    assert first.task == second.task
    assert third.task == fourth.task
    assert first.task != third.task
    assert (first.outcome != "success", second.outcome, fourth.outcome) == (True, "success", "failure")


def test_the_choice_does_not_depend_on_the_order_of_the_rows(run_dir: Path) -> None:
    before = sample(load_run(run_dir))
    for path in run_dir.glob("seed-*/**/*.parquet"):
        frame = pl.read_parquet(path)
        frame.sample(fraction=1, shuffle=True, seed=3).write_parquet(path)
    assert sample(load_run(run_dir)) == before


def test_shades_are_shares_of_the_largest_magnitude(run_dir: Path) -> None:
    turns = [t for e in sample(load_run(run_dir)) for t in e.turns]
    credits = [t.credit for t in turns if t.credit is not None]
    largest = max(abs(c) for c in credits)
    assert all(t.credit_shade == pytest.approx(t.credit / largest) for t in turns if t.credit is not None)
    assert {t.credit_shade for t in turns if t.credit is None} == {0.0}
    assert max(t.reward_shade for t in turns) == 1


def test_a_run_without_tables_has_no_episodes(run_dir: Path) -> None:
    for path in run_dir.glob("seed-*/**/*.parquet"):
        path.unlink()
    assert sample(load_run(run_dir)) == []


def test_tables_with_the_bare_minimum_of_columns(tmp_path: Path) -> None:
    (tmp_path / "seed-0").mkdir()
    pl.DataFrame({"group": [0, 0], "episode": [0, 0], "turn": [1, 0], "agent": ["b", "a"]}).write_parquet(
        tmp_path / "seed-0" / "evaluation.parquet"
    )
    (episode,) = sample(load_run(tmp_path))
    assert episode.outcome == "played"
    assert [t.agent for t in episode.turns] == ["a", "b"]
    assert episode.returns == (("a", None), ("b", None))


def test_success_may_differ_by_agent(tmp_path: Path) -> None:
    (tmp_path / "seed-0").mkdir()
    pl.DataFrame(
        {"group": 0, "episode": 0, "turn": [0, 1], "agent": ["a", "b"], "success": [True, False], "reward": [1.0, -1.0]}
    ).write_parquet(tmp_path / "seed-0" / "evaluation.parquet")
    (episode,) = sample(load_run(tmp_path))
    assert episode.outcome == "split"
    assert episode.returns == (("a", 1.0), ("b", -1.0))
    assert episode.expected == ""


def test_the_right_answer_is_shown_where_the_table_has_one(tmp_path: Path) -> None:
    (tmp_path / "seed-0").mkdir()
    rows = {"group": 0, "episode": 0, "turn": [0, 1], "agent": ["a", "b"], "success": False, "expected": [None, "42"]}
    pl.DataFrame(rows).write_parquet(tmp_path / "seed-0" / "evaluation.parquet")
    assert sample(load_run(tmp_path))[0].expected == "42"


def test_long_episodes_are_folded_and_then_cut(tmp_path: Path) -> None:
    (tmp_path / "seed-0").mkdir()
    pl.DataFrame({"group": 0, "episode": 0, "turn": range(100), "agent": "a"}).write_parquet(
        tmp_path / "seed-0" / "evaluation.parquet"
    )
    (episode,) = sample(load_run(tmp_path))
    assert len(episode.turns) == OPEN_TURNS
    assert len(episode.folded) == MOST_TURNS - OPEN_TURNS
    assert episode.left_out == 100 - MOST_TURNS
    assert episode.length == 100


def test_forty_characters_too_many_are_not_worth_a_clip() -> None:
    assert Text.of("a" * (CLIP + 40)).left_out == 0
    assert Text.of("a" * (CLIP + 40)).tail == ""
    assert Text.of("a" * (CLIP + 41)).tail


def test_texts_keep_both_ends() -> None:
    assert Text.of("short") == Text("short")
    assert Text.of(None) == Text("")
    long = "a" * CLIP + "b" * LONGEST + "c" * 100
    text = Text.of(long)
    assert text.head.startswith("aaa")
    assert text.tail.endswith("ccc")
    assert len(text.head + text.tail) <= CLIP + 1
    assert text.whole == long[:LONGEST]
    assert text.left_out == len(long) - LONGEST


def test_fewer_episodes_than_asked_for_are_each_shown_once(build: Callable[..., Path], tmp_path: Path) -> None:
    folder = build(tmp_path / "run", seeds=1, tasks=1, trials=1)
    for path in folder.glob("seed-0/turns/*"):
        path.unlink()
    assert len(sample(load_run(folder))) == 5  # five systems, one task, one trial
