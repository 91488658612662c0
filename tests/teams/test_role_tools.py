"""Tools of a role: its calls are run inside its turn of the team, are recorded, and nobody else has or hears them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from palaestra.agents import LMPolicy, ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.conversations import WORDS
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.envs.tool_calls import Call, write
from palaestra.envs.tools import Tool
from palaestra.errors import InputError, RecipeError
from palaestra.play.rollout import rollout
from palaestra.runs.inline import learn
from palaestra.teams import role_tools, supervisor, workflows

DOUBLE = Tool("double", "Twice.", {"n": {"type": "integer"}}, lambda n: str(2 * n))
CALL = write([Call("double", {"n": 21})])


class Sum(TaskEnv):
    """21 twice."""

    def draw(self, seed: int) -> Task:
        return Task(f"{seed}", "Twice 21?", lambda text: float(text == "42"), "42")


def played(env: Any, **scripts: Callable[[Request], Any]) -> Turns:
    team = Team({name: ScriptedPolicy(script, name=name) for name, script in scripts.items()})
    turns = rollout(env, team, groups=1, group_size=1, seed=0)
    assert turns["error"].null_count() == len(turns), turns["error"].to_list()
    return turns


def with_tool(request: Request) -> str:
    """Calls, then says what the tool said."""
    last = request.observation.conversation()[-1]
    return last["content"] if last["role"] == "tool" else CALL


def test_a_worker_of_a_supervisor_calls_its_tool_and_the_team_hears_the_answer() -> None:
    picks = iter(["coder", "FINISH"])
    seen: dict[str, list[Any]] = {"supervisor": [], "coder": [], "writer": []}

    def seat(request: Request) -> str:
        seen["supervisor"].append(request.observation)
        return next(picks)

    def coder(request: Request) -> str:
        seen["coder"].append(request.observation)
        return with_tool(request)

    env = role_tools(supervisor(Sum, ["coder", "writer"]), {"coder": [DOUBLE]})
    turns = played(env, supervisor=seat, coder=coder, writer=lambda request: "?")
    rows = turns.frame.select("turn", "agent", "action", "tool", "arguments", "tool_turn", "success").rows()
    assert rows == [
        (0, "supervisor", "coder", None, None, None, True),
        (1, "coder", CALL, "double", json.dumps({"n": 21}), True, True),
        (2, "coder", "42", None, None, False, True),
        (3, "supervisor", "FINISH", None, None, None, True),
    ]
    assert [each.tools for each in seen["supervisor"]] == [(), ()], "another role does not get them"
    assert CALL not in str(seen["supervisor"][-1].conversation()), "nor what was called"
    assert "42" in str(seen["supervisor"][-1].conversation())
    first, second = (each.conversation(WORDS) for each in seen["coder"])
    assert second[: len(first)] == first, "the conversation is continued"
    assert [each["role"] for each in second[len(first) :]] == ["assistant", "tool"]
    heard = turns.frame.select("agent", "heard", "heard_turn").rows()
    assert heard[-1] == ("supervisor", ["coder"], [2]), "the message is of the turn in which it was said"


def test_who_is_done_waits_for_who_still_calls() -> None:
    env = role_tools(workflows.debate(Sum, 2, rounds=2), {"debater-2": [DOUBLE]})
    seen: list[Any] = []

    def second(request: Request) -> str:
        seen.append(request.observation.conversation(WORDS))
        return with_tool(request)

    turns = played(env, **{"debater-1": lambda request: "41", "debater-2": second})
    rows = turns.frame.select("turn", "agent", "round", "tool_turn", "reward").rows()
    assert rows == [
        (0, "debater-1", 0, None, 0.0), (0, "debater-2", None, True, 0.0), (1, "debater-2", 0, False, 0.0),
        (2, "debater-1", 1, None, turns["reward"][3]), (2, "debater-2", None, True, 0.0),
        (3, "debater-2", 1, False, turns["reward"][5]),
    ]  # fmt: skip
    assert turns["heard_turn"].to_list()[-3:] == [[1], None, [0]]
    later = seen[2]
    assert [each["role"] for each in later[:5]] == [*[each["role"] for each in seen[1]], "assistant"][:5]
    assert later[: len(seen[1])] == seen[1], "earlier calls and their results are still there"


def test_what_cannot_be_read_or_fails_is_told_and_after_some_calls_an_answer_counts() -> None:
    said = iter(['<tool_call>{"name": "double"', write([Call("double", {"n": "x" * 3})]), CALL, CALL])
    env = role_tools(workflows.single(Sum), {"*": [DOUBLE]}, turns=3)
    turns = played(env, **{env().agents[0]: lambda request: next(said)})
    assert turns["call_error"].str.split(":").list.first().to_list() == ["json", "arguments", None, "limit"]
    assert turns["valid"].to_list() == [False, False, True, True]
    assert turns["observation"][-1].endswith("No further calls: answer now.")
    failing = Tool("double", "Twice.", {"n": {}}, lambda n: 1 / 0)
    said = iter([CALL, "0"])
    failed = played(
        role_tools(workflows.single(Sum), {"*": [failing]}), **{env().agents[0]: lambda request: next(said)}
    )
    assert failed["tool_error"].to_list() == ["error: ZeroDivisionError: division by zero", None]


def test_an_invalid_answer_that_was_held_back_is_invalid() -> None:
    env = role_tools(workflows.debate(Sum, 2, rounds=2), {"debater-2": [DOUBLE]})
    turns = played(env, **{"debater-1": lambda request: "", "debater-2": with_tool})
    assert turns.frame.filter(agent="debater-1")["valid"].to_list() == [False, False]


def test_templates_without_tools_are_told_of_them_in_words() -> None:
    env = role_tools(workflows.single(Sum), {"*": [DOUBLE]}, native=False)()
    (seen,) = env.reset(0).values()
    assert seen.tools == ()
    assert "double" in seen.conversation()[0]["content"]
    assert seen.schema is None, "a reply that is held to fields calls nothing"


def test_a_local_model_goes_on_from_its_tokens() -> None:
    env = role_tools(workflows.single(Sum), {"*": [DOUBLE]}, turns=2)
    model = LMPolicy.tiny([CALL, "Twice 21?"], chat=True, max_new_tokens=4)
    turns = rollout(env, Team(dict.fromkeys(env().agents, model)), groups=2, group_size=2, seed=0)
    assert turns["error"].null_count() == len(turns)
    assert turns["tools"].null_count() == 0


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ({"codr": "python()"}, "no role 'codr'; did you mean 'coder'"),
        ({"coder": "pyton()"}, "unknown tool 'pyton'; did you mean 'python'"),
        ({"coder": [DOUBLE, DOUBLE]}, "two tools of the name 'double'"),
        ({"coder": [print]}, "expected a Tool"),
    ],
)
def test_wrong_tools_are_named(tools: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        role_tools(supervisor(Sum, ["coder", "writer"]), tools)


def test_a_recipe_gives_tools_to_a_role() -> None:
    seen: list[Turns] = []
    recipe: dict[str, Any] = {
        "name": "tooled",
        "env": {
            "make": "native/cups", "workflow": "chain(2)", "tools": {"link-2": "python()"}, "tool_turns": 1,
        },
        "policies": {
            "first": {"kind": "random"},
            "second": {"kind": "script", "options": {"script": "tests.teams.test_role_tools:called"}},
        },
        "team": {"link-1": "first", "link-2": "second"},
        "learn": {"kind": "play"},
        "train": {"iterations": 1, "groups": 2, "group_size": 1},
    }  # fmt: skip
    learn(recipe, on_turns=lambda _, turns: seen.append(turns), trust=True)
    (turns,) = seen
    mine = turns.frame.filter(agent="link-2")
    assert mine["tool"].to_list() == ["python", None] * 2
    assert mine["action"].to_list()[1::2] == ["42", "42"]
    assert turns.frame.filter(agent="link-1")["tool"].is_null().all()
    with pytest.raises(RecipeError, match=r"env\.tools.*no role 'lnk-2'"):
        learn({**recipe, "env": {**recipe["env"], "tools": {"lnk-2": "python()"}}}, trust=True)


def called() -> Callable[[Request], str]:
    """Script that calls Python and says what it printed."""

    def play(request: Request) -> str:
        last = request.observation.conversation()[-1]["content"]
        return last.split()[0] if "No further calls" in last else write([Call("python", {"code": "6 * 7"})])

    return play
