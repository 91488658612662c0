from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents import Request, ScriptedPolicy, Team
from palaestra.envs import make
from palaestra.envs.local_tools import Library, python
from palaestra.envs.protocol import Observation
from palaestra.envs.roles.toolbox import COLOURS, KINDS, PLACES, Toolbox, archive, solve
from palaestra.envs.sandbox import Limits
from palaestra.envs.tool_calls import Call, write
from palaestra.envs.tools import Tool, ToolEnv, ToolError, ToolTask
from palaestra.errors import InputError, StorageError
from palaestra.play.rollout import rollout
from palaestra.runs.config import EnvPart
from palaestra.runs.envs import env as env_of
from palaestra.testing import check_env


def fail(text: str) -> str:
    raise ToolError(f"no {text}")


def crash(text: str) -> str:
    raise KeyError(text)


TEXT = {"text": {"type": "string"}}


class Words(ToolEnv):
    """What is "mill" backwards?"""

    def __init__(self, **options: Any) -> None:
        tools = [
            Tool("turn", "Turn a text.", TEXT, lambda text: text[::-1]),
            Tool("fail", "Fail.", TEXT, fail),
            Tool("crash", "Crash.", TEXT, crash),
            Tool("talk", "Talk.", TEXT, lambda text: text * 10_000),
        ]
        super().__init__(tools, **options)

    def draw(self) -> ToolTask:
        word = ("mill", "shed")[int(self.rng.integers(2))]
        return ToolTask(word, f"Turn {word}.", word[::-1], (Call("turn", {"text": word}),))


def play(*said: str, **options: Any) -> pl.DataFrame:
    """An episode in which this is said."""
    line = iter(said)
    policy = ScriptedPolicy(lambda request: next(line))
    return rollout(lambda: Words(**options), Team(assistant=policy), groups=1, group_size=1, seed=4, retries=0).frame


def call(name: str, text: str = "mill") -> str:
    return write([Call(name, {"text": text})])


def test_a_conversation_with_a_tool() -> None:
    turns = play(f"Well. {call('turn')}", "The answer: LLIM.")
    first, last = turns.to_dicts()
    assert (first["tool"], json.loads(first["arguments"]), first["reward"]) == ("turn", {"text": "mill"}, 0.0)
    assert json.loads(first["calls"]) == json.loads(first["gold"]) == [{"name": "turn", "arguments": {"text": "mill"}}]
    assert (last["said"], last["success"], last["reward"], last["tool"]) == ("The answer: LLIM.", True, 1.0, None)
    assert turns["call_error"].null_count() == turns["tool_error"].null_count() == 2
    asked, answered, told = json.loads(last["messages"])
    assert asked == {"role": "user", "content": "Turn mill."}
    (made,) = answered["tool_calls"]
    assert answered["content"] == "Well."
    assert made["function"] == {"name": "turn", "arguments": {"text": "mill"}}
    assert told == {"role": "tool", "content": "llim", "tool_call_id": made["id"]}
    assert [tool["function"]["name"] for tool in json.loads(last["tools"])] == ["turn", "fail", "crash", "talk"]
    assert last["observation"].splitlines()[0] == "tools: turn(text), fail(text), crash(text), talk(text)"


def test_what_goes_wrong_is_told_to_the_agent_and_in_the_table() -> None:
    said = ["<tool_call>{", call("trun"), call("fail"), call("crash"), call("talk"), "mill"]
    turns = play(*said, turns=9)
    assert turns["call_error"].to_list()[:3] == [
        "json: Expecting property name enclosed in double quotes at character 12",
        "unknown: no tool 'trun'; did you mean 'turn'?",
        None,
    ]
    assert turns["valid"].to_list() == [False, False, True, True, True, True]
    assert turns["tool_error"].to_list() == [None, None, "no mill", "error: KeyError: 'mill'", None, None]
    assert turns["tool"].to_list() == [None, "trun", "fail", "crash", "talk", None]
    told = [message["content"] for message in json.loads(turns["messages"][5])][2::2]
    assert told[0].startswith("error: json")
    assert told[2:4] == ["error: no mill", "error: KeyError: 'mill'"]
    assert told[4].endswith("… (40000 characters)")
    assert len(told[4]) < 4100
    assert turns["success"].to_list() == [False] * 6


