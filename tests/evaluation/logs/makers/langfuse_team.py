"""Observations of a team, traced by Langfuse's SDK: its own spans, and the same as its API gives them back.

    python langfuse_team.py FOLDER

writes `langfuse_otel.jsonl` (what the SDK exports, by OpenTelemetry's file exporter) and `langfuse.jsonl`: a line per
observation, serialised by the SDK's class `ObservationV2`, and per score. There is no server here, so this script fills
the class from the spans, field by field, as the server does.

Made with langfuse 5.0.4, opentelemetry-sdk 1.45.2 and opentelemetry-exporter-otlp-json-file 0.66b1. The models are
scripts.
"""

from __future__ import annotations

import json
import random
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def play(folder: Path) -> None:
    """Two tasks by a writer, who calls a tool, and an editor; the tool fails in the second."""
    from langfuse import Langfuse
    from langfuse.api.commons.types.observation_v2 import ObservationV2
    from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    rng = random.Random(2)

    class Seeded(IdGenerator):
        def generate_span_id(self) -> int:
            return rng.getrandbits(64)

        def generate_trace_id(self) -> int:
            return rng.getrandbits(128)

    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "langfuse-team"}), id_generator=Seeded())
    client = Langfuse(
        public_key="none",
        secret_key="none",
        base_url="http://127.0.0.1:9",
        tracer_provider=provider,
        span_exporter=memory,
    )

    def ask(heard: list[dict[str, Any]], said: dict[str, Any]) -> None:
        with client.start_as_current_observation(
            name="chat", as_type="generation", model="stub-1", input=heard, output=said,
            usage_details={"input": 10 * len(heard), "output": 4}, cost_details={"total": 0.001},
        ):  # fmt: skip
            pass

    for task, topic in (("posts/1", "tides"), ("posts/2", "")):
        user = {"role": "user", "content": f"Write about {topic or 'nothing'}."}
        about = {"task": task, "success": bool(topic)}
        with client.start_as_current_observation(name="post", as_type="span", input=user, metadata=about) as root:
            with client.start_as_current_observation(name="writer", as_type="agent"):
                arguments = json.dumps({"topic": topic})
                made = {"name": "facts", "arguments": arguments}
                call = {"role": "assistant", "content": None,
                        "tool_calls": [{"id": f"c-{task}", "type": "function", "function": made}]}  # fmt: skip
                ask([user], call)
                with client.start_as_current_observation(name="facts", as_type="tool", input={"topic": topic}) as tool:
                    found = f"The moon makes {topic}." if topic else "no topic was given"
                    tool.update(output=found, **({} if topic else {"level": "ERROR", "status_message": found}))
                back = {"role": "tool", "tool_call_id": f"c-{task}", "content": found}
                draft = f"A draft on {topic or 'nothing at all'}."
                ask([user, call, back], {"role": "assistant", "content": draft})
            with client.start_as_current_observation(name="editor", as_type="agent"):
                ask(
                    [user, {"role": "user", "content": f"Edit this: {draft}"}],
                    {"role": "assistant", "content": "Done."},
                )
            root.update(output="Done.")
    client.flush()

    def time(nanoseconds: int | None) -> datetime:
        return datetime.fromtimestamp((nanoseconds or 0) / 1e9, UTC)

    spans = sorted(memory.get_finished_spans(), key=lambda span: span.start_time or 0)
    lines = []
    for span in spans:
        held = dict(span.attributes or {})

        def kept(name: str, held: dict[str, Any] = held) -> Any:
            value = held.get(f"langfuse.observation.{name}")
            return json.loads(value) if isinstance(value, str) and value[:1] in "[{" else value

        prefix = "langfuse.observation.metadata."
        observation = ObservationV2(
            id=f"{span.context.span_id:016x}", trace_id=f"{span.context.trace_id:032x}", project_id="team",
            parent_observation_id=f"{span.parent.span_id:016x}" if span.parent else None,
            is_root_observation=span.parent is None, type=str(kept("type")).upper(), name=span.name,
            start_time=time(span.start_time), end_time=time(span.end_time), input=kept("input"), output=kept("output"),
            metadata={k.removeprefix(prefix): v for k, v in held.items() if k.startswith(prefix)},
            model=kept("model.name"), usage_details=kept("usage_details"), cost_details=kept("cost_details"),
            level=kept("level"), status_message=kept("status_message"),
        )  # fmt: skip
        lines.append(observation.json())
    traces = list(dict.fromkeys(f"{span.context.trace_id:032x}" for span in spans))
    for number, trace in enumerate(traces):
        score = {"id": f"score-{number}", "traceId": trace, "name": "quality", "value": 1.0 - number / 2,
                 "dataType": "NUMERIC", "source": "API", "timestamp": time(spans[-1].end_time).isoformat()}  # fmt: skip
        lines.append(json.dumps(score))
    (folder / "langfuse.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "langfuse_otel.jsonl").unlink(missing_ok=True)  # the exporter appends
    exporter = FileSpanExporter(folder / "langfuse_otel.jsonl")
    exporter.export(spans)
    exporter.shutdown()


if __name__ == "__main__":
    play(Path(sys.argv[1]))
