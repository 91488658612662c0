"""Spans of a team of three by OpenTelemetry's own library for GenAI, written by its own exporters.

    python otel.py FOLDER

writes `otel.jsonl` (OTLP JSON lines, as the collector's file exporter has them), `otel.binpb` (OTLP protobuf, one
request, as OTLP/HTTP sends it), `otel_framed.binpb` (the same in two requests, each behind its length in four bytes, as
the collector's file exporter writes with `format: proto`) and `otel_silent.jsonl` (the same play without its words,
which are off by default).

Made with opentelemetry-sdk 1.45.2, opentelemetry-util-genai 1.3b0, opentelemetry-exporter-otlp-json-file 0.66b1,
opentelemetry-exporter-otlp-proto-common 1.45.2. The model is a script; ids come from a seed.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

TASKS = {"sums/1": ("What is 17 + 25?", 17, 25), "sums/2": ("What is 8 + one?", 8, "one")}


def play(folder: Path, name: str, *, silent: bool = False) -> None:
    """Two tasks by planner, solver (with a tool) and checker; the tool fails in the second."""
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "NO_CONTENT" if silent else "SPAN_ONLY"
    from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.util.genai import types
    from opentelemetry.util.genai.handler import TelemetryHandler

    rng = random.Random(0)

    class Seeded(IdGenerator):
        def generate_span_id(self) -> int:
            return rng.getrandbits(64)

        def generate_trace_id(self) -> int:
            return rng.getrandbits(128)

    provider = TracerProvider(resource=Resource({"service.name": "sums-team"}), id_generator=Seeded())
    memory = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    handler = TelemetryHandler(tracer_provider=provider)

    def text(words: str) -> Any:
        return types.TextPart(content=words)

    def message(role: str, *parts: Any, by: str | None = None) -> Any:
        return types.InputMessage(role=role, parts=list(parts), name=by)

    def ask(agent: str, heard: list[Any], *said: Any) -> None:
        with handler.inference("openai", request_model="stub-1") as call:
            call.system_instruction = [text(f"You are the {agent}.")]
            call.input_messages = heard
            call.output_messages = [types.OutputMessage(role="assistant", parts=list(said), finish_reason="stop")]
            call.input_tokens, call.output_tokens = 40 + 10 * len(heard), 12
            call.response_model_name = "stub-1"

    def add(x: Any, y: Any) -> int:
        return x + int(y)

    for task, (question, x, y) in TASKS.items():
        right = isinstance(y, int)
        with handler.workflow("sums") as flow:
            flow.attributes["task"] = task
            user = message("user", text(question))
            plan = f"Plan for {task}: add the two numbers with the tool."
            with handler.invoke_local_agent(agent_name="planner", request_model="stub-1"):
                ask("planner", [user], text(plan))
            told = message("user", text(plan), by="planner")
            use = types.ToolCallRequestPart(name="add", arguments={"x": x, "y": y}, id=f"call-{task}")
            answer = f"The sum of {task} is 42." if right else "I cannot add that."
            with handler.invoke_local_agent(agent_name="solver", request_model="stub-1"):
                ask("solver", [user, told], use)
                result = "not a number"
                try:
                    with handler.tool("add", tool_type="function") as tool:
                        tool.tool_call_id, tool.arguments = f"call-{task}", {"x": x, "y": y}
                        tool.tool_result = result = str(add(x, y))
                except ValueError as error:
                    result = f"error: {error}"
                back = message("tool", types.ToolCallResponsePart(response=result, id=f"call-{task}"))
                ask("solver", [user, told, message("assistant", use), back], text(answer))
            with handler.invoke_local_agent(agent_name="checker", request_model="stub-1"):
                heard = message("user", text(f"solver says: {answer}"))
                ask("checker", [user, heard], text("42" if right else "Nobody knows."))
            score = {"gen_ai.evaluation.name": "correct", "gen_ai.evaluation.score.value": float(right),
                     "gen_ai.evaluation.score.label": "pass" if right else "fail"}  # fmt: skip
            flow.span.add_event("gen_ai.evaluation.result", score)

    spans = list(memory.get_finished_spans())
    half = len(spans) // 2
    (folder / f"{name}.jsonl").unlink(missing_ok=True)  # the exporter appends
    exporter = FileSpanExporter(folder / f"{name}.jsonl")
    for part in (spans[:half], spans[half:]):
        exporter.export(part)
    exporter.shutdown()
    if silent:
        return
    (folder / f"{name}.binpb").write_bytes(encode_spans(spans).SerializeToString())
    parts = [encode_spans(part).SerializeToString() for part in (spans[:half], spans[half:])]
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    (folder / f"{name}_framed.binpb").write_bytes(framed)


if __name__ == "__main__":
    out = Path(sys.argv[1])
    play(out, "otel")
    play(out, "otel_silent", silent=True)
