"""`palaestra solve` as a person calls it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.evaluation.games import Game, read_game
from palaestra.interface.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["solve", *arguments])
    said = capsys.readouterr()
    return int(stop.value.code or 0), said.out, said.err


def test_a_matrix_with_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rps.csv"
    path.write_text(",rock,paper,scissors\nrock,0,-1,2\npaper,1,0,-1\nscissors,-2,1,0\n")
    code, out, _ = run(capsys, str(path), "--json")
    found = json.loads(out)
    assert code == 0
    chances = {row["strategy"]: row["probability"] for row in found["profile"] if row["player"] == "player_0"}
    assert chances == pytest.approx({"rock": 0.25, "paper": 0.5, "scissors": 0.25})
    assert found["gap"] == pytest.approx(0)
    assert found["gap_interval"] is None
    code, out, _ = run(capsys, str(path), "--by", "cfr(plus, iterations=50)")
    assert "exploitability 0.0" in out


@pytest.mark.parametrize("columns", ["v1,v2", "10,20"])
def test_a_table_as_pandas_writes_it(columns: str, tmp_path: Path) -> None:
    """Its rows are numbered in a first column without a heading, which became a strategy without a name."""
    (tmp_path / "pandas.csv").write_text(f",{columns}\n0,0.5,0.7\n1,0.3,0.5\n")
    game = read_game(tmp_path / "pandas.csv")
    assert isinstance(game, Game)
    assert game.strategies == (("0", "1"), tuple(columns.split(",")))
    assert game.payoffs[0].tolist() == [[0.5, 0.7], [0.3, 0.5]]


def test_turns_give_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    cells: np.ndarray = np.array(list(np.ndindex(2, 2)) * 30)
    x = np.array([[1.0, -1], [-1, 1]])[cells[:, 0], cells[:, 1]] + rng.normal(size=len(cells))
    both = np.repeat(np.arange(len(cells)), 2)
    table = {
        "group": both,
        "episode": both * 0,
        "turn": both * 0,
        "agent": ["a", "b"] * len(cells),
        "policy": [f"p{k}" for k in cells.ravel()],
        "reward": np.stack([x, -x], axis=1).ravel(),
    }
    path = Turns(table).save(tmp_path / "turns.parquet")
    code, out, _ = run(capsys, str(path), "--json", "--draws", "40")
    found = json.loads(out)
    assert code == 0
    assert all(0 <= row["low"] <= row["high"] <= 1 for row in found["profile"])
    assert found["gap_interval"][0] < found["gap_interval"][1] < 1
    code, out, err = run(capsys, str(path), "--draws", "10")
    assert "95 % interval" in out, err


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "1,2\n3\n", "line 2 has 1 cells, others have 2"),
        ("a.csv", "1,2\n3,x\n", "line 2, column 2: 'x' is no number"),
        ("a.csv", "a,b\n1,nan\n", "is nan; 1 of 2 cells are not finite"),
        ("a.csv", "", "an empty table"),
        ("a.csv", "x,a,a\nb,1,2\n", "strategies of player_1: 'a' is twice there"),
        ("a.csv", ",a,\nb,1,2\n", "strategies of player_1: '' is no name"),
        ("a.json", "[[1, 2], [3]]", "all rows have the same length"),
        ("a.json", "[[[1, 2], [3, 4]]]", "a matrix [rows, columns] is zero-sum"),
        ("a.json", '{"payoff": [[1]]}', "read are payoffs, players"),
        ("a.json", '{"payoffs": [[[1, 2]], [[1, 2]]]}', "not zero- or constant-sum"),
        ("a.json", "[[1, NaN], [0, 1]]", "is nan; 1 of 4 cells are not finite"),
        ("a.json", '{"payoffs": [[1, 2]], "error": [[1]]}', "error has shape"),
        ("a.json", "{", "cannot be read"),
    ],
)
def test_bad_files_are_named(
    name: str, text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    code, _, err = run(capsys, str(tmp_path / name))
    assert code in (1, 2)
    assert message in err
    assert name in err


def test_what_is_no_game_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, str(tmp_path / "none.csv"))
    assert (code, "there is no such file" in err) == (2, True)
    code, _, err = run(capsys, "matrix", "--by", "nahs")
    assert (code, "nash" in err) == (2, True)
    pytest.importorskip("pyspiel")
    code, _, err = run(capsys, "kuhn_pokr")
    assert (code, "kuhn_poker" in err) == (2, True)
    code, _, err = run(capsys, "kuhn_poker", "--by", "qre")
    assert (code, "solved by nash or cfr" in err) == (2, True)
    code, _, err = run(capsys, "kuhn_poker(players=3)")
    assert (code, err.startswith("error: kuhn_poker(players=3): nash: two players are needed, not 3")) == (2, True)
    code, _, err = run(capsys, "matrix_pd", "--by", "nash_averaging")
    assert (code, "not zero- or constant-sum: payoffs add up to 2" in err) == (2, True)


def test_what_of_a_run_is_solved_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Below a seed there are looks and evaluations as well; and of a league the turns hold few of the pairs."""
    seed = tmp_path / "seed-3"
    (seed / "turns").mkdir(parents=True)
    (tmp_path / "recipe.yaml").touch()
    for path, named in ((tmp_path, "seed-0"), (seed, "seed-3")):
        code, _, err = run(capsys, str(path))
        assert (code, "of several kinds" in err, str(Path(named) / "turns") in err) == (2, True, True)
    rows = {"episode": [0, 0, 1, 1], "agent": ["a", "b"] * 2, "policy": ["p", "p@0", "p@1", "p"]}
    Turns({**rows, "opponent": ["0", "0", "1", "1"], "reward": [1.0, 0, 0, 1]}).save(seed / "turns" / "0.parquet")
    code, _, err = run(capsys, str(seed / "turns"))
    assert (code, "nobody played" in err, "seed-N/league/payoffs.json" in err) == (2, True, True)


