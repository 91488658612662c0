"""AgencyBench's meta_eval.json (arXiv 2601.11044): a sub-task is an episode, an attempt a turn.

Its 32 released files have five layouts, by scenario (files read). The reward is the sub-task's own score from 0 to 10,
on the last attempt: `best_score`, else `final_score` (a judge's from 0 to 1 times ten); null where a scenario has none:
front ends and games are judged on text and pictures apart (`score.text`, `score.vision` of each attempt, no rule joins
them), services and fits only by `success`. Success is what the file says, an attempt that passed, or a score of 10.
Where a runner hands the *first* attempt's workspace to the next sub-task unless one is perfect, though it records the
best score, `carried` in the metadata says which attempt it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palaestra.evaluation.logs.files import Documents
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import Rows, mapping, rest, text

PERFECT = 10
_SAID = ("agent_output", "assistant_text", "assistant_response", "assistant_response_excerpt")
_HEARD = ("feedback", "validator_message", "judge_comment")
_KNOWN = {*_SAID, *_HEARD, "score", "judge_score", "judge_raw", "subtask", "prompt", "agent_messages", "artifacts"}


@READERS.register("agencybench")
def agencybench() -> LogReader:
    """Makes the `LogReader` of AgencyBench's meta_eval.json."""
    return LogReader(read, fits=fits)


def fits(record: dict[str, Any]) -> bool:
    """Whether a JSON object is AgencyBench's: sub-tasks with attempts."""
    return any(isinstance(subtask, Mapping) and "attempts" in subtask for _, subtask in _subtasks(record))


def read(found: Documents, rows: Rows) -> None:
    """Adds an episode per sub-task of `found`, (place, JSON object) pairs, to `Rows`; scenario: parent folders."""
    path = Path(rows.file).absolute()
    scenario = "/".join(path.parent.parent.parts[-2:])
    for where, record in found:
        model = record.get("model") or Path(text(record.get("model_root") or path.parent.name)).name
        for number, (name, subtask) in enumerate(_subtasks(record)):
            place = f"{where}{', ' * bool(where)}subtask {number}"
            if not isinstance(subtask, Mapping) or not isinstance(subtask.get("attempts"), list):
                rows.problem(place, "a sub-task without attempts")
                continue
            attempts = [a for a in subtask["attempts"] if isinstance(a, Mapping)]
            if len(attempts) < len(subtask["attempts"]):
                rows.problem(place, "an attempt is not an object")
            turns = [_turn(a, model) for a in attempts] or [{}]
            last, extra = turns[-1], {name: record.get(name) for name in ("max_attempts", "attempt_limit")}
            if "best_score" in subtask:
                perfect = [n for n, a in enumerate(attempts, start=1) if a.get("score") == PERFECT]
                extra["carried"] = perfect[0] if perfect else 1
            known = {"name", "subtask", "attempts", "best_score", "final_score", "success"}
            last["metadata"] = rest({"attempt": last.get("metadata")} | dict(subtask) | extra, known)
            score = _score(subtask, attempts)
            rows.episode(
                place,
                turns,
                system=model,
                task=f"{scenario}/{text(subtask.get('name', subtask.get('subtask', name)))}",
                score=score,
                success=_success(subtask, attempts, score),
            )


def _subtasks(record: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """(name or number, sub-task): they stand in a list, or in an object by name."""
    found = record.get("subtasks")
    if isinstance(found, Mapping):
        return list(found.items())
    return list(enumerate(found)) if isinstance(found, list) else []


def _score(subtask: Mapping[str, Any], attempts: list[Mapping[str, Any]]) -> Any:
    if subtask.get("best_score") is not None:
        return subtask["best_score"]
    final = subtask.get("final_score")
    judged = any("judge_score" in attempt for attempt in attempts)
    return _tenfold(final) if judged else final


def _success(subtask: Mapping[str, Any], attempts: list[Mapping[str, Any]], score: Any) -> Any:
    if subtask.get("success") is not None:
        return subtask["success"]
    if any("text_result" in attempt or "vision_result" in attempt for attempt in attempts):
        return any(attempt.get("status") == "pass" for attempt in attempts)
    return None if score is None else score == PERFECT


def _tenfold(score: Any) -> Any:
    return 10 * score if isinstance(score, int | float) and not isinstance(score, bool) else score


def _turn(attempt: Mapping[str, Any], model: Any) -> dict[str, Any]:
    score = attempt.get("score", mapping(attempt.get("rubric")).get("score"))
    score = _tenfold(attempt["judge_score"]) if "judge_score" in attempt else score
    scores = {"attempt": score} if score is not None else {}
    for kind in ("text", "vision"):
        if isinstance(judged := attempt.get(f"{kind}_result"), Mapping):
            scores[kind] = judged.get("score")
    return {
        "policy": model,
        "observation": next((attempt[name] for name in _HEARD if attempt.get(name)), None),
        "action": next((attempt[name] for name in _SAID if attempt.get(name)), None),
        "scores": scores,
        "metadata": rest(attempt, _KNOWN),
    }
