"""The procedure of planner, executor, judge and answerer."""

from __future__ import annotations

import pytest

from palaestra.envs.worlds import Procedure
from palaestra.errors import InputError


def play(env, choose):
    seen, roles, told = env.reset(3), [], []
    while seen:
        roles.append(sorted(seen))
        result = env.step({seat: choose(env, seat) for seat in seen})
        told.append(dict(result.info))
        seen = result.observations
    return roles, told, result


def right(env, seat):
    if seat.startswith("planner"):
        return int(env.right_plan[env.state.question])
    if seat.startswith("executor"):
        return int(env.right_execution[env.state.plan])
    return env.state.truth if seat == "answerer" else env.wrong()


def test_who_does_all_of_it_right_succeeds_at_once():
    roles, told, result = play(Procedure(planners=2), right)
    assert roles == [["planner-1", "planner-2"], ["executor-1"], ["judge"], ["answerer"]]
    assert told[0]["process"] == {"planner-1": 0.9, "planner-2": 0.9}
    assert told[2]["outcome"] == {"judge": 1.0}
    assert result.rewards == {"answerer": 1.0}
    assert result.info["success"]


def test_what_is_wrong_goes_back_to_who_did_it_and_a_wrong_result_is_never_the_answer():
    def clumsy(env, seat):
        wrong = seat.startswith("executor") and env.state.corrections < 2
        return (right(env, seat) + wrong) % env.executions

    roles, told, result = play(Procedure(), clumsy)
    assert [each[0] for each in roles].count("executor-1") == 3
    assert [each["flagged"] for each in told if "flagged" in each][-1] == {"executor-1": "execute"}
    assert result.info["success"]
    env = Procedure(corrections=1)
    play(env, clumsy)
    assert env.state.result != env.state.truth


def test_a_judge_that_thinks_longer_has_more_signs():
    env = Procedure(thoughts=3, sure=1.0)
    seen = env.reset(0)
    while "judge" not in seen:
        seen = env.step({seat: right(env, seat) for seat in seen}).observations
    for number in (1, 2, 3):
        assert seen["judge"].text.startswith(f"signs: fine {number}")
        seen = env.step({"judge": 1 if number < 3 else 0}).observations
    assert "answerer" in seen


def test_options_out_of_range():
    for bad in ({"planners": 0}, {"plans": 1}, {"corrections": -1}, {"sure": 2}):
        with pytest.raises(InputError, match="Procedure"):
            Procedure(**bad)
