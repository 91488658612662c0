"""verifiers' rollouts: `traces.jsonl` and the older `results.jsonl`.

The first (0.2 and later, prime-rl too) has an episode of agents a line, the second (`vf-eval`) a rollout a line.

Of a trace whose messages fork (compaction, sub-agents) the last branch is read, and that others are left out is said.
A trace's rewards, each times its weight, are its agent's reward; metrics stand in `score.NAME`. Where our own plugin
played (`learning.adapters.verifiers_v1`), each trace has its agent's reward of the whole episode, and `info` says what
each turn earned: that is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palaestra.errors import StorageError
from palaestra.evaluation.logs.columns import task_of
from palaestra.evaluation.logs.files import Documents
from palaestra.evaluation.logs.messages import turns_of
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import MOST, Rows, items, mapping, rest, text
from palaestra.foundation.files import read_object

_ROLLOUT = {
    "example_id", "prompt", "completion", "reward", "error", "is_truncated", "stop_condition", "metrics", "token_usage",
    "error_chain", "long_error_chain", "tool_defs",
}  # fmt: skip
_EPISODE = {"id", "env", "task", "traces", "ok", "errors", "run", "group", "is_timeout"}


@READERS.register("verifiers")
def verifiers() -> LogReader:
    """Makes the `LogReader` of rollouts of the library verifiers."""
    return LogReader(read, fits=lambda record: is_episode(record) or is_rollout(record))


def is_episode(record: dict[str, Any]) -> bool:
    """Whether a JSON object is a line of verifiers' `traces.jsonl`."""
    return isinstance(record.get("traces"), list) and record.keys() >= {"task", "env"}


def is_rollout(record: dict[str, Any]) -> bool:
    """Whether a JSON object is a line of verifiers' `results.jsonl`."""
    return record.keys() >= {"example_id", "prompt", "completion", "reward"}


def read(found: Documents, rows: Rows) -> None:
    """Adds an episode per line in `found`, (place, JSON object) pairs, to `Rows`; what cannot be read, as a problem."""
    beside = _beside(rows)
    for where, record in found:
        if is_episode(record):
            _episode(where, record, rows)
        elif is_rollout(record):
            _rollout(where, record, beside, rows)
        else:
            rows.problem(where, "neither an episode with traces nor a rollout with prompt and completion")


def _beside(rows: Rows) -> Mapping[str, Any]:
    """`metadata.json` beside `results.jsonl` says which model it was."""
    try:
        return read_object(Path(rows.file).with_name("metadata.json")) or {}
    except StorageError:
        return {}


def _rollout(where: str, record: dict[str, Any], beside: Mapping[str, Any], rows: Rows) -> None:
    talk = [*_said(record["prompt"], sampled=False), *_said(record["completion"], sampled=True)]
    turns = turns_of(talk, policy=beside.get("model")) or [{}]
    metrics = mapping(record.get("metrics"))
    used = mapping(record.get("token_usage"))
    turns[-1] |= {
        "tokens_in": used.get("input_tokens"),
        "tokens_out": used.get("output_tokens"),
        "metadata": rest(record, {*_ROLLOUT, *metrics}),
    }
    error = record.get("error")
    rows.episode(
        where,
        turns,
        system=beside.get("model"),
        task=f"{beside.get('env_id', 'example')} {text(record['example_id'])}",
        score=None if error else record["reward"],
        scores=metrics,
        error=_error(error),
        truncated=record.get("is_truncated"),
    )


