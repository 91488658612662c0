"""A crew of CrewAI's, a researcher and a writer, traced by OpenInference's instrumentation, in OTLP JSON.

    python crewai_team.py FOLDER

writes `crewai_otel.jsonl` with OpenTelemetry's file exporter.

Made with crewai 1.15.30, openinference-instrumentation-crewai 1.1.21, opentelemetry-sdk 1.45.2 and
opentelemetry-exporter-otlp-json-file 0.66b1. The models are scripts.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}


def play(folder: Path) -> None:
    """One crew of two tasks."""
    from crewai import Agent, BaseLLM, Crew, Task
    from openinference.instrumentation.crewai import CrewAIInstrumentor
    from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    rng = random.Random(4)

    class Seeded(IdGenerator):
        def generate_span_id(self) -> int:
            return rng.getrandbits(64)

        def generate_trace_id(self) -> int:
            return rng.getrandbits(128)

    class Script(BaseLLM):
        def call(self, messages: Any, *_: Any, **__: Any) -> str:
            first = "research" in str(messages[0])
            return "Thought: I know.\nFinal Answer: " + ("Tides come from the moon." if first else "The moon pulls.")

    path = folder / "crewai_otel.jsonl"
    path.unlink(missing_ok=True)  # the exporter appends
    provider = TracerProvider(resource=Resource({"service.name": "crewai-team"}), id_generator=Seeded())
    provider.add_span_processor(SimpleSpanProcessor(FileSpanExporter(path)))
    CrewAIInstrumentor().instrument(tracer_provider=provider, skip_dep_check=True)
    llm = Script(model="stub-1")
    agents = [
        Agent(role=role, goal=goal, backstory="None.", llm=llm)
        for role, goal in (("researcher", "You research."), ("writer", "You write."))
    ]
    first = Task(description="Find why tides come.", expected_output="A sentence.", agent=agents[0])
    second = Task(description="Write it.", expected_output="A sentence.", agent=agents[1], context=[first])
    with provider.get_tracer("team").start_as_current_span("tides", attributes={"task": "tides", "success": True}):
        Crew(agents=agents, tasks=[first, second]).kickoff()
    provider.shutdown()


if __name__ == "__main__":
    play(Path(sys.argv[1]))
