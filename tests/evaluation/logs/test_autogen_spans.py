"""AutoGen's and AG2's own spans, which they wrote themselves (`makers/autogen_team.py`, `makers/ag2_team.py`)."""

from __future__ import annotations

import json
from pathlib import Path

from palaestra.algebra.messages import messages
from palaestra.evaluation import trials
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.logs import read_logs

PATH = Path(__file__).parent / "data" / "autogen_otel.jsonl"


def test_a_trace_for_each_message_is_one_conversation_with_its_words() -> None:
    logs = read_logs(PATH)
    frame = logs.turns.frame
    assert logs.problems == ()
    assert frame["agent"].cast(str).to_list() == ["solver", "checker"]
    assert frame["observation"].to_list() == ["What is 17 + 25?", "What is 17 + 25?\n42"]
    assert frame["action"].to_list() == ["42", "42 it is."]
    assert frame.select("tool", "arguments").row(0) == ("add", '{"x": 17, "y": 25}')
    assert frame.select("tokens_in", "tokens_out").rows() == [(9, 3), (26, 3)]
    assert trials(logs.turns).select("system", "task", "success").rows() == [("autogen-team", "sums/1", True)]


def test_who_heard_whom_and_who_mattered() -> None:
    found = messages(read_logs(PATH).turns)
    assert found.select("sender", "sender_turn", "receiver", "receiver_turn").rows() == [("solver", 0, "checker", 1)]
    assert analyze("importance", PATH).rows() == [("checker", 1, 1.0), ("solver", 1, 1.0)]


def test_without_the_runtime_s_spans_agents_and_order_are_left(tmp_path: Path) -> None:
    """`AUTOGEN_DISABLE_RUNTIME_TRACING` leaves the spans of agents and tools."""
    record = json.loads(PATH.read_text())
    for scope in record["resourceSpans"][0]["scopeSpans"]:
        scope["spans"] = [span for span in scope["spans"] if not span["name"].startswith("autogen ")]
    (tmp_path / "log.jsonl").write_text(json.dumps(record))
    frame = read_logs(tmp_path / "log.jsonl").turns.frame
    assert frame["agent"].cast(str).to_list() == ["solver", "checker"]
    assert frame.select("heard", "heard_source").rows() == [([], "order"), (["solver"], "order")]
    assert frame["tool"].to_list() == ["add", None]


def test_a_team_that_is_started_again_begins_another_episode(tmp_path: Path) -> None:
    text = PATH.read_text()
    record = json.loads(text)
    spans = [span for scope in record["resourceSpans"][0]["scopeSpans"] for span in scope["spans"]]
    later = text
    for name in {value for span in spans for value in (span["traceId"], span["spanId"])}:
        later = later.replace(name, name[::-1])
    later = later.replace("sums/1", "sums/2").replace("17 + 25", "40 + 2")
    again = json.loads(later)
    for scope in again["resourceSpans"][0]["scopeSpans"]:
        for span in scope["spans"]:
            for field in ("startTimeUnixNano", "endTimeUnixNano"):
                span[field] = str(int(span[field]) + 10**12)
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, (record, again))))
    frame = read_logs(tmp_path / "log.jsonl").turns.frame
    assert frame["task"].to_list() == ["sums/1", "sums/1", "sums/2", "sums/2"]
    assert frame["observation"].to_list()[2:] == ["What is 40 + 2?", "What is 40 + 2?\n42"]


def test_ag2_s_spans_are_those_of_the_conventions() -> None:
    path = PATH.with_name("ag2_otel.jsonl")
    logs = read_logs(path)
    frame = logs.turns.frame
    assert logs.problems == ()
    assert frame["agent"].cast(str).to_list() == ["solver", "solver", "checker"]
    assert frame["tool"].to_list() == ["add", None, None]
    assert frame["observation"].to_list() == ["What is 17 + 25?", "42", "Is this right? The sum of both is 42."]
    found = messages(logs.turns)
    assert found.select("sender", "sender_turn", "receiver", "receiver_turn").rows() == [("solver", 1, "checker", 2)]
    assert analyze("importance", path).rows() == [("checker", 1, 1.0), ("solver", 2, 1.0)]


def test_crewai_s_steps_are_one_episode_and_known_by_their_order() -> None:
    """Written by OpenInference's instrumentation (`makers/crewai_team.py`); each step has a `task_id` of its own."""
    path = PATH.with_name("crewai_otel.jsonl")
    logs = read_logs(path)
    rows = logs.turns.frame.select("task", "agent", "action", "heard", "heard_source").rows()
    assert logs.problems == ()
    assert rows == [
        ("tides", "researcher", "Tides come from the moon.", [], "order"),
        ("tides", "writer", "The moon pulls.", ["researcher"], "order"),
    ]
    assert analyze("importance", path).rows() == [("researcher", 1, 1.0), ("writer", 1, 1.0)]