def _episode(where: str, record: dict[str, Any], rows: Rows) -> None:
    traces = [trace for trace in record["traces"] if isinstance(trace, Mapping)]
    heard: list[tuple[float, int, int, dict[str, Any]]] = []
    models: dict[str, None] = {}
    for number, trace in enumerate(traces):
        config = mapping(mapping(trace.get("agent")).get("config"))
        calls = [mapping(call) for call in items(trace.get("calls"))]
        model = config.get("model") or next((call["model"] for call in calls if call.get("model")), None)
        models |= {} if model is None else {text(model): None}
        heard += _turns(where, number, trace, model, rows)
    heard.sort(key=lambda each: each[:3])
    places: dict[tuple[int, int], int] = {}
    turns = []
    for _, number, place, turn in heard:
        turns.append(turn | {"turn": turn.get("number", places.setdefault((number, place), len(places)))})
    task, work = mapping(record["task"]), mapping(mapping(record.get("run")).get("work"))
    data = mapping(task.get("data"))
    name = next(
        (text(each) for each in (task.get("key"), data.get("name"), task.get("hash")) if each is not None), None
    )
    errors = [*items(record.get("errors")), *(e for t in traces for e in items(t.get("errors")))]
    if turns:
        turns[-1]["metadata"] = rest(record, _EPISODE)
    rows.episode(
        where,
        turns,
        system=" + ".join(models) or None,
        task=name or task_of(text(data.get("prompt"))),
        error=_error(errors[-1]) if errors and record.get("ok") is False else None,
        iteration=work.get("step"),
        truncated=bool(record.get("is_timeout")) or None,
    )


def _turns(
    where: str, number: int, trace: Mapping[str, Any], model: Any, rows: Rows
) -> list[tuple[float, int, int, dict[str, Any]]]:
    """(when, number of the trace, turn in it, row) of what the agent said on its last branch."""
    nodes = [mapping(node) for node in items(trace.get("nodes"))]
    parents = [node.get("parent") for node in nodes]
    leaves = [place for place in range(len(nodes)) if place not in parents]
    if len(leaves) > 1:
        rows.problem(
            f"{where}, trace {number}".removeprefix(", "), f"{len(leaves)} branches of messages; the last one is read"
        )
    path: list[Mapping[str, Any]] = []
    at = leaves[-1] if leaves else None
    while isinstance(at, int) and 0 <= at < len(nodes) and len(path) <= len(nodes):
        path.append(nodes[at])
        at = nodes[at].get("parent")
    path.reverse()
    talk = [m for node in path for m in _said([node.get("message")], sampled=bool(node.get("sampled")))]
    when = [_number(node.get("timestamp"), 0.0) for node in path if node.get("sampled")]
    name = text(mapping(trace.get("agent")).get("name") or "agent")
    turns = turns_of(talk, agent=name, policy=model)
    if turns:
        rewards = [mapping(each) for each in mapping(trace.get("rewards")).values() if each is not None]
        own = [mapping(each) for each in items(mapping(trace.get("info")).get("palaestra"))]
        if own:
            _tell(turns, own)
        elif rewards:
            turns[-1]["reward"] = sum(_number(r.get("score"), 0.0) * _number(r.get("weight"), 1.0) for r in rewards)
        turns[-1]["scores"] = {k: v for k, v in mapping(trace.get("metrics")).items() if v is not None}
    found = []
    for turn in turns:
        place = int(turn["turn"])
        found.append((when[min(place, len(when) - 1)] if when else 0.0, number, place, turn))
    return found


def _tell(turns: list[dict[str, Any]], own: list[Mapping[str, Any]]) -> None:
    """Write `info` of each sampled message into its rows; the reward of a turn is on its last row."""
    last = {}
    for turn in turns:
        if int(turn["turn"]) < len(own):
            each = own[int(turn["turn"])]
            turn |= {"number": each.get("turn"), "valid": each.get("valid")}
            last[text(each.get("turn"))] = turn, each.get("reward")
    for turn, reward in last.values():
        turn["reward"] = reward


def _number(value: Any, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) and abs(value) <= MOST else otherwise


def _said(messages: Any, *, sampled: bool) -> list[Any]:
    """Messages; those of the assistant that the model did not say are what it was told."""
    if isinstance(messages, str):
        return [{"role": "assistant" if sampled else "user", "content": messages}]
    told = [m for m in items(messages) if isinstance(m, Mapping)]
    return [m if sampled or m.get("role") != "assistant" else {**m, "role": "user", "tool_calls": None} for m in told]


def _error(error: Any) -> str | None:
    """`policy: what it says`; a provider's failure names itself."""
    if error is None:
        return None
    if not isinstance(error, Mapping):
        return text(error)
    kind = error.get("type") or error.get("error") or "error"
    says = error.get("message") or error.get("error_chain_str") or ""
    return f"{text(kind)}: {text(says)}"
