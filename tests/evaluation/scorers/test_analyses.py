"""The same questions by name, to files."""

import json
from pathlib import Path

import polars as pl
import pytest

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.analyses import analyze


@pytest.fixture
def scores(tmp_path):
    file = tmp_path / "scores.csv"
    rows = {"group": [0, 0, 0, 1, 1, 1], "score": [5, 5, 3, 4, 2, 1], "correct": [True, False, False] * 2}
    pl.DataFrame(rows).write_csv(file)
    return file


def test_protocols_by_name(scores):
    assert analyze("best_of_k", scores)["mean"].to_list() == [0.75]
    assert analyze("strict", scores)["mean"].to_list() == [0.5]
    assert analyze("strict('for')", scores)["mean"].to_list() == [1.0]
    assert analyze("reciprocal_rank", scores)["mean"].to_list() == [0.75]
    assert analyze("scorer_protocols", scores)["mean"].to_list() == pytest.approx([0.75, 0.5, 1, 0.75, 0.875])


def test_benchmarks_files_by_name(tmp_path):
    file = tmp_path / "rb.json"
    file.write_text(json.dumps({"scores": [[2, 1, 1, 1]], "num_correct": [1], "id": ["0"], "subset": ["Math"]}))
    assert analyze("rewardbench", file)["score"].to_list() == [1, 1]
    judge = {"problem": "p", "solution_reference": ["a", "b"], "score": ["A", "A"], "chosen_position": ["A", "B"]}
    file.write_text(json.dumps([judge]))
    assert analyze("scorer_protocols", file)["mean"].to_list() == [0, 0.5, 0.5]
    with pytest.raises(InputError, match="no scores of RewardBench 2"):
        analyze("rewardbench", file)


def test_agreement_confusion_and_correlation_by_name(tmp_path):
    verdicts = tmp_path / "verdicts.csv"
    rows = [(i, j, v) for i, (x, y) in enumerate([(1, 1), (2, 2), (3, 3), (1, 2)]) for j, v in (("a", x), ("b", y))]
    pl.DataFrame(rows, schema=["item", "judge", "value"], orient="row").write_csv(verdicts)
    assert analyze("alpha('nominal')", verdicts)["mean"].item() == pytest.approx(2 / 3)
    both = tmp_path / "both.csv"
    pl.DataFrame({"a": [1, 1, 0, 0], "b": [1, 0, 0, 0]}).write_csv(both)
    assert analyze("kappa", both)["mean"].item() == 0.5
    events = tmp_path / "events.csv"
    pl.DataFrame({"action": ["x", None, "y"], "accepted": [True, False, True]}).write_csv(events)
    found = analyze("confusion", events)
    assert dict(zip(found["measure"], found["value"]))["recall"] == pytest.approx(2 / 3)
    scorers = tmp_path / "scorers.csv"
    pl.DataFrame({"metric": [1, 2, 3, 4, 5], "downstream": [2, 1, 4, 3, 6]}).write_csv(scorers)
    assert analyze("predicts", scorers)["mean"].item() == pytest.approx(0.8)


def test_labels_as_annotators_write_them(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.csv"
    path.write_text("a,b\n1,1\n1,0\n0,0\n0,0\n,1\n1,unsure\n")
    assert analyze("kappa", path).select("mean", "n").row(0) == (pytest.approx((0.6 - 0.36) / 0.64), 5)
    path.write_text("a,b\nTrue,True\nTrue,False\nFalse,False\nFalse,False\n,unsure\n")
    assert analyze("kappa", path)["mean"].item() == 0.5
    rows = [(i, j, v) for i, pair in enumerate(["yy", "nn", "uu", "yn"]) for j, v in zip("ab", pair)]
    pl.DataFrame(rows, schema=["item", "judge", "value"], orient="row").write_csv(path)
    assert analyze("alpha", path)["mean"].item() == pytest.approx(2 / 3)
    pl.DataFrame([*rows, (0, "a", "n")], schema=["item", "judge", "value"], orient="row").write_csv(path)
    with pytest.raises(InputError, match="judge 'a' has several verdicts on item 0"):
        analyze("alpha", path)


def test_each_scorer_has_a_row_of_its_own(tmp_path: Path) -> None:
    rows = {"scorer": ["a"] * 2 + ["b"] * 2, "group": [0] * 4, "score": [3, 3, 2, 1], "correct": [True, False] * 2}
    path = tmp_path / "scores.parquet"
    pl.DataFrame(rows).write_parquet(path)
    assert analyze('best_of_k(each="scorer")', path).select("scorer", "mean").rows() == [("a", 0.5), ("b", 1.0)]
    with pytest.raises(MissingColumnError, match="column 'judge'"):
        analyze('best_of_k(each="judge")', path)


def test_windows_over_candidates_bring_the_best_to_the_front(tmp_path: Path) -> None:
    path = tmp_path / "candidates.parquet"
    worth = [float(number) for number in range(6)]
    table = {"query": [7] * 6 + [8], "score": [-each for each in worth] + [0.0], "worth": [*worth, 1.0]}
    pl.DataFrame(table).write_parquet(path)
    found = analyze("""rerank("verifier(\\"col('worth')\\")", window=4, step=2)""", path)
    assert found["place"].to_list() == [3, 2, 5, 4, 1, 0, 0]
    same = analyze("""rerank("verifier(\\"col('worth')\\")", window=1, step=1)""", path)
    assert same["place"].to_list() == [0, 1, 2, 3, 4, 5, 0]


def test_metrics_are_induced_from_feedback_and_cover_what_was_held_out(tmp_path: Path) -> None:
    path = tmp_path / "feedback.parquet"
    rows = {
        "transcript": ["greets: well", "greets: badly\nwaits: well", "waits: badly", "greets: well\nwaits: well"],
        "feedback": ["greets was good.", "greets was bad. waits was good.", "waits was bad.", "waits was good."],
    }
    pl.DataFrame(rows).write_parquet(path)
    found = analyze("induce_metrics('palaestra.judges.scripted:reviewer(most=1)', held_out=0.25)", path)
    assert found.select("metrics", "coverage", "held_out").rows() == [(1, 0.5, 1.0), (2, 1.0, 1.0)]
    first = analyze("induce_metrics('palaestra.judges.scripted:reviewer(most=1)', rounds=1, held_out=0.25)", path)
    assert first["held_out"].to_list() == [0.0]
