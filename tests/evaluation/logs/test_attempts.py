from __future__ import annotations

import json
from pathlib import Path

import pytest

from palaestra.errors import MissingColumnError
from palaestra.evaluation import trials
from palaestra.evaluation.attempts import pass_by_attempt
from palaestra.evaluation.logs import read_logs


def test_pass_by_attempt(sample_files: dict[str, Path]) -> None:
    """Of two sub-tasks one is perfect at once, the other never."""
    turns = read_logs(sample_files["agencybench"]).turns.frame
    assert pass_by_attempt(turns).rows() == [("claude", 1, 0.5, 2), ("claude", 2, 0.5, 2)]
    with pytest.raises(MissingColumnError, match=r"score\.attempt"):
        pass_by_attempt(turns.drop("score.attempt"))


def subtask(name: str, **said: object) -> dict[str, object]:
    return {"name": name, "attempts": [{"attempt_index": 1, **said.pop("attempt", {})}], **said}  # type: ignore[dict-item]


def judged(text: float, vision: float) -> dict[str, object]:
    status = "pass" if min(text, vision) >= 6 else "retry"
    return {"text_result": {"score": text}, "vision_result": {"score": vision}, "status": status}


LAYOUTS = {
    "list, best score": ([subtask("s", best_score=7), subtask("t", best_score=10)], [7, 10], [False, True]),
    "object by name, two judges": (
        {"s": {"attempts": [judged(2, 8), judged(10, 8)]}, "t": {"attempts": [judged(4, 8)]}},
        [None, None], [True, False],
    ),
    "success alone": ([subtask("s", success=True), subtask("t", success=False)], [None, None], [True, False]),
    "a judge from 0 to 1": (
        [subtask("s", success=True, final_score=0.9, attempt={"judge_score": 0.9}),
         subtask("t", success=False, final_score=0.1, attempt={"judge_score": 0.1})],
        [9, 1], [True, False],
    ),
    "final score": ([subtask("s", success=True, final_score=10), subtask("t", success=False, final_score=0)], [10, 0],
                    [True, False]),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_agencybench(tmp_path: Path, layout: str) -> None:
    subtasks, scores, successes = LAYOUTS[layout]
    path = tmp_path / "Game" / "scenario1" / "claude" / "meta_eval.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"subtasks": subtasks}))
    logs = read_logs(tmp_path)
    table = trials(logs.turns)
    assert table["task"].to_list() == ["Game/scenario1/s", "Game/scenario1/t"]
    assert table["score"].to_list() == pytest.approx(scores) if None not in scores else table["score"].null_count() == 2
    assert table["success"].to_list() == successes
    assert set(table["system"]) == {"claude"}, "the folder, where the file names no model"
    if "judges" in layout:
        assert logs.turns["score.text"].to_list() == [2, 10, 4]
