"""Traces of the OpenAI Agents SDK, which it wrote and posted itself (`makers/openai_agents.py`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palaestra.algebra.messages import messages
from palaestra.errors import InputError
from palaestra.evaluation import trials
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.logs import read_logs
from palaestra.evaluation.triage import triage
from palaestra.judges import cases

DATA = Path(__file__).parent / "data"
LINES = DATA / "openai_agents.jsonl"


def test_agents_handoffs_tools_and_agents_as_tools() -> None:
    logs = read_logs(LINES)
    frame = logs.turns.frame
    assert logs.problems == ()
    assert frame["agent"].cast(str).to_list() == ["triage", "solver", "solver", "expert", "solver", "triage", "solver"]
    assert frame["tool"].to_list()[:5] == ["transfer_to_solver", "look_up", "ask_expert", None, None]
    assert frame["arguments"].to_list()[1] == '{"order": "17"}'
    assert frame["tool_error"].to_list()[6] == "'there is no such order'"
    assert frame["tokens_in"].to_list()[:5] == [30, 50, 70, 30, 90]
    assert frame["action"].to_list()[3:5] == [
        "The carrier needs two days from there.",
        "It will be with you in two days.",
    ]
    assert frame["observation"].to_list()[2] == "Order 17 left the warehouse."


def test_who_heard_whom() -> None:
    found = messages(read_logs(LINES).turns)
    assert found.select("sender", "sender_turn", "receiver", "receiver_turn").rows() == [
        ("triage", 0, "solver", 1), ("triage", 0, "solver", 2), ("solver", 2, "expert", 3), ("triage", 0, "solver", 4),
        ("expert", 3, "solver", 4), ("triage", 0, "solver", 1),
    ]  # fmt: skip


def test_a_run_whose_outermost_agent_fails_is_an_error() -> None:
    found = trials(read_logs(LINES).turns, errors="count")
    assert found.select("task", "success").rows() == [("orders/17", True), ("orders/none", False)]
    assert found["error"].to_list() == [None, "run: Error running tool look_up: 'there is no such order'"]


def test_bodies_of_the_backend_exporter_are_the_same() -> None:
    assert read_logs(DATA / "openai_agents_ingest.json").turns.frame.equals(read_logs(LINES).turns.frame)


def test_analyses_triage_and_judges_take_it() -> None:
    assert analyze("importance", LINES).rows() == [("solver", 4, 0.75), ("triage", 2, 0.5), ("expert", 1, 0.25)]
    turns = read_logs(LINES).turns
    assert triage(turns, budget=1)["task"].to_list() == ["orders/none"]
    assert "It will be with you in two days." in cases(turns)["response"][0]


def test_responses_keep_no_words_and_are_known_by_their_order(tmp_path: Path) -> None:
    """`response` spans, as the SDK has for its responses API: an id and the usage."""
    items = [json.loads(line) for line in LINES.read_text().splitlines()]
    for each in items:
        data = each.get("span_data", {})
        if data.get("type") == "generation":
            usage = {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}
            each["span_data"] = {"type": "response", "response_id": "resp", "usage": usage}
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, items)))
    frame = read_logs(tmp_path / "log.jsonl").turns.frame
    assert frame["agent"].cast(str).to_list()[:5] == ["triage", "solver", "solver", "expert", "solver"]
    assert frame["heard"].to_list()[:5] == [[], ["triage"], ["triage"], ["solver"], ["expert"]]
    assert frame["tool"].to_list()[:3] == [None, "look_up", "ask_expert"], "the spans of tools are enough"
    assert set(frame["tokens_cached"]) == {4}


def test_damage_is_named(tmp_path: Path) -> None:
    items = [json.loads(line) for line in LINES.read_text().splitlines()]
    del items[1]["trace_id"]
    items[2]["started_at"] = "noon"
    items.insert(3, {"object": "poem"})
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, items)))
    assert [str(each).removeprefix(f"{path}, ") for each in read_logs(path).problems] == [
        "line 2: no id and trace_id, so nobody knows where it belongs; it is left out",
        f"line 3, {items[2]['id']}: started_at: 'noon' is no time in ISO 8601; it is unknown",
        "line 4: neither a trace nor a span; lines of this format have `object`: trace or trace.span",
    ]
    path.write_text(json.dumps(items[0]))
    with pytest.raises(InputError, match="a trace without a call of a model or an agent"):
        read_logs(path)