def test_what_was_thought_first_is_no_part_of_the_answer() -> None:
    thought = f"<think>\nMaybe {call('turn')}? Answer: no.\n</think>\n\n"
    turns = play(f"{thought}llim")
    assert (turns["tool"].to_list(), turns["success"].to_list()) == ([None], [True])
    turns = play(f"{thought}{call('turn')}", f"{thought}Answer: llim")
    assert (turns["tool"].to_list(), turns["success"].to_list()) == (["turn", None], [True, True])
    said = [each["content"] for each in json.loads(turns["messages"][1]) if each["role"] == "assistant"]
    assert said == [thought.strip()], "its conversation goes on with all that it said"


def test_whatever_a_tool_does_is_told_and_ends_nothing() -> None:
    def silent(text: str) -> str:
        raise ToolError("")

    assert (
        Tool("leave", "Leave.", TEXT, lambda text: sys.exit(text)).run({"text": "3"}) == ("error: SystemExit: 3",) * 2
    )
    assert Tool("silent", "Fail.", TEXT, silent).run({"text": "x"}) == ("error: it failed", "it failed")


def test_a_whole_number_is_one_however_it_is_written() -> None:
    takes = {"n": {"type": ["integer", "null"]}, "x": {"type": "number"}}
    tool = Tool("repeat", "Repeat.", takes, lambda n, x: f"{n} {x}")
    assert tool.run({"n": 2.0, "x": 2.0}) == ("2 2.0", None)
    assert tool.run({"n": None, "x": 1}) == ("None 1", None)


def test_a_tool_is_checked_when_it_is_made() -> None:
    async def later(text: str) -> str:
        return text

    with pytest.raises(InputError, match="'later': its function is async"):
        Tool("later", "Later.", TEXT, later)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="optional has 'Text'; did you mean 'text'"):
        Tool("turn", "Turn.", TEXT, str, optional=("Text",))


@pytest.mark.parametrize(
    "said", ["**Answer:** llim", "So it is $\\boxed{llim}$", '{"answer": "llim"}', "My answer: Llim."]
)
def test_an_answer_is_read_as_that_of_a_task(said: str) -> None:
    assert play(said)["success"].to_list() == [True]


def test_all_calls_of_an_answer_are_made_or_none() -> None:
    both = write([Call("turn", {"text": "a"}), Call("turn", {"text": "b"})])
    turns = play(both, write([Call("turn", {"text": "c"}), Call("nix", {})]), "x")
    messages = json.loads(turns["messages"][2])
    assert [m["content"] for m in messages if m["role"] == "tool"] == ["a", "b"]
    names = [made["id"] for m in messages for made in m.get("tool_calls", [])]
    assert names == ["call00000", "call00001"]
    assert turns["call_error"][1].startswith("unknown: no tool 'nix'")


def test_turns_are_counted() -> None:
    turns = play(*[call("turn")] * 3, turns=3)
    assert (turns.height, turns["success"].to_list(), turns["reward"].sum()) == (3, [False] * 3, 0.0)


def test_calls_as_plain_text_for_models_that_know_no_tools() -> None:
    turns = play(
        '{"name": "turn", "arguments": {"text": "mill"}}', "llim", native=False, format="json", system="Be brief."
    )
    messages = json.loads(turns["messages"][1])
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[0]["content"].startswith("Be brief.\nTools, called as JSON")
    assert messages[2]["content"] == turns["action"][0]
    assert messages[3] == {"role": "user", "content": "llim"}
    assert turns["tools"].null_count() == 2
    assert turns["success"].all()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [({"turns": 0}, "turns=0 must be at least 1"), ({"format": "herms"}, "format='herms'; did you mean 'hermes'")],
)
def test_options_out_of_range(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Words(**options)


# -- the tools --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "result", "problem"),
    [
        ("6 * 7", "42", None),
        ("n = 6\nprint('so:')\nn * 7", "so:\n42", None),
        ("print(1)", "1", None),
        ("[i for i in range(3)]", "[0, 1, 2]", None),
        ("x = 1", "(nothing was printed)", None),
        ("", "(nothing was printed)", None),
        ("xs = [3, 1]\nxs.sort()", "(nothing was printed)", None),
        ("n = 0\ndef more():\n    global n\n    n += 6\nmore()\nn", "6", None),
        ("def main(): return 6\nmain()", "6", None),
        ("def f(): return 3\nf", "<function f>", None),
        (
            "class A:\n    def f(self): pass\n[A(), A().f]",
            "[<program.A object>, <bound method A.f of <program.A object>>]",
            None,
        ),
        (
            "print('value at', hex(255), '<b>at 0x1f</b> at 0xa, done')",
            "value at 0xff <b>at 0x1f</b> at 0xa, done",
            None,
        ),
        ("return 5", "error: SyntaxError: 'return' outside function", "SyntaxError"),
        ("type(3)", "error: screen: 'type' is not allowed", "screen: 'type' is not allowed"),
        ("import math\nmath.comb(5, 2)", "10", None),
        ("print(3)\n1 / 0", "error: ZeroDivisionError: division by zero; it printed 3", "ZeroDivisionError"),
        ("1 +", "error: SyntaxError", "SyntaxError: invalid syntax (line 1)"),
        ("import os", "error: screen: import of 'os' is not allowed", "screen: "),
        ("open('x')", "error: screen: ", "screen: "),
    ],
)
def test_python(code: str, result: str, problem: str | None) -> None:
    said, found = python().run({"code": code})
    assert said == result if problem is None else said.startswith(result)
    assert "reward program" not in said, "whoever calls a tool knows of none"
    assert (found is None) == (problem is None)
    assert problem is None or found.startswith(problem)  # type: ignore[union-attr]


