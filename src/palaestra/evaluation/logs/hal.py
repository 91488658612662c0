"""HAL uploads (`{run_id}_UPLOAD.json`, arXiv 2510.11977): results per task, and the calls of the model in two layouts.

Under prompt variations a task has a *list* of results: each is a trial, numbered in `variation`. HAL adds nothing for a
model without a price, so a cost of 0 beside tokens is unknown, and null here. Published traces are encrypted zips;
decrypt them with HAL first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from palaestra.evaluation.logs.files import Documents
from palaestra.evaluation.logs.messages import turns_of
from palaestra.evaluation.logs.rows import Rows, mapping, rest, text
from palaestra.evaluation.logs.usage import tokens

_SCORES = ("reward", "score", "accuracy", "resolved", "success")
_KNOWN = {*_SCORES, "cost", "confidence", "error"}
_SUMMED = ("tokens_in", "tokens_cached", "tokens_cache_write", "tokens_out")


def fits(record: dict[str, Any]) -> bool:
    """Results per task, and how they came about."""
    return record.keys() >= {"config", "raw_eval_results"}


def read(found: Documents, rows: Rows) -> None:
    """One episode per task and variation."""
    for where, record in found:
        results = record.get("raw_eval_results")
        if not isinstance(results, Mapping):
            rows.problem(where, "raw_eval_results is not an object by task; this benchmark's results are not per task")
            continue
        config = record["config"] if isinstance(record.get("config"), Mapping) else {}
        calls = _calls(record.get("raw_logging_results"))
        clocks = record.get("wall_clock_times")
        for task, result in results.items():
            place = f"{where}{', ' * bool(where)}task {text(task)[:60]!r}"
            varied = isinstance(result, list)
            for number, one in enumerate(result if varied else [result]):
                logged = None if varied and len(result) > 1 else calls.get(task)
                turns = _turns(logged)
                last = turns[-1]
                one = one if isinstance(one, Mapping) else {"score": one}
                score = next((one[name] for name in _SCORES if one.get(name) is not None), None)
                used = any(turn.get(name) for turn in turns for name in _SUMMED)
                cost = one.get("cost")
                last["confidence"] = one.get("confidence")
                clock = clocks.get(task) if isinstance(clocks, Mapping) else None
                last["metadata"] = rest({**one, "run_id": config.get("run_id"), "wall_clock": clock}, _KNOWN)
                rows.episode(
                    f"{place}{f', variation {number}' if varied else ''}",
                    turns,
                    system=config.get("agent_name"),
                    task=f"{text(config.get('benchmark_name', 'hal'))}/{text(task)}",
                    variation=number if varied else None,
                    score=score,
                    cost=None if cost == 0 and (used or not calls) else cost,
                    error=f"run: {text(one['error'])}" if one.get("error") else None,
                )


def _calls(logged: Any) -> Mapping[str, Any]:
    """Calls by task; the older layout is a flat list of calls with a `weave_task_id`."""
    if isinstance(logged, Mapping):
        return logged
    by_task: dict[str, list[Any]] = {}
    for call in logged if isinstance(logged, list) else []:
        if isinstance(call, Mapping) and call.get("weave_task_id") is not None:
            by_task.setdefault(text(call["weave_task_id"]), []).append(call)
    return by_task


def _turns(logged: Any) -> list[dict[str, Any]]:
    if isinstance(logged, Mapping):
        return _conversation(logged)
    turns: list[dict[str, Any]] = []
    for call in logged if isinstance(logged, list) else []:
        inputs, output = mapping(call.get("inputs")), mapping(call.get("output"))
        if not output.get("usage"):
            continue  # an operation around a call of the model, not a call
        choices = output.get("choices")
        choice = mapping(choices[0] if isinstance(choices, list) and choices else None)
        answer = mapping(choice.get("message"))
        heard = inputs.get("messages")
        said = turns_of([*(heard[-1:] if isinstance(heard, list) else []), {**answer, "role": "assistant"}])[-1]
        said |= {"turn": len(turns), "policy": inputs.get("model") or output.get("model")}
        turns.append(said | tokens(output["usage"]) | {"duration": _seconds(call)})
    return turns or [{}]


def _conversation(logged: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The newer layout: the longest conversation of a task, and usage per call."""
    messages, calls = logged.get("messages"), logged.get("call_metadata")
    turns = turns_of(messages if isinstance(messages, list) else [], policy=logged.get("model")) or [{}]
    turns = [{name: value for name, value in turn.items() if name not in _SUMMED} for turn in turns]
    calls = [call for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []
    starts = [n for n, turn in enumerate(turns) if n == 0 or turn.get("turn") != turns[n - 1].get("turn")]
    if len(calls) == len(starts):
        for start, call in zip(starts, calls, strict=True):
            turns[start] |= tokens(call.get("usage")) | {"duration": _seconds(call)}
    elif calls:  # calls beside the conversation: only their sum belongs to this trial
        turns[-1] |= _total([tokens(call.get("usage")) for call in calls])
    return turns


def _total(found: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {name: sum(t.get(name, 0) for t in found) for name in _SUMMED if any(name in t for t in found)}


def _seconds(call: Mapping[str, Any]) -> float | None:
    try:
        start, end = (datetime.fromisoformat(call[name]) for name in ("started_at", "ended_at"))
        return (end - start).total_seconds()
    except (KeyError, ValueError, TypeError):
        return None
