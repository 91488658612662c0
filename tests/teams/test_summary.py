"""Self-summaries: what an agent reads is what it wrote down and what is new, and that is enough to remember by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.envs import make
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.envs.tasks import read_answer
from palaestra.errors import EnvError, InputError
from palaestra.play.rollout import rollout
from palaestra.runs.envs import env as build_env
from palaestra.runs.recipe import validate
from palaestra.teams import SelfSummaryEnv, self_summary
from palaestra.testing import check_env


class Recall:
    """A key is told at the start and asked for at the end; with `history`, all that was told is told again."""

    agents = ("a",)

    def __init__(self, *, history: bool = False, length: int = 4, chat: bool = False) -> None:
        self.history, self.length, self.chat, self.task = history, length, chat, ""

    def reset(self, seed: int) -> Mapping[str, Observation]:
        self.key = str(seed % 10)
        self.task, self.told = f"key {self.key}", []
        return self._tell(f"The key is {self.key}.")

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        said = read_answer(actions["a"])
        if len(self.told) < self.length:
            return StepResult(self._tell("Key?" if len(self.told) == self.length - 1 else "Walk."))
        right = said == self.key
        return StepResult({}, {"a": float(right)}, terminated=True, info={"success": right})

    def _tell(self, new: str) -> dict[str, Observation]:
        self.told.append(new)
        text = "\n".join(self.told) if self.history else new
        system = ({"role": "system", "content": "A maze."}, {"role": "user", "content": text}) if self.chat else None
        return {"a": Observation(text, messages=system)}


def remembering(request: Request) -> str:
    """Writes the key down, and keeps copying it; answers from what it reads alone."""
    text = request.observation.text
    key = next((word.strip(".") for word in text.split() if word.strip(".").isdigit()), "?")
    return f"{key if text.endswith('Key?') else 'on'} | key {key}"


def forgetful(request: Request) -> str:
    return remembering(request).split(" | ")[0] + " |"


@pytest.mark.parametrize(
    "factory",
    [
        self_summary(Recall),
        self_summary("roles/search", window=2),
        self_summary("openspiel/kuhn_poker", options={"illegal": "random"}, window=1, instruction="Sum up."),
        self_summary("roles/user"),
    ],
)
def test_any_game_keeps_the_protocol(factory: Any) -> None:
    check_env(factory)


def test_an_agent_reads_its_summary_and_what_is_new() -> None:
    env = self_summary(Recall)()
    read = [env.reset(7)["a"].text]
    for said in ("on | key 7", "on", "  on|key\n is   7 | or 8  ", "on |"):
        result = env.step({"a": said})
        read += [seen.text for seen in result.observations.values()]
        answers = result.info["answer"]
        assert answers == {"a": "on"}
    assert read == ["The key is 7.", "key 7 | Walk.", "key 7 | Walk.", "key is 7 or 8 | Key?"]
    assert result.info["summary"] == {"a": ""}, "nothing behind the separator: forgotten"
    assert result.terminated


def test_history_that_the_env_repeats_is_cut_off() -> None:
    def length(env: Any) -> list[int]:
        seen, lengths = env.reset(7), []
        while seen:
            lengths.append(len(seen["a"].text))
            seen = env.step({"a": "on | key 7"}).observations
        return lengths

    whole, short = (
        Recall(history=True, length=30),
        self_summary(lambda: Recall(history=True, length=30), cumulative=True)(),
    )
    assert length(whole)[-1] > 150
    assert length(short) == [len("The key is 7."), *[len("key 7 | Walk.")] * 28, len("key 7 | Key?")]
    with pytest.raises(EnvError, match=r"'a' does not begin with what it read before .'The key is 7"):
        length(self_summary(Recall, cumulative=True)())


def test_a_window_keeps_recent_turns_whole() -> None:
    env = self_summary(Recall, window=2, separator=" / ")()
    env.reset(7)
    texts = [env.step({"a": f"go {turn} / 7"}).observations["a"].text for turn in range(3)]
    assert texts == [
        "7 / The key is 7. > go 0 / Walk.",
        "7 / The key is 7. > go 0 / Walk. > go 1 / Walk.",
        "7 / Walk. > go 1 / Walk. > go 2 / Key?",
    ]
    env.reset(8)
    assert env.step({"a": "go"}).observations["a"].text == "The key is 8. > go / Walk.", "reset forgets"


def test_summaries_are_cut_and_agents_keep_their_own() -> None:
    env = self_summary("openspiel/kuhn_poker", longest=2)()
    env.reset(0)
    seen = env.step({"player_0": "Pass | abc def ghi"}).observations
    assert "abc" not in seen["player_1"].text, "another agent's summary is not shown"
    result = env.step({"player_1": "Bet | x"})
    assert result.observations["player_0"].text.startswith("abc def | ")
    assert result.observations["player_0"].choices is None
    assert result.info["valid"] == {"player_1": True}


def test_a_number_is_no_answer() -> None:
    env = self_summary("openspiel/kuhn_poker", options={"illegal": "random"})()
    env.reset(0)
    result = env.step({"player_0": 0})
    assert result.info["valid"] == {"player_0": False}
    assert result.info["answer"] == {"player_0": ""}


def test_chat_models_are_told_to_write_a_summary_and_read_it() -> None:
    env = self_summary(lambda: Recall(chat=True), instruction="{{ default }} Be brief.")()
    env.reset(7)
    seen = env.step({"a": "I go on.\nAnswer: on\nSummary: key 7"}).observations["a"]
    system, user = [message["content"] for message in seen.messages or ()]
    assert system.startswith("A maze.\n\nYou play without a memory")
    assert system.endswith("Be brief.")
    assert "<summary>\nkey 7\n</summary>\n\nWalk." in user
    assert "\nSummary: <what to remember>" in user
    assert seen.text == "key 7 | Walk.", "small policies read the same as before"
    seen = env.step({"a": "Summary: key 7,\ndoor 3\nAnswer: on"}).observations["a"]
    assert seen.text == "key 7, door 3 | Walk.", "all lines of it"
    assert env.reset(7)["a"].text == "The key is 7."


def test_who_writes_the_key_down_remembers_it_at_a_constant_length() -> None:
    success, lengths = {}, {}
    for name, play in {"remembering": remembering, "forgetful": forgetful}.items():
        team = Team({"a": ScriptedPolicy(play, name=name)})
        turns = rollout(self_summary(Recall), team, groups=20, group_size=1, seed=0)
        frame = turns.frame
        assert frame["error"].null_count() == len(frame)
        success[name] = frame["success"].cast(float).mean()
        lengths[name] = frame["observation"].str.len_chars().max()
        assert frame["action"].str.contains("|", literal=True).all(), "the summary is part of the action"
    assert success == {"remembering": 1.0, "forgetful": 0.0}
    assert lengths["remembering"] == len("The key is 7.")


def test_a_recipe_names_it() -> None:
    data: dict[str, Any] = {
        "name": "memory",
        "env": {"make": "self_summary", "options": {"env": "roles/search", "window": 1}},
        "policies": {"p": {"kind": "random"}},
        "team": {"*": "p"},
    }
    env = build_env(validate(data).env, "train")()
    assert isinstance(env, SelfSummaryEnv)
    assert env.agents == make("roles/search")().agents


def test_agents_act_in_their_order() -> None:
    env = self_summary("openspiel/kuhn_poker")()
    env.reset(0)
    with pytest.raises(EnvError, match=r"agents to act are \['player_0'\]"):
        env.step({"player_1": "Pass"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window": -1}, "window=-1"),
        ({"longest": 0}, "longest=0"),
        ({"separator": "  "}, "must not be blank"),
        ({"options": {"length": 3}}, "given by its name"),
        ({"env": "roles/serch"}, "no env 'roles/serch'"),
    ],
)
def test_what_cannot_be_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        self_summary(**{"env": Recall} | arguments)
