"""Runs of a LangGraph team, traced by LangSmith's own client and exported from it.

    python langgraph_team.py FOLDER

writes `langsmith.jsonl`, a line per run as `for run in client.list_runs(...): print(run.model_dump_json())` exports it.
The client talks to a server on 127.0.0.1 that keeps what is posted and gives it back when it is asked for.

Made with langgraph 1.2.24, langchain-core 1.8.3, langsmith 0.15.1. The models are scripts.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def play(folder: Path) -> None:
    """Two tasks: a researcher with a tool, then a writer; the tool fails in the second."""
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import tool
    from langchain_core.tracers import LangChainTracer
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langsmith import Client

    runs: dict[str, dict[str, Any]] = {}

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            limits = {"size_limit": 100, "size_limit_bytes": 1 << 24, "scale_up_qsize_trigger": 1000,
                      "scale_up_nthreads_limit": 4, "scale_down_nempty_trigger": 4,
                      "use_multipart_endpoint": False}  # fmt: skip
            self._answer({"version": "0.0.0", "batch_ingest_config": limits})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
            if self.path.endswith("/query"):
                self._answer({"runs": sorted(runs.values(), key=lambda run: run["dotted_order"]), "cursors": {}})
                return
            for run in [*body.get("post", []), *body.get("patch", [])]:
                run.setdefault("session_id", PROJECT)
                known = runs.setdefault(run["id"], {})
                known.update({key: value for key, value in run.items() if value is not None})
                known["extra"].pop("runtime", None)  # the machine's, not the play's
            self._answer({})

        def _answer(self, value: Any) -> None:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(value).encode())

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = Client(api_url=f"http://127.0.0.1:{server.server_port}", api_key="none")

    class Tracer(LangChainTracer):
        _get_stacktrace = staticmethod(repr)  # a traceback has the machine's paths

    tracer = Tracer(project_name="team", client=client)

    @tool
    def search(city: str) -> str:
        """Capital of which country?"""
        if city == "Nowhere":
            raise ValueError("no such city")
        return f"{city} is a capital."

    def model(*said: Any) -> Any:
        return GenericFakeChatModel(messages=iter(said))

    def usage(count: int) -> Any:
        return {"input_tokens": count, "output_tokens": 6, "total_tokens": count + 6}

    for task, city in (("capitals/1", "Paris"), ("capitals/2", "Nowhere")):
        call = {"name": "search", "args": {"city": city}, "id": f"call-{task}", "type": "tool_call"}
        researcher = model(
            AIMessage(content="", tool_calls=[call], usage_metadata=usage(20)),
            AIMessage(content=f"I looked {city} up, as you asked.", name="researcher", usage_metadata=usage(30)),
        )
        writer = model(AIMessage(content=f"{city}, of course.", name="writer", usage_metadata=usage(25)))

        def research(state: MessagesState, config: RunnableConfig, model: Any = researcher) -> Any:
            asked = [SystemMessage("You search."), *state["messages"]]
            first = model.invoke(asked, config)
            try:
                found = search.invoke(first.tool_calls[0], config)
            except ValueError as error:
                found = ToolMessage(f"Error: {error}", tool_call_id=first.tool_calls[0]["id"])
            return {"messages": [first, found, model.invoke([*asked, first, found], config)]}

        def write(state: MessagesState, config: RunnableConfig, model: Any = writer) -> Any:
            return {"messages": [model.invoke([SystemMessage("You write."), *state["messages"]], config)]}

        graph = StateGraph(MessagesState)
        graph.add_node("researcher", research)
        graph.add_node("writer", write)
        graph.add_edge(START, "researcher")
        graph.add_edge("researcher", "writer")
        graph.add_edge("writer", END)
        graph.compile(name="capitals").invoke(
            {"messages": [HumanMessage(f"Is {city} a capital?")]},
            {"callbacks": [tracer], "metadata": {"task": task, "success": city == "Paris"}},
        )
    tracer.wait_for_futures()
    client.flush()
    lines = [
        run.model_dump_json(exclude_none=True, exclude=UNUSED) + "\n" for run in client.list_runs(project_id=PROJECT)
    ]
    (folder / "langsmith.jsonl").write_text("".join(lines))
    server.shutdown()


UNUSED = {"serialized", "events", "attachments", "tags"}
PROJECT = "00000000-0000-0000-0000-000000000000"

if __name__ == "__main__":
    play(Path(sys.argv[1]))
