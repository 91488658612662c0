"""Contests of many, Elo-MMR, and medals."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from palaestra.errors import InputError
from palaestra.evaluation.ranking import contests, elo_mmr, medal, rank_contests, read_contests
from palaestra.interface import cli

ROWS = pl.DataFrame({
    "contest": [*"xxxyyy"], "system": [*"abcabc"], "score": [3.0, 2.0, 2.0, 1.0, None, 5.0], "time": [2, 2, 2, 1, 1, 1],
})  # fmt: skip


def test_scores_become_ranks_in_time_order() -> None:
    found = contests(ROWS)
    assert found.rows.select("contest", "system", "rank", "teams").rows() == [
        ("y", "a", 2.0, 3), ("y", "b", 3.0, 3), ("y", "c", 1.0, 3),
        ("x", "a", 1.0, 3), ("x", "b", 2.0, 3), ("x", "c", 2.0, 3),
    ]  # fmt: skip
    lower = contests(ROWS.with_columns(lower=pl.lit("true")))
    assert lower.rows.filter(contest="x")["rank"].to_list() == [3.0, 1.0, 1.0]


def test_times_that_do_not_sort_and_scores_that_are_none_are_refused() -> None:
    def timed(x: object, y: object) -> pl.DataFrame:
        return ROWS.with_columns(time=pl.Series([x] * 3 + [y] * 3, strict=False))

    ordered = contests(ROWS).rows
    for later, sooner in ((10, 9), ("10", "9"), ("2024-02-10", "2024-02-09"), ("2024-02-09 10:00", "2024-02-09 09:59"),
                          (date(2024, 2, 10), date(2024, 2, 9))):  # fmt: skip
        assert contests(timed(later, sooner)).rows.equals(ordered)
    for later, sooner in (("10/2/2024", "9/2/2024"), ("10 Feb", "9 Feb"), ("2024-02-09T10:00+09:00", "2024-02-09")):
        with pytest.raises(InputError, match=r"contests: time '.*' does not sort as text"):
            contests(timed(later, sooner))
    words = ROWS.with_columns(pl.col("score").cast(pl.String))
    assert contests(words).rows.equals(ordered)
    with pytest.raises(InputError, match="contests: score 'DNF' is no number"):
        contests(words.with_columns(pl.col("score").fill_null("DNF")))
    with pytest.raises(InputError, match="contests: rank '1st' is no number"):
        contests(ROWS.with_columns(rank=pl.lit("1st")))


def test_pairs_of_a_contest_are_matches_of_one_cluster() -> None:
    played = contests(ROWS).matches()
    assert played.wins()[0].tolist() == [0, 2, 1]
    assert played.ties()[1, 2] == 1
    assert played.cluster.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_tie_counts_twice_unless_it_is_split() -> None:
    who, tied = np.arange(3), np.array([1.0, 1.0, 3.0])
    both = [elo_mmr([(who, tied)], 3, split_ties=split).mu for split in (False, True)]
    assert both[0][0] == both[0][1] > 1500 > both[0][2]
    assert both[1][0] > both[0][0]


def test_who_stays_away_keeps_a_rating() -> None:
    rated = elo_mmr([(np.array([0, 1]), np.array([1, 2]))], 3)
    assert (rated.mu[2], rated.sigma[2]) == (1500.0, 350.0)
    assert rated.mu[0] + rated.mu[1] == pytest.approx(3000)


@pytest.mark.parametrize("method", ["elo_mmr", "bradley_terry"])
def test_matches_are_won_lost_or_drawn(method: str) -> None:
    table = rank_contests(contests(pl.concat([ROWS, ROWS[:1].with_columns(contest=pl.lit("alone"))])), method).table
    assert (table["n"] == table["wins"] + table["losses"] + table["draws"]).all()
    assert dict(table.select("system", "n").rows()) == {"a": 4, "b": 4, "c": 4}
    if method == "elo_mmr":
        assert dict(table.select("system", "contests").rows()) == {"a": 3, "b": 2, "c": 2}


def test_order_of_rows_does_not_matter() -> None:
    a = rank_contests(contests(ROWS), "elo_mmr", resamples=100).table
    b = rank_contests(contests(ROWS.reverse()), "elo_mmr", resamples=100).table
    assert a.equals(b)


def test_small_contests_have_medals() -> None:
    assert [medal(rank, 3) for rank in (1, 2, 3)] == ["gold", None, None]
    with pytest.raises(InputError, match="rank 4 of 3 teams"):
        medal(4, 3)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ROWS.write_csv(tmp_path / "contests.csv")
    with pytest.raises(SystemExit) as done:
        cli.main(["rank", str(tmp_path / "contests.csv"), "--method", "elo_mmr", "--json"])
    assert done.value.code == 0
    ranking = json.loads(capsys.readouterr().out)["ranking"]
    assert {row["system"]: row["gold"] for row in ranking} == {"a": 1, "b": 0, "c": 1}
    with pytest.raises(SystemExit):
        cli.main(["rank", str(tmp_path / "contests.csv"), "--json"])
    assert all("gold" in row for row in json.loads(capsys.readouterr().out)["ranking"])
    pl.DataFrame({"a": ["x"], "b": ["y"], "winner": ["x"]}).write_csv(tmp_path / "matches.csv")
    with pytest.raises(SystemExit) as done:
        cli.main(["rank", str(tmp_path / "matches.csv"), "--method", "elo_mmr"])
    assert done.value.code == 2
    assert "elo_mmr rates contests" in capsys.readouterr().err


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a system is twice in one contest"):
        contests(pl.concat([ROWS, ROWS]))
    with pytest.raises(InputError, match="contest, system and rank of every row"):
        contests(pl.DataFrame({"contest": ["x"], "system": ["a"], "rank": [None]}))
    with pytest.raises(InputError, match="each once"):
        elo_mmr([(np.array([0, 0]), np.array([1, 2]))], 1)
    with pytest.raises(InputError, match="weight=0"):
        elo_mmr([], 1, weight=0)
    (tmp_path / "m.csv").write_text("a,b,winner\nx,y,x\n")
    assert read_contests(tmp_path / "m.csv") is None
