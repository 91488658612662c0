"""Traces of the OpenAI Agents SDK: a triage agent that hands off to a solver with a tool and an expert as a tool.

    python openai_agents.py FOLDER

writes `openai_agents.jsonl`, an exported item per line (`item.export()`, as a `TracingExporter` of one's own does), and
`openai_agents_ingest.json`, the body that the SDK's own `BackendSpanExporter` posts, taken by a server on 127.0.0.1.

Made with openai-agents 0.24.0. The model is a script.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any


def play(folder: Path) -> None:
    """Two traces; the tool fails in the second."""
    from agents.tracing.processor_interface import TracingProcessor
    from agents.tracing.processors import BackendSpanExporter
    from agents.usage import Usage
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    from agents import Agent, Model, ModelResponse, Runner, function_tool, generation_span, set_trace_processors, trace

    items: list[Any] = []

    class Keep(TracingProcessor):
        def on_trace_start(self, trace: Any) -> None:
            items.append(trace)

        def on_trace_end(self, trace: Any) -> None: ...
        def on_span_start(self, span: Any) -> None: ...

        def on_span_end(self, span: Any) -> None:
            items.append(span)

        def shutdown(self) -> None: ...
        def force_flush(self) -> None: ...

    def says(words: str) -> Any:
        content = ResponseOutputText(type="output_text", text=words, annotations=[])
        return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[content])

    def calls(tool: str, identity: str, **arguments: Any) -> Any:
        return ResponseFunctionToolCall(
            type="function_call", call_id=identity, name=tool, arguments=json.dumps(arguments)
        )

    class Script(Model):
        """Says what it was given, one after the other, in a generation span as the chat completions model has."""

        def __init__(self, *said: Any) -> None:
            self.said = list(said)

        async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
            talk = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
            with generation_span(
                input=[{"role": "system", "content": system_instructions}, *talk], model="stub-1"
            ) as span:
                output = self.said.pop(0)
                span.span_data.output = [output.model_dump(exclude_none=True)]
                span.span_data.usage = {"input_tokens": 20 + 10 * len(talk), "output_tokens": 8}
                await asyncio.sleep(0.001)
            usage = Usage(requests=1, input_tokens=20, output_tokens=8, total_tokens=28)
            return ModelResponse(output=[output], usage=usage, response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    @function_tool(failure_error_function=None)
    def look_up(order: str) -> str:
        """Where an order is."""
        if order == "none":
            raise KeyError("there is no such order")
        return f"Order {order} left the warehouse."

    async def one(task: str, order: str) -> None:
        expert = Agent(
            name="expert",
            instructions="You know carriers.",
            model=Script(says("The carrier needs two days from there.")),
        )
        ask = expert.as_tool(tool_name="ask_expert", tool_description="Ask about carriers.")
        solver = Agent(name="solver", instructions="You solve.", tools=[look_up, ask], model=Script(
            calls("look_up", f"c1-{task}", order=order),
            calls("ask_expert", f"c2-{task}", input="How long does the carrier need?"),
            says("It will be with you in two days."),
        ))  # fmt: skip
        triage = Agent(
            name="triage",
            instructions="You hand off.",
            handoffs=[solver],
            model=Script(calls("transfer_to_solver", f"h-{task}")),
        )
        with trace("orders", metadata={"task": task, "success": str(order != "none").lower()}):
            try:
                await Runner.run(triage, f"Where is order {order}?")
            except Exception as error:
                print(type(error).__name__, error)

    bodies: list[bytes] = []

    class Take(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    set_trace_processors([Keep()])
    asyncio.run(one("orders/17", "17"))
    asyncio.run(one("orders/none", "none"))
    lines = [json.dumps(item.export()) + "\n" for item in items]
    (folder / "openai_agents.jsonl").write_text("".join(lines))
    server = HTTPServer(("127.0.0.1", 0), Take)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    exporter = BackendSpanExporter(api_key="none", endpoint=f"http://127.0.0.1:{server.server_port}/")
    exporter.export(items)
    server.shutdown()
    (folder / "openai_agents_ingest.json").write_bytes(bodies[0])


if __name__ == "__main__":
    play(Path(sys.argv[1]))
