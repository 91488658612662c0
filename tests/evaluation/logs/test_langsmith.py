"""Runs of a LangGraph team that LangSmith's client exported (`makers/langgraph_team.py`), and other forms of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palaestra.algebra.messages import messages
from palaestra.evaluation import trials
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.logs import read_logs
from palaestra.evaluation.triage import triage
from palaestra.judges import cases

LINES = Path(__file__).parent / "data" / "langsmith.jsonl"


def runs() -> list[dict[str, Any]]:
    return [json.loads(line) for line in LINES.read_text().splitlines()]


def test_nodes_are_agents_with_their_tools_and_tokens() -> None:
    logs = read_logs(f"capitals={LINES}")
    frame = logs.turns.frame
    assert logs.problems == ()
    assert frame["agent"].cast(str).to_list() == ["researcher", "researcher", "writer"] * 2
    assert frame["tool"].to_list() == ["search", None, None] * 2
    assert frame["tool_error"].to_list()[3] == "ValueError('no such city')"
    assert frame["observation"].to_list()[1] == "Paris is a capital."
    assert frame["action"].to_list()[1:3] == ["I looked Paris up, as you asked.", "Paris, of course."]
    assert frame.select("tokens_in", "tokens_out").rows()[:3] == [(20, 6), (30, 6), (25, 6)]
    found = trials(logs.turns)
    assert found.select("system", "task", "success").rows() == [
        ("capitals", "capitals/1", True), ("capitals", "capitals/2", False),
    ]  # fmt: skip


def test_who_heard_whom() -> None:
    found = messages(read_logs(LINES).turns)
    edges = [("researcher", 0, "writer", 2), ("researcher", 1, "writer", 2)] * 2
    assert found.select("sender", "sender_turn", "receiver", "receiver_turn").rows() == edges


def test_analyses_triage_and_judges_take_it() -> None:
    assert analyze("importance", LINES).rows() == [("researcher", 4, 1.0), ("writer", 2, 1.0)]
    turns = read_logs(LINES).turns
    assert triage(turns, budget=1)["task"].to_list() == ["capitals/2"]
    assert "Paris, of course." in cases(turns)["response"][0]


@pytest.mark.parametrize("form", ["tree", "list", "runs"])
def test_trees_and_lists_are_the_same(tmp_path: Path, form: str) -> None:
    found = runs()
    if form == "tree":
        by_id = {run["id"]: run for run in found}
        for run in found:
            parent = by_id.get(run.pop("parent_run_id", None))
            if parent is not None:
                parent.setdefault("child_runs", []).append(run)
        found = [run for run in found if run["name"] == "capitals"]
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"runs": found} if form == "runs" else found, indent=1))
    shown = read_logs(path, system="name").turns.frame
    assert shown.equals(read_logs(LINES, system="name").turns.frame)
    assert analyze("importance", path).height == 2


def test_nodes_within_nodes_belong_to_the_outer_one_and_steps_are_no_agents(tmp_path: Path) -> None:
    """A supervisor's agents are graphs with nodes `agent` and `tools`; a node that asks no model is a step."""
    found = runs()[:7]
    about = {"langgraph_checkpoint_ns": "writer:1|agent:2", "langgraph_node": "agent"}
    (writer,) = [run for run in found if run["name"] == "writer"]
    (call,) = [run for run in found if run.get("parent_run_id") == writer["id"]]
    inner = writer | {"id": "inner", "name": "agent", "parent_run_id": writer["id"], "extra": {"metadata": about}}
    step = writer | {"id": "step", "name": "count", "extra": {"metadata": {"langgraph_node": "count"}}}
    call["parent_run_id"] = "inner"
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, [*found, inner, step])))
    assert read_logs(path).turns["agent"].cast(str).to_list() == ["researcher", "researcher", "writer"]


def test_wrapped_clients_feedback_examples_and_threads(tmp_path: Path) -> None:
    """`wrap_openai` keeps OpenAI's own answers; feedback and the example of a data set stand at the outermost run."""
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    call = {
        "id": "b", "trace_id": "a", "parent_run_id": "a", "run_type": "llm", "name": "ChatOpenAI",
        "start_time": "2026-01-01T00:00:01", "end_time": "2026-01-01T00:00:03", "total_cost": "0.5",
        "inputs": {"messages": [{"role": "user", "content": "1 + 1?"}]},
        "outputs": {"choices": [{"index": 0, "message": {"role": "assistant", "content": "2"}}], "usage": usage},
        "extra": {"metadata": {"ls_model_name": "m-1", "lc_agent_name": "adder"}},
    }  # fmt: skip
    root = {"id": "a", "trace_id": "a", "run_type": "chain", "name": "run", "start_time": "noon",
            "reference_example_id": "example-7", "feedback_stats": {"correctness": {"n": 1, "avg": 1.0}},
            "extra": {"metadata": {"thread_id": "t"}}}  # fmt: skip
    again = {**call, "id": "d", "trace_id": "c", "parent_run_id": None, "start_time": "2026-01-02T00:00:00",
             "end_time": None, "extra": {"metadata": {"thread_id": "t"}}}  # fmt: skip
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, [root, call, again, {"run_type": "llm", "trace_id": "x"}])))
    logs = read_logs(path)
    first = logs.turns.frame.row(0, named=True)
    assert (first["agent"], first["policy"], first["action"], first["duration"]) == ("adder", "m-1", "2", 2.0)
    assert (first["tokens_in"], first["tokens_cached"], first["cost"]) == (9, 4, 0.5)
    assert logs.turns["task"].unique().to_list() == ["example-7"]
    assert logs.turns["score.correctness"].drop_nulls().to_list() == [1.0]
    assert [str(each).removeprefix(f"{path}, ") for each in logs.problems] == [
        "line 1, run a: start_time: 'noon' is no time in ISO 8601; it is unknown",
        "line 4: a run without id or run_type, so nobody knows where it belongs; it is left out",
    ]
