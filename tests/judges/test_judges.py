"""Judges over a real endpoint on 127.0.0.1: batched, cached, and a failed call is null."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest
from tests.chat_endpoint import ChatEndpoint, completion, reply

from palaestra.agents import ChatPolicy, ScriptedPolicy
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, StorageError
from palaestra.judges import AnswerCache, Item, MessageLabels, ask, judge, vote_columns, weights_of
from palaestra.judges.messages import read_label
from palaestra.judges.reading import read_value
from palaestra.rewards import cm2, judge_votes, onto, semi_join, utility

ITEMS = (
    Item("searched", "Did the agent search?", weight=0.4, tool=True),
    Item("polite", "Was the agent polite?", weight=0.6, depends_on=("searched",)),
)


class Endpoint(ChatEndpoint):
    """A chat completion for each prompt: `answer(prompt)`, or an HTTP status."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: Callable[[str], str | int] = lambda prompt: "VERDICT: yes"

    def behave(self, handler: BaseHTTPRequestHandler, body: dict) -> None:
        said = self.answer(body["messages"][-1]["content"])
        reply(handler, completion(said, usage=False), said if isinstance(said, int) else 200)

    def policy(self) -> ChatPolicy:
        return ChatPolicy("m", base_url=self.url, api_key_env=None, retries=1, wait=0.001, longest_wait=0.002)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    served = Endpoint()
    yield served
    served.close()


def play(episodes: int = 2) -> Turns:
    episode, turn = np.repeat(np.arange(episodes), 2), np.tile([0, 1], episodes)
    said = [f"{'search' if t == 0 else 'thanks'} {e}" for e, t in zip(episode, turn, strict=True)]
    keys = {"group": episode * 0, "episode": episode, "turn": turn, "agent": ["a"] * len(turn)}
    return Turns(keys | {"action": said, "observation": ["{nothing}"] * len(turn), "task": ["find it"] * len(turn)})


def test_a_checklist_becomes_a_table_and_an_advantage(endpoint: Endpoint) -> None:
    endpoint.answer = lambda prompt: (
        "VERDICT: no" if "polite?" in prompt and "thanks 1" in prompt else "ok\nVERDICT: yes"
    )
    turns = play(6)
    table = judge(turns, ITEMS, endpoint.policy())
    assert table.keys == ("group", "episode")
    scored = onto(turns, utility(table, weights_of(ITEMS)))
    assert scored["utility"].to_list() == [1, 1, 0.4, 0.4] + [1] * 8
    credit = np.asarray(cm2("utility", judged="judged", over="group").evaluate(scored))
    np.testing.assert_allclose(credit[:3], [0.1, 0.1, -0.5])


def test_a_failed_call_is_null_and_never_zero(endpoint: Endpoint) -> None:
    endpoint.answer = lambda prompt: 500 if "polite?" in prompt and "thanks 1" in prompt else "VERDICT: yes"
    found = judge(play(), ITEMS, endpoint.policy()).frame
    assert found["value"].to_list() == [1.0, 1.0, 1.0, None]
    assert found["call_ok"].to_list() == [True, True, True, False]


def test_an_answer_that_says_nothing_is_asked_for_again(endpoint: Endpoint) -> None:
    said = iter(["I cannot tell", "VERDICT: 0.5"])
    endpoint.answer = lambda prompt: next(said)
    assert judge(play(1), ITEMS[:1], endpoint.policy()).frame["value"].to_list() == [0.5]
    endpoint.answer = lambda prompt: "I cannot tell"
    before = len(endpoint.prompts)
    found = judge(play(1), ITEMS[:1], endpoint.policy()).frame
    assert found["call_ok"].to_list() == [False]
    assert len(endpoint.prompts) == before + 2


