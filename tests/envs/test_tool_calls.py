from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.envs.tool_calls import FAULTS, FORMATS, Call, Format, ParsedAnswer, check, parse, to_json, write
from palaestra.rewards import match_calls


def schema(name: str, optional: tuple[str, ...] = (), **parameters: Any) -> dict[str, Any]:
    needed = [each for each in parameters if each not in optional]
    takes = {"type": "object", "properties": parameters, "required": needed}
    return {"type": "function", "function": {"name": name, "description": "", "parameters": takes}}


SEARCH = schema("search", ("most",), query={"type": "string"}, most={"type": "integer"})
PYTHON = schema("python", code={"type": "string"})
TOOLS = (SEARCH, PYTHON)
ONE = [Call("search", {"query": "red mill", "most": 3})]
TWO = [*ONE, Call("python", {"code": "print(3 * 4)\n1 < 2"})]

WRITTEN = {
    "hermes": '<tool_call>\n{"name": "search", "arguments": {"query": "red mill", "most": 3}}\n</tool_call>',
    "llama": '<|python_tag|>{"name": "search", "parameters": {"query": "red mill", "most": 3}}',
    "mistral": '[TOOL_CALLS] [{"name": "search", "arguments": {"query": "red mill", "most": 3}, "id": "abcdefghi"}]',
    "json": '```json\n{"name": "search", "arguments": {"query": "red mill", "most": 3}}\n```',
    "xml": (
        "<tool_call>\n<function=search>\n<parameter=query>\nred mill\n</parameter>\n"
        "<parameter=most>\n3\n</parameter>\n</function>\n</tool_call>"
    ),
    "invoke": (
        '<function_calls>\n<invoke name="search">\n<parameter name="query">red mill</parameter>\n'
        '<parameter name="most">3</parameter>\n</invoke>\n</function_calls>'
    ),
    "pythonic": '[search(query="red mill", most=3)]',
}
"""The same call as models of each family write it."""


@pytest.mark.parametrize("name", WRITTEN)
def test_what_models_write(name: str) -> None:
    for format in (name, "auto"):
        said = parse(WRITTEN[name], format, TOOLS)
        assert (said.text, list(said.calls), said.error) == ("", ONE, None)


def test_every_format_is_tested_here() -> None:
    assert set(FORMATS) == {*WRITTEN, "auto"}


@pytest.mark.parametrize("name", [name for name in WRITTEN if name not in ("llama", "pythonic")])
def test_text_may_stand_beside_a_call(name: str) -> None:
    said = parse(f"Let me see. {WRITTEN[name]}", name, TOOLS)
    assert (said.text, list(said.calls)) == ("Let me see.", ONE)


@pytest.mark.parametrize("name", WRITTEN)
def test_what_a_model_thinks_first_calls_nothing(name: str) -> None:
    for begin in ("<think>\n", ""):  # which templates write into the prompt
        thinking = f"{begin}Maybe {WRITTEN[name]}? I could write <tool_call>.\n</think>"
        said = parse(f"{thinking}\n\n42", "auto", TOOLS)
        assert (said.text, said.calls, said.error) == (f"{thinking}\n\n42", (), None)
        said = parse(f"{thinking}\n\n{WRITTEN[name]}", "auto", TOOLS)
        assert (said.text, list(said.calls), said.error) == (thinking, ONE, None)
        said = parse(f"{thinking}\n<think>But {WRITTEN[name]} or", "auto", TOOLS)
        assert (said.calls, said.error) == ((), None), "what was cut off is thinking, too"
    assert parse(f"<think>Maybe {WRITTEN[name]} or", "auto", TOOLS).calls == ()


def test_json_behind_a_text_is_a_call() -> None:
    bare = '{"name": "search", "arguments": {"query": "red mill", "most": 3}}'
    for written in (f"\n{bare}", f"\n[{bare}]", f"\n```json\n{bare}\n```\n"):
        said = parse(f"Let me see.{written}", "auto", TOOLS)
        assert (said.text, list(said.calls), said.error) == ("Let me see.", ONE, None)
    assert parse(f"Let me see.\n{bare[:-2]}", "auto", TOOLS).error.startswith("json: ")
    assert parse(f"Let me see.\n{bare}\nSo.", "auto", TOOLS).error.startswith("shape: ")
    for answer in ('It is:\n{"name": "mill", "sacks": 37}', f"Not {bare}"):
        assert parse(answer, "auto", TOOLS) == ParsedAnswer(answer)


