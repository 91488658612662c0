"""OpenTelemetry's traces, in files that its own library for GenAI and its exporters wrote (`makers/otel.py`)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from palaestra.algebra.messages import messages
from palaestra.errors import InputError, MissingExtraError
from palaestra.evaluation import trials
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.logs import read_logs
from palaestra.evaluation.logs.genai import describe
from palaestra.evaluation.logs.otlp import attributes_of
from palaestra.evaluation.logs.spans import Span
from palaestra.evaluation.triage import triage
from palaestra.judges import cases

DATA = Path(__file__).parent / "data"


def test_agents_tools_tokens_and_grades() -> None:
    logs = read_logs(DATA / "otel.jsonl")
    frame = logs.turns.frame
    assert logs.problems == ()
    assert frame["agent"].cast(str).to_list() == ["planner", "solver", "solver", "checker"] * 2
    assert frame["tool"].to_list() == [None, "add", None, None] * 2
    assert frame["arguments"].to_list()[1] == '{"x": 17, "y": 25}'
    assert frame["tool_error"].to_list()[5] == "invalid literal for int() with base 10: 'one'"
    assert frame["action"].to_list()[:4] == [
        "Plan for sums/1: add the two numbers with the tool.", None, "The sum of sums/1 is 42.", "42"
    ]  # fmt: skip
    assert frame["observation"].to_list()[2] == "42", "the tool's answer is what is new"
    assert frame.select("tokens_in", "tokens_out").rows()[:4] == [(50, 12), (60, 12), (80, 12), (60, 12)]
    assert frame["policy"].cast(str).unique().to_list() == ["stub-1"]
    assert (frame["duration"] > 0).all()
    found = trials(logs.turns)
    assert found.select("system", "task", "success", "score", "turns").rows() == [
        ("sums-team", "sums/1", True, 1.0, 4), ("sums-team", "sums/2", False, 0.0, 4),
    ]  # fmt: skip
    assert frame["score.correct"].drop_nulls().to_list() == [1.0, 0.0]


def test_who_heard_whom() -> None:
    found = messages(read_logs(DATA / "otel.jsonl").turns)
    assert found.select("sender", "sender_turn", "receiver", "receiver_turn", "tokens").rows() == [
        ("planner", 0, "solver", 1, 12), ("planner", 0, "solver", 2, 12), ("solver", 2, "checker", 3, 12),
    ] * 2  # fmt: skip
    silent = read_logs(DATA / "otel_silent.jsonl").turns.frame
    spoken = read_logs(DATA / "otel.jsonl").turns.frame
    assert silent.select("agent", "turn", "heard", "heard_turn").equals(
        spoken.select("agent", "turn", "heard", "heard_turn")
    )
    assert silent["heard_source"].unique().to_list() == ["order"]
    assert "action" not in silent.columns


def test_analyses_triage_and_judges_take_it() -> None:
    path = DATA / "otel.jsonl"
    assert analyze("importance", path).rows() == [("checker", 2, 1.0), ("planner", 2, 1.0), ("solver", 4, 1.0)]
    density = analyze('coordination("sums-team")', path)["density"].to_list()
    assert density == [6 / 8]
    turns = read_logs(path).turns
    chosen = triage(turns, budget=1)
    assert chosen["task"].to_list() == ["sums/2"]
    assert "failure" in chosen["why"][0]
    judged = cases(turns)
    assert judged["prompt"].to_list() == ["sums/1", "sums/2"]
    assert "Plan for sums/1: add the two numbers" in judged["response"][0]
    with pytest.raises(InputError, match=r"otel_silent.jsonl: it keeps no words; record the trace"):
        analyze("importance", DATA / "otel_silent.jsonl")


@pytest.mark.parametrize("name", ["otel.binpb", "otel_framed.binpb"])
def test_protobuf_is_the_same_play(name: str) -> None:
    pytest.importorskip("opentelemetry.proto")
    assert read_logs(DATA / name).turns.frame.equals(read_logs(DATA / "otel.jsonl").turns.frame)
    assert analyze("importance", DATA / name)["importance"].to_list() == [1.0, 1.0, 1.0]


def test_protobuf_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.proto")
    whole = (DATA / "otel_framed.binpb").read_bytes()
    (tmp_path / "cut.binpb").write_bytes(whole[:-9])
    logs = read_logs(tmp_path / "cut.binpb")
    assert logs.turns["task"].unique().to_list() == ["sums/1"]
    assert [p.where for p in logs.problems] == ["request 2"]
    (tmp_path / "half.binpb").write_bytes((DATA / "otel.binpb").read_bytes()[:-9])
    with pytest.raises(InputError, match=r"half.binpb: no whole OTLP request .*Export it again, or as OTLP JSON"):
        read_logs(tmp_path / "half.binpb")


def test_protobuf_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.collector.trace.v1.trace_service_pb2", None)
    with pytest.raises(
        MissingExtraError, match=r"opentelemetry-proto is not installed: pip install 'palaestra\[otel\]'"
    ):
        read_logs(DATA / "otel.binpb")


def test_damage_is_named_by_line_and_span(tmp_path: Path) -> None:
    first, second = map(json.loads, (DATA / "otel.jsonl").read_text().splitlines())
    spans = first["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans[0]["startTimeUnixNano"] = "yesterday"
    del spans[1]["spanId"]
    call = next(each for each in spans if each["name"] == "chat stub-1" and each is not spans[0])
    field = next(each for each in call["attributes"] if each["key"] == "gen_ai.input.messages")
    field["value"]["stringValue"] = '[{"role": "us'
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join([json.dumps(first), json.dumps(second), '{"resourceSpans": ', '{"other": 1}']))
    logs = read_logs(path)
    said = [str(each).removeprefix(f"{path}, ") for each in logs.problems]
    assert said[0].startswith("line 3: not JSON")
    assert said[1] == (
        f"line 1, span {spans[0]['spanId']}: startTimeUnixNano: 'yesterday' is no number of nanoseconds since 1970; "
        "the time is unknown"
    )
    assert said[2] == "line 1, span 2: no spanId and traceId, so nobody knows where it belongs; it is left out"
    assert said[3].startswith(f"line 1, span {call['spanId']}: gen_ai.input.messages is not JSON")
    assert said[4] == "line 4: no `resourceSpans`; lines of OTLP JSON have them"
    assert len(logs.turns) == 8, "what is damaged costs no turn"


def pairs(**attributes: Any) -> dict[str, Any]:
    return {name.replace("__", "."): value for name, value in attributes.items()}


def test_events_and_numbered_attributes_say_the_same() -> None:
    """The conventions of 1.28, in which messages are events, OpenLLMetry's numbers, and OpenInference's."""
    events = [
        ("gen_ai.system.message", {"content": "Be brief."}),
        ("gen_ai.user.message", {"content": "1 + 1?"}),
        ("gen_ai.choice", {"index": 0, "message": {"role": "assistant", "content": "2"}}),
    ]
    old = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 9, "gen_ai.usage.output_tokens": 1}
    open_llmetry = {
        "llm.request.type": "chat", "gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "Be brief.",
        "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "1 + 1?", "gen_ai.completion.0.content": "2",
        "gen_ai.completion.0.role": "assistant", "gen_ai.usage.prompt_tokens": 9, "gen_ai.usage.completion_tokens": 1,
    }  # fmt: skip
    open_inference = {
        "openinference.span.kind": "LLM", "llm.input_messages.0.message.role": "system",
        "llm.input_messages.0.message.content": "Be brief.", "llm.input_messages.1.message.role": "user",
        "llm.input_messages.1.message.content": "1 + 1?", "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "2", "llm.token_count.prompt": 9, "llm.token_count.completion": 1,
    }  # fmt: skip
    for attributes, happened in ((old, events), (open_llmetry, []), (open_inference, [])):
        span = Span("t", "s", None, "span s")
        assert describe(span, attributes, happened, {}) == []
        assert (span.kind, [m.text for m in span.prompt or ()]) == ("model", ["Be brief.", "1 + 1?"])
        assert span.said is not None
        assert span.said.text == "2"
        assert span.usage == {"tokens_in": 9, "tokens_out": 1}


def test_values_of_every_kind() -> None:
    raw = [
        {"key": "a", "value": {"arrayValue": {"values": [{"intValue": "1"}, {"stringValue": "x"}]}}},
        {"key": "b", "value": {"kvlistValue": {"values": [{"key": "c", "value": {"boolValue": True}}]}}},
        {"key": "d", "value": {"doubleValue": 0.5}}, {"key": "e", "value": {}}, "odd", {"value": 1},
    ]  # fmt: skip
    assert attributes_of(raw) == {"a": [1, "x"], "b": {"c": True}, "d": 0.5, "e": None}


def test_the_system_is_the_service_or_what_is_asked_for() -> None:
    frame = read_logs(DATA / "otel.jsonl", system="service.name").turns.frame
    assert frame["system"].unique().to_list() == ["sums-team"]
    assert pl.Series(frame["metadata"].drop_nulls()).str.contains('"service.name": "sums-team"').all()


def test_the_provider_of_a_model_is_no_system(tmp_path: Path) -> None:
    lines = []
    for number, model in enumerate(["gpt-4o", "mini", "gpt-4o", "mini"]):
        said = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model, "gen_ai.system": "openai",
                "gen_ai.request.seed": "7", "task": f"t{number // 2}"}  # fmt: skip
        attributes = [{"key": key, "value": {"stringValue": value}} for key, value in said.items()]
        span = {"traceId": str(number), "spanId": "1", "name": "chat", "attributes": attributes}
        lines.append(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    frame = read_logs(tmp_path / "log.jsonl").turns.frame
    assert frame["system"].to_list() == ["gpt-4o", "mini", "gpt-4o", "mini"]
    assert "seed" not in frame.columns
