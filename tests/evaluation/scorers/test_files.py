"""RewardMATH's files, in small ones of our own making."""

import json

import pytest

from palaestra.errors import InputError, StorageError
from palaestra.evaluation.scorers import comparisons, read_scores, reciprocal_rank, strict_accuracy

SOURCES = ["human_to_GPT-4", "model a", "model b"]


def saved(path, rows):
    path.write_text(json.dumps(rows))
    return path


def test_scores_of_a_reward_model(tmp_path):
    rows = [
        {"problem": f"p{i}", "solution_reference": SOURCES, "score": s} for i, s in enumerate([[3.5, 1, 2], [1, 1, 0]])
    ]
    found = read_scores(saved(tmp_path / "rm.json", rows))
    assert found.rows()[0] == (0, 0, 3.5, True)
    assert (strict_accuracy(found).mean, strict_accuracy(found, ties="for").mean) == (0.5, 1.0)
    assert reciprocal_rank(found).mean == 0.75


@pytest.mark.parametrize(
    ("steps", "scores"),
    [
        ("min", [0.5, 0.2]),
        ("max", [0.8, 0.4]),
        ("product", [0.4, 0.08]),
        ("geometric_mean", [0.4**0.5, 0.08**0.5]),
        ("mean", [0.65, 0.3]),
        ("mean_logit", [2 / 3, 0.289898]),
        ("mean_odds", [2.5, 11 / 24]),
        ("last", [0.5, 0.4]),
    ],
)
def test_steps_of_a_process_model_become_one_score(tmp_path, steps, scores):
    row = {"problem": "p", "solution_reference": SOURCES, "score": [[0.8, 0.5], [0.2, 0.4], []]}
    found = read_scores(saved(tmp_path / "prm.json", [row]), steps=steps)["score"].to_list()
    assert found[:2] == pytest.approx(scores, abs=1e-6)
    assert found[2] is None


def test_a_text_may_hold_a_line_separator(tmp_path):
    rows = [{"problem": text, "solution_reference": SOURCES, "score": [1, 0, 0]} for text in ("a\u2028b", "c")]
    path = tmp_path / "rm.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    assert strict_accuracy(read_scores(path)).mean == 1.0


def test_a_pairwise_judge_becomes_verdicts(tmp_path):
    row = {"problem": "p", "solution_reference": SOURCES[1:], "score": ["A", "A"], "chosen_position": ["A", "B"]}
    other = row | {"score": ["tie", "B"]}
    found = read_scores(saved(tmp_path / "judge.json", [row, other]))
    assert found["value"].to_list() == [1, 0, None, 1]
    assert found["order"].to_list() == [0, 1, 0, 1]
    assert found["ok"].to_list() == [True, True, False, True]
    assert comparisons(found)["mean"].to_list() == [0, 0.5, 0.5]
    assert comparisons(found, missing="last")["mean"].to_list() == [0, 0.5, 0.5]


def test_what_is_no_benchmark_is_none_and_what_is_broken_says_where(tmp_path):
    assert read_scores(saved(tmp_path / "other.json", [{"a": 1}])) is None
    assert read_scores(tmp_path / "table.csv") is None
    with pytest.raises(StorageError, match=r"gone\.json"):
        read_scores(tmp_path / "gone.json")
    row = {"problem": "p", "solution_reference": SOURCES, "score": [1, 2]}
    with pytest.raises(InputError, match=r"short\.json.*not as its benchmark"):
        read_scores(saved(tmp_path / "short.json", [row]))
