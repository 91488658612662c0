"""Discussions in which nobody is told what is right."""

from __future__ import annotations

import pytest

from palaestra.envs.worlds import Discussion
from palaestra.errors import InputError


def play(env, said):
    """Texts that were read, facts of each turn, and rewards."""
    seen, texts, told, paid = env.reset(0), [], [], 0.0
    for action in said:
        ((agent, each),) = seen.items()
        texts.append(each.text)
        result = env.step({agent: action})
        told.append(dict(result.info))
        paid += sum(result.rewards.values())
        seen = result.observations
    return texts, told, paid, seen


def test_a_round_is_a_solution_and_a_critique_and_a_score_for_each_critic():
    env = Discussion(critics=2, rounds=1)
    _, told, paid, seen = play(env, [0, 1, 0, 2, 3])
    assert [each["role"] for each in told] == ["solver", "evaluator", "scorer", "evaluator", "scorer"]
    assert [each.get("pair") for each in told] == [None, 0, 0, 1, 1]
    assert (told[2]["tau"], told[2]["parsed"]) == (3.0, True)
    assert "tau" not in told[4]
    assert not told[4]["parsed"]
    assert (paid, seen) == (0, {})


def test_a_sure_scorer_sees_whether_a_critique_names_the_flaw():
    env = Discussion(questions=1, rounds=1, sure=1.0)
    right = int(env.right[0])
    wrong = (right + 1) % 4
    flaw = int(env.flaw[0, wrong])
    looks = {
        said: play(env, [*said, 0])[0][2].partition("looks ")[2] for said in ((right, 0), (wrong, 0), (wrong, flaw))
    }
    assert list(looks.values()) == ["right", "flawed, the flaw was not found", "flawed, the flaw was found"]
    _, told, _, _ = play(env, [wrong, flaw, 0])
    assert (told[0]["right"], told[1]["named"], told[2]["success"]) == (0, 1, False)
    assert "named" not in play(env, [right, 0])[1][1]


def test_a_solver_reads_as_many_rounds_as_it_remembers():
    for memory, rounds in ((0, 0), (1, 1), (2, 2)):
        texts, *_ = play(Discussion(rounds=3, memory=memory), [0, 1, 0, 1, 1, 0, 2])
        assert texts[6].count("was told") == rounds


def test_options_out_of_range():
    for bad in ({"agents": 0}, {"answers": 1}, {"memory": -1}, {"sure": 1.5}):
        with pytest.raises(InputError, match="Discussion"):
            Discussion(**bad)
