"""Files of matches that people have: each says the same six results, x beats y three times, loses twice, draws once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from palaestra.errors import InputError, MissingColumnError, StorageError
from palaestra.evaluation.ranking import read_matches
from palaestra.evaluation.ranking.headers import NUMBERS, PAIRS, normalised_header
from palaestra.evaluation.ranking.matches import matches_from_trials
from palaestra.interface import cli

X, Y = ["x"] * 6, ["y"] * 6
SCORE = [1, 1, 1, 0, 0, 0.5]


def words(first: str, second: str, tie: str = "tie") -> list[str]:
    return [{1: first, 0: second, 0.5: tie}[s] for s in SCORE]


def pair(a: str, b: str, **columns: list[Any]) -> dict[str, list[Any]]:
    return {a: X, b: Y, **columns}


GOALS = {"home": [3, 2, 1, 0, 1, 2], "away": [0, 1, 0, 1, 4, 2]}
FILES: dict[str, dict[str, list[Any]]] = {
    "names": pair("model_a", "model_b", winner=words("x", "y")),
    "columns": pair("model_a", "model_b", winner=words("model_a", "model_b", "tie (bothbad)")),
    "both bad": pair("model_a", "model_b", winner=words("model_a", "model_b", "both_bad")),
    "capitals": {"Model A": X, "Model B": Y, "Winner": words("Model A", "Model B", "Tie")},
    "left and right": pair("left", "right", winner=words("left", "right", "both")),
    "winner and loser": {"winner": ["x", "x", "x", "y", "y", "x"], "loser": ["y", "y", "y", "x", "x", "y"],
                         "draw": [False] * 5 + [True]},
    "winner and loser, draws in words": {"Winner Name": ["x", "x", "x", "y", "y", "x"],
                                         "Loser Name": ["y", "y", "y", "x", "x", "y"],
                                         "result": ["won"] * 5 + ["draw"]},
    "chosen": {"chosen_model": ["x", "x", "x", "y", "y", "x"], "rejected_model": ["y", "y", "y", "x", "x", "y"],
               "tie": [0] * 5 + [1]},
    "assistants": pair("assistant_a", "assistant_b", winner=words("assistant_a", "assistant_b", "tie")),
    "opponents": pair("team", "opponent", outcome=words("win", "loss", "draw")),
    "ids beside names": {"id_a": [1] * 6, "id_b": [2] * 6} | pair("model_a", "model_b", winner=words("a", "b")),
    "ids": {"id_a": X, "id_b": Y, "winner_id": words("x", "y")},
    "chess": {"White": X, "Black": Y, "Result": words("1-0", "0-1", "1/2-1/2"), "WhiteElo": [1] * 6},
    "chess, words": {"White": X, "Black": Y, "Winner": words("white", "black", "draw")},
    "goals": {"home_team": X, "away_team": Y, "home_score": GOALS["home"], "away_score": GOALS["away"]},
    "football": {"HomeTeam": X, "AwayTeam": Y, "FTHG": GOALS["home"], "FTAG": GOALS["away"],
                 "FTR": words("H", "A", "D")},
    "home": {"home": X, "away": Y, "home_goals": GOALS["home"], "away_goals": GOALS["away"]},
    "player1": pair("player1", "player2", winner=words("player1", "player2", "draw")),
    "player 1": {"Player 1": X, "Player 2": Y, "Score 1": GOALS["home"], "Score 2": GOALS["away"]},
    "index from 0": pair("player_a", "player_b", winner=[0, 0, 0, 1, 1, "tie"]),
    "index from 1": pair("player1", "player2", winner=[1, 1, 1, 2, 2, "draw"]),
    "kaggle": {"id": list(range(6)), "model_a": X, "model_b": Y, "prompt": ["p"] * 6, "response_a": ["r"] * 6,
               "response_b": ["s"] * 6, "winner_model_a": [1, 1, 1, 0, 0, 0], "winner_model_b": [0, 0, 0, 1, 1, 0],
               "winner_tie": [0] * 5 + [1]},
    "two scores": pair("a", "b", score_a=[0.9, 0.8, 0.7, 0.1, 0.2, 0.5], score_b=[0.1, 0.2, 0.3, 0.9, 0.8, 0.5]),
    "huge scores": pair("a", "b", score_a=[1e308, 1e308, 1, -1e308, 0, 1e308],
                        score_b=[-1e308, 0, -1e308, 1e308, 1e308, 1e308]),
    "its score": pair("a", "b", score=SCORE),
    "result as a score": pair("a", "b", result=SCORE),
    "result with signs": pair("a", "b", result=[1, 1, 1, -1, -1, 0]),
    "judge": pair("model_1", "model_2", verdict=words("A>B", "B>>A", "A=B")),
    "brackets": pair("model_a", "model_b", verdict=words("[[A]]", "[[B]]", "[[C]]")),
    "win, loss": pair("player", "opponent", result=words("W", "L", "D")),
}  # fmt: skip


def write(path: Path, columns: dict[str, list[Any]]) -> Path:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        pl.DataFrame(columns, strict=False).write_parquet(path)
    else:
        sign = "\t" if path.suffix == ".tsv" else ","
        lines = [columns.keys(), *(row.values() for row in rows)]
        path.write_text("".join(sign.join(map(str, line)) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".json", ".jsonl", ".parquet"])
@pytest.mark.parametrize("name", FILES)
def test_every_file_says_the_same(tmp_path: Path, name: str, suffix: str) -> None:
    columns = FILES[name]
    if suffix == ".parquet" and any(len({type(x) for x in column}) > 1 for column in columns.values()):
        columns = {key: [str(x) for x in column] for key, column in columns.items()}
    play = read_matches(write(tmp_path / f"m{suffix}", columns))
    assert play.names == ("x", "y")
    assert play.wins().tolist() == [[0, 3], [2, 0]]
    assert play.ties()[0, 1] == 1
    assert play.counts is not None
    assert str(play.counts) == "6 of 6 rows used, 1 of them ties; 0 dropped"


def test_winner_and_loser_need_nothing_else(tmp_path: Path) -> None:
    columns = {"winner": ["x", "x", "y"], "loser": ["y", "y", "x"]}
    for suffix in (".csv", ".json", ".parquet"):
        assert read_matches(write(tmp_path / f"m{suffix}", columns)).wins().tolist() == [[0, 2], [1, 0]]


def test_matches_under_a_name(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    rows = [{"model_a": "x", "model_b": "y", "winner": "model_b"}] * 2
    path.write_text(json.dumps({"version": 1, "battles": rows}))
    assert read_matches(path).wins().tolist() == [[0, 0], [2, 0]]


def test_a_cluster_takes_the_place_of_the_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pl.DataFrame({"winner": ["x", "y"] * 6, "loser": ["y", "x"] * 6, "task": range(12),
                          "passage": [n // 4 for n in range(12)]})  # fmt: skip
    assert read_matches(frame).cluster.max() == 11
    assert read_matches(frame, cluster="passage").cluster.tolist() == [n // 4 for n in range(12)]
    with pytest.raises(MissingColumnError, match="--cluster pasage: no such column; did you mean 'passage'"):
        read_matches(frame, cluster="pasage")
    frame.write_csv(tmp_path / "m.csv")
    with pytest.raises(SystemExit):
        cli.main(["rank", str(tmp_path / "m.csv"), "--resamples", "100", "--cluster", "passage"])
    assert capsys.readouterr().out.startswith("12 of 12 rows used")


def test_trials_of_one_cluster_are_drawn_together() -> None:
    keys = {"system": ["a", "b"] * 4, "run": "run", "task": [f"t{n // 2}" for n in range(8)], "success": [1, 0] * 4}
    trials = pl.DataFrame(keys).with_columns(cluster=pl.Series(["p", "p", "p", "p", "q", "q", "q", "q"]))
    assert matches_from_trials(trials.drop("cluster")).cluster.tolist() == [0, 1, 2, 3]
    assert matches_from_trials(trials).cluster.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("pair", dict.fromkeys((*PAIRS, *NUMBERS)))
def test_every_pair_of_the_table(pair: tuple[str, str]) -> None:
    assert pair == tuple(map(normalised_header, pair))
    frame = pl.DataFrame({pair[0].title(): ["x", "x"], pair[1].title(): ["y", "z"], "winner": ["x", "z"]})
    assert read_matches(frame).wins().tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        (pair("model_a", "model_b", winner=[0, 1, 2, 0, 1, 1]), r"winner holds 0, 1, 2: players counted from 0 or"),
        (pair("a", "b", winner=[1] * 6), r"winner holds 1: players counted"),
        (pair("a", "b", label=[0, 1, 0, 1, 0, 1]), r"label holds 0, 1: players counted"),
        (pair("one", "two", winner=X), r"it has: one, two, winner; say --a COLUMN --b COLUMN"),
        (pair("a", "b", colour=X), r"neither a column 'winner' nor 'score'.*say --winner COLUMN"),
        ({"white": X, "black": Y, "home": X, "away": Y, "winner": X}, r"'white' and 'black' or 'home' and 'away'\?"),
        (pair("a", "b", score_a=["much"] * 6, score_b=[1] * 6), r"row 1: score_a='much', score_b='1': a score is"),
        ({"model_a": X, "model_b": Y, "winner_model_a": [1] * 6, "winner_model_b": [1] * 6}, r"row 1: .*more than one"),
        ({"model_a": X, "model_b": Y, "winner_model_a": [1] * 6, "winner_model_b": [0] * 6, "winner_tie": [1] * 6},
         r"row 1: .*more than one"),
        (pair("a", "b", winner=[""] * 6), r"at least one match; 6 rows, none of them with a result"),
    ],
)  # fmt: skip
def test_what_could_mean_two_things_is_asked(tmp_path: Path, columns: dict[str, list[Any]], complaint: str) -> None:
    path = write(tmp_path / "m.csv", columns)
    with pytest.raises((InputError, MissingColumnError), match=rf"m\.csv: .*{complaint}|m\.csv: {complaint}"):
        read_matches(path)


def test_anything_else_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "m.csv", pair("one", "two", best=words("x", "y", "neither")))
    play = read_matches(path, a="one", b="two", winner="best")
    assert play.wins().tolist() == [[0, 3], [2, 0]]
    with pytest.raises(MissingColumnError, match=r"m\.csv: --winner bst: no such column; did you mean 'best'"):
        read_matches(path, a="one", b="two", winner="bst")
    with pytest.raises(InputError, match="name both"):
        read_matches(path, a="one")


def test_ids_that_begin_as_numbers_and_rows_without_a_winner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [*range(300), *(f"model-{n}" for n in range(300, 800))]
    rows = [{"a": ids[n], "b": ids[(n + 1) % 800], "winner": "" if n % 32 < 10 else "tie" if n % 32 == 11 else ids[n]}
            for n in range(800)]  # fmt: skip
    path = write(tmp_path / "m.csv", {name: [row[name] for row in rows] for name in ("a", "b", "winner")})
    play = read_matches(path)
    assert len(play.names) == 575, "whoever met somebody in a row with a result"
    assert str(play.counts) == "550 of 800 rows used, 25 of them ties; 250 dropped (250 without a result)"
    few = write(tmp_path / "few.csv", {**FILES["names"], "winner": ["x", "", "y", "tie", "", "x"]})
    with pytest.raises(SystemExit):
        cli.main(["rank", str(few), "--resamples", "100"])
    assert capsys.readouterr().out.startswith("4 of 6 rows used, 1 of them ties; 2 dropped (2 without a result)\n")
    with pytest.raises(SystemExit):
        cli.main(["rank", str(few), "--resamples", "100", "--json"])
    assert json.loads(capsys.readouterr().out)["rows"]["dropped"] == {"without a result": 2}


def test_damaged_files_and_lines_are_named(tmp_path: Path) -> None:
    for name, text, complaint in (
        ("m.jsonl", '{"a": "x", "b": "y", "winner": "x"}\n{"a": \n', "line 2 cannot be read"),
        ("m.json", '[{"a": "x"}, 3]', "entry 1 cannot be read: expected an object, found int"),
        ("n.json", "[" * 100_000, "cannot be read"),
        ("m.csv", "a,b,winner\nx,y,x,z,z\n", "cannot be read"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(StorageError, match=rf"{name}: {complaint}"):
            read_matches(tmp_path / name)
    for folder, winner in (("w1", "y"), ("w[1]", "x")):
        (tmp_path / folder).mkdir()
        for suffix in (".csv", ".parquet", ".jsonl"):
            write(tmp_path / folder / f"m{suffix}", {"a": ["x"], "b": ["y"], "winner": [winner]})
    for suffix in (".csv", ".parquet", ".jsonl"):
        assert read_matches(tmp_path / "w[1]" / f"m{suffix}").score.tolist() == [1.0]
