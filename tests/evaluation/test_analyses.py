"""Every study answers from files what its function answers from tables, and says what is wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from palaestra.errors import ExpressionError, InputError, MissingColumnError, StorageError
from palaestra.evaluation.analyses import ANALYSES, analyze

DATA = Path(__file__).parents[1] / "atlas" / "data"


def ask(text: str, *names: str) -> list[dict]:
    return analyze(text, *(DATA / name for name in names)).to_dicts()


def test_agreement(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("a,b\n1,1\n1,0\n0,0\n0,0\n,1\n")
    assert analyze("agreement", tmp_path / "v.csv").to_dicts() == [
        {"verdicts": 4, "same": 0.75, "kappa": pytest.approx(0.5)}
    ]


def test_exposure_has_the_slope_and_the_published_square() -> None:
    (row,) = ask("exposure", "adoptions.csv", "edges.csv")
    assert row["low"] < 1 < row["high"], "the data were drawn from independent contagion"
    assert row["kind"] == "independent"
    assert row["square"] < 0


def test_a_picked_seed_is_marked_and_an_honest_one_is_not() -> None:
    honest, picked = ask("fresh_seeds", "picked.csv")
    assert picked["p"] == pytest.approx(0.05)
    assert picked["excess"] > 3
    assert picked["runs"] == 19
    assert honest["p"] > 0.2


def test_levels() -> None:
    assert [row["level"] for row in ask("levels", "levels.csv")] == [5, 6, 3]
    assert ask("levels", "levels.csv")[0]["closed"] == pytest.approx(0.0496, abs=5e-5)


def test_files_of_integrity_and_numbers_of_a_rerun_are_named_when_they_are_none(tmp_path: Path) -> None:
    (tmp_path / "hashes.json").write_text("{}")
    for name, text, why in (("gone.json", None, "cannot be read"), ("list.json", '["a.py"]', "names with values"),
                            ("bad.json", "{", "cannot be read")):  # fmt: skip
        if text is not None:
            (tmp_path / name).write_text(text)
        for files in ((name,), ("hashes.json", name)):
            with pytest.raises(InputError, match=rf"{name}: .*{why}"):
                analyze("integrity", tmp_path, *(tmp_path / each for each in files))
    (tmp_path / "series.csv").write_text("task,reported,rerun\na,abc,1\n")
    with pytest.raises(InputError, match=r"series.csv: .*abc"):
        analyze("rerun", tmp_path / "series.csv")


def test_rerun_and_series(tmp_path: Path) -> None:
    lines = [{"task": "right", "reported": x, "rerun": x} for x in (1.0, 2.0)]
    lines += [{"task": "made up", "reported": 1.0, "rerun": 3.0}]
    (tmp_path / "series.jsonl").write_text("\n".join(map(json.dumps, lines)))
    right, made_up = analyze("rerun", tmp_path / "series.jsonl").to_dicts()
    assert right["reproduced"]
    assert not made_up["reproduced"]
    assert made_up["deviation"] == 2.0
    assert analyze("rerun(atol=2)", tmp_path / "series.jsonl")["reproduced"].to_list() == [True, True]


def test_research_runs(tmp_path: Path) -> None:
    (tmp_path / "001").mkdir()
    for name, said in {"status": {"status": "completed", "hours": 30}, "metadata": {"task": "t", "agent": "a"},
                       "scores": {"score": 0.8, "baseline": 0.7, "reference": 0.9}}.items():  # fmt: skip
        (tmp_path / "001" / f"{name}.json").write_text(json.dumps(said))
    (row,) = analyze("research_runs", tmp_path).to_dicts()
    assert row["closed"] == pytest.approx(0.5)
    assert row["over_budget"]
    assert row["claimed"]
    assert not analyze("research_runs(hours=48)", tmp_path)["over_budget"][0]


def test_rubrics_by_rule() -> None:
    scores = {row["system"]: row["score"] for row in ask('rubric("net")', "judgements.csv", "criteria.csv")}
    assert scores == pytest.approx({"careful": 2 / 3, "hasty": 2 / 3}), "the penalty costs what the third bonus gave"
    assert [row["score"] for row in ask("rubric", "judgements.csv", "criteria.csv")] == pytest.approx([2 / 3, 1.0])
    assert [row["score"] for row in ask('rubric("all")', "reproduced.csv", "dimensions.csv")] == [0.0, 1.0]


def test_sequences() -> None:
    found = {row["system"]: row for row in ask("sequences", "choices.csv")}
    assert found["restless"]["runs_p"] < 0.01 < found["fair"]["runs_p"]
    assert "reversal_2" not in ask("sequences(longest=1)", "choices.csv")[0]


def test_suite_prices_and_marks_the_frontier() -> None:
    files = ("suite/trials.csv", "suite/suite.yaml", "suite/prices.yaml")
    whole = {row["system"]: row for row in ask("suite", *files) if row["level"] == "overall"}
    assert whole["large"]["score"] == pytest.approx((0.8 + 0.775) / 2)
    assert [whole[size]["frontier"] for size in ("large", "small")] == [True, True], "each is best at its price"
    assert whole["small"]["cost"] == pytest.approx((1015 * 0.1 + 101.5 * 0.4) / 1e6)
    assert ask("suite", *files[:2])[0]["cost"] is None, "no price, no cost"


def test_a_swiss_tournament_throws_the_specialist_out() -> None:
    exact = {row["system"]: row["expected"] for row in ask("swiss(eliminate=1, exact=True)", "benchmarks.csv")}
    drawn = ask("swiss(eliminate=1)", "benchmarks.csv")
    assert all(row["low"] - 0.01 <= exact[row["system"]] <= row["high"] + 0.01 for row in drawn)
    assert drawn[0]["system"] == "specialist"


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExpressionError, match=r"unknown analysis 'swis'; did you mean 'swiss'"):
        analyze("swis", DATA / "benchmarks.csv")
    with pytest.raises(InputError, match="2 files were given; it takes SCORES"):
        analyze("swiss", DATA / "benchmarks.csv", DATA / "levels.csv")
    with pytest.raises(MissingColumnError, match=r"benchmarks\.csv: no column 'dev'"):
        analyze("levels", DATA / "benchmarks.csv")
    with pytest.raises(InputError, match="no such file"):
        analyze("levels", DATA / "nothing.csv")
    with pytest.raises(InputError, match=r"read are \.csv"):
        analyze("levels", DATA / "suite")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(StorageError, match="cannot be read"):
        analyze("levels", tmp_path / "bad.parquet")
    (tmp_path / "runs.csv").write_text("task,score,reported\nt,1,1\nt,2,1\n")
    with pytest.raises(InputError, match="'t' has 2 reported scores; mark one"):
        analyze("fresh_seeds", tmp_path / "runs.csv")
    for unknown in ("", "NaN"):
        (tmp_path / "runs.csv").write_text(f"task,score,reported\nt,{unknown},1\nt,2,0\nt,3,0\n")
        with pytest.raises(InputError, match="reported score of task 't' is missing"):
            analyze("fresh_seeds", tmp_path / "runs.csv")
    (tmp_path / "words.csv").write_text("system,one\na,good\nb,bad\n")
    with pytest.raises(InputError, match="all columns but `system` are scores"):
        analyze("swiss", tmp_path / "words.csv")


def test_all_have_a_line_of_doc() -> None:
    assert all(ANALYSES.doc(name) for name in ANALYSES)


def test_a_column_of_another_kind_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "turns.parquet"
    pl.DataFrame({"episode": [0], "turn": [0], "agent": ["a"], "score": ["yes"]}).write_parquet(path)
    with pytest.raises(InputError, match=r"turns.parquet: .*'score'"):
        analyze("flips", path)


def test_cost_of_pass_pays_for_failures_and_puts_what_solves_nothing_last(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "system,task,success,cost\ngood,a,1,3\ngood,b,0,1\ncheap,a,0,0.1\ncheap,b,0,0.1\nwasteful,a,1,9\nwasteful,b,0,9\n"
    )
    rows = analyze("cost_of_pass", tmp_path / "a.csv").to_dicts()
    assert [(row["system"], row["cost_per_success"]) for row in rows] == [
        ("good", 4),
        ("wasteful", 18),
        ("cheap", None),
    ]
    assert len(ask('cost_of_pass(by=("model", "n"))', "attempts.csv")) == 4


def second_is_better(profile: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return (rng.random(2) < np.where(np.array(profile) > 0, 0.6 + 0.15 * np.array(profile), 0.2)).astype(float)


def test_names_in_a_text_table_stay_apart(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("task,system,success,cost\n1,4.1,1,1\n1,4.10,1,2\n")
    assert analyze("cost_of_pass", tmp_path / "t.csv")["system"].to_list() == ["4.1", "4.10"]


def test_adaptive_matches_settle_a_game_and_equal_shares_too() -> None:
    name = f"{__name__}:second_is_better"
    plays = {
        method: analyze(f'adaptive("{name}", [2, 3], method="{method}")')
        for method in ("uniform_exhaustive", "in_turn")
    }
    assert all(found["profile"][0] == "1 2" for found in plays.values())
    assert all((found["settled"] == found["edges"]).all() for found in plays.values())
    assert np.ptp(plays["in_turn"]["n"].to_numpy()) <= 1 < np.ptp(plays["uniform_exhaustive"]["n"].to_numpy())


def test_factors_are_compared_over_all_cells_of_a_sparse_design(tmp_path: Path) -> None:
    rows = [(a, b, (a == "y") + 2.0 * (b == "q")) for a, b in [("x", "p"), ("y", "p"), ("y", "q"), ("y", "q")] * 3]
    pl.DataFrame(rows, schema=["a", "b", "gain"], orient="row").write_csv(tmp_path / "games.csv")
    found = {
        row["factor"]: row["effect"]
        for row in analyze('effects("gain", ["a", "b"])', tmp_path / "games.csv").to_dicts()
    }
    assert found["b"] > found["a"] > 0
    (tmp_path / "games.csv").write_text("gain,c\n1,x\n2,x\n")
    with pytest.raises(InputError, match="'c' has 1 level"):
        analyze('effects("gain", ["c"])', tmp_path / "games.csv")


def test_the_interval_of_an_effect_is_students_with_robust_errors(tmp_path: Path) -> None:
    """Of 1, 3 and 5, 9: error² = 4/2 (2/4 + 8/4), with 2 degrees of freedom; in pairs 2/1 · 3/2 (…) and one degree."""
    table = pl.DataFrame({"a": ["x", "x", "y", "y"], "gain": [1.0, 3.0, 5.0, 9.0], "pair": [0, 1, 0, 1]})
    table.write_csv(tmp_path / "games.csv")
    (row,) = analyze('effects("gain", ["a"])', tmp_path / "games.csv").to_dicts()
    assert (row["level"], row["against"], row["effect"]) == ("y", "x", pytest.approx(5))
    error = (4 / 2 * 2.5) ** 0.5
    assert [row["low"], row["high"]] == pytest.approx([5 - 4.302653 * error, 5 + 4.302653 * error])
    assert row["p"] == pytest.approx(0.1548, abs=5e-4)  # t = 2.236
    (row,) = analyze('effects("gain", ["a"], cluster="pair", level=0.5)', tmp_path / "games.csv").to_dicts()
    error = (3 * (2 * 0.5**2)) ** 0.5  # each pair's residuals -1, -2 and 1, 2 move the difference by 1/2
    assert row["high"] - 5 == pytest.approx(error)  # half of Student's with one degree lies within 1


@pytest.mark.parametrize(
    ("text", "names", "rows", "column"),
    [
        ("fresh_seeds", "task,score,reported", ["t,0.9,{}", "t,0.5,{}", "t,0.6,{}", "t,.55,{}"], "reported"),
        ("matrix('level', 'domain')", "task,level,domain,success", ["a,1,x,{}", "b,1,x,{}", "c,2,y,{}", "d,2,x,{}"],
         "success"),
        ("best_of_k", "group,score,correct", ["1,9,{}", "1,3,{}", "2,1,{}", "2,2,{}"], "correct"),
    ],
)  # fmt: skip
def test_words_are_truths_and_others_are_named(
    tmp_path: Path, text: str, names: str, rows: list[str], column: str
) -> None:
    def write(*said: str) -> Path:
        path = tmp_path / "t.csv"
        path.write_text("\n".join([names, *(row.format(each) for row, each in zip(rows, said, strict=True))]) + "\n")
        return path

    wanted = analyze(text, write("true", "false", "false", "false"))
    for yes, no in (("yes", "no"), ("1", "0"), ("1.0", "0.0")):
        assert analyze(text, write(yes, no, no, no)).equals(wanted)
    if column == "reported":
        assert analyze(text, write("yes", "", "", "")).equals(wanted)
    with pytest.raises(InputError, match=f"column '{column}' takes true/false, yes/no or 1/0, not '0.3'"):
        analyze(text, write("0.3", "0.2", "0.0", "0.9"))


def test_a_rubric_reads_words_and_numbers(tmp_path: Path) -> None:
    criteria, judged = tmp_path / "c.csv", tmp_path / "j.csv"
    criteria.write_text("criterion,weight\na,1\nb,1\nc,2\n")
    for said, score in (("1,0,0.5", 0.5), ("yes,no,0.5", 0.5), ("true,false,", None), ("1,0,NA", None)):
        rows = "".join(f"t,{name},{met}\n" for name, met in zip("abc", said.split(",")))
        judged.write_text(f"task,criterion,met\n{rows}")
        found = analyze("rubric", judged, criteria)
        assert found.select("score", "unjudged").row(0) == (score, int(score is None))
    judged.write_text("task,criterion,met\nt,a,so so\n")
    with pytest.raises(InputError, match="rubric: column 'met' takes true/false, yes/no or 1/0, not 'so so'"):
        analyze("rubric", judged, criteria)
