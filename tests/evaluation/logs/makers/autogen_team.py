"""AutoGen's own spans of a group chat, in OTLP JSON: a solver with a tool and a checker, in turns.

    python autogen_team.py FOLDER

writes `autogen_otel.jsonl` with OpenTelemetry's file exporter, those spans that say who did what and which message was
delivered (`KEPT`; a collector's filter does the same), which are a third of all.

Made with autogen-agentchat 0.7.5, autogen-ext 0.7.5, opentelemetry-sdk 1.45.2 and
opentelemetry-exporter-otlp-json-file 0.66b1. The model is AutoGen's ReplayChatCompletionClient.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path


def play(folder: Path) -> None:
    """One chat of two turns."""
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.conditions import MaxMessageTermination
    from autogen_agentchat.teams import RoundRobinGroupChat
    from autogen_core import FunctionCall, SingleThreadedAgentRuntime
    from autogen_core.models import CreateResult, ModelInfo, RequestUsage
    from autogen_ext.models.replay import ReplayChatCompletionClient
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    rng = random.Random(1)

    class Seeded(IdGenerator):
        def generate_span_id(self) -> int:
            return rng.getrandbits(64)

        def generate_trace_id(self) -> int:
            return rng.getrandbits(128)

    provider = TracerProvider(resource=Resource({"service.name": "autogen-team"}), id_generator=Seeded())
    memory = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    trace.set_tracer_provider(provider)
    info = ModelInfo(vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False)

    def model(*said: object) -> ReplayChatCompletionClient:
        return ReplayChatCompletionClient(list(said), model_info=info)

    async def add(x: int, y: int) -> int:
        """Add two numbers."""
        return x + y

    async def chat() -> None:
        call = CreateResult(
            finish_reason="function_calls", usage=RequestUsage(prompt_tokens=9, completion_tokens=3), cached=False,
            content=[FunctionCall(id="1", name="add", arguments='{"x": 17, "y": 25}')],
        )  # fmt: skip
        agents = [
            AssistantAgent("solver", model(call), tools=[add]),
            AssistantAgent("checker", model("42 it is.")),
        ]
        runtime = SingleThreadedAgentRuntime(tracer_provider=provider)
        runtime.start()
        team = RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(3), runtime=runtime)
        with trace.get_tracer("team").start_as_current_span("sums", attributes={"task": "sums/1", "success": True}):
            await team.run(task="What is 17 + 25?")
        await runtime.stop()

    asyncio.run(chat())
    (folder / "autogen_otel.jsonl").unlink(missing_ok=True)  # the exporter appends
    exporter = FileSpanExporter(folder / "autogen_otel.jsonl")
    exporter.export([span for span in memory.get_finished_spans() if span.name.startswith(KEPT)])
    exporter.shutdown()


KEPT = ("invoke_agent", "execute_tool", "create_agent", "autogen process", "autogen create RoundRobin", "sums")


if __name__ == "__main__":
    play(Path(sys.argv[1]))