def test_programs_that_never_end_are_ended() -> None:
    assert "time" in python(Limits(cpu=1, wall=0.3)).run({"code": "while True: pass"})[1]


def test_search() -> None:
    library = Library({"b": "the red mill", "a": "the red mill", "c": "a shed, red", "d": "nothing"})
    assert [name for name, _ in library.find("red mill")] == ["a", "b", "c"]
    assert library.find("MILL!", 1) == [("a", "the red mill")]
    for odd in ('"', "NEAR(", "a AND", "* -", "", "name:x", "\x00", "(" * 500):
        library.find(odd)  # what FTS5 would take for operators are words, or nothing
    assert library.tool(1).run({"query": "xyz"}) == ("nothing was found", None)
    assert (
        library.tool(2, longest=5).run({"query": "mill"})[0] == "a: … mill (12 characters)\nb: … mill (12 characters)"
    )
    with pytest.raises(InputError, match="no documents"):
        Library({})


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("東京", "a"),
        ("東京タワーは高い", "ab"),
        ("塔", "b"),
        ("Tokyo", "a"),
        ("京東", ""),
        ("หอคอย", "c"),
        ("の高さ?", "b"),
    ],
)
def test_words_are_found_in_text_without_spaces(query: str, names: str) -> None:
    texts = {"a": "Tokyo東京タワーは高い。", "b": "塔の高い。塔の高さ", "c": "นี่คือหอคอยสูง", "d": "foo"}
    library = Library(texts)
    found = dict(library.find(query))
    assert found == {name: texts[name] for name in names}
    long = Library({"long": "本" * 300 + "東京タワー" + "本" * 300}).tool(longest=100)
    assert "東京タワー" in long.run({"query": "東京"})[0]


def test_of_a_long_text_search_shows_the_place_that_matched() -> None:
    text = "the shed is empty. " * 300 + "The red mill keeps 37 sacks. " + "the barn is full. " * 300
    said, _ = Library({"long": text}).tool().run({"query": "mill sacks"})
    assert "The red mill keeps 37 sacks." in str(said)
    assert str(said).startswith("long: … ")
    assert str(said).endswith(f" … ({len(text.strip())} characters)")


def test_of_long_output_it_is_said_that_more_was_printed() -> None:
    tool = python(Limits(printed=5))
    assert tool.run({"code": "print('12345')"}) == ("12345", None)
    assert tool.run({"code": "print('123456')"}) == ("12345\n… (what was printed after this is left out)", None)
    assert tool.run({"code": "print('1' * 9); 1 / 0"})[1].startswith("ZeroDivisionError")  # type: ignore[union-attr]


def test_search_in_files(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "mill.txt").write_text("The red mill keeps 37 sacks.")
    (tmp_path / "odd.txt").write_bytes(b"\xff\xfe red")
    library = Library.read(tmp_path)
    assert library.find("sacks") == [("deep/mill.txt", "The red mill keeps 37 sacks.")]
    assert len(library.find("red")) == 2
    with pytest.raises(InputError, match=r"no file in .* is called \*\.md or x"):
        Library.read(tmp_path, "*.md", "x")


def test_a_sqlite_without_full_text(monkeypatch: pytest.MonkeyPatch) -> None:
    class Without:
        def execute(self, text: str) -> None:
            raise sqlite3.OperationalError("no such module: fts5")

    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: Without())
    with pytest.raises(InputError, match="has no FTS5: no such module"):
        Library({"a": "b"})


