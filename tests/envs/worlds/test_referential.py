"""The referential game and the codes of its scripted partners."""

import numpy as np
import pytest

from palaestra.agents import Team
from palaestra.agents.policy import Request
from palaestra.agents.scripted import ScriptedPolicy
from palaestra.envs.worlds import Referential
from palaestra.envs.worlds.referential import meanings
from palaestra.errors import InputError
from palaestra.play.rollout import rollout
from palaestra.runs.scripts import make


def said(env: Referential, target: int, word: str, thing: str):
    env.reset(0)
    env.state.target = target
    return env.step({"speaker": word}), env.step({"listener": thing})


def test_both_are_paid_for_the_right_object() -> None:
    env = Referential()
    first, last = said(env, 5, "bd", "object 1,1")
    assert (first.info["message"], first.info["agrees"], first.info["target"]) == (5, True, 5)
    assert (last.rewards, last.info["success"], last.terminated) == ({"speaker": 1.0, "listener": 1.0}, True, True)
    assert not said(env, 4, "bd", "object 1,1")[1].info["success"]


def test_the_listener_sees_the_word_and_not_the_object() -> None:
    env = Referential()
    seen = env.reset(0)["speaker"]
    assert seen.array is not None
    assert (seen.legal, seen.array[6:].sum()) == (env.choices[:8], 0)
    heard = env.step({"speaker": "ac"}).observations["listener"]
    assert heard.array is not None
    assert (heard.text, heard.legal) == ("the speaker said ac", env.choices[8:])
    assert heard.array.tolist() == [0] * 6 + [1, 0, 1, 0, 0, 0]


def test_without_a_word_the_listener_guesses() -> None:
    result = said(Referential(), 0, "nonsense", "object 0,0")[0]
    assert result.info["message"] is None
    assert not result.info["valid"]["speaker"]
    assert result.observations["listener"].text == "nothing was said"


def test_where_nothing_was_said_no_word_is_heard() -> None:
    """Of one attribute a word is a letter, and "said" ends with the fourth of them."""
    env, coder, picked = Referential(values=(4,)), make("code", {}), set()
    for seed in range(20):
        env.reset(seed)
        seen = env.step({"speaker": "nonsense"}).observations["listener"]
        picked.add(coder(Request(seen, "listener", np.random.default_rng(seed))))
    assert picked == set(env.choices[4:])


@pytest.mark.parametrize("number", [0, 3])
def test_partners_of_one_code_understand_each_other(number: int) -> None:
    coder = ScriptedPolicy(make("code", {"number": number}), name="coder")
    played = rollout(Referential, Team({"speaker": coder, "listener": coder}), groups=30, seed=1).frame
    assert played["success"].drop_nulls().all()


def test_codes_share_the_first_words() -> None:
    found = np.array([meanings(number, 8, shared=4) for number in range(1, 50)])
    assert (found[:, :4] == np.arange(4)).all()
    assert len(np.unique(found, axis=0)) > 15
    assert (np.sort(found, axis=1) == np.arange(8)).all()


def test_options_out_of_range_are_named() -> None:
    with pytest.raises(InputError, match="values"):
        Referential(values=(0, 3))
    with pytest.raises(InputError, match="2 objects"):
        Referential(values=(1, 1))
