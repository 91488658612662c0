"""Conversations of several agents, in files that AutoGen 0.7.5 and LangGraph 1.2.22 wrote with replayed models.

AutoGen: a RoundRobinGroupChat of two AssistantAgents; `autogen_messages.jsonl` has a message per line
(`message.model_dump_json()`), `autogen_results.jsonl` a TaskResult per line. LangGraph: a graph of two nodes; its
messages by `messages_to_dict`, then by `model_dump`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palaestra.evaluation.logs import read_logs
from palaestra.evaluation.logs.messages import turns_of

DATA = Path(__file__).parent / "data"


def test_a_message_per_line_is_one_conversation_with_its_agents() -> None:
    frame = read_logs(DATA / "autogen_messages.jsonl").turns.frame
    assert frame["agent"].cast(str).to_list() == ["planner", "critic", "planner"]
    assert frame["action"].to_list() == ["I propose 0", "I doubt that. TERMINATE", "Then so be it."]
    assert frame["observation"].to_list() == [
        "What is 0 plus 1?", "What is 0 plus 1?\nplanner: I propose 0", "critic: I doubt that. TERMINATE",
    ]  # fmt: skip
    assert frame["tokens_in"].to_list() == [25, 28, 32]
    assert frame["task"].str.starts_with("What is 0 plus 1?").all()


def test_results_are_an_episode_each() -> None:
    frame = read_logs(DATA / "autogen_results.jsonl").turns.frame
    assert frame.select("group", "episode").n_unique() == 2
    assert frame["agent"].cast(str).to_list() == ["planner", "critic", "planner"] * 2


def test_nodes_of_a_graph_are_agents_by_name() -> None:
    frame = read_logs(DATA / "langgraph.jsonl").turns.frame
    assert frame["agent"].cast(str).to_list() == ["researcher", "writer"] * 2
    assert frame["observation"].to_list()[1] == "Capital of France?\nresearcher: Paris has it"
    assert frame["tool"].to_list() == ["search", None] * 2
    assert frame["success"].to_list() == [True, True, False, False]


def message(source: str, content: Any, kind: str = "TextMessage") -> dict[str, Any]:
    return {"source": source, "content": content, "type": kind, "models_usage": None}


def test_calls_and_events_of_autogen() -> None:
    found = turns_of([
        message("user", "Find it."),
        message("finder", "hm", "ThoughtEvent"),
        message("finder", [{"id": "1", "name": "search", "arguments": '{"q": 1}'}], "ToolCallRequestEvent"),
        message("finder", [{"call_id": "1", "name": "search", "content": "42", "is_error": False}],
                "ToolCallExecutionEvent"),
        message("finder", "42", "ToolCallSummaryMessage"),
        message("checker", "Right.", "StopMessage"),
    ])  # fmt: skip
    assert [row["agent"] for row in found] == ["finder", "finder", "checker"]
    assert (found[0]["tool"], found[0]["arguments"], found[1]["observation"]) == ("search", '{"q": 1}', "42")
    assert found[2]["observation"] == "Find it.\n42\nfinder: 42"


def test_agents_without_names_hear_as_one_assistant_did() -> None:
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
            {"role": "assistant", "content": "d"}]  # fmt: skip
    assert [row["observation"] for row in turns_of(talk)] == ["a", "c"]


@pytest.mark.parametrize("word", ["correct", "passed", "resolved"])
def test_success_has_other_names_in_chats_too(tmp_path: Path, word: str) -> None:
    lines = [{"messages": [{"role": "assistant", "content": "x"}], "task": f"t{k}", word: k == 0} for k in range(2)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert read_logs(tmp_path / "log.jsonl").turns["success"].to_list() == [True, False]