@pytest.mark.parametrize("name", [*WRITTEN, "auto"])
def test_several_calls_and_back(name: str) -> None:
    written = write(TWO, name)
    assert list(parse(written, name, TOOLS).calls) == TWO
    assert list(parse(written, "auto", TOOLS).calls) == TWO


WORDS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="<>\r"), min_size=1, max_size=12)
NAMES = st.from_regex(r"[a-z][a-z_]{0,6}", fullmatch=True).filter(lambda name: name not in ("if", "in", "is", "or"))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e6, 1e6) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
CALLS = st.builds(Call, NAMES, st.dictionaries(NAMES, PLAIN, max_size=3))


@given(calls=st.lists(CALLS, min_size=1, max_size=3))
@pytest.mark.parametrize("name", ["hermes", "llama", "mistral", "json"])
def test_what_is_written_is_read_again(name: str, calls: list[Call]) -> None:
    said = parse(write(calls, name), name)
    assert said.error is None
    assert list(said.calls) == calls


@given(st.dictionaries(NAMES, WORDS.filter(lambda text: text == text.strip("\n")), min_size=1, max_size=3))
@pytest.mark.parametrize("name", ["xml", "invoke"])
def test_texts_between_marks_are_read_as_the_schema_says(name: str, arguments: dict[str, str]) -> None:
    tools = [schema("f", **{key: {"type": "string"} for key in arguments})]
    said = parse(write([Call("f", arguments)], name), name, tools)
    assert (list(said.calls), said.error) == ([Call("f", arguments)], None)


