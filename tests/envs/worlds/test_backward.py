"""Words to be said backward, and who proposes how long they are."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from palaestra.envs.tasks import Task
from palaestra.envs.worlds.backward import Backward, babble, read_length, read_word
from palaestra.errors import InputError
from palaestra.teams.proposer import ProposerEnv

OPEN = Task("backward:open-3", "", lambda said: 0.0)


def test_an_answer_begins_with_the_word_backward():
    task = read_word("cab", OPEN)
    assert [task.score(said) for said in ("bac", "bacd", "ba", "cab")] == [1.0, 1.0, 0.0, 0.0]


def test_the_sides_have_no_word_in_common_and_every_length():
    train, test = (Backward(split=split) for split in ("train", "test"))
    asked = [{env.draw(seed).question for seed in range(300)} for env in (train, test)]
    assert not asked[0] & asked[1]
    assert {len(word) for word in asked[1]} == {1, 2, 3, 4}
    assert all(train.holds_out(word) for word in asked[1])


def test_without_examples_nothing_is_asked_and_what_is_proposed_is_not_held_out():
    env = ProposerEnv(lambda: Backward(examples=False), 1, read=read_length)
    assert env.reset(0)["proposer"].text == " |"
    for seed in range(100):
        env.reset(seed)
        word = env.step({"proposer": "3"}).observations["solver-1"].text
        assert len(word) == 3
        assert not Backward().holds_out(word)
    env.reset(99)
    assert env.step({"proposer": "3"}).observations["solver-1"].text == word


@pytest.mark.parametrize("said", ["0", "5", "two", "-1", "²", "1.0"])
def test_no_number_of_letters_is_no_task(said):
    with pytest.raises(ValueError, match="no number of letters from 1 to 4"):
        read_length(said, OPEN)


def test_the_script_knows_how_words_look_and_no_task():
    rng = np.random.default_rng(0)
    say = babble()
    proposed = {say(SimpleNamespace(agent="proposer", rng=rng)) for _ in range(100)}
    assert proposed == {"1", "2", "3", "4"}
    answers = [say(SimpleNamespace(agent="solver-1", rng=rng)) for _ in range(100)]
    assert {len(word) for word in answers} == {4}
    assert set("".join(answers)) == set("abcd")
    assert read_word(babble(words=True)(SimpleNamespace(agent="proposer", rng=rng)), OPEN)


def test_a_wrong_option_is_named():
    with pytest.raises(InputError, match="shortest=3"):
        Backward(shortest=3, longest=2)
