"""Runs of LangSmith, as its client exports them: a run per line, a list, `{"runs": […]}`, or trees with `child_runs`.

So LangChain and LangGraph are read, and everything else that LangSmith traces. A node of a graph that asks a model is
an agent; within a node of an outer graph, the inner graph's own nodes (`agent`, `model`, `tools`) belong to it.
Task, success and score are read from the outermost run's metadata, and each feedback's mean is a score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from palaestra.evaluation.logs.files import Documents
from palaestra.evaluation.logs.genai import joined
from palaestra.evaluation.logs.prompts import conversation
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import Rows, items, mapping, text
from palaestra.evaluation.logs.spans import Span, facts_of, nanoseconds
from palaestra.evaluation.logs.traces import add_episodes
from palaestra.evaluation.logs.usage import tokens

_INNER = ("agent", "model", "call_model", "llm", "tools", "tool_node", "generate_structured_response")
_SAID = ("generations", "choices", "messages", "output")
_THREAD = ("thread_id", "session_id", "conversation_id")
_DEEPEST = 500


@READERS.register("langsmith")
def langsmith() -> LogReader:
    """Makes the `LogReader` of LangSmith's runs: LangGraph, LangChain and whatever else it traces."""
    return LogReader(read, fits=fits, trace=True)


def fits(record: dict[str, Any]) -> bool:
    """Whether a JSON object is LangSmith's: a run, or several."""
    one = mapping(next(iter(items(record.get("runs"))), None)) or record
    return "run_type" in one and ("trace_id" in one or "dotted_order" in one or "child_runs" in one)


def read(found: Documents, rows: Rows) -> None:
    """Adds an episode per trace, or thread of several, of (place, JSON object) pairs, to `Rows`; see `traces`."""
    spans: list[Span] = []
    for where, record in found:
        if not fits(record):
            rows.problem(where, "no run; lines of this format have `run_type` and `trace_id`")
            continue
        for number, raw in enumerate(items(record.get("runs")) or [record]):
            place = f"{where}{', ' * bool(where)}run {number + 1}" if "runs" in record else where
            for run, parent in _tree(mapping(raw), place, rows):
                if run.get("id") is None or run.get("run_type") is None:
                    rows.problem(
                        place, "a run without id or run_type, so nobody knows where it belongs; it is left out"
                    )
                else:
                    spans.append(_span(run, parent, place, rows))
    _only_who_asks(spans)
    add_episodes(spans, rows)


def _tree(raw: Mapping[str, Any], where: str, rows: Rows) -> Iterator[tuple[Mapping[str, Any], str | None]]:
    """A run and all below it, with their parents."""
    left: list[tuple[Mapping[str, Any], str | None, int]] = [(raw, None, 0)]
    while left:
        run, parent, depth = left.pop()
        yield run, parent
        if depth < _DEEPEST:
            below = [mapping(each) for each in items(run.get("child_runs"))]
            left += [(each, text(run.get("id")), depth + 1) for each in reversed(below)]
        elif run.get("child_runs"):
            rows.problem(where, f"runs more than {_DEEPEST} deep are left out")


