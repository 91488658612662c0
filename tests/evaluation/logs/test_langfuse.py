"""Observations of Langfuse: of its API's class, and the spans that its SDK exported (`makers/langfuse_team.py`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.algebra.messages import messages
from palaestra.evaluation import trials
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.logs import read_logs
from palaestra.evaluation.logs.genai import langfuse_usage
from palaestra.evaluation.triage import triage
from palaestra.judges import cases

DATA = Path(__file__).parent / "data"
BOTH = pytest.mark.parametrize("name", ["langfuse.jsonl", "langfuse_otel.jsonl"])


@BOTH
def test_agents_tools_tokens_and_costs(name: str) -> None:
    logs = read_logs(f"posts={DATA / name}")
    frame = logs.turns.frame
    assert logs.problems == ()
    assert frame["agent"].cast(str).to_list() == ["writer", "writer", "editor"] * 2
    assert frame["tool"].to_list() == ["facts", None, None] * 2
    assert frame["tool_error"].to_list() == [None, None, None, "no topic was given", None, None]
    assert frame["tokens_in"].to_list()[:3] == [10, 30, 20]
    assert frame["cost"].to_list() == [0.001] * 6
    assert frame["observation"].to_list()[1] == "The moon makes tides."
    found = trials(logs.turns)
    assert found.select("system", "task", "success").rows() == [("posts", "posts/1", True), ("posts", "posts/2", False)]


@BOTH
def test_who_heard_whom_and_who_mattered(name: str) -> None:
    found = messages(read_logs(DATA / name).turns)
    assert found.select("sender", "sender_turn", "receiver", "receiver_turn").rows() == [("writer", 1, "editor", 2)] * 2
    assert analyze("importance", DATA / name).rows() == [("editor", 2, 1.0), ("writer", 4, 1.0)]
    turns = read_logs(DATA / name).turns
    assert triage(turns, budget=1)["task"].to_list() == ["posts/2"]
    assert "A draft on tides." in cases(turns)["response"][0]


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / "langfuse.jsonl").read_text().splitlines()]


def test_scores_are_those_of_their_trace(tmp_path: Path) -> None:
    assert read_logs(DATA / "langfuse.jsonl").turns["score.quality"].drop_nulls().to_list() == [1.0, 0.5]
    found = lines()
    for each in found:
        if each.get("isRootObservation"):
            each["metadata"] = {"task": each["metadata"]["task"]}
    trace = found[0]["traceId"]
    found.append({"id": "s", "traceId": trace, "name": "correct", "value": 0, "dataType": "BOOLEAN"})
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, found)))
    assert trials(read_logs(tmp_path / "log.jsonl").turns)["success"].to_list() == [False, None]


@pytest.mark.parametrize("form", ["page", "traces"])
def test_pages_and_traces_are_the_same(tmp_path: Path, form: str) -> None:
    found = lines()
    if form == "page":
        value: Any = {"data": found, "meta": {"page": 1}}
    else:
        value = [
            {"id": trace, "timestamp": "2026-01-01T00:00:00Z", "name": "post", "sessionId": None,
             "observations": [each for each in found if each["traceId"] == trace and "startTime" in each],
             "scores": [each for each in found if each["traceId"] == trace and "startTime" not in each]}
            for trace in dict.fromkeys(each["traceId"] for each in found)
        ]  # fmt: skip
    path = tmp_path / "log.json"
    path.write_text(json.dumps(value))
    shown = read_logs(path).turns.frame.drop("metadata")
    assert shown.equals(read_logs(DATA / "langfuse.jsonl").turns.frame.drop("metadata"))


def test_damage_is_named(tmp_path: Path) -> None:
    found = lines()
    found[1]["startTime"] = "noon"
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, [*found, {"id": "x"}])))
    assert [str(each).removeprefix(f"{path}, ") for each in read_logs(path).problems] == [
        f"line 2, observation {found[1]['id']}: startTime: 'noon' is no time in ISO 8601; it is unknown",
        f"line {len(found) + 1}: neither an observation, a trace nor a score of Langfuse; it is left out",
    ]


def trace(number: int, model: str = "m", session: str | None = None) -> dict[str, Any]:
    """An observation that is a trace of its own."""
    return {
        "id": f"o{number}{model}", "traceId": f"t{number}{model}", "type": "GENERATION", "name": "chat", "model": model,
        "startTime": "2026-01-01T00:00:00Z", "input": [{"role": "user", "content": "hi"}], "sessionId": session,
        "metadata": {"task": f"q{number}"}, "parentObservationId": None,
    }  # fmt: skip


def score(number: int, name: str, value: float, kind: str = "NUMERIC") -> dict[str, Any]:
    return {"id": f"s{number}", "traceId": f"t{number}m", "name": name, "value": value, "dataType": kind}


def found_in(path: Path, *records: dict[str, Any]) -> list[tuple[str, str, bool | None, float | None]]:
    path.write_text("\n".join(map(json.dumps, records)))
    return trials(read_logs(path).turns).select("system", "task", "success", "score").rows()


def test_a_session_of_several_tasks_is_several_episodes(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    assert len(found_in(path, *(trace(n, session="nightly") for n in range(3)))) == 3
    one = [trace(n, session="talk") | {"metadata": {"task": "q"}} for n in range(3)]
    assert len(found_in(path, *one)) == 1, "a conversation about one task stays one"


def test_episodes_of_different_models_are_different_systems(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    both = [trace(n, model) for n in range(2) for model in ("x", "y")]
    assert {row[0] for row in found_in(path, *both)} == {"x", "y"}
    for model in ("x", "y"):  # a helper beside each
        both.append(trace(0, model) | {"id": f"h{model}", "model": "helper", "metadata": {}})
    assert {row[0] for row in found_in(path, *both)} == {"log"}
    assert "episodes of different models (helper, x, y)" in str(read_logs(path).problems[0])


def test_the_order_of_scores_does_not_matter(tmp_path: Path) -> None:
    path, two = tmp_path / "log.jsonl", [trace(0), trace(1)]
    more = [score(0, "accuracy", 1), score(0, "seconds", 7.5), score(1, "seconds", 7.5), score(1, "accuracy", 0)]
    assert [row[3] for row in found_in(path, *two, *more)] == [None, None], "nobody knows which one counts"
    assert trials(read_logs(path).turns, score="score.accuracy")["score"].to_list() == [1, 0]
    named = [each | {"name": "score"} if each["name"] == "accuracy" else each for each in more]
    assert [row[3] for row in found_in(path, *two, *named)] == [1, 0]
    twice = [score(n, "accuracy", value) for n in range(2) for value in (1, 0)]
    assert [row[3] for row in found_in(path, *two, *twice)] == [0.5, 0.5], "the mean of two annotators"


def test_annotators_who_disagree_on_success_are_named(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    said = [score(n, "correct", value, "BOOLEAN") for n, value in ((0, 1), (0, 1), (1, 1), (1, 0))]
    assert [row[2] for row in found_in(path, trace(0), trace(1), *said)] == [True, None]
    assert "true and false" in str(read_logs(path).problems[0])


COUNT = st.integers(1, 1000)


@given(COUNT, COUNT, COUNT, COUNT, st.sampled_from(["apart", "inside", "untold"]), st.booleans())
def test_tokens_beside_the_input_and_output_count(
    fresh: int, cached: int, said: int, thought: int, way: str, openai: bool
) -> None:
    total = {"total": fresh + cached + said + thought}
    if way == "inside":
        fresh, said = fresh + cached, said + thought
    names = ("input_cached_tokens", "output_reasoning_tokens") if openai else ("input_cache_read", "output_reasoning")
    usage = {"input": fresh, names[0]: cached, "output": said, names[1]: thought} | (total if way != "untold" else {})
    more = (0, 0) if way == "inside" else (cached, thought)
    assert langfuse_usage(usage) == {
        "tokens_in": fresh + more[0],
        "tokens_cached": cached,
        "tokens_out": said + more[1],
    }
