"""AG2's own spans of a solver with a tool and a checker who reads its answer, in OTLP JSON.

    python ag2_team.py FOLDER

writes `ag2_otel.jsonl`: what `TelemetryMiddleware` records, with OpenTelemetry's file exporter.

Made with ag2 1.2.1, opentelemetry-sdk 1.45.2 and opentelemetry-exporter-otlp-json-file 0.66b1. The models are AG2's
TestConfig.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path


def play(folder: Path) -> None:
    """One task."""
    from ag2 import Agent
    from ag2.events import ToolCallEvent
    from ag2.middleware.builtin.telemetry import TelemetryMiddleware
    from ag2.testing import TestConfig
    from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    rng = random.Random(3)

    class Seeded(IdGenerator):
        def generate_span_id(self) -> int:
            return rng.getrandbits(64)

        def generate_trace_id(self) -> int:
            return rng.getrandbits(128)

    path = folder / "ag2_otel.jsonl"
    path.unlink(missing_ok=True)  # the exporter appends
    provider = TracerProvider(resource=Resource({"service.name": "ag2-team"}), id_generator=Seeded())
    provider.add_span_processor(SimpleSpanProcessor(FileSpanExporter(path)))

    def add(x: int, y: int) -> int:
        """Add two numbers."""
        return x + y

    def agent(name: str, *said: object, tools: tuple[object, ...] = ()) -> Agent:
        watch = TelemetryMiddleware(
            tracer_provider=provider, agent_name=name, provider_name="test", model_name="stub-1"
        )
        return Agent(
            name, f"You are the {name}.", config=TestConfig(*said), tools=tools, middleware=[watch], tasks=False
        )

    async def work() -> None:
        call = ToolCallEvent(id="c1", name="add", arguments='{"x": 17, "y": 25}')
        solver = agent("solver", call, "The sum of both is 42.", tools=(add,))
        checker = agent("checker", "Right.")
        with provider.get_tracer("team").start_as_current_span("sums", attributes={"task": "sums/1", "success": True}):
            answer = await solver.ask("What is 17 + 25?")
            await checker.ask(f"Is this right? {answer.body}")

    asyncio.run(work())
    provider.shutdown()


if __name__ == "__main__":
    play(Path(sys.argv[1]))