def test_what_was_asked_is_not_asked_again(endpoint: Endpoint, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    first = judge(play(), ITEMS, endpoint.policy(), cache=AnswerCache(path))
    assert len(endpoint.prompts) == 4
    with path.open("a") as file:
        file.write('{"key": "torn')
    again = judge(play(), ITEMS, endpoint.policy(), cache=AnswerCache(path))
    assert len(endpoint.prompts) == 4
    assert again.frame.equals(first.frame)
    for weights in ({"searched": 1.0, "polite": 0.0}, {"searched": 0.0, "polite": 1.0}):
        utility(again, weights)
    judge(play(3), ITEMS, endpoint.policy(), cache=AnswerCache(path))
    assert len(endpoint.prompts) == 6
    assert len(AnswerCache(path)) == 6
    assert "polite" not in path.read_text().split("answer")[0]


def test_an_answer_that_was_edited_in_the_cache_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    AnswerCache(path).add({"a": "VERDICT: no", "b": "VERDICT: no"})
    whole = path.read_text()
    for edited in (whole.replace("no", "yes", 1), whole.replace('"checksum"', '"other"', 1)):
        path.write_text(edited)
        with pytest.raises(StorageError, match=r"answers.jsonl, line 1: the answer was changed.*delete the line"):
            AnswerCache(path)
    path.write_text(whole.split("\n", 1)[1])
    assert AnswerCache(path).answers == {"b": "VERDICT: no"}


def test_equal_questions_are_asked_once(endpoint: Endpoint) -> None:
    same = play(2).with_column(action=["search", "thanks"] * 2)
    assert judge(same, ITEMS, endpoint.policy()).frame.height == 4
    assert len(endpoint.prompts) == 2


def test_the_judge_sees_what_came_up_to_the_turn_and_only_what_it_is_shown(endpoint: Endpoint) -> None:
    judge(play(1), ITEMS[:1], endpoint.policy(), level="turn")
    early, late = sorted(endpoint.prompts, key=len)
    assert "search 0" in early
    assert "thanks 0" not in early
    assert "search 0" in late
    assert "thanks 0" in late
    assert "find it" in late
    assert "{nothing}" in late
    endpoint.bodies.clear()
    cited = play(1).with_column(evidence=[[], [1]])
    judge(cited, ITEMS[:1], endpoint.policy(), shown=semi_join(cited))
    assert "thanks 0" in endpoint.prompts[0]
    assert "search 0" not in endpoint.prompts[0]


def test_nobody_is_asked_about_a_tool_that_failed(endpoint: Endpoint) -> None:
    turns = play(2).with_column(broken=[0, 1, 0, 0])
    table = judge(turns, ITEMS, endpoint.policy(), tool_failed="broken")
    assert table.frame["value"].to_list() == [0, 1, 1, 1]
    assert table.frame["call_ok"].all()
    assert len(endpoint.prompts) == 3


def test_several_votes(endpoint: Endpoint) -> None:
    said = iter(["VERDICT: yes", "VERDICT: yes", "VERDICT: no"])
    endpoint.answer = lambda prompt: next(said)
    turns = play(1)
    table = judge(turns, ITEMS[:1], endpoint.policy(), votes=3)
    voted = onto(turns, vote_columns(table))
    assert sorted(voted["searched_votes"][0].to_list()) == [False, True, True]
    assert np.asarray(judge_votes("searched_votes").evaluate(voted)).tolist() == [1, 1]
    with pytest.raises(InputError, match="one vote each"):
        vote_columns(judge(turns, ITEMS[:1], ScriptedPolicy(lambda request: "VERDICT: no")))


def test_what_a_prompt_draws_does_not_depend_on_its_neighbours() -> None:
    drawing = ScriptedPolicy(lambda request: f"VERDICT: {request.rng.random():.3f}")
    alone = judge(play(1), ITEMS, drawing).frame["value"].to_list()
    assert judge(play(3), ITEMS, drawing).frame["value"].to_list()[:2] == alone
    assert judge(play(1), ITEMS, drawing, seed=1).frame["value"].to_list() != alone


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("VERDICT: **yes**", 1),
        ("verdict: NO", 0),
        ("VERDICT: no ... VERDICT: .75", 0.75),
        ("yes", None),
        ("VERDICT: 3", None),
    ],
)
def test_reading(text: str, value: float | None) -> None:
    assert read_value(text) == value


def test_items_that_do_not_fit() -> None:
    policy = ScriptedPolicy(lambda request: "VERDICT: no")
    with pytest.raises(InputError, match="names of their own"):
        judge(play(), (ITEMS[0], ITEMS[0]), policy)
    with pytest.raises(InputError, match="depends on 'searched'"):
        judge(play(), ITEMS[1:], policy)
    with pytest.raises(InputError, match="votes=0"):
        judge(play(), ITEMS, policy, votes=0)


def test_a_cache_that_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not a readable cache"):
        AnswerCache(tmp_path)
    with pytest.raises(InputError, match="attempts=0"):
        ask(ScriptedPolicy(lambda request: ""), [], str, attempts=0)


def test_labels_come_later_and_the_newest_are_asked_for_first(endpoint: Endpoint) -> None:
    endpoint.answer = lambda prompt: "LABEL: 1" if "key" in prompt else "LABEL: 0"
    labels = MessageLabels("open the door", batch=2)
    seen = Turns({"observation": ["a wall", "a key", "a wall", "a rat", None]})
    assert labels.add(seen)["label"].null_count() == 5
    assert labels.work(endpoint.policy()) == 2
    assert labels.add(seen)["label"].to_list() == [0.0, None, 0.0, 0.0, None]
    assert labels.work(endpoint.policy()) == 1
    assert labels.add(seen)["label"].to_list() == [0.0, 1.0, 0.0, 0.0, None]
    assert labels.work(endpoint.policy()) == 0


def test_messages_without_a_label_get_that_of_a_classifier(endpoint: Endpoint) -> None:
    endpoint.answer = lambda prompt: "LABEL: 1" if "key" in prompt else "LABEL: 0"
    labels = MessageLabels("open the door", distilled=True)
    assert labels.get(["a key", "a wall", "a rat"]) == [None] * 3
    labels.work(endpoint.policy())
    assert labels.get(["the key", "a wall", "a brown rat"]) == [1.0, 0.0, 0.0]
    assert list(labels.pending) == ["the key", "a brown rat"]


def test_labels_that_failed_stay_in_the_queue(endpoint: Endpoint) -> None:
    endpoint.answer = lambda prompt: 500
    labels = MessageLabels("win", batch=1)
    labels.get(["old", "new"])
    assert labels.work(endpoint.policy()) == 0
    assert list(labels.pending) == ["new", "old"]
    endpoint.answer = lambda prompt: "LABEL: 1"
    assert labels.work(endpoint.policy()) + labels.work(endpoint.policy()) == 2
    assert labels.get(["old", "new"]) == [1.0, 1.0]


@pytest.mark.parametrize("said", ["0.8", "1/10", "1 or 0?", "1%", "\n1. Nothing.", "1, but it did not: LABEL: none"])
def test_a_label_that_is_neither_0_nor_1_is_none(said: str) -> None:
    assert read_label(f"LABEL: {said}") is None
    assert [read_label(f"so\n**Label:** `{label}`.") for label in (0, 1)] == [0, 1]
