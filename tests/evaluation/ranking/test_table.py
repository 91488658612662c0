from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from palaestra.errors import InputError, MissingColumnError, StorageError
from palaestra.evaluation.ranking import (
    METHODS,
    Matches,
    matches,
    matches_from_trials,
    rank,
    rank_intervals,
    read_matches,
    transitivity,
    win_table,
)


def round_robin(rng: np.random.Generator, chance: np.ndarray, games: int) -> Matches:
    i, j = np.triu_indices(len(chance), 1)
    a, b = np.repeat(i, games), np.repeat(j, games)
    names = np.array([f"s{k}" for k in range(len(chance))])
    return matches(list(names[a]), list(names[b]), (rng.random(len(a)) < chance[a, b]).astype(float))


def logistic(strengths: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(strengths - strengths[:, None]))


ROCK = np.array([[0.5, 0.85, 0.15], [0.15, 0.5, 0.85], [0.85, 0.15, 0.5]])


def test_scores_and_ranks_are_covered() -> None:
    rng = np.random.default_rng(0)
    strengths = np.linspace(0.8, -0.8, 5)
    truth = 1000 + 400 / np.log(10) * strengths
    score, place = np.zeros(5), np.zeros(5)
    for seed in range(60):
        play = round_robin(rng, logistic(strengths), 20)
        table = rank(play, "bradley_terry", resamples=100, seed=seed).table.sort("system")
        score += (table["low"].to_numpy() <= truth) & (truth <= table["high"].to_numpy())
        place += (table["rank_low"].to_numpy() <= np.arange(1, 6)) & (np.arange(1, 6) <= table["rank_high"].to_numpy())
    assert score.mean() / 60 == pytest.approx(0.95, abs=0.035)
    assert place.min() / 60 > 0.93


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_a_clear_order(method: str) -> None:
    play = round_robin(np.random.default_rng(1), logistic(np.array([3.0, 1.0, -1.0, -3.0])), 30)
    found = rank(play, method, resamples=100)
    assert found.table["system"][0] == "s0"
    assert found.table["rank"].to_list()[0] == 1
    assert found.table["n"].sum() == 2 * 180
    assert (found.table["rank_low"] <= found.table["rank"]).all()
    assert (found.table["rank_high"] >= found.table["rank"]).all()
    assert "180 matches" in found.note


def test_few_matches_do_not_settle_who_is_first() -> None:
    play = matches(list("xxyxyx"), list("yzzyzz"), np.array([1, 0.5, 1, 1, 0, 1]))
    for method in ("bradley_terry", "schulze", "copeland"):
        assert rank(play, method).note.startswith("cannot tell who is first"), method


def test_rank_intervals_by_hand() -> None:
    drawn = np.array([10.0, 5.0, 5.1]) + np.random.default_rng(2).normal(0, 0.5, (2000, 3))
    low, high = rank_intervals(np.array([10.0, 5.0, 5.1]), drawn)
    assert (low.tolist(), high.tolist()) == ([1, 2, 2], [1, 3, 3])


def test_a_cycle_is_found_and_decides_the_method() -> None:
    rng = np.random.default_rng(3)
    found = rank(round_robin(rng, ROCK, 40), resamples=300)
    assert found.method == "alpha_rank"
    assert found.transitivity.cycle_p < 0.01
    assert len(found.transitivity.cycle) == 3
    cycle = found.transitivity.cycle
    assert all(ROCK[i, j] > 0.5 for i, j in zip(cycle, (*cycle[1:], cycle[0]), strict=True))
    assert found.table["score"].to_list() == pytest.approx([1 / 3] * 3, abs=1e-6)
    assert rank(round_robin(rng, logistic(np.array([1.0, 0, -1])), 40), resamples=300).method == "bradley_terry"


def test_type_one_error_and_power_of_the_tests() -> None:
    rng = np.random.default_rng(4)

    def found(chance: np.ndarray, games: int) -> np.ndarray:
        rates = np.zeros(2)
        for seed in range(60):
            test = transitivity(round_robin(rng, chance, games).wins(), resamples=99, seed=seed)
            rates += [test.cycle_p <= 0.05, test.fit_p <= 0.05]
        return rates / 60

    assert found(np.full((5, 5), 0.5), 20).max() <= 0.12
    assert found(logistic(np.linspace(1, -1, 5)), 20).max() <= 0.12
    chance = np.full((5, 5), 0.5)
    chance[:3, :3] = ROCK
    assert found(chance, 30).min() > 0.9


def test_longer_cycles_where_pairs_did_not_meet() -> None:
    wins = np.zeros((4, 4))
    for i in range(4):
        wins[i, (i + 1) % 4], wins[(i + 1) % 4, i] = 28, 2
    test = transitivity(wins, resamples=200)
    assert test.cycle_p < 0.02
    assert sorted(test.cycle) == [0, 1, 2, 3]
    assert test.pairs == 4


