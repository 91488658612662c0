"""Spans into turns: whose a call is, when turns are at the same time, who heard whom, what a damaged trace costs."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.algebra.messages import messages
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.evaluation.logs import read_logs
from palaestra.evaluation.logs.prompts import LoggedMessage, conversation, message_of
from palaestra.evaluation.logs.rows import Rows
from palaestra.evaluation.logs.spans import Span, SpanTree, facts_of
from palaestra.evaluation.logs.traces import add_episodes

DATA = Path(__file__).parent / "data"


def span(identity: str, parent: str | None, kind: Any, name: str, start: int, end: int, **more: Any) -> Span:
    return Span("t", identity, parent, f"span {identity}", kind, name, start, end, **more)


def call(identity: str, parent: str, start: int, end: int, heard: list[str] | None, said: str, **more: Any) -> Span:
    prompt = None if heard is None else [LoggedMessage("user", words) for words in heard]
    return span(
        identity, parent, "model", "m", start, end, prompt=prompt, said=LoggedMessage("assistant", said), **more
    )


def turns(*spans: Span) -> tuple[pl.DataFrame, Rows]:
    rows = Rows("log")
    add_episodes(spans, rows)
    return rows.frame(), rows


def edges(frame: pl.DataFrame) -> list[tuple[str, int, str, int]]:
    found = messages(Turns(frame))
    return found.select("sender", "sender_turn", "receiver", "receiver_turn").rows()


@given(st.lists(st.integers(-1, 30), min_size=1, max_size=30), st.data())
def test_the_nearest_marked_ancestor_is_what_walking_up_finds(parents: list[int], data: st.DataObject) -> None:
    """Also with circles, whose spans become roots."""
    known = [parent if parent < len(parents) else -1 for parent in parents]
    marked = np.array(data.draw(st.lists(st.booleans(), min_size=len(known), max_size=len(known))))
    rows = Rows("log")
    tree = SpanTree([span(str(n), None if p < 0 else str(p), "other", "", 0, 1) for n, p in enumerate(known)], rows)
    above = tree.parents.tolist()

    def walk(n: int, steps: int = 0) -> int:
        assert steps <= len(known), "a circle is left"
        return n if marked[n] else -1 if above[n] < 0 else walk(above[n], steps + 1)

    assert tree.nearest(marked).tolist() == [walk(n) for n in range(len(known))]
    assert tree.nearest(marked, above=True).tolist() == [-1 if a < 0 else walk(a) for a in above]
    assert all(a in (k, -1) for a, k in zip(above, known, strict=True))
    assert bool(rows.problems) == (above != known)


def test_words_in_a_prompt_say_who_was_heard() -> None:
    frame, _ = turns(
        span("r", None, "other", "run", 0, 99),
        span("a", "r", "agent", "ann", 1, 10),
        call("a1", "a", 1, 9, ["How many?"], "I count twenty-one of them."),
        span("b", "r", "agent", "bob", 11, 20),
        call("b1", "b", 11, 19, ["How many?"], "7"),
        span("c", "r", "agent", "cy", 21, 30),
        call("c1", "c", 21, 29, ["How many?", "ann says: I count twenty-one of them.", "bob: 7"], "done"),
        span("d", "r", "agent", "dee", 31, 40),
        call("d1", "d", 31, 39, ["7 of 9 is not it, says cy", "17"], "no"),
    )
    assert edges(frame) == [("ann", 0, "cy", 2), ("bob", 1, "cy", 2)], "bob's 7 is neither cy's nor part of 17"
    assert frame["heard_source"].unique().to_list() == ["prompt"]


def test_of_equal_words_the_latest_are_heard_and_ones_own_never() -> None:
    spans = [span(name, None, "agent", name, 0, 99) for name in ("ann", "bob", "cy")]
    frame, _ = turns(
        *spans,
        call("1", "ann", 1, 2, ["?"], "The answer is four."),
        call("2", "bob", 3, 4, ["?"], "The answer is four."),
        call("3", "ann", 5, 6, ["?", "The answer is four.", "The answer is four."], "Agreed."),
        call("4", "cy", 7, 8, ["?", "The answer is four."], "Fine."),
    )
    assert edges(frame) == [("bob", 1, "ann", 2), ("bob", 1, "cy", 3)]


def test_calls_by_their_ids_are_heard_and_agents_below_agents_hear_their_caller() -> None:
    asks = message_of(
        {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "ask_bob", "arguments": "{}"}}]}
    )
    back = message_of({"role": "tool", "tool_call_id": "c1", "content": "Bob thinks it is nine."})
    assert asks is not None
    assert back is not None
    frame, _ = turns(
        span("a", None, "agent", "ann", 0, 99),
        span("a1", "a", "model", "m", 1, 2, prompt=[LoggedMessage("user", "?")], said=asks),
        span("t", "a", "tool", "ask_bob", 3, 9, call="c1"),
        span("b", "t", "agent", "bob", 4, 8),
        call("b1", "b", 5, 7, ["Please think."], "Bob thinks it is nine."),
        span(
            "a2",
            "a",
            "model",
            "m",
            10,
            11,
            prompt=[LoggedMessage("user", "?"), asks, back],
            said=LoggedMessage("assistant", "9"),
        ),
        span("d", None, "agent", "dee", 12, 20),
        span("d1", "d", "model", "m", 13, 14, prompt=[asks], said=LoggedMessage("assistant", "ok")),
    )
    assert edges(frame) == [("ann", 0, "bob", 1), ("bob", 1, "ann", 2), ("ann", 0, "dee", 3)]
    assert frame["tool"].to_list() == ["ask_bob", None, None, None]
    assert frame["observation"].to_list()[2] == "Bob thinks it is nine.", "not again what it knew or said"


def test_without_words_the_order_says_it_and_turns_at_one_time_are_one() -> None:
    frame, _ = turns(
        *(span(name, None, "agent", name, 0, 99) for name in ("boss", "one", "two", "end")),
        call("1", "boss", 1, 2, None, ""),
        call("2", "one", 3, 8, None, ""),
        call("3", "two", 4, 6, None, ""),
        call("4", "end", 9, 10, None, ""),
        call("5", "end", 11, 12, None, ""),
    )
    assert frame["turn"].to_list() == [0, 1, 1, 2, 3]
    assert edges(frame) == [("boss", 0, "one", 1), ("boss", 0, "two", 1), ("one", 1, "end", 2), ("two", 1, "end", 2),
                            ("one", 1, "end", 3), ("two", 1, "end", 3)]  # fmt: skip
    assert frame["heard_source"].unique().to_list() == ["order"]


def test_an_instrumented_client_below_a_framework_is_no_second_call() -> None:
    outer = span(
        "o", "a", "model", "m", 1, 9, prompt=[LoggedMessage("user", "?")], said=LoggedMessage("assistant", "yes")
    )
    inner = span("i", "o", "model", "m", 2, 8, usage={"tokens_in": 5, "tokens_out": 2}, model="m-1")
    frame, _ = turns(span("a", None, "agent", "ann", 0, 10), outer, inner)
    assert frame.select("agent", "policy", "tokens_in", "action").rows() == [("ann", "m-1", 5, "yes")]


def test_a_span_with_a_task_of_its_own_begins_an_episode_and_inherited_ones_do_not() -> None:
    spans = [span("r", None, "other", "sweep", 0, 99)]
    for number, task in enumerate(("x", "y", "x")):
        facts = {"task": task, "success": number == 0}
        spans += [
            span(f"e{number}", "r", "other", "trial", number, 9, facts=facts),
            span(f"a{number}", f"e{number}", "agent", "ann", number, 9, facts={"task": task}),
            call(f"m{number}", f"a{number}", number, 9, ["?"], "!"),
        ]
    frame, _ = turns(*spans)
    assert frame.select("task", "episode", "success").rows() == [("x", 0, True), ("y", 0, False), ("x", 1, False)]


def test_traces_of_one_conversation_are_one_episode() -> None:
    spans = []
    for number, trace in enumerate("pq"):
        one = call(f"{trace}1", "", number, number + 1, ["hi", "again"][: number + 1], f"answer {number}")
        one.trace, one.parent, one.conversation = trace, None, "chat 7"
        spans.append(one)
    frame, _ = turns(*spans)
    assert frame.select("turn", "observation").rows() == [(0, "hi"), (1, "again")]
    assert frame["task"].n_unique() == frame["episode"].n_unique() == 1


def test_what_cannot_be_is_named_and_the_rest_is_read() -> None:
    frame, rows = turns(
        span("a", "b", "agent", "ann", 0, 9), span("b", "a", "agent", "bob", 0, 9), call("m", "a", 1, 2, ["?"], "!"),
        Span("u", "x", None, "line 9, span x"),
    )  # fmt: skip
    assert frame["agent"].cast(str).to_list() == ["bob", "ann"]
    assert [str(each) for each in rows.problems] == [
        "log, span a: its parents go round in a circle (2 such spans); they are read as roots",
        "log, line 9, span x: a trace without a call of a model or an agent; it is left out",
    ]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (
            {"role": "user", "parts": [{"type": "text", "content": "a"}, {"type": "reasoning", "content": "b"}]},
            ("user", "a"),
        ),
        (
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
            ("assistant", "a"),
        ),
        ({"type": "function_call_output", "call_id": "c", "output": "a"}, ("tool", "a")),
        (
            {"lc": 1, "type": "constructor", "id": ["langchain", "HumanMessage"], "kwargs": {"content": "a"}},
            ("user", "a"),
        ),
        ({"type": "ai", "data": {"content": "a", "name": "ann"}}, ("assistant", "a")),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "a"}]}, ("user", "a")),
        ({"role": "model", "parts": [{"text": "a"}]}, ("assistant", "a")),
        ("a", ("user", "a")),
    ],
)
def test_messages_of_all_dialects(raw: Any, expected: tuple[str, str]) -> None:
    assert message_of(raw)[:2] == expected  # type: ignore[index]


def test_calls_of_all_dialects_keep_their_ids() -> None:
    calls = [
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "f", "arguments": {"x": 1}}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"x": 1}}}],
        },
        {"type": "function_call", "call_id": "c", "id": "fc_1", "name": "f", "arguments": {"x": 1}},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}}]},
        {"type": "ai", "content": "", "tool_calls": [{"name": "f", "args": {"x": 1}, "id": "c", "type": "tool_call"}]},
    ]
    for raw in calls:
        (message,) = conversation(raw)
        assert message.role == "assistant"
        assert message.calls == (("c", "f", {"x": 1}),)
    assert conversation({"type": "reasoning", "summary": []}) == []


def test_facts_by_their_usual_names() -> None:
    said = {"traceloop.association.properties.task_id": 3, "passed": "no", "langfuse.trace.metadata.reward": 0.5}
    assert facts_of(said, {"system": "s", "task_id": 4, "seed": None}) == {
        "task": "3", "success": False, "score": 0.5, "system": "s",
    }  # fmt: skip
    assert facts_of({"success": "perhaps", "task": ["a"]}) == {}


@given(
    st.sampled_from(["gen_ai", "gen_ai.request", "rpc", "rpc.grpc.request.metadata", "db", "messaging", "llm"]),
    st.sampled_from(["task", "success", "score", "system", "run", "seed"]),
)
def test_attributes_of_conventions_are_no_facts(prefix: str, name: str) -> None:
    assert facts_of({f"{prefix}.{name}": 1}) == {}


ODD = [None, 0, -1, 1.5, 1e400, "", "x", [], {}, [1], {"a": 1}, [[]], True, 2**70, "\ud800", [{"role": 1}], "[{"]
FILES = ("otel", "openai_agents", "langsmith", "langfuse", "autogen_otel", "ag2_otel", "langfuse_otel")


def damaged(value: Any, rng: random.Random) -> Any:
    """The value with odd things in the place of some of its parts, also within JSON in texts, and some left out."""
    if rng.random() < 0.02:
        return rng.choice(ODD)
    if isinstance(value, dict):
        return {key: damaged(each, rng) for key, each in value.items() if rng.random() > 0.01}
    if isinstance(value, list):
        return [damaged(each, rng) for each in value]
    if isinstance(value, str) and value[:1] in ("[", "{"):
        return json.dumps(damaged(json.loads(value), rng))
    return value


@pytest.mark.parametrize("name", FILES)
def test_nothing_but_a_named_error_comes_of_damage(tmp_path: Path, name: str) -> None:
    records = [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]
    path = tmp_path / "log.jsonl"
    for seed in range(25):
        rng = random.Random(seed)
        path.write_text("\n".join(json.dumps(damaged(record, rng)) for record in records))
        with contextlib.suppress(InputError):
            read_logs(path, format="otel" if "otel" in name else name)
