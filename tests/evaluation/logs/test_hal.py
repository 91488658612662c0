"""Uploads of every benchmark of HAL's harness, by the layouts that its code writes: the rate is the harness's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palaestra.errors import InputError
from palaestra.evaluation import trials
from palaestra.evaluation.logs import read_logs

WON, LOST = [f"w{n}" for n in range(4)], [f"l{n}" for n in range(6)]
NAMED = {"accuracy": 0.4, "successful_tasks": WON, "failed_tasks": LOST}


def upload(benchmark: str, results: Any, raw: Any, **config: Any) -> dict[str, Any]:
    return {
        "config": {"agent_name": "agent", "benchmark_name": benchmark, "run_id": "r", "agent_args": {}} | config,
        "results": {**results, "total_cost": 1.5, "latencies": {}}, "raw_eval_results": raw,
        "raw_logging_results": [], "total_usage": {}, "total_cost": 1.5,
    }  # fmt: skip


def swe() -> dict[str, Any]:
    lists = {
        "submitted_ids": WON + LOST, "completed_ids": WON + LOST[:3], "resolved_ids": WON, "unresolved_ids": LOST[:3],
        "error_ids": LOST[3:5], "empty_patch_ids": LOST[5:], "incomplete_ids": [f"x{n}" for n in range(40)],
    }  # fmt: skip
    counts = {"total_instances": 50, "submitted_instances": 10, "resolved_instances": 4, "schema_version": 2}
    return {**counts, **lists}


def by_task(won: dict[str, Any], lost: dict[str, Any]) -> dict[str, Any]:
    return dict.fromkeys(WON, won) | dict.fromkeys(LOST, lost)


def core(written: int, vision: int) -> dict[str, int]:
    return {"correct_written_answers": written, "correct_vision_answers": vision, "total_written_questions": 2,
            "total_vision_questions": 1}  # fmt: skip


def world(success: bool) -> dict[str, Any]:
    return {"success": success, "difficulty": 1, "num_tests": 4, "passes": [{}] * (4 if success else 1), "failures": []}


def usaco(fraction: float) -> list[Any]:
    return [{"result": {"fraction_passed": fraction}}]


STAGES = {"eval_summary": {"stage_scores": {"extract": 1.0}}, "task_stage": "extract"}
LAYOUTS: dict[str, tuple[dict[str, Any], Any, float | None]] = {
    "swebench_verified_mini": (NAMED | {"failed_tasks": LOST[:5]}, swe(), None),
    "assistantbench": (
        {"average_score": 0.594, "exact_matches": 0.4, "successful_tasks": WON, "failed_tasks": LOST},
        {"scores": [0.594] * 10, "answers": [1] * 10, "successful_tasks": WON, "failed_tasks": LOST}, None,
    ),
    "corebench_hard": (NAMED, by_task(core(2, 1), core(2, 0)), 0.4),
    "appworld_test_normal": (
        NAMED, {"aggregate": {"task_goal_completion": 0.4}, "individual": by_task(world(True), world(False))}, 0.4,
    ),
    "usaco": (NAMED, {"rdict": {}, "sdict": by_task(usaco(1.0), usaco(0.5)), "rs": [], "ss": []}, 0.7),
    "scicode": (NAMED, {"details": by_task(["1.1", "1.2"], ["1.1"])}, None),
    "replicatorbench": (
        {"n_tasks": 10, "n_passed": 4, "passed_tasks": WON, "failed_tasks": LOST, "avg_overall_score": 0.7},
        by_task(STAGES | {"correct": True, "overall_score": 1.0}, STAGES | {"correct": False, "overall_score": 0.5}),
        0.7,
    ),
    "gaia": (NAMED, by_task({"score": True, "explanation": "ok"}, {"score": False, "explanation": "no"}), 0.4),
    "taubench_airline": (
        NAMED, by_task({"reward": 1.0}, {"reward": 0.0}) | {LOST[5]: "Error: x"},
        4 / 9,
    ),
    "colbench_backend_programming": ({"accuracy": 0.4, "average_correctness": 0.7}, [1.0] * 4 + [0.5] * 6, 0.7),
    "scienceagentbench": (
        {"success_rate": 0.4},
        {"agent_output": {}, "eval_result": by_task({"valid_program": 1, "success_rate": 1, "codebert_score": 0.9},
                                                    {"valid_program": 1, "success_rate": 0, "codebert_score": 0.3})},
        0.4,
    ),
    "a_new_benchmark": (NAMED, {"n": 10, "anything": [1, 2, 3], "mean_of_something": 7.5}, None),
}  # fmt: skip


def test_correct_is_success_where_nobody_lists_who_passed(tmp_path: Path) -> None:
    _, raw, _ = LAYOUTS["replicatorbench"]
    (tmp_path / "r_UPLOAD.json").write_text(json.dumps(upload("replicatorbench", {"n_tasks": 10}, raw)))
    turns = read_logs(tmp_path / "r_UPLOAD.json").turns
    assert (turns["success"].sum(), turns["success"].null_count()) == (4, 0)
    assert set(turns["reward"]) == {1.0, 0.5}


@pytest.mark.parametrize("benchmark", LAYOUTS)
def test_four_of_ten(tmp_path: Path, benchmark: str) -> None:
    results, raw, score = LAYOUTS[benchmark]
    path = tmp_path / "r_UPLOAD.json"
    path.write_text(json.dumps(upload(benchmark, results, raw)))
    logs = read_logs(path)
    table = trials(logs.turns)
    assert (len(table), table["success"].sum(), table["success"].null_count()) == (10, 4, 0)
    assert table["score"].mean() == (None if score is None else pytest.approx(score))
    assert table["task"].str.starts_with(f"{benchmark}/").all()
    assert not any("accuracy" in str(problem) for problem in logs.problems)


def test_parts_of_a_task_are_scores_of_their_own(tmp_path: Path) -> None:
    for name, columns in (("corebench_hard", ("written", "vision")), ("appworld_test_normal", ("tests",))):
        path = tmp_path / f"{name}_UPLOAD.json"
        path.write_text(json.dumps(upload(name, *LAYOUTS[name][:2])))
        turns = read_logs(path).turns.frame
        means = [turns[f"score.{column}"].mean() for column in columns]
        assert means == pytest.approx([1.0, 0.4] if len(columns) == 2 else [0.55])


def test_what_is_not_known_to_be_a_score_is_not_averaged(tmp_path: Path) -> None:
    path = tmp_path / "r_UPLOAD.json"
    path.write_text(json.dumps(upload("mine", {}, {"total_instances": 50, "seconds": 12.5, "ids": ["a"]})))
    with pytest.raises(InputError, match=r"r_UPLOAD\.json: task 'total_instances': '50' is not known to be a score"):
        read_logs(path)
    path.write_text(json.dumps(upload("mine", {}, {"t1": {"steps": 9}, "t2": {"reward": 1.0, "steps": 9}})))
    logs = read_logs(path)
    assert trials(logs.turns).select("task", "score").rows() == [("mine/t2", 1.0)]
    assert "task 't1'" in str(logs.problems[0])


def test_successes_alone_are_no_rate(tmp_path: Path) -> None:
    path = tmp_path / "r_UPLOAD.json"
    path.write_text(json.dumps(upload("mine", {"successful_tasks": WON}, {})))
    with pytest.raises(InputError, match="name 4 tasks that succeeded, and nobody who failed: no rate is known"):
        read_logs(path)
    path.write_text(json.dumps(upload("mine", {"successful_tasks": WON, "failed_tasks": []}, {})))
    assert trials(read_logs(path).turns)["success"].to_list() == [True] * 4
    path.write_text(json.dumps(upload("mine", {}, {"t1": True, "t2": False})))
    assert trials(read_logs(path).turns)["success"].to_list() == [True, False]


def test_a_difference_from_the_upload_s_own_accuracy_is_said(tmp_path: Path) -> None:
    path = tmp_path / "r_UPLOAD.json"
    path.write_text(json.dumps(upload("gaia", NAMED | {"accuracy": 0.2}, LAYOUTS["gaia"][1])))
    (problem,) = read_logs(path).problems
    assert "results.accuracy is 0.2, but 4 of the 10 tasks that it names succeeded" in str(problem)


def test_one_agent_on_two_models_is_two_systems(tmp_path: Path) -> None:
    for model in ("openai/gpt-4o", "x/claude-3"):
        record = upload("gaia", *LAYOUTS["gaia"][:2], agent_args={"model_name": model})
        (tmp_path / f"{model[-3:]}_UPLOAD.json").write_text(json.dumps(record))
    assert set(read_logs(tmp_path).turns["system"]) == {"agent (openai/gpt-4o)", "agent (x/claude-3)"}