# -- the toolbox ------------------------------------------------------------------------------------------------------


def test_the_toolbox_keeps_the_protocol() -> None:
    def play(observation: Observation, rng: np.random.Generator) -> str:
        return solve(observation.messages or ()) if rng.random() < 0.7 else "7"

    check_env(make("roles/toolbox", kinds=["search"]), play=play)


def test_whoever_uses_the_tools_is_right_and_whoever_guesses_is_not() -> None:
    right = ScriptedPolicy(lambda request: solve(request.observation.messages))
    for kind, length in zip(KINDS, (2, 2, 3), strict=True):
        turns = rollout(make("roles/toolbox", kinds=[kind]), Team(assistant=right), groups=4, group_size=1, seed=0)
        assert turns["success"].all()
        assert len(turns) == 4 * length
        assert turns["calls"].drop_nulls().to_list()[0] == write_gold(turns["gold"][0], 0)
    guess = ScriptedPolicy(lambda request: str(request.rng.integers(10, 100)))
    turns = rollout(make("roles/toolbox"), Team(assistant=guess), groups=64, group_size=4, seed=0)
    assert turns.frame["success"].mean() < 0.05


def write_gold(gold: str, place: int) -> str:
    return json.dumps([json.loads(gold)[place]])


def test_held_out_questions_are_about_other_stores_and_products() -> None:
    asked: dict[str, set[str]] = {}
    for split in ("train", "test"):
        env = Toolbox(split=split)  # type: ignore[arg-type]
        for seed in range(2500):
            env.reset(seed)
            asked.setdefault(split, set()).add(env.task)
    stores = {split: {s for s in archive() if any(s in task for task in tasks)} for split, tasks in asked.items()}
    assert not asked["train"] & asked["test"]
    assert not stores["train"] & stores["test"]
    assert stores["train"] | stores["test"] == set(archive())
    for parts in (COLOURS, PLACES):  # nothing in a held-out name is new
        assert {p for p in parts if any(p in s.split() for s in stores["train"])} == set(parts)
    assert len(archive()) == 144


def test_recipes_train_and_test_on_their_splits() -> None:
    part = EnvPart(make="roles/toolbox", options={"kinds": ["search"]})
    assert [env_of(part, split)().split for split in ("train", "test")] == ["train", "test"]  # type: ignore[attr-defined]


def test_files_and_questions_of_your_own(tmp_path: Path) -> None:
    (tmp_path / "pets.md").write_text("The cat is called Mo.")
    questions = [{"question": "Who\u2028is the cat?", "answer": "Mo"}, {"question": "?", "answer": 1, "split": "test"}]
    (tmp_path / "questions.jsonl").write_text(
        "\n".join(json.dumps(each, ensure_ascii=False) for each in questions) + "\n"
    )
    line = iter([write([Call("search", {"query": "cat"})]), "mo"])
    env = make("roles/toolbox", folder=str(tmp_path))
    turns = rollout(env, Team(assistant=ScriptedPolicy(lambda request: next(line))), groups=1, group_size=1, seed=0)
    assert turns["success"].all()
    assert json.loads(turns["messages"][1])[-1]["content"] == "pets.md: The cat is called Mo."
    assert Toolbox(folder=str(tmp_path), split="test").reset(0)["assistant"].text.endswith("user: ?")
    (tmp_path / "questions.jsonl").write_text('{"question": "?"}')
    with pytest.raises(StorageError, match=r"questions\.jsonl: expected lines of JSON with question and answer"):
        Toolbox(folder=str(tmp_path))


def test_options_of_the_toolbox() -> None:
    with pytest.raises(InputError, match="no 'tset' here; did you mean 'test'"):
        Toolbox(split="tset")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no 'serch' here; did you mean 'search'"):
        Toolbox(kinds=["serch"])
    with pytest.raises(InputError, match="must not be empty"):
        Toolbox(kinds=[])


def test_requests_need_no_past() -> None:
    env = Toolbox(kinds=["python"])
    assert Request(env.reset(0)["assistant"], "assistant", env.rng).past is None


def test_an_episode_may_have_a_single_turn() -> None:
    assert len(play("A guess.", turns=1)) == 1


def test_python_runs_what_stands_behind_a_main_guard():
    code = "def main():\n    return 6 * 7\n\nif __name__ == '__main__':\n    print(main())"
    assert python().run({"code": code}) == ("42", None)