def test_a_cycle_that_a_tie_closes_is_none() -> None:
    test = transitivity(np.array([[0.0, 3, 2], [1, 0, 3], [2, 1, 0]]), resamples=50)
    assert (test.cycle, test.cycle_p, test.trust) == ((), 1.0, "bradley_terry")
    closed = transitivity(np.array([[0.0, 3, 1], [1, 0, 3], [3, 1, 0]]), resamples=50)
    assert sorted(closed.cycle) == [0, 1, 2]
    assert closed.cycle_p < 1


@pytest.mark.parametrize("weight", [0.04, 0.4, 1.0, 2.5])
@pytest.mark.parametrize("rounds", [1, 12])
def test_small_weights_prove_no_cycle(weight: float, rounds: int) -> None:
    """As many matches of one weight are worth as many matches, whatever the weight is; a few are never a proof."""
    a, b = ["x", "y", "z"] * rounds, ["y", "z", "x"] * rounds
    found = rank(matches(a, b, np.ones(3 * rounds), np.full(3 * rounds, weight)), resamples=200).transitivity
    assert found.matches == pytest.approx(3 * rounds)
    assert (found.cycle_p < 0.05) == (rounds == 12)
    assert rank(matches(["x"], ["y"], np.ones(1), np.array([weight])), resamples=50).transitivity.cycle_p == 1


def test_weights_that_are_whole_count_matches_and_others_are_worth_their_effective_number() -> None:
    two = matches(["x"] * 2, ["y"] * 2, np.array([1.0, 0.0]), np.array([3.0, 1.0]))
    assert two.worth().tolist() == [[1, 1], [1, 1]]
    two = matches(["x"] * 2, ["y"] * 2, np.array([1.0, 0.5]), np.array([0.75, 0.25]))
    assert two.worth()[0, 1] == two.worth()[1, 0] == pytest.approx(1 / (0.75**2 + 0.25**2))
    cycle = np.array([[0, 0.4, 0], [0, 0, 0.4], [0.4, 0, 0]])
    assert transitivity(cycle, resamples=100).cycle_p > 0.1, "also by hand: a part of a game is one game"


