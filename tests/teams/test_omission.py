"""Actions that leave out earlier responses: contexts, lengths, and replies in words."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from palaestra.envs.protocol import Observation, StepResult
from palaestra.envs.worlds import Dossier, SecondLook, Slips
from palaestra.envs.worlds.dossier import THOUGHT
from palaestra.errors import EnvError, InputError
from palaestra.teams import WORKFLOWS, Omission, omission
from palaestra.testing.env import check_env

SMALL = functools.partial(Dossier, pages=3, clue=0, words=1)


class Talk:
    """An env of free text, or of messages, that says how many turns were taken."""

    agents, task = ("a",), ""

    def __init__(self, messages: bool = False) -> None:
        self.messages, self.heard = messages, []

    def _seen(self) -> dict[str, Observation]:
        text = f"response {len(self.heard) + 1}"
        talk = ({"role": "system", "content": "Rules."}, {"role": "user", "content": text}) if self.messages else None
        return {"a": Observation(text, messages=talk)}

    def reset(self, seed):
        self.heard.clear()
        return self._seen()

    def step(self, actions):
        self.heard.append(actions["a"])
        return StepResult(self._seen(), {}, False)


def test_it_is_an_env():
    check_env(omission(SMALL), varied=False)
    check_env(omission(functools.partial(Slips, cells=2), replies=False))
    assert "omission" in WORKFLOWS


def test_a_choice_with_the_tag_leaves_out_what_is_read_now():
    env = Omission(SMALL, replies=False)
    first = env.reset(0)["reader"]
    assert len(first.choices) == 8
    page = first.text
    told = env.step({"reader": 4})
    assert told.info["omitted"] == {"reader": [1]}
    assert told.info["context"] == {"reader": len(page)}
    assert told.info["saved_observation"] == {"reader": len(page)}
    assert told.info["saved_thought"] == {"reader": len(page)}, "a context of one message"
    second = told.observations["reader"].text
    assert page not in second
    assert second.splitlines()[0] == "<omitted_tool_response_1></omitted_tool_response_1>"
    third = env.step({"reader": 2})
    assert third.info["saved_thought"] == {"reader": 0.0}, "choice 2 has a thought"
    assert third.info["omitted"] == {"reader": []}
    assert third.observations["reader"].text.startswith(second)


class Masked:
    """An env of three choices of which the second is not legal; it says what it was given."""

    agents, task = ("a",), ""

    def reset(self, seed):
        return {"a": Observation("choose", choices=("x", "y", "z"), mask=np.array([True, False, True]))}

    def step(self, actions):
        return StepResult(self.reset(0), {}, False, info={"given": dict(actions)})


def test_the_env_is_given_the_choice_without_its_tag():
    """Choice 5 of six is the third one with the tag; what is not legal is not legal with it, either."""
    env = Omission(Masked, replies=False)
    assert env.reset(0)["a"].mask.tolist() == [True, False, True] * 2
    assert [env.step({"a": place}).info["given"]["a"] for place in (0, 2, 3, 5)] == [0, 2, 0, 2]


def test_replies_in_words_name_any_response():
    env = Omission(Talk, tag="<drop {number}>")
    env.reset(0)
    env.step({"a": "<think>hm</think>one"})
    told = env.step({"a": "<drop 1><drop 2><drop 9> two"})
    assert told.info["omitted"] == {"a": [1, 2]}
    assert env.env.heard == ["<think>hm</think>one", "two"]
    assert told.observations["a"].text.splitlines() == [
        "<omitted_tool_response_1></omitted_tool_response_1>", "<think>hm</think>one",
        "<omitted_tool_response_2></omitted_tool_response_2>", "two", "response 3",
    ]  # fmt: skip
    assert told.info["saved_observation"] == {"a": len("response 1response 2")}
    again = env.step({"a": "<think> </think><drop 1>three"})
    assert again.info["saved_observation"] == {"a": 0.0}, "it was left out already"
    length = again.info["context"]["a"]
    assert again.info["saved_thought"] == {"a": pytest.approx(length / 5)}


def test_an_illegal_action_saves_nothing():
    env = Omission(SMALL)
    env.reset(0)
    told = env.step({"reader": "no such thing"})
    assert told.info["valid"] == {"reader": False}
    assert (told.info["saved_thought"], told.info["omitted"]) == ({"reader": 0.0}, {"reader": []})


def test_chat_models_get_a_conversation_and_the_rules():
    env = Omission(functools.partial(Talk, messages=True))
    env.reset(0)
    talk = env.step({"a": "<omit_tool_response_1></omit_tool_response_1>one"}).observations["a"].messages
    assert [each["role"] for each in talk] == ["system", "user", "assistant", "user"]
    assert talk[0]["content"].startswith("Rules.")
    assert "<omit_tool_response_N></omit_tool_response_N>" in talk[0]["content"]
    assert [each["content"] for each in talk[1:]] == [
        "<omitted_tool_response_1></omitted_tool_response_1>", "one", "response 2"
    ]  # fmt: skip
    alone = Omission(functools.partial(Talk, messages=True), replies=False)
    alone.reset(0)
    talk = alone.step({"a": "one"}).observations["a"].messages
    assert [each["role"] for each in talk] == ["system", "user"]
    assert talk[1]["content"] == "response 1\nresponse 2"


def test_refused():
    with pytest.raises(InputError, match="number"):
        omission(SMALL, tag="<omit>")
    with pytest.raises(EnvError, match="arrays"):
        Omission(SecondLook).reset(0)


def test_the_dossier_needs_its_thoughts_and_its_clue():
    env = Dossier(pages=2, clue=0, hard=(0,), careless=1.0, slips=0.0)
    for thought in (True, False):
        seen = env.reset(3)["reader"].text
        code = seen.split("the code is ")[1].split()[0]
        first = env.step({"reader": f"{THOUGHT}{code}" if thought else code})
        assert first.info["thought"] is thought
        last = env.step({"reader": code})
        assert (last.rewards, last.info["success"]) == ({"reader": float(thought)}, thought)
    env = Dossier(pages=3, clue=0, hard=(0, 1), careless=1.0, slips=0.0)
    code = env.reset(3)["reader"].text.split("the code is ")[1].split()[0]
    for said in (code, f"{THOUGHT}{code}", code):
        last = env.step({"reader": said})
    assert not last.info["success"], "what was spoiled once stays spoiled"
    with pytest.raises(InputError, match="hard"):
        Dossier(pages=3, hard=(5,))
    with pytest.raises(InputError, match="slips"):
        Dossier(slips=0.9)