def _span(run: Mapping[str, Any], parent: str | None, where: str, rows: Rows) -> Span:
    identity, about = text(run["id"]), mapping(mapping(run.get("extra")).get("metadata"))
    trace = text(run.get("trace_id") or text(run.get("dotted_order") or "").partition(".")[0] or identity)
    above = run.get("parent_run_id") or parent
    where = f"{where}{', ' * bool(where)}run {identity}"
    span = Span(trace, identity, None if above is None else text(above), where, name=run.get("name"))
    span.start, span.end = nanoseconds(run.get("start_time")), nanoseconds(run.get("end_time"))
    for name, time in (("start_time", span.start), ("end_time", span.end)):
        if time is None and run.get(name) is not None:
            rows.problem(where, f"{name}: {str(run[name])[:40]!r} is no time in ISO 8601; it is unknown")
    if run.get("error"):
        span.error = text(run["error"]).partition("Traceback (most recent call last)")[0].strip() or "error"
    node = about.get("langgraph_node")
    if run["run_type"] == "llm":
        _speak(span, run, about)
    elif run["run_type"] == "tool":
        span.kind, span.arguments = "tool", run.get("inputs")
        span.call = _answered(run.get("outputs"))
    elif node is not None and run.get("name") == node and not _inner(node, about):
        span.kind = "agent"
        span.prompt = conversation(mapping(run.get("inputs")).get("messages")) or None
        span.said = joined(conversation(mapping(run.get("outputs")).get("messages"), role="assistant")[-1:])
    named = next((text(about[name]) for name in _THREAD if about.get(name) is not None), None)
    span.conversation = None if named is None else f"thread {named}"
    span.facts = facts_of(about)
    if above is None:
        if run.get("reference_example_id") is not None:
            span.facts.setdefault("task", text(run["reference_example_id"]))
        for name, said in mapping(run.get("feedback_stats")).items():
            span.scores[text(name)] = mapping(said).get("avg")
        span.metadata = {"trace": trace, "name": run.get("name"), "tags": run.get("tags") or None, **about}
    return span


def _inner(node: str, about: Mapping[str, Any]) -> bool:
    """Whether a node is one of an agent's own graph that runs within a node of another one."""
    return node in _INNER and "|" in text(about.get("langgraph_checkpoint_ns") or "")


def _speak(span: Span, run: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Prompt, answer, model and tokens of a call of a model."""
    asked, answered = mapping(run.get("inputs")), mapping(run.get("outputs"))
    span.kind = "model"
    prompt = asked.get("messages", asked.get("prompts", asked.get("input")))
    span.prompt = None if prompt is None else conversation(prompt)
    said = next((answered[name] for name in _SAID if answered.get(name)), answered or None)
    span.said = joined(conversation(said, role="assistant"))
    settings = mapping(mapping(run.get("extra")).get("invocation_params"))
    named = about.get("ls_model_name") or settings.get("model") or settings.get("model_name") or answered.get("model")
    span.model = None if named is None else text(named)
    agent = about.get("lc_agent_name")
    span.agent = None if agent is None else text(agent)
    span.cost = run.get("total_cost")
    span.usage = _usage(run, answered)


def _usage(run: Mapping[str, Any], answered: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens; LangChain's prompts count those that were read from a cache in."""
    said = answered.get("usage_metadata")
    for each in items(answered.get("generations")):
        for generation in each if isinstance(each, list) else [each]:
            message = mapping(mapping(generation).get("message"))
            said = said or mapping(message.get("kwargs") or message).get("usage_metadata")
    if isinstance(said, Mapping):
        details = mapping(said.get("input_token_details"))
        found = tokens({"prompt_tokens": said.get("input_tokens"), "completion_tokens": said.get("output_tokens")})
        more = {"tokens_cached": details.get("cache_read"), "tokens_cache_write": details.get("cache_creation")}
        return found | {name: value for name, value in more.items() if value is not None}
    return tokens(answered.get("usage")) or tokens(run)


def _answered(outputs: Any) -> str | None:
    """Which call a tool's message answers."""
    output = mapping(outputs).get("output", outputs)
    said = mapping(mapping(output).get("kwargs") or output).get("tool_call_id")
    return None if said is None else text(said)


def _only_who_asks(spans: list[Span]) -> None:
    """Makes nodes without a model call below them steps, not agents, in traces that hold model calls."""
    above = {(span.trace, span.id): (span.trace, span.parent) for span in spans}
    asks: set[tuple[str, str | None]] = set()
    traced = {span.trace for span in spans if span.kind == "model"}
    for span in spans:
        here = (span.trace, span.parent) if span.kind == "model" else None
        while here is not None and here not in asks:
            asks.add(here)
            here = above.get((here[0], here[1] or ""))
    for span in spans:
        if span.kind == "agent" and span.trace in traced and (span.trace, span.id) not in asks:
            span.kind = "other"