def test_a_game_of_openspiel(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspiel")
    code, out, _ = run(capsys, "leduc_poker", "--by", "cfr(vad, iterations=10, start=0)")
    assert code == 0
    assert "912 more information sets" in out
    code, out, _ = run(capsys, "matrix_pd", "--by", "qre(2.)", "--json")
    assert json.loads(out)["profile"][0]["strategy"] == "Cooperate"


@pytest.mark.parametrize(
    ("game", "message"),
    [
        ("hanabi(players=9)", "would end Python"),
        ("kuhn_poker(players=x)", "Wrong type for parameter players"),
        ("catch", "cannot tell the information states of catch"),
        ("oshi_zumo(coins=3,size=1)", "too many moves for exact values"),
    ],
)
def test_a_game_that_openspiel_cannot_play_is_an_error(
    game: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspiel")
    code, _, err = run(capsys, game)
    assert (code, message in err) == (2, True), err


def test_a_game_in_which_a_move_can_end_play_has_moves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each of both decides once at most: the second player's turn comes only if the first enters."""
    pytest.importorskip("pyspiel")
    (tmp_path / "entry.efg").write_text(
        'EFG 2 R "entry" { "in" "inc" } ""\np "" 1 1 "" { "out" "enter" } 0\nt "" 1 "o" { 0, 2 }\n'
        'p "" 2 1 "" { "fight" "share" } 0\nt "" 2 "f" { -1, -1 }\nt "" 3 "s" { 1, 1 }\n'
    )
    code, out, err = run(capsys, f"efg_game(filename={tmp_path / 'entry.efg'})", "--by", "cfr(plus)", "--json")
    assert code == 0, err
    chances = {row["action"]: row["probability"] for row in json.loads(out)["profile"]}
    assert (chances["enter"], chances["share"]) == pytest.approx((1, 1), abs=1e-3)
