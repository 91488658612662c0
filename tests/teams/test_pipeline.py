from __future__ import annotations

import dataclasses
import functools
import pickle

import numpy as np
import pytest

from palaestra.agents.policy import Request
from palaestra.envs.protocol import Observation
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import EnvError, InputError, PolicyError
from palaestra.teams import pipeline, scripted_role
from palaestra.teams.pipeline import read, spoil
from palaestra.testing.env import check_env


class Sums(TaskEnv):
    """a + b; half the score for an answer that is one off."""

    def draw(self, seed: int) -> Task:
        a, b = seed % 10, seed // 10 % 10
        return Task(f"{a}+{b}", f"{a} + {b} =", lambda text: 1 - min(abs(int(text) - a - b), 2) / 2, str(a + b))


def play(factory, answers, seed=43):
    """What each role read, and the last result."""
    env = factory()
    observations, told = env.reset(seed), {}
    for answer in answers:
        ((role, seen),) = observations.items()
        told[role] = seen.text
        result = env.step({role: answer})
        observations = result.observations
    return told, result


@pytest.mark.parametrize(
    "roles", [("solver", "checker"), ("alone",), ("a", "a"), ("a", "b", "b"), ("a", "b", "c", "d")]
)
def test_any_number_of_roles_keeps_the_protocol(roles):
    check_env(pipeline(Sums, roles, improvement=0.5))


def test_the_checker_reads_question_and_answer_and_may_accept():
    told, result = play(pipeline(Sums), ["7", " OK "])
    assert told == {"solver": "3 + 4 =", "checker": "3 + 4 = | 7"}
    assert result.rewards == {"solver": 1.0, "checker": 1.0}
    assert result.terminated
    assert result.info == {
        "valid": {"checker": True},
        "answers": {"solver": "7", "checker": "OK"},
        "scores": {"solver": 1.0, "checker": 1.0},
        "read_as": "whole",
        "score": 1.0,
        "expected": "7",
        "success": True,
    }


def test_the_checker_may_replace_for_better_or_worse():
    _, better = play(pipeline(Sums), ["9", "7"])
    assert better.rewards == {"solver": 1.0, "checker": 1.0}
    assert better.info["scores"] == {"solver": 0.0, "checker": 1.0}
    assert better.info["success"] is True
    _, worse = play(pipeline(Sums), ["7", "8"])
    assert worse.rewards == {"solver": 0.5, "checker": 0.5}
    assert worse.info["success"] is False


def test_improvement_pays_each_later_role_for_what_it_changed():
    _, result = play(pipeline(Sums, ("a", "b", "c"), improvement=0.1), ["9", "6", "7"])
    assert result.rewards == {"a": 1.0, "b": pytest.approx(1.05), "c": pytest.approx(1.05)}
    _, result = play(pipeline(Sums, improvement=0.1), ["7", "8"])
    assert result.rewards == {"solver": 0.5, "checker": pytest.approx(0.45)}
    _, result = play(pipeline(Sums, improvement=0.1), ["8", "ok"])
    assert result.rewards == {"solver": 0.5, "checker": 0.5}


def test_rewards_come_at_the_end():
    env = pipeline(Sums)()
    env.reset(43)
    first = env.step({"solver": "7"})
    assert (first.rewards, first.terminated) == ({}, False)
    assert first.info["scores"] == {"solver": 1.0}


def test_answers_that_are_none_are_not_valid_and_leave_the_previous_one():
    told, result = play(pipeline(Sums), ["", ""])
    assert told["checker"] == "3 + 4 = | "
    assert result.rewards == {"solver": 0.0, "checker": 0.0}
    _, result = play(pipeline(Sums), ["7", ""])
    assert (result.rewards, result.info["valid"]) == ({"solver": 1.0, "checker": 1.0}, {"checker": False})
    _, result = play(pipeline(Sums), ["7", 0])
    assert (result.rewards["checker"], result.info["valid"]) == (1.0, {"checker": False})
    _, result = play(pipeline(Sums), ["7", "seven"])
    assert (result.rewards["checker"], result.info["valid"]) == (0.0, {"checker": False}), "it did replace the answer"


def test_what_the_next_role_reads_can_be_taken_apart_again():
    told, _ = play(pipeline(Sums), ["7 | 8\n| 9", "ok"])
    question, answer = read(told["checker"])
    assert question == "3 + 4 ="
    assert answer is not None
    assert answer.split() == ["7", "8", "9"]
    assert read("3 + 4 =") == ("3 + 4 =", None)
    told, _ = play(pipeline(Sums), ["1" * 5000, "ok"])
    assert len(told["checker"]) == len("3 + 4 = | ") + 5000, "nothing is cut unless one says so"
    told, _ = play(pipeline(Sums, longest=2), ["1" * 5000, "ok"])
    assert told["checker"] == "3 + 4 = | 111111"


