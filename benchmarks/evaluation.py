"""Does evaluation keep up: reading 100 000 events of logs, and a comparison of a million rows.

Each log is read from a file that is written on the spot; Inspect AI's own share of its time (reading through its API)
is printed beside ours. Times are CPU seconds, the best of three; the table of a million rows is 4 systems x 1000 tasks
x 50 trials x 5 turns.

Run: python benchmarks/evaluation.py
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import polars as pl

from palaestra.evaluation import comparison_table, trials
from palaestra.evaluation.logs import read_logs

EVENTS, MOST_READ, MOST_EVALUATED = 100_000, 5.0, 2.0


def best(work: Callable[[], object], times: int = 3) -> float:
    found = []
    for _ in range(times):
        began = process_time()
        work()
        found.append(process_time() - began)
    return min(found)


def chat(path: Path) -> None:
    """10 000 episodes of 10 messages."""
    talk = [{"role": "user", "content": "x" * 200}, {"role": "assistant", "content": "y" * 200,
            "usage": {"prompt_tokens": 100, "completion_tokens": 50}}] * 5  # fmt: skip
    with path.open("w") as file:
        for n in range(EVENTS // 10):
            file.write(json.dumps({"messages": talk, "model": "m", "task": f"t{n % 500}", "reward": n % 2}) + "\n")


def claw(path: Path) -> None:
    """1000 traces of 100 events."""
    use = [{"type": "tool_use", "id": "u", "name": "send", "input": {"to": "a"}}]
    with path.open("w") as file:
        for n in range(EVENTS // 100):
            head = {"trace_id": f"t{n}"}
            events = [{"type": "trace_start", "task_id": f"task {n % 100}", "model": "m"}]
            events += [
                {"type": "message", "message": {"role": "assistant", "content": use}, "usage": {"input_tokens": 9}},
                {"type": "tool_dispatch", "tool_use_id": "u", "tool_name": "send", "request_body": {"to": "a"},
                 "response_status": 200, "response_body": {"ok": True}, "latency_ms": 3.0},
            ] * 49  # fmt: skip
            events.append({"type": "grading_result", "task_score": 0.8, "passed": True, "scores": {"safety": 1.0}})
            file.writelines(json.dumps(head | event) + "\n" for event in events)


def verl(path: Path) -> None:
    """100 000 lines."""
    with path.open("w") as file:
        for n in range(EVENTS):
            record = {"input": f"question {n % 1000}", "output": "z" * 200, "gts": "1"}
            file.write(json.dumps(record | {"score": n % 2, "step": n // 1000}) + "\n")


def inspect_log(folder: Path) -> Path:
    """1000 samples of 100 events: copies of one in which a mock model called a tool turn after turn."""
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.log import read_eval_log, write_eval_log
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import match
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import tool

    @tool
    def search() -> Any:
        async def execute(query: str) -> str:
            """Search.

            Args:
                query: words to look for
            """
            return f"what is known about {query}: " + "some words " * 20

        return execute

    def said(output: ModelOutput) -> ModelOutput:  # without usage, Inspect counts tokens with a file from the internet
        output.usage = ModelUsage(input_tokens=200, output_tokens=50, total_tokens=250)
        return output

    calls = [said(ModelOutput.for_tool_call("mockllm/model", "search", {"query": f"thing {n}"})) for n in range(45)]
    model = get_model("mockllm/model", custom_outputs=[*calls, said(ModelOutput.from_content("mockllm/model", "2"))])
    task = Task(dataset=[Sample(id="one", input="1+1", target="2")], solver=[use_tools(search()), generate()],
                scorer=match())  # fmt: skip
    (log,) = eval(task, model=model, log_dir=str(folder), display="none")
    assert log.status == "success"
    log = read_eval_log(log.location)
    assert log.samples
    (sample,) = log.samples
    names = [f"s{n}" for n in range(EVENTS // len(sample.events) + 1)]
    log.samples = [sample.model_copy(update={"id": name, "uuid": None}) for name in names]
    log.eval.dataset.sample_ids = list(names)
    write_eval_log(log, str(folder / "big.eval"))
    return folder / "big.eval"


def table(path: Path) -> None:
    """4 systems x 1000 tasks x 50 trials x 5 turns."""
    system, task, trial, turn = (axis.ravel() for axis in np.indices((4, 1000, 50, 5)))
    rng = np.random.default_rng(0)
    success = np.repeat(rng.random(200_000) < 0.5, 5)
    pl.DataFrame({
        "system": system, "task": task, "group": task, "episode": system * 50 + trial, "turn": turn,
        "reward": np.where(turn == 4, success, 0.0), "success": success, "tokens_in": np.full(len(turn), 100),
    }).with_columns(pl.format("system {}", "system").alias("system"), pl.format("task {}", "task").alias("task"),
                    agent=pl.lit("agent")).write_parquet(path)  # fmt: skip


def main() -> int:
    holds = True
    print(f"{'read':<12} {'events':>8} {'turns':>8} {'CPU s':>7}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind, write in (("chat", chat), ("claw-eval", claw), ("verl", verl)):
            path = folder / f"{kind}.jsonl"
            write(path)
            turns = len(read_logs(path).turns)
            seconds = best(lambda path=path: read_logs(path))  # type: ignore[misc]
            holds &= seconds <= MOST_READ
            print(f"{kind:<12} {EVENTS:>8} {turns:>8} {seconds:>7.2f}")
        try:
            path = inspect_log(folder)
        except ImportError:
            print("inspect      not installed, left out")
        else:
            from inspect_ai.log import read_eval_log

            turns = len(read_logs(path).turns)
            seconds = best(lambda: read_logs(path))
            alone = best(lambda: read_eval_log(str(path)))
            holds &= seconds <= MOST_READ
            print(f"{'inspect':<12} {EVENTS:>8} {turns:>8} {seconds:>7.2f}  (Inspect's own read_eval_log: {alone:.2f})")

        path = folder / "table.parquet"
        table(path)
        read = best(lambda: read_logs(path))
        turns_of = read_logs(path).turns
        reduced = best(lambda: trials(turns_of))
        rows = trials(turns_of)
        compared = best(lambda: comparison_table(rows, baseline="system 0"))
        total = read + reduced + compared
        holds &= total <= MOST_EVALUATED
        print(f"\n{len(turns_of)} rows: read {read:.2f}, trials {reduced:.2f}, compared {compared:.2f} CPU s")
    print(f"criteria: each log <= {MOST_READ} s, the table <= {MOST_EVALUATED} s: {'hold' if holds else 'FAIL'}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