MALFORMED = [
    # text, kind, what is named
    ("<tool_call>", "unclosed", "nothing behind"),
    ('<tool_call>{"name": "search", "arguments": {"query": "x"', "json", "delimiter"),
    ('<tool_call>{"name": "search", "arguments": {"query": "x"}}} </tool_call>', "unclosed", "'} </tool_call>'"),
    ('<tool_call>{"name": "search" "arguments": {}}</tool_call>', "json", "at character 29"),
    ("<tool_call>{'name': 'search'}</tool_call>", "json", "double quotes"),
    ('<tool_call>["search"]</tool_call>', "shape", "is no object"),
    ('<tool_call>{"nome": "search", "arguments": {}}</tool_call>', "shape", "name is missing"),
    ('<tool_call>{"name": 3, "arguments": {}}</tool_call>', "shape", "the name is 3"),
    ('<tool_call>{"name": "  ", "arguments": {}}</tool_call>', "shape", "the name is"),
    ('<tool_call>{"name": "search", "arguments": [1]}</tool_call>', "shape", "expected an object"),
    ('<tool_call>{"name": "search", "arguments": "{"}</tool_call>', "json", "Expecting"),
    ('<tool_call>{"name": "search", "arguments": {"query": NaN}}</tool_call>', "json", "NaN"),
    ('<tool_call>{"name": "search", "arguments": {"most": 1e999}}</tool_call>', "json", "1e999"),
    ('{"name": "search", "arguments": {}}</tool_call>', "unopened", "without <tool_call>"),
    ('<tool_call>{"name": "serch", "arguments": {"query": "x"}}</tool_call>', "unknown", "did you mean 'search'"),
    ('<tool_call>{"name": "search", "arguments": {}}</tool_call>', "arguments", "'query' is missing"),
    ('<tool_call>{"name": "search", "arguments": {"query": "x", "mst": 1}}</tool_call>', "arguments", "did you mean"),
    ('<tool_call>{"name": "search", "arguments": {"query": 1}}</tool_call>', "arguments", "expected string"),
    ('<tool_call>{"name": "search", "arguments": {"query": "x", "most": 1.5}}</tool_call>', "arguments", "integer"),
    ('<tool_call>{"name": "search", "arguments": {"query": "x", "most": true}}</tool_call>', "arguments", "integer"),
    ('<tool_call>{"name": "python", "arguments": {"code": "1"}}</tool_call>' * 33, "many", "33 calls"),
    ("<tool_call><function=search><parameter=query>x</parameter></tool_call>", "unclosed", "<function"),
    ("<function=search>x</function>", "shape", "'x' is no parameter"),
    ("<function=search><parameter=query>x", "unclosed", "without </function>"),
    ("<parameter=query>x</parameter></function>", "unopened", "without <function"),
    ("<function=></function>", "shape", "without a name"),
    ('<invoke name="search"><parameter name="query">x</parameter>', "unclosed", "<invoke"),
    ('<invoke name="search"><parameter name="query">x</parameter></invoke></invoke>', "unopened", "</invoke>"),
    ("<function_calls>search</function_calls>", "shape", "no call in it"),
    ("[TOOL_CALLS] []", "shape", "empty list"),
    ("[TOOL_CALLS] search", "json", "Expecting value"),
    ('[TOOL_CALLS] [{"name": "search", "arguments": {"query": "x"}}] so', "shape", "'so' behind the call"),
    ("<|python_tag|>", "json", "nothing behind"),
    ("<|python_tag|>search.call(query=x)", "shape", "plain value: a number, text in quotes, or a list of them"),
    ('<|python_tag|>search.call("x")', "shape", "keyword arguments"),
    ('[search(query="x"', "shape", "not an expression"),
    ('[search(query="x"), 3]', "shape", "not a call"),
    ("[" + "a." * 600 + "a(x=1)]", "shape", "shape"),
    ('[search("x")]', "shape", "keyword arguments"),
    ('[serch(query="x")]', "unknown", "did you mean 'search'"),
    ('{"name": "search"}', "arguments", "'query' is missing"),
    ("[search(query={1, 2})]", "shape", "no plain value"),
    ('{"name": "search", "arguments": {"query": "x"', "json", "delimiter"),
    ("<tool_call>" + "[" * 100_000, "json", "nested too deeply"),
    ('<tool_call>{"name": "search", "arguments": {"most": ' + "9" * 5000 + "}}</tool_call>", "json", "limit"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "named"), MALFORMED, ids=range(len(MALFORMED)))
def test_what_is_malformed_has_a_reason(text: str, kind: str, named: str) -> None:
    error = parse(text, "auto", TOOLS).error
    assert error is not None
    assert error.startswith(f"{kind}: ")
    assert named in error
    assert kind in FAULTS
    assert len(error) < 210


