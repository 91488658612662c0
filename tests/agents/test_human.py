"""A person in a seat: what is taken for an answer, how the input ends, and that the turns are recorded."""

from __future__ import annotations

import io
import os
import pty
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palaestra.agents import HumanPolicy, Request, Team
from palaestra.algebra.turns import Turns
from palaestra.envs import make
from palaestra.envs.protocol import Observation
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError, StorageError
from palaestra.play.rollout import rollout
from palaestra.runs.inline import learn
from palaestra.teams import supervisor

CHOICES = Observation("heads or tails?", choices=("heads", "tails"))


class Seven(TaskEnv):
    def draw(self, seed: int) -> Task:
        return Task("seven", "3 + 4 =", lambda text: float(text == "7"), "7")


def person(*typed: str) -> tuple[HumanPolicy, list[str]]:
    shown: list[str] = []
    lines: Iterator[str] = iter(typed)
    return HumanPolicy(say=shown.append, ask=lambda prompt: next(lines, None)), shown


def request(observation: Observation) -> Request:
    return Request(observation, "caller", np.random.default_rng(0))


def test_a_choice_is_given_by_name_or_number_and_asked_for_again() -> None:
    policy, shown = person("edge", "", " Tails ", "0")
    first, second = policy.act([request(CHOICES), request(CHOICES)])
    assert (first.action, first.action_ids.tolist(), second.action) == (1, [1], 0)  # type: ignore[union-attr]
    assert shown[:2] == ["\ncaller sees:\nheads or tails?", "legal: 0 heads, 1 tails"]
    assert "'edge' is not legal" in shown[2]
    assert first.duration is not None
    assert first.messages is not None, "what a chat model would have been shown, to learn from"


def test_a_text_may_have_several_lines() -> None:
    policy, _ = person("", "Dear all,\\", "no.")
    (decision,) = policy.act([request(Observation("write"))])
    assert (decision.action, decision.action_ids) == ("Dear all,\nno.", None)


def test_a_person_is_told_what_a_model_is_told_and_instructs_as_one() -> None:
    env = supervisor(Seven, {"alice": "", "bob": ""})()
    order, again = "Instruction: Add three and four.\\", "Next: alice"
    policy, shown = person(order, again, "7", "FINISH")
    told = env.reset(0)
    for agent in ("supervisor", "alice", "supervisor"):
        (decision,) = policy.act([Request(told[agent], agent, np.random.default_rng(0))])
        result = env.step({agent: decision.action})
        told = result.observations
    assert result.info["success"]
    assert "You are supervisor, who leads a team" in shown[0]
    assert "Add three and four." in shown[2], "alice reads what she is to do"
    assert "You are supervisor" not in shown[3], "what was not shown before"
    assert '<message from="alice"' in shown[3]


def test_at_the_end_of_the_input_turns_have_errors_and_what_was_played_stays() -> None:
    policy, _ = person("0")
    env = make("native/answers")
    turns = rollout(env, Team(answerer=policy), groups=3, group_size=1, seed=0, retries=0)
    assert turns["action"].null_count() == 2
    assert turns["error"][0] is None
    assert all("the input ended" in error for error in turns["error"][1:])
    assert turns["policy"].cast(str).to_list() == ["human"] * 3


def test_an_interruption_stops_the_play() -> None:
    def ask(prompt: str) -> str:
        raise KeyboardInterrupt

    policy = HumanPolicy(say=str, ask=ask)
    with pytest.raises(KeyboardInterrupt):
        rollout(make("native/answers"), Team(answerer=policy), groups=1, group_size=1, seed=0)


def test_without_a_terminal_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("0\n"))
    with pytest.raises(InputError, match=r"no terminal.*answers: FILE"):
        HumanPolicy()


def test_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "r", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        policy = HumanPolicy()
        os.write(ours, b"tails\n\x04")
        first, second = policy.act([request(Observation("\x1b[31mwell?", choices=CHOICES.choices)), request(CHOICES)])
    os.close(ours)
    assert first.action == 1
    assert second.error == "InputError: the input ended, nobody is there to answer"
    shown = capsys.readouterr().err
    assert "caller> " in shown
    assert "\\x1b[31mwell?" in shown, "nothing that a terminal would obey"


def test_a_recipe_with_a_person_whose_answers_are_in_a_file(tmp_path: Path) -> None:
    seen: list[Turns] = []
    answers = tmp_path / "answers.txt"
    answers.write_text("1\n2\n3\n")
    recipe: dict[str, Any] = {
        "name": "asked",
        "env": {"make": "native/answers"},
        "policies": {"me": {"kind": "human", "options": {"answers": str(answers)}}},
        "team": {"answerer": "me"},
        "learn": {"kind": "play"},
        "train": {"iterations": 1, "groups": 3, "group_size": 1},
    }
    learn(recipe, on_turns=lambda _, turns: seen.append(turns))
    assert len(seen[0]) == 3
    assert seen[0]["reward"].null_count() == 0
    policy = HumanPolicy(answers=answers)
    last = policy.act([request(CHOICES)] * 4)[-1]
    assert last.error is not None
    assert "has 3 answers, and more are asked for" in last.error
    with pytest.raises(StorageError, match="cannot be read"):
        HumanPolicy(answers=tmp_path / "nothing.txt")
