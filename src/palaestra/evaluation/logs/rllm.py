"""rLLM's episodes: a JSON file each (`episodes/episode_*.json` of `rllm eval`), or a list of them in one file.

An episode holds a trajectory for each agent, by name, and a trajectory its steps. Steps of several trajectories stand
in the order of the file, one trajectory after the other, because nothing says when a step was taken. `is_correct` is
the success; a trajectory's reward is its last step's where its steps have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palaestra.errors import StorageError
from palaestra.evaluation.logs.columns import task_of
from palaestra.evaluation.logs.files import Documents
from palaestra.evaluation.logs.messages import content_text
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import Rows, dump, items, mapping, rest, text
from palaestra.foundation.files import read_object

_KNOWN = {"id", "task", "is_correct", "trajectories", "termination_reason", "metrics", "eval_idx", "session_id"}
_CUT = ("max_prompt_length_exceeded", "max_response_length_exceeded", "max_turns_exceeded", "timeout")


@READERS.register("rllm")
def rllm() -> LogReader:
    """Makes the `LogReader` of rLLM's episodes."""
    return LogReader(read, fits=fits)


def fits(record: dict[str, Any]) -> bool:
    """Whether a JSON object is rLLM's: trajectories of steps."""
    trajectories = record.get("trajectories")
    return isinstance(trajectories, list) and any("steps" in mapping(each) for each in trajectories)


def read(found: Documents, rows: Rows) -> None:
    """Adds an episode per (place, JSON object) pair of `found` to `Rows`; what cannot be read, as a problem."""
    model = _model(rows)
    for where, record in found:
        if not fits(record):
            rows.problem(where, "no episode with trajectories of steps")
            continue
        turns: list[dict[str, Any]] = []
        for each in record["trajectories"]:
            turns += _turns(mapping(each), model, len(turns))
        turns = turns or [{}]
        turns[-1]["metadata"] = rest(record, _KNOWN)
        ended = record.get("termination_reason")
        ended = mapping(ended).get("value", ended) if isinstance(ended, Mapping) else ended
        cut = isinstance(ended, str) and ended in _CUT
        details = mapping(record.get("metadata") or record.get("info"))
        error = details.get("error") or ("termination_reason error" if ended == "error" else None)
        rows.episode(
            where,
            turns,
            system=model,
            task=_task(record),
            success=record.get("is_correct") if error is None else None,
            scores={name: x for name, x in mapping(record.get("metrics")).items() if isinstance(x, int | float)},
            error=None if error is None else f"run: {text(error)}",
            truncated=True if cut else None,
            limit=ended if cut else None,
        )


def _turns(trajectory: Mapping[str, Any], model: str | None, first: int) -> list[dict[str, Any]]:
    name = trajectory.get("name")
    agent = None if name in (None, "default_traj_name") else text(name)
    steps = [mapping(step) for step in items(trajectory.get("steps"))]
    rewards = [step.get("reward") for step in steps]
    paid = any(isinstance(reward, int | float) and reward != 0 for reward in rewards)
    turns = []
    for number, step in enumerate(steps):
        turn = {
            "turn": first + number,
            "agent": agent,
            "policy": model,
            "observation": _seen(step),
            "action": _done(step),
            "reward": rewards[number] if paid else None,
            "tokens_in": len(items(step.get("prompt_ids"))) or None,
            "tokens_out": len(items(step.get("response_ids"))) or None,
        }
        turns.append(turn)
    if turns and not paid:
        turns[-1]["reward"] = trajectory.get("reward")
    if turns:
        turns[-1]["scores"] = dict(mapping(trajectory.get("signals")))
    return turns


def _seen(step: Mapping[str, Any]) -> str | None:
    """Prompt of a step: of a conversation the messages since the agent's last one."""
    talk = [mapping(each) for each in items(step.get("chat_completions"))]
    while talk and talk[-1].get("role") == "assistant":
        talk.pop()
    heard: list[str] = []
    for message in reversed(talk):
        if message.get("role") == "assistant":
            break
        heard.insert(0, content_text(message.get("content")) or "")
    if heard:
        return "\n".join(heard)
    given = step.get("observation") if step.get("observation") is not None else step.get("input")
    return None if given is None else text(given)


def _done(step: Mapping[str, Any]) -> str | None:
    for name in ("model_response", "output", "action"):
        value = step.get(name)
        value = mapping(value).get("action", value) if isinstance(value, Mapping) else value
        if value not in (None, ""):
            return text(value)
    talk = [mapping(each) for each in items(step.get("chat_completions"))]
    return content_text(talk[-1].get("content")) if talk and talk[-1].get("role") == "assistant" else None


def _task(record: Mapping[str, Any]) -> str:
    task = record.get("task")
    facts = mapping(task)
    for name in ("id", "task_id", "instruction", "question", "problem"):
        if facts.get(name) is not None:
            return text(facts[name]) if name.endswith("id") else task_of(text(facts[name]))
    if isinstance(task, str):
        return task_of(task)
    identity = text(record.get("id") or "")
    return identity.partition(":")[0] or task_of(dump(task))


def _model(rows: Rows) -> str | None:
    """`meta.json` of the run says which model it was."""
    for folder in (Path(rows.file).parent, Path(rows.file).parent.parent):
        try:
            found = read_object(folder / "meta.json")
        except StorageError:
            continue
        if found and found.get("model") is not None:
            return text(found["model"])
    return None
