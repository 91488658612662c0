"""HAL uploads (`{run_id}_UPLOAD.json`, arXiv 2510.11977): results per task, and the calls of the model in two layouts.

Who succeeded is what `results` says (see `hal_results`); a score that the upload does not tell is null. Under prompt
variations a task has a *list* of results: each is a trial, numbered in `variation`. HAL adds nothing for a model
without a price, so a cost of 0 beside tokens is unknown, and null here. Published traces are encrypted zips: decrypt
them first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from palaestra.evaluation.logs.files import Documents
from palaestra.evaluation.logs.hal_results import FAILED, SCORES, SUCCEEDED, results_of
from palaestra.evaluation.logs.messages import turns_of
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import Rows, mapping, rest, text
from palaestra.evaluation.logs.usage import tokens

_KNOWN = {*SCORES, "cost", "confidence", "error"}
_SUMMED = ("tokens_in", "tokens_cached", "tokens_cache_write", "tokens_out")


@READERS.register("hal")
def hal() -> LogReader:
    """Makes the `LogReader` of HAL's uploads, of every benchmark that the harness has."""
    return LogReader(read, fits=fits)


def fits(record: dict[str, Any]) -> bool:
    """Whether a JSON object is a HAL upload: a config, and results per task or lists of solved and failed tasks."""
    named = mapping(record.get("results")).keys() & {*SUCCEEDED, *FAILED}
    return "config" in record and ("raw_eval_results" in record or bool(named))


def read(found: Documents, rows: Rows) -> None:
    """Adds an episode per task and variation of HAL uploads in `found`, (place, JSON object) pairs, to `Rows`."""
    for where, record in found:
        config = mapping(record.get("config"))
        calls = _calls(record.get("raw_logging_results"))
        clocks = mapping(record.get("wall_clock_times"))
        results, why = results_of(record)
        for said in why:
            rows.problem(where, said)
        for task, trials in results.items():
            place = f"{where}{', ' * bool(where)}task {task[:60]!r}"
            for trial in trials:
                turns = _turns(calls.get(task) if len(trials) == 1 else None)
                last = turns[-1]
                used = any(turn.get(name) for turn in turns for name in _SUMMED)
                cost = trial.said.get("cost")
                last["confidence"] = trial.said.get("confidence")
                extra = {"run_id": config.get("run_id"), "wall_clock": clocks.get(task)}
                last["metadata"] = rest({**trial.said, **extra}, _KNOWN)
                rows.episode(
                    f"{place}{f', variation {trial.variation}' if trial.variation is not None else ''}",
                    turns,
                    system=_system(config),
                    task=f"{text(config.get('benchmark_name', 'hal'))}/{task}",
                    variation=trial.variation,
                    success=trial.success,
                    score=trial.score,
                    scores=trial.scores,
                    cost=None if cost == 0 and (used or not calls) else cost,
                    error=trial.error,
                )


def _system(config: Mapping[str, Any]) -> str | None:
    """The agent, and its model where the agent's name does not say it: one agent on two models is two systems."""
    agent, model = config.get("agent_name"), mapping(config.get("agent_args")).get("model_name")
    if not isinstance(model, str) or agent is None:
        return agent
    return agent if _plain(model.rpartition("/")[2]) in _plain(text(agent)) else f"{text(agent)} ({model})"


def _plain(name: str) -> str:
    return "".join(sign for sign in name.casefold() if sign.isalnum())


def _calls(logged: Any) -> Mapping[str, Any]:
    """Calls by task; the older layout is a flat list of calls with a `weave_task_id`."""
    if isinstance(logged, Mapping):
        return {text(task): calls for task, calls in logged.items()}
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