def test_matches_from_trials_and_win_table() -> None:
    trials = pl.DataFrame(
        {
            "system": ["a", "a", "b", "b", "c"],
            "run": "0",
            "task": ["t", "u", "t", "u", "t"],
            "success": [True, False, False, False, None],
        }
    )
    play = matches_from_trials(trials)
    assert play.names == ("a", "b")
    assert sorted(play.score.tolist()) == [0.5, 1.0]
    row = win_table(play).filter(system="a").to_dicts()[0]
    assert (row["share"], row["n"]) == (0.75, 2.0)
    assert row["low"] < 0.75 < row["high"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_files_are_read(tmp_path: Path, suffix: str) -> None:
    frame = pl.DataFrame({"model_a": ["x", "y", "x"], "model_b": ["y", "x", "y"], "winner": ["model_a", "tie", "y"]})
    path = tmp_path / f"matches{suffix}"
    {".csv": frame.write_csv, ".parquet": frame.write_parquet, ".jsonl": frame.write_ndjson}[suffix](path)
    play = read_matches(path)
    assert play.score.tolist() == [1.0, 0.5, 0.0]
    assert play.wins().tolist() == [[0, 1], [1, 0]]
    assert play.ties()[0, 1] == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a,b,winner\nx,y,x\nx,y,z\n", r"row 2: winner 'z' is none of 'x', 'y', 'tie'"),
        ("a,b,winner\nx,x,x\n", "row 1: it meets itself"),
        ("a,b,winner\nx,,x\n", "row 1: a name is missing"),
        ("a,b,score\nx,y,0.7\n", r"row 1: a score of 0\.7"),
        ("a,b,score,weight\nx,y,1,0\n", "row 1: a weight must be positive"),
        ("a,b,score,weight\nx,y,1,1\nx,y,1,heavy\n", "row 2: a weight must be positive, not 'heavy'"),
        ("a,c,score\nx,y,1\n", "no column 'b'"),
        ("a,b\nx,y\n", "neither a column 'winner' nor 'score'"),
        ("a,b,winner\n", "at least one match"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "matches.csv"
    path.write_text(text)
    with pytest.raises((InputError, MissingColumnError), match=complaint):
        read_matches(path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "matches.parquet"
    path.write_bytes(b"PAR1 no")
    with pytest.raises(StorageError, match=r"matches\.parquet"):
        read_matches(path)
    with pytest.raises(InputError, match="no such file"):
        read_matches(tmp_path / "none.csv")


def test_the_command(tmp_path: Path) -> None:
    from palaestra.interface.cli.app import app
    from palaestra.interface.cli.rank import rank as _  # noqa: F401

    path = tmp_path / "matches.csv"
    rows = [f"{a},{b},{a}" for a, b in (("x", "y"), ("y", "z"), ("z", "x"))]
    path.write_text("\n".join(["a,b,winner", *(rows * 30)]))
    result = CliRunner().invoke(app, ["rank", str(path), "--resamples", "200"])
    assert result.exit_code == 0
    assert "strongest cycle" in result.stdout
    found = json.loads(CliRunner().invoke(app, ["rank", str(path), "--json", "--resamples", "200"]).stdout)
    assert found["method"] == "alpha_rank"
    assert set(found["ranking"][0]) >= {"system", "score", "low", "high", "rank", "rank_low", "rank_high", "n"}


def test_a_few_one_sided_matches_prove_no_order() -> None:
    """Drawn again they would be one-sided for ever; 5 of 5 are not significant (sign test .0625), 6 of 6 are (.031)."""
    for number, settled in ((1, False), (3, False), (5, False), (6, True), (20, True)):
        play = matches(["x"] * number, ["y"] * number, np.ones(number))
        for method in ("bradley_terry", "average_win_rate", "copeland"):
            found = rank(play, method, resamples=2000)
            assert found.note.startswith("x is first") == settled, (number, method)
        table = rank(play, "bradley_terry").table
        assert (table["high"] > table["low"]).all()
    drawn = rank(matches(["x"] * 4, ["y"] * 4, np.full(4, 0.5)), resamples=500).table
    assert (drawn["high"] > drawn["low"]).all()


def test_upsets_stand_against_steps_only() -> None:
    a, b = np.triu_indices(5, 1)  # a clear order of five, everyone once
    names = np.array(list("vwxyz"))
    play = matches(list(names[a]), list(names[b]), np.ones(10))
    more = play.with_upsets()
    assert sorted(zip(more.a[10:].tolist(), more.b[10:].tolist(), strict=True)) == [(i, i + 1) for i in range(4)]
    assert (more.score[10:] == 0).all()
    assert more.cluster[10:].tolist() == [10, 11, 12, 13]
    circle = matches(["x", "y", "z"], ["y", "z", "x"], np.ones(3))
    assert len(circle.with_upsets()) == 3


def test_one_task_or_none_is_no_cluster() -> None:
    score = np.array([1.0] * 6 + [0.0] * 5)
    for task in (["T"] * 11, [None] * 11):
        play = matches(["x"] * 11, ["y"] * 11, score, task=pl.Series(task, dtype=pl.String))
        found = rank(play, resamples=500)
        assert found.note.startswith("cannot tell who is first: x, y")
        assert found.table["high"][0] - found.table["low"][0] > 100
    some = matches(["x"] * 4, ["y"] * 4, np.ones(4), task=pl.Series(["a", None, "a", None]))
    assert sorted(np.bincount(some.cluster)) == [1, 1, 2]
    task = pl.Series(["a"] * 20 + ["b"] * 20)  # both tasks for x, but two tasks say little about others
    two = matches(["x"] * 40, ["y"] * 40, np.array(([1.0] * 19 + [0.0]) + ([1.0] * 13 + [0.0] * 7)), task=task)
    assert rank(two, resamples=500).note.startswith("cannot tell")


def test_systems_that_never_met_have_no_order() -> None:
    a, b = ["p"] * 40 + ["r"] * 40, ["q"] * 40 + ["s"] * 40
    found = rank(matches(a, b, np.array([1.0] * 38 + [0.0] * 2 + [1.0] * 22 + [0.0] * 18)), resamples=500)
    assert found.note.endswith("; never met, not even through others: p, q | r, s")
    places = {row["system"]: (row["rank_low"], row["rank_high"]) for row in found.table.to_dicts()}
    assert places["p"] == (1, 3)
    assert places["q"] == (2, 4)
    assert places["r"] == places["s"] == (1, 4)


def test_the_deviance_of_a_cycle_is_that_of_equal_chances() -> None:
    wins = np.array([[0, 8, 2], [2, 0, 8], [8, 2, 0]])  # Bradley-Terry finds all equal
    expected = 3 * 2 * (8 * np.log(0.8 / 0.5) + 2 * np.log(0.2 / 0.5))
    assert transitivity(wins, resamples=50).deviance == pytest.approx(expected)


def test_a_cycle_is_found_among_any_number_of_games() -> None:
    """z is 1e5 then, where doubles are farther apart than what is allowed for rounding."""
    wins = 1e10 * np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    assert sorted(transitivity(wins, resamples=50).cycle) == [0, 1, 2]
