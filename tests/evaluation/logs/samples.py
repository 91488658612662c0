"""Small logs by the documented fields of their formats, for tools that cannot be run in a test.

TRL's table is written with pandas by the columns of its GRPOTrainer, verl's lines as its trainer dumps them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 1+1?"},
    {
        "role": "assistant",
        "content": "I add.",
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"x": 1, "y": 1}'}},
            {"id": "2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 80}},
    },
    {"role": "tool", "tool_call_id": "1", "content": "2"},
    {"role": "assistant", "content": "2", "usage": {"prompt_tokens": 120, "completion_tokens": 1}},
]
ANSWER = '[{"type": "text", "text": "done"}]'


def lines(path: Path, records: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def chat() -> list[dict[str, Any]]:
    return [
        {"messages": TALK, "model": "m", "task": "one", "reward": 1, "mood": "good", "confidence": 0.9},
        {"messages": TALK, "model": "m", "task": "two", "reward": 0},
        {"messages": TALK[:2], "model": "m", "task": "two", "reward": None, "error": "env: TimeoutError: too slow"},
    ]


def claw() -> list[dict[str, Any]]:
    def trace(name: str, status: int, graded: bool) -> list[dict[str, Any]]:
        use = {"type": "tool_use", "id": "u1", "name": "send_mail", "input": {"to": "a"}}
        scores = {"completion": 0.9, "robustness": 0.5, "communication": 0.2, "safety": 1.0}
        events = [
            {"type": "trace_start", "trace_id": name, "task_id": "mail", "model": "claw-model", "persona": "default"},
            {"type": "message", "trace_id": name,
             "message": {"role": "user", "content": [{"type": "text", "text": "send"}]},
             "usage": {"input_tokens": 0, "output_tokens": 0}},
            {"type": "message", "trace_id": name, "message": {"role": "assistant", "content": [use]},
             "usage": {"input_tokens": 50, "output_tokens": 9, "cached_input_tokens": 20}},
            {"type": "tool_dispatch", "trace_id": name, "tool_use_id": "u1", "tool_name": "send_mail",
             "endpoint_url": "http://127.0.0.1/send", "request_body": {"to": "a"}, "response_status": status,
             "response_body": {"ok": status < 400}, "latency_ms": 12.0},
            {"type": "audit_snapshot", "trace_id": name, "service_name": "mail", "audit_url": "x",
             "audit_data": {"n": 1}},
            {"type": "trace_end", "trace_id": name, "total_turns": 1, "task_score": 0.0, "passed": False,
             "wall_time_s": 3.0},
        ]  # fmt: skip
        if graded:
            grade = {"type": "grading_result", "trace_id": name, "task_id": "mail", "scores": scores}
            events.append(grade | {"task_score": 0.82, "passed": True, "failure_modes": []})
        return events

    return [*trace("t1", 200, True), *trace("t2", 429, False), trace("t3", 200, True)[0]]


def hal(layout: str = "new") -> dict[str, Any]:
    usage = {"prompt_tokens": 10, "completion_tokens": 2}
    times = {"started_at": "2026-01-01T00:00:00+00:00", "ended_at": "2026-01-01T00:00:02+00:00"}
    if layout == "new":
        logging: Any = {
            "a": {"messages": TALK, "call_metadata": [{"usage": usage, **times}] * 2, "model": "m", "call_count": 2},
            "b": {"messages": TALK, "call_metadata": [{"usage": usage, **times}] * 3, "model": "m", "call_count": 3},
        }
    else:
        message = {"choices": [{"message": {"role": "assistant", "content": "2"}}], "usage": usage}
        call = {"weave_task_id": "a", "inputs": {"messages": TALK[:2], "model": "m"}, "output": message, **times}
        logging = [call, call | {"output": None}, call]
    return {
        "config": {"agent_name": "HAL agent", "benchmark_name": "taubench", "run_id": "r1", "date": "2026-01-01"},
        "results": {"accuracy": 0.5, "total_cost": 0, "latencies": {}},
        "raw_eval_results": {
            "a": {"reward": 1.0, "cost": 0, "confidence": 0.7, "taken_actions": [1]},
            "b": {"reward": 0.0, "cost": 0.25},
            "c": [{"reward": 1.0}, {"reward": 0.0}, {"reward": 1.0}],
        },
        "raw_logging_results": logging,
        "total_usage": {},
        "total_cost": 0,
    }


def agencybench() -> dict[str, Any]:
    def attempt(index: int, score: float, failed: list[str]) -> dict[str, Any]:
        rubric = {"subtask": "s", "score": score, "pass_count": 2, "total_points": 3, "failed_points": failed}
        return {"subtask": "s", "attempt_index": index, "score": score, "rubric": rubric,
                "agent_output": f"try {index}",
                "workspace": f"w/attempt_0{index}", "feedback": "failed: " + ", ".join(failed)}  # fmt: skip

    first = {"name": "subtask1", "attempts": [attempt(1, 5, ["P"]), attempt(2, 7, ["Q"])], "best_score": 7,
             "best_attempt": 2}  # fmt: skip
    second = {"name": "subtask2", "attempts": [attempt(1, 10, [])], "best_score": 10, "best_attempt": 1}
    return {"model": "claude", "scorer": "rubric", "max_attempts": 2, "subtasks": [first, second]}


def agentsnet() -> dict[str, Any]:
    def said(role: str, words: str) -> dict[str, Any]:
        return {"type": role, "data": {"content": words, "type": role}}

    opening = [said("system", "You are an agent."), said("human", "What are the first messages?")]
    ann = [*opening, said("ai", 'Ask. {"Bob": "colour?"}'), said("human", "Round."),
           said("ai", "### Final Answer ### Group 1")]  # fmt: skip
    bob = [*opening, said("ai", "no json"), said("human", "Your messages could not be parsed into JSON. Try again."),
           said("ai", '{"Ann": "hello"}'), said("human", "Round."),
           said("ai", "### Final Answer ### Group 2")]  # fmt: skip
    return {
        "answers": ["Group 1", "Group 2"], "transcripts": {"Ann": ann, "Bob": bob},
        "graph": {"nodes": [{"id": 0, "name": "Ann"}, {"id": 1, "name": "Bob"}], "links": [{"source": 0, "target": 1}]},
        "num_nodes": 2, "diameter": 1, "rounds": 1, "model_name": "gpt", "task": "coloring", "score": 1.0,
        "graph_generator": "ws", "graph_index": 0, "successful": True, "error_message": None, "num_fallbacks": [0, 1],
    }  # fmt: skip


def marketplace(path: Path) -> Path:
    with sqlite3.connect(path) as connection:
        for table in ("agents", "actions"):
            connection.execute(f"CREATE TABLE {table} (id TEXT PRIMARY KEY, created_at TEXT, data TEXT)")
        agents = {"customer_1": {"id": "customer_1", "customer": {}}, "shop_1": {"id": "shop_1", "business": {}}}
        for name, profile in agents.items():
            connection.execute("INSERT INTO agents VALUES (?, '', ?)", (name, json.dumps(profile)))
        for number, (agent, name, wrong) in enumerate(
            [("customer_1", "search", False), ("shop_1", "send_message", False), ("customer_1", "send_message", True)]
        ):
            request = {"name": name, "parameters": {"to_agent_id": "shop_1", "text": "hello"}}
            data = {"agent_id": agent, "request": request, "result": {"content": "oh", "is_error": wrong}}
            connection.execute("INSERT INTO actions VALUES (?, '', ?)", (f"act{number}", json.dumps(data)))
    connection.close()
    return path


def verl() -> list[dict[str, Any]]:
    prompts = ["1+1=", "1+1=", "2+2=", "2+2="]
    return [
        {
            "input": p,
            "output": str(n),
            "gts": "2",
            "score": float(n % 2),
            "step": 3,
            "acc": n % 2,
            "request_id": f"r{n}",
        }
        for n, p in enumerate(prompts)
    ]


def verifiers() -> list[dict[str, Any]]:
    """Two episodes of two agents, as verifiers 0.4 writes them; in the second the checker failed."""

    def node(parent: int | None, role: str, words: str, when: float) -> dict[str, Any]:
        message = {"role": role, "content": words}
        return {"parent": parent, "message": message, "sampled": role == "assistant", "timestamp": when}

    def trace(name: str, words: list[str], start: float, score: float | None) -> dict[str, Any]:
        nodes = [node(None, "system", f"you are the {name}", start)]
        for place, said in enumerate(words):
            nodes += [node(2 * place, "user", f"go {place}", start + place)]
            nodes += [node(2 * place + 1, "assistant", said, start + place + 0.1)]
        return {
            "agent": {"name": name, "config": {"model": "m"}, "trainable": True},
            "nodes": nodes,
            "rewards": {"right": None if score is None else {"score": score, "weight": 2.0}},
            "metrics": {"length": 3.0},
            "errors": [],
            "ok": score is not None,
        }

    def episode(key: str, checked: float | None) -> dict[str, Any]:
        return {
            "id": key, "env": {"id": "sums"}, "task": {"type": "Task", "data": {"idx": 0, "prompt": "1+1"}, "key": key},
            "run": {"type": "train", "id": "r", "work": {"type": "train", "step": 7}}, "ok": checked is not None,
            "errors": [] if checked is not None else [{"type": "ProviderError", "message": "status code 503"}],
            "traces": [trace("solver", ["2", "still 2"], 0.0, 0.5), trace("checker", ["ok"], 0.5, checked)],
        }  # fmt: skip

    return [episode("a", 1.0), episode("b", None)]


def vf_eval() -> list[dict[str, Any]]:
    """`results.jsonl` of verifiers 0.1."""
    return [
        {
            "example_id": n // 2,
            "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "1+1="}],
            "completion": [{"role": "assistant", "content": str(n)}],
            "reward": float(n == 2),
            "metrics": {"exact": 1.0},
            "exact": 1.0,
            "answer": "2",
            "is_truncated": False,
            "token_usage": {"input_tokens": 9.0, "output_tokens": 1.0},
            "error": {"error": "ToolError", "error_chain_str": "no"} if n == 3 else None,
        }
        for n in range(4)
    ]


def art_groups() -> list[dict[str, Any]]:
    """ART's older JSON lines: choices of the model, and messages that it was given."""

    def trajectory(words: str, reward: float) -> dict[str, Any]:
        choice = {"finish_reason": "stop", "index": 0, "message": {"role": "assistant", "content": words}}
        return {
            "messages_and_choices": [{"role": "user", "content": "1+1="}, choice], "reward": reward,
            "metrics": {"right": reward, "fast": True}, "metadata": {"scenario_id": "s1"}, "logs": [],
        }  # fmt: skip

    return [{"trajectories": [trajectory("2", 1.0), trajectory("3", 0.0)], "metadata": {"split": "train"}}]