def test_the_words_can_be_chosen():
    told, result = play(pipeline(Sums, accept="yes", separator=" -> "), ["7", "YES"])
    assert told["checker"] == "3 + 4 = -> 7"
    assert result.rewards["checker"] == 1.0
    _, result = play(pipeline(Sums, accept="yes"), ["7", "ok"])
    assert result.rewards["checker"] == 0.0


def test_instructions_of_a_user_replace_the_shipped_ones():
    env = pipeline(Sums, instructions={"checker": "Check the answer."})()
    asked = list(env.reset(43)["solver"].messages)
    assert asked[0]["content"].startswith("You are solver in a pipeline: solver → checker.")
    seen = env.step({"solver": "3 and 4 are 7.\nAnswer: 7"}).observations["checker"]
    assert seen.text == "3 + 4 = | 7", "what a small policy reads stays as short as it was"
    system, user = seen.messages
    assert system == {"role": "system", "content": "Check the answer."}
    assert '<message from="solver">\n3 and 4 are 7.\nAnswer: 7\n</message>' in user["content"]
    assert "accept it: your answer is then the word ok" in user["content"]


class Tested(Sums):
    """Sums whose answers are reported on."""

    def draw(self, seed):
        return dataclasses.replace(super().draw(seed), report=lambda answer: f"{answer} | is {len(answer)} long")


def test_later_roles_read_what_the_tests_say_of_the_standing_answer():
    env = pipeline(Tested, ("a", "b", "c"), reports=True)()
    assert env.reset(43)["a"].text == "3 + 4 ="
    seen = env.step({"a": "77"}).observations["b"]
    assert seen.text == "3 + 4 = | 77   is 2 long | 77"
    assert "What the tests say of a's answer: 77 | is 2 long\n\nCheck the last answer" in seen.messages[1]["content"]
    seen = env.step({"b": "ok"}).observations["c"]
    assert "the tests say of a's answer" in seen.messages[1]["content"], "b let the answer of a stand"
    with pytest.raises(InputError, match="reports=True, but Sums reports on no answer"):
        pipeline(Sums, reports=True)().reset(0)


def test_a_role_that_stands_twice_is_one_agent_that_checks_its_own_answer():
    env, team = (pipeline(Tested, roles, reports=True, improvement=0.1)() for roles in (("a", "a"), ("a", "b")))
    assert env.agents == ("a",)
    asked = [game.reset(43)["a"] for game in (env, team)]
    assert asked[0].text == asked[1].text
    again, checked = env.step({"a": "9"}).observations["a"], team.step({"a": "9"}).observations["b"]
    assert again.text == checked.text == "3 + 4 = | 9   is 1 long | 9"
    talk, begun = again.conversation(), asked[0].conversation()
    assert list(talk[:2]) == list(begun), "the conversation goes on"
    assert talk[2] == {"role": "assistant", "content": "9"}
    for text in ("What the tests say of a's answer: 9 | is 1 long", "Check the last answer above", "Round 2 of 2"):
        assert text in talk[3]["content"]
    assert "<message" not in talk[3]["content"]
    result = env.step({"a": "7"})
    assert result.rewards == {"a": pytest.approx(1.1)}
    assert (result.info["scores"], result.info["score"], result.info["success"]) == ({"a": 1.0}, 1.0, True)
    env.reset(43)
    env.step({"a": "8"})
    kept = env.step({"a": "ok"})
    assert (kept.rewards, kept.info["valid"]) == ({"a": 0.5}, {"a": True})


def test_a_chat_model_is_told_what_becomes_of_its_answer():
    env = pipeline(Sums, ("a", "b", "c"))()
    systems = [env.reset(43)["a"].messages[0]["content"]]
    systems.append(env.step({"a": "7"}).observations["b"].messages[0]["content"])
    systems.append(env.step({"b": "ok"}).observations["c"].messages[0]["content"])
    assert "You answer a question first; b then accepts your answer or replaces it." in systems[0]
    assert "you accept it, or you replace it" in systems[1]
    assert "You are the last" not in systems[1]
    assert "what stands after your turn is the team's answer" in systems[2]
    assert "then accepts" not in pipeline(Sums, ("a",))().reset(43)["a"].messages[0]["content"]


def test_task_question_and_answer_are_the_wrapped_ones():
    env = pickle.loads(pickle.dumps(pipeline(Sums)))()
    observations = env.reset(43)
    assert (env.agents, env.task, env.question, env.answer) == (("solver", "checker"), "3+4", "3 + 4 =", "7")
    assert "7" not in observations["solver"].text


def test_roles_act_in_their_order():
    env = pipeline(Sums)()
    env.reset(43)
    with pytest.raises(EnvError, match="solver"):
        env.step({"checker": "ok"})
    play_on = env.step({"solver": "7"})
    assert list(play_on.observations) == ["checker"]
    env.step({"checker": "ok"})
    with pytest.raises(EnvError, match=r"\[\]"):
        env.step({"solver": "7"})


