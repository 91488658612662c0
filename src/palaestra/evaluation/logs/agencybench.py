"""AgencyBench's meta_eval.json (arXiv 2601.11044): a sub-task is an episode, an attempt a turn.

The reward is `best_score` (0 to 10) on the last attempt, success is 10; each attempt's own score is `score.attempt`.
The released runner hands the *first* attempt's workspace to the next sub-task unless one is perfect, though it records
the best score; `carried` in the metadata says which attempt it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from palaestra.evaluation.logs.files import Documents
from palaestra.evaluation.logs.rows import Rows, rest

PERFECT = 10


def fits(record: dict[str, Any]) -> bool:
    """Sub-tasks with attempts."""
    subtasks = record.get("subtasks")
    return isinstance(subtasks, list) and any(isinstance(s, dict) and "attempts" in s for s in subtasks)


def read(found: Documents, rows: Rows) -> None:
    """One episode per sub-task; the scenario is the name of the folders above the model's."""
    folders = Path(rows.file).absolute().parent.parent.parts[-2:]
    scenario = "/".join(folders)
    for where, record in found:
        subtasks = record.get("subtasks")
        for number, subtask in enumerate(subtasks if isinstance(subtasks, list) else []):
            place = f"{where}{', ' * bool(where)}subtask {number}"
            if not isinstance(subtask, dict) or not isinstance(subtask.get("attempts"), list):
                rows.problem(place, "a sub-task without attempts")
                continue
            attempts = [a for a in subtask["attempts"] if isinstance(a, dict)]
            if len(attempts) < len(subtask["attempts"]):
                rows.problem(place, "an attempt is not an object")
            perfect = [n for n, a in enumerate(attempts, start=1) if a.get("score") == PERFECT]
            turns = [_turn(a, record.get("model")) for a in attempts] or [{}]
            known = {"name", "attempts", "best_score"}
            extra = {"carried": perfect[0] if perfect else 1, "max_attempts": record.get("max_attempts")}
            turns[-1]["metadata"] = rest({"attempt": turns[-1].get("metadata")} | subtask | extra, known)
            best = subtask.get("best_score")
            rows.episode(
                place,
                turns,
                system=record.get("model"),
                task=f"{scenario}/{subtask.get('name', number)}",
                score=best,
                success=None if best is None else best == PERFECT,
            )


def _turn(attempt: dict[str, Any], model: Any) -> dict[str, Any]:
    known = {"agent_output", "score", "feedback", "subtask"}
    return {
        "policy": model,
        "observation": attempt.get("feedback"),
        "action": attempt.get("agent_output"),
        "scores": {"attempt": attempt.get("score")},
        "metadata": rest(attempt, known),
    }