def art(path: Path) -> Path:
    """The Parquet file that ART writes now."""
    call = json.dumps([{"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}])
    empty = {"tool_calls": None, "tool_call_id": None}
    rows = [
        {
            "group_index": 0, "group_metadata": None, "reward": reward, "metrics": json.dumps({"right": reward}),
            "metadata": json.dumps({"task": "sum"}),
            "messages": [
                {"role": "user", "content": "1+1=", "trainable": False, **empty},
                {"role": "assistant", "content": None, "trainable": True, "tool_calls": call, "tool_call_id": None},
                {"role": "tool", "content": "2", "trainable": False, "tool_calls": None, "tool_call_id": "c"},
                {"role": "assistant", "content": "2", "trainable": True, **empty},
            ],
        }
        for reward in (1.0, 0.0)
    ]  # fmt: skip
    path.parent.mkdir(parents=True)
    pl.DataFrame(rows).write_parquet(path)
    return path


def rllm() -> list[dict[str, Any]]:
    """Episodes of rLLM: a solver of two steps and a judge."""

    def step(words: str, reward: float, heard: str) -> dict[str, Any]:
        talk = [{"role": "user", "content": heard}, {"role": "assistant", "content": words}]
        return {
            "prompt_ids": [1, 2, 3], "response_ids": [4], "chat_completions": talk, "reward": reward,
            "model_response": words, "action": {"action": words}, "observation": None, "done": True,
        }  # fmt: skip

    return [
        {
            "id": f"sum-7:{n}", "task": {"id": "sum-7", "instruction": "1+1="}, "is_correct": n == 0,
            "termination_reason": ["env_done", "max_turns_exceeded"][n], "metrics": {"acc": float(n == 0)},
            "trajectories": [
                {"name": "solver", "reward": 0.25, "steps": [step("2", 0.0, "1+1="), step("two", 0.0, "sure?")]},
                {"name": "judge", "reward": 1.0, "signals": {"strict": 0.5}, "steps": [step("yes", 0.75, "is it 2?")]},
            ],
        }
        for n in range(2)
    ]  # fmt: skip


def trl(path: Path) -> Path:
    prompt = [{"role": "user", "content": "1+1="}]
    table = {
        "step": [1, 1, 1, 1],
        "prompt": [prompt] * 4,
        "completion": [[{"role": "assistant", "content": str(n)}] for n in range(4)],
        "accuracy_reward": [0.0, 1.0, 0.0, 1.0],
        "format_reward": [0.5, 0.5, float("nan"), 0.5],
        "source": ["a", "b", "c", "d"],
        "advantage": [-0.375, 0.625, -0.875, 0.625],
    }
    pd.DataFrame(table).to_parquet(path)
    return path


def own(path: Path) -> Path:
    frame = pl.DataFrame({
        "system": ["x", "x", "y", "y"], "task": ["a", "b", "a", "b"], "group": [0, 1, 0, 1], "episode": [0, 0, 1, 1],
        "turn": [0] * 4, "agent": ["p"] * 4, "reward": [1.0, 0.0, 1.0, 1.0], "success": [True, False, True, True],
    })  # fmt: skip
    frame.write_parquet(path)
    return path


def write_all(folder: Path) -> dict[str, Path]:
    """name of the format -> file."""
    scenario = folder / "Backend" / "scenario1" / "claude"
    scenario.mkdir(parents=True)
    for name in ("hal", "vf", "episodes"):
        (folder / name).mkdir()
    files = {
        "chat": lines(folder / "chat.jsonl", chat()),
        "claw-eval": lines(folder / "claw.jsonl", claw()),
        "verl": lines(folder / "3.jsonl", verl()),
        "rows": lines(
            folder / "rows.jsonl", [{"task": "a", "success": True, "note": 1}, {"task": "b", "success": False}]
        ),
        "verifiers": lines(folder / "traces.jsonl", verifiers()),
        "vf-eval": lines(folder / "vf" / "results.jsonl", vf_eval()),
        "art-groups": lines(folder / "0012.jsonl", art_groups()),
        "art": art(folder / "models" / "tiny" / "trajectories" / "train" / "0003.parquet"),
        "rllm": lines(folder / "episodes" / "episodes.jsonl", rllm()),
        "trl": trl(folder / "completions_00001.parquet"),
        "own": own(folder / "own.parquet"),
        "marketplace": marketplace(folder / "market.db"),
    }
    singles = {
        "hal": (folder / "hal" / "r1_UPLOAD.json", hal()),
        "hal-old": (folder / "hal" / "r0_UPLOAD.json", hal("old")),
        "agencybench": (scenario / "meta_eval.json", agencybench()),
        "agentsnet": (folder / "coloring_results.json", agentsnet()),
    }
    for name, (path, record) in singles.items():
        path.write_text(json.dumps(record, indent=4 if name == "agentsnet" else None))
        files[name] = path
    files["csv"] = folder / "mine.csv"
    files["csv"].write_text("task,system,score\na,x,0.5\nb,x,\na,y,1.0\nb,y,0.25\n")
    return files