class NoTask:
    agents = ("a",)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (NoTask, {}, "NoTask is no task with one answer"),
        (Sums, {"roles": ()}, "at least one role"),
        (Sums, {"instructions": {"chekcer": "?"}}, "chekcer"),
        (Sums, {"separator": " "}, "blank"),
        (Sums, {"roles": ("a", "b", "a")}, "a name that stands again has to follow itself"),
        (Sums, {"longest": 0}, "longest=0"),
    ],
)
def test_wrong_arguments_are_refused_with_a_reason(make, options, message):
    with pytest.raises(InputError, match=message):
        pipeline(make, **options)


def ask(act, text, rng, agent="solver"):
    return act(Request(Observation(text), agent, rng))


def test_a_perfect_teacher_solves_every_task():
    rng = np.random.default_rng(0)
    env, act = pipeline(Sums, ("a", "b", "c"))(), scripted_role()
    for seed in range(50):
        observations = env.reset(seed)
        while observations:
            ((role, seen),) = observations.items()
            result = env.step({role: ask(act, seen.text, rng)})
            observations = result.observations
        assert result.info["success"] is True
        assert result.info["answers"]["b"] == result.info["answers"]["c"] == "ok"


def test_a_teacher_is_as_accurate_as_told_in_all_four_situations():
    rng = np.random.default_rng(1)
    act = scripted_role(accuracy={"solver": 0.7, "checker": 0.4})
    solved = [ask(act, "3 + 4 =", rng) for _ in range(2000)]
    assert 0.66 < solved.count("7") / 2000 < 0.74
    right = [ask(act, "3 + 4 = | 7", rng, "checker") for _ in range(2000)]
    assert 0.36 < right.count("ok") / 2000 < 0.44
    assert "7" not in right, "it spoils, it does not repeat"
    wrong = [ask(act, "3 + 4 = | 9", rng, "checker") for _ in range(2000)]
    assert set(wrong) == {"7", "ok"}
    assert 0.36 < wrong.count("7") / 2000 < 0.44
    assert ask(act, "3 + 4 =", rng, "somebody else") == "7"


def test_a_teacher_draws_from_the_request_alone():
    act = scripted_role(accuracy=0.5)
    runs = [[ask(act, "30 + 4 =", rng) for _ in range(30)] for rng in map(np.random.default_rng, (3, 3, 4))]
    assert runs[0] == runs[1] != runs[2]


def test_a_teacher_says_what_it_cannot_solve():
    with pytest.raises(PolicyError, match="'Why\\?'"):
        ask(scripted_role(), "Why?", np.random.default_rng(0))
    own = scripted_role(functools.partial(str.upper))
    assert ask(own, "why?", np.random.default_rng(0)) == "WHY?"


@pytest.mark.parametrize("answer", ["7", "-10", "0", "[52.2, -3.0]", "nus", "0x1f", "", "=="])
def test_a_spoilt_answer_is_another_answer(answer):
    rng = np.random.default_rng(2)
    spoilt = {spoil(answer, rng) for _ in range(200)}
    assert answer not in spoilt
    assert len(spoilt) > 1 or answer in ("", "==")
    for other in spoilt:
        assert other.casefold() != answer.casefold()
        if answer.lstrip("-").isdigit():
            assert int(other) != int(answer)


def test_with_reasoning_gym():
    pytest.importorskip("reasoning_gym")
    from palaestra.envs import reasoning_gym

    datasets = {"chain_sum": {"max_terms": 3, "max_digits": 1}, "spell_backward": {"max_word_len": 5}, "gcd": {}}
    factory = pipeline(reasoning_gym(datasets, prompt="short", split="train"))
    check_env(factory)
    env, act, rng = factory(), scripted_role(accuracy={"solver": 0.5, "checker": 0.8}), np.random.default_rng(0)
    successes, lengths = [], []
    for seed in range(400):
        observations = env.reset(seed)
        while observations:
            ((role, seen),) = observations.items()
            lengths.append(len(seen.text))
            result = env.step({role: ask(act, seen.text, rng, role)})
            observations = result.observations
        successes.append(result.info["success"])
    assert 0.74 < np.mean(successes) < 0.86, "the team is as good as its checker"
    assert max(lengths) < 40


def test_the_teacher_reads_the_last_of_several_answers():
    from palaestra.envs.protocol import Observation

    act = scripted_role({"3 + 4 =": "7"}.get)
    said = [
        act(Request(Observation(f"3 + 4 = | {heard}"), "debater", np.random.default_rng(0)))
        for heard in ("6 | 7", "7 | 6")
    ]
    assert said == ["ok", "7"]
