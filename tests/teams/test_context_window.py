from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest

from palaestra.agents import LMPolicy, ScriptedPolicy, Team
from palaestra.envs.protocol import Observation, StepResult
from palaestra.errors import InputError
from palaestra.play.rollout import rollout
from palaestra.teams import context_window


class Long:
    """Eight turns of twelve words each, after a system message and a task."""

    agents = ("a",)
    task = "long"
    facts: Mapping[str, type] = {"said": str}

    def reset(self, seed: int) -> Mapping[str, Observation]:
        self.told: list[Mapping[str, Any]] = [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "the task"},
        ]
        return self.look()

    def look(self) -> Mapping[str, Observation]:
        return {"a": Observation("all", messages=tuple(self.told))}

    def step(self, actions: Mapping[str, Any]) -> StepResult:
        turn = len(self.told) // 2
        self.told += [
            {"role": "assistant", "content": actions["a"]},
            {"role": "tool", "content": "r " * 10 + f"{turn}."},
        ]
        over = turn == 8
        return StepResult({} if over else self.look(), {"a": 0.0}, terminated=over, info={"said": "x"})


def play(**options: Any) -> pl.DataFrame:
    policy = ScriptedPolicy(lambda request: "go")
    team = Team(a=policy)
    return rollout(context_window(Long, **options), team, groups=1, group_size=1, seed=0, timeout=None).frame


def shown(turns: pl.DataFrame, turn: int) -> list[tuple[str, str]]:
    return [(m["role"][0], m["content"]) for m in json.loads(turns["messages"][turn])]


def test_a_budget_is_kept_by_whole_turns_and_the_table_says_which() -> None:
    turns = play(budget=60, down_to=30)
    assert turns["history_tokens"].to_list() == [4 + 13 * turn for turn in range(8)]
    assert turns["shown_tokens"].max() <= 60
    assert turns["cut"].to_list() == [False] * 5 + [True] + [False, False]
    assert turns["dropped"].to_list() == [[]] * 5 + [[2, 3, 4, 5, 6, 7, 8, 9]] * 3
    assert turns["summarised"].to_list() == [[]] * 8
    assert shown(turns, 5) == [
        ("s", "be brief"),
        ("u", "the task\n\n[8 earlier messages are left out]"),
        ("a", "go"),
        ("t", "r " * 10 + "5."),
    ]
    assert turns["said"].to_list() == ["x"] * 8  # the env's own facts
    assert turns["error"].null_count() == 8


def test_after_a_cut_the_conversation_extends_again() -> None:
    turns = play(budget=60, down_to=30)
    for turn in (6, 7):
        assert shown(turns, turn)[: len(shown(turns, turn - 1))] == shown(turns, turn - 1)
    policy = LMPolicy.tiny(["r 0123456789 go be brief the task"], chat=True, max_new_tokens=3)
    learned = rollout(context_window(Long, budget=60, down_to=30), Team(a=policy), groups=1, group_size=1, seed=0).frame
    anew = learned["prefix"] == "anew"
    assert anew.to_list() == learned["cut"].to_list()
    assert anew.sum() >= 1


def test_what_is_left_out_may_be_summarised() -> None:
    turns = play(budget=60, down_to=30, method="summarise")
    assert turns["dropped"].to_list() == [[]] * 8
    assert turns["summarised"][5].to_list() == [2, 3, 4, 5, 6, 7, 8, 9]
    assert shown(turns, 5)[1][1].splitlines()[2:4] == ["assistant: go", "tool: r r r r r r r r r r 1."]
    own = play(budget=60, down_to=30, method="summarise", summarise=lambda messages: f"{len(messages)} of them")
    assert shown(own, 5)[1][1] == "the task\n\n8 of them"


def test_results_may_be_cleared_while_answers_stay() -> None:
    turns = play(budget=60, down_to=45, method="clear")
    assert turns["dropped"].drop_nulls()[7].to_list()[:2] == [3, 5]
    assert shown(turns, 7)[2:4] == [("a", "go"), ("t", "[left out: 12 tokens]")]
    assert [role for role, _ in shown(turns, 7)] == [*"su", *"at" * 7]


def test_the_latest_messages_stay_however_long_they_are() -> None:
    turns = play(budget=5, down_to=1, keep=4)
    assert [len(shown(turns, turn)) for turn in range(8)] == [2, 4, 6, 6, 6, 6, 6, 6]
    assert turns["shown_tokens"][7] > 5


@pytest.mark.parametrize("method", ["drop", "summarise", "clear"])
def test_the_request_stays_that_a_turn_with_tools_answers(method: str) -> None:
    call = [{"role": "assistant", "content": "go"}, {"role": "tool", "content": "r " * 10}]
    asked = [{"role": "assistant", "content": "8"}, {"role": "user", "content": "the second order"}]

    class Asked(Long):
        def look(self) -> Mapping[str, Observation]:
            return {"a": Observation("all", messages=(*self.told, *call * 3, *asked, *call * 3))}

    seen = context_window(Asked, budget=30, down_to=10, method=method)().reset(0)["a"].conversation()
    assert [(m["role"], m["content"]) for m in seen if m["role"] == "user"][1:] == [("user", "the second order")]
    if method != "clear":
        assert [m["role"][0] for m in seen] == ["s", "u", "a", "u", "a", "t"], "in turn, as templates want them"


def test_a_short_conversation_is_left_alone() -> None:
    turns = play()
    assert turns["shown_tokens"].to_list() == turns["history_tokens"].to_list()
    assert not turns["cut"].any()


def test_envs_without_messages_are_shown_as_they_are() -> None:
    team = Team(walker=ScriptedPolicy(lambda request: "left"))
    turns = rollout(context_window("native/maze"), team, groups=1, group_size=1, seed=0)
    assert turns["dropped"].null_count() == turns["cut"].null_count() == len(turns)


def test_a_recipe_names_what_counts_and_what_summarises() -> None:
    turns = play(
        budget=100, method="summarise", count="builtins:len", summarise="palaestra.teams.context_window:digest"
    )
    assert turns["history_tokens"][0] == len("be brief") + len("the task")
    assert turns["summarised"].list.len().max() > 0


def test_a_first_prompt_above_the_budget_is_shown_whole() -> None:
    turns = play(budget=3)
    assert turns["error"].null_count() == 8
    assert shown(turns, 0) == [("s", "be brief"), ("u", "the task")]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"budget": 0}, "budget=0"),
        ({"budget": 5, "down_to": 6}, "down_to=6"),
        ({"keep": 0}, "keep=0"),
        ({"method": "sumarise"}, "did you mean 'summarise'"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        context_window(Long, **options)
