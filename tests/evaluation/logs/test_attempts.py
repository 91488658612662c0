from __future__ import annotations

import json
from pathlib import Path

import pytest

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation import trials
from palaestra.evaluation.attempts import attempt_chain, pass_by_attempt
from palaestra.evaluation.logs import read_logs


def test_the_chain_stops_when_perfect_and_hears_what_failed() -> None:
    heard: list[tuple[int, int, tuple[str, ...]]] = []
    scores = iter([4.0, 8.0, 6.0, 10.0, 3.0])

    def work(subtask: int, space: int, feedback: tuple[str, ...]) -> int:
        heard.append((subtask, space, feedback))
        return len(heard)

    def judge(subtask: int, space: int) -> tuple[float, tuple[str, ...]]:
        return next(scores), (f"item {space}",)

    first, second = attempt_chain(work, judge, 0, subtasks=2, most=3)
    assert (first.best, first.carried, len(first.attempts)) == (8.0, 2, 3)
    assert (second.best, second.carried, len(second.attempts)) == (10.0, 1, 1)
    assert heard[:4] == [(0, 0, ()), (0, 1, ("item 1",)), (0, 2, ("item 2",)), (1, 2, ())]


@pytest.mark.parametrize(("carry", "start_of_second"), [("best", 2), ("first", 1)])
def test_whose_workspace_is_carried_on(carry: str, start_of_second: int) -> None:
    starts = []

    def work(subtask: int, space: int, feedback: tuple[str, ...]) -> int:
        starts.append((subtask, space))
        return len(starts)

    scores = iter([4.0, 8.0, 10.0])
    attempt_chain(work, lambda subtask, space: (next(scores), ()), 0, subtasks=2, most=2, carry=carry)
    assert starts[2] == (1, start_of_second)
    with pytest.raises(InputError, match="most=0"):
        attempt_chain(work, lambda s, w: (1.0, ()), 0, subtasks=1, most=0)


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