@pytest.mark.parametrize(
    "text",
    [
        "", "42", "[1, 2, 3]", '{"a": 1}', "a < b and <b>", "see [this](x)", "The answer: {}", "tool_call", "[]", "{",
        '{"name": "Ada Lovelace", "age": 36}', '```json\n{"name": "Ada", "age": 36}\n```', '[{"name": "Ada"}]',
        '{"function": "f(x)=x"}', '{"parameters": [1]}', "[log(2), 1]", "[sqrt(2), inf)", "[f(x) == 2]",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", [*WRITTEN, "auto"])
def test_an_answer_is_no_call(name: str, text: str) -> None:
    said = parse(text, name, TOOLS)
    assert (said.text, said.calls, said.error) == (text, (), None)


FRAGMENTS = st.sampled_from(
    [*"{}[]()\"':,;<>=/\\", "<tool_call>", "</tool_call>", "<function=", "</function>", "<parameter=a>", "</parameter>",
     '<invoke name="', "</invoke>", "<function_calls>", "[TOOL_CALLS]", "<|python_tag|>", '"name"', '"arguments"',
     "search", "NaN", "\x00", "\ud800", "```json\n", "1e99", *WRITTEN.values()]
)  # fmt: skip


@given(parts=st.lists(FRAGMENTS | st.text(max_size=4), max_size=12), seen=st.booleans())
@pytest.mark.parametrize("name", [*WRITTEN, "auto"])
def test_nothing_that_a_model_writes_raises(name: str, parts: list[str], seen: bool) -> None:
    said = parse("".join(parts), name, TOOLS if seen else ())
    assert said.error is None or said.error.split(":")[0] in FAULTS
    to_json(said.calls).encode(errors="strict" if "\ud800" not in "".join(parts) else "surrogatepass")
    if seen and said.error is None:
        assert all(check(call, TOOLS) is None for call in said.calls)


@given(cut=st.integers(0, 200), name=st.sampled_from(sorted(WRITTEN)))
def test_a_call_that_is_cut_off_is_no_other_call(cut: int, name: str) -> None:
    text = WRITTEN[name]
    said = parse(text[:cut], name, TOOLS)
    assert list(said.calls) in ([], ONE)
    assert not (said.calls and said.error)


def test_values_without_a_schema_are_read_as_json_if_they_are() -> None:
    text = "<function=f><parameter=a>3</parameter><parameter=b>x</parameter><parameter=c>[1]</parameter></function>"
    assert parse(text, "xml").calls == (Call("f", {"a": 3, "b": "x", "c": [1]}),)


NULLABLE = [{"type": ["integer", "null"]}, {"anyOf": [{"type": "integer"}, {"type": "null"}]}]


@pytest.mark.parametrize("takes", NULLABLE)
def test_a_value_may_be_of_several_types(takes: dict[str, Any]) -> None:
    tools = [schema("search", most=takes)]
    for value, written in ((3, "3"), (None, "null")):
        call = Call("search", {"most": value})
        for name in ("hermes", "xml"):
            assert parse(write([call], name), name, tools) == ParsedAnswer("", (call,)), written
    wrong = "arguments: search: 'most' is 'three', expected integer or null"
    assert check(Call("search", {"most": "three"}), tools) == wrong


def test_a_text_that_may_be_missing_is_text_or_null() -> None:
    tools = [schema("search", query={"type": ["string", "null"]})]
    for written, value in (("null", None), ("3", "3")):
        text = f"<tool_call><function=search><parameter=query>{written}</parameter></function></tool_call>"
        assert parse(text, tools=tools).calls == (Call("search", {"query": value}),)


@pytest.mark.parametrize(
    ("takes", "fault"),
    [
        ({"type": "object", "additionalProperties": True}, None),
        ({"type": "object", "properties": {}, "additionalProperties": {}}, None),
        ({"type": "object"}, None),
        ({"additionalProperties": {"type": "integer"}}, "arguments: f: 'query' is 'x', expected integer"),
        ({"additionalProperties": False}, "arguments: f: it takes no 'query'"),
        ({"properties": {}}, "arguments: f: it takes no 'query'"),
        ({}, "arguments: f: it takes no 'query'"),
        ({"properties": {"query": True}}, None),
    ],
)
def test_arguments_that_no_schema_names_are_taken_where_it_says_so(takes: dict[str, Any], fault: str | None) -> None:
    assert check(Call("f", {"query": "x"}), [{"function": {"name": "f", "parameters": takes}}]) == fault


def test_calls_as_facts_are_what_rewards_read() -> None:
    assert match_calls(json.loads(to_json(ONE)), json.loads(to_json(TWO))).calls == 1
    wanted = schema("paint", colour={"enum": ["red", "blue"]})
    assert check(Call("paint", {"colour": "rot"}), [wanted]) == (
        "arguments: paint: 'colour' is 'rot', expected one of ['red', 'blue']"
    )


def test_a_format_of_your_own() -> None:
    class Shouted(Format):
        def find(self, text: str, tools: Any) -> tuple[str, list[Call]]:
            return "", [Call(text.lower(), {})]

        def write(self, calls: Any) -> str:
            return " ".join(call.name.upper() for call in calls)

    FORMATS.add("shouted", Shouted)
    try:
        assert parse("LOOK", "shouted").calls == (Call("look", {}),)
        assert write([Call("look", {})], "shouted") == "LOOK"
    finally:
        FORMATS.remove("shouted")
