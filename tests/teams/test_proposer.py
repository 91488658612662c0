"""A seat that proposes tasks, and what it is paid."""

from __future__ import annotations

import dataclasses
import functools
import time

import numpy as np
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.envs.questions import shorten
from palaestra.envs.reasoning_gym import reasoning_gym
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import EnvError, ExpressionError, InputError
from palaestra.play.rollout import rollout
from palaestra.rewards import proposer_credit, proposer_reward, regret
from palaestra.teams import proposer
from palaestra.teams.proposer import ProposerEnv, scripted_proposals
from palaestra.testing.env import check_env


class Sums(TaskEnv):
    """n + 1; tasks that ask for a sum with 99 are held out."""

    split = "train"

    def draw(self, seed: int) -> Task:
        number = seed % 5
        return Task(f"sums:{number}", f"{number} + 1 =", lambda said: float(int(said) == number + 1), str(number + 1))

    def holds_out(self, question: str) -> bool:
        return "99" in question


class HeldOut(Sums):
    split = "test"


def test_the_protocol_holds():
    check_env(proposer(Sums, 2))
    check_env(proposer(Sums, 2, controls=1, given=0.5))


def test_a_task_of_several_lines_is_proposed_whole():
    env = ProposerEnv(Sums, 1, read=lambda text, parent: Task(text, text, float))
    env.reset(3)
    asked = env.step({"proposer": "Task: A shop sells\n- 3 apples,\n- 4 pears. How many?"})
    assert asked.observations["solver-1"].text == "A shop sells\n- 3 apples,\n- 4 pears. How many?"


def test_a_task_is_proposed_checked_and_answered():
    env = ProposerEnv(Sums, 2, controls=1)
    assert env.reset(3)["proposer"].text == "3 + 1 = |"
    asked = env.step({"proposer": "Task: 12 - 5 ="})
    assert {name: seen.text for name, seen in asked.observations.items()} == dict.fromkeys(
        ("solver-1", "solver-2", "control-1"), "12 - 5 ="
    )
    assert asked.info["proposed_from"] == "sums:3"
    done = env.step({"solver-1": "7", "solver-2": "8", "control-1": "seven"})
    assert done.rewards == {"solver-1": 1.0, "solver-2": 0.0, "control-1": 0.0, "proposer": None}
    assert done.info["valid"]["control-1"]
    assert done.info["success"] == {"solver-1": True, "solver-2": False, "control-1": False, "proposer": True}
    assert env.task == "sums:3"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", "nothing was proposed"),
        ("  \n", "nothing was proposed"),
        ("what?", "is no question whose answer can be computed"),
        ("3 +  1 =", "repeats the task that it is proposed from, sums:3"),
        ("99 + 1 =", "is held out: proposed:"),
        ("1" * 2001, "has 2001 characters, 2000 are allowed"),
        (7, "nothing was proposed"),
    ],
)
def test_what_is_no_task_is_refused_with_the_reason(said, why):
    env = ProposerEnv(Sums, 2)
    env.reset(3)
    done = env.step({"proposer": said})
    assert done.terminated
    assert done.info["refused"].startswith(why)
    assert done.info["valid"] == {"proposer": False}
    assert env.reset(3)["proposer"].text == "3 + 1 = |"


@pytest.mark.parametrize("prompt", ["raw", "short"])
def test_a_held_out_question_is_refused_in_every_wording(prompt):
    pytest.importorskip("reasoning_gym")
    mix = {"chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}}
    held, env = reasoning_gym(mix, split="test", prompt=prompt)(), ProposerEnv(reasoning_gym(mix, prompt=prompt), 1)
    for seed in range(12):
        held.reset(seed)
        short = shorten("chain_sum", held.question)
        for text in (held.question, short, short.replace(" ", "  "), f"What is {short[:-2]}?"):
            env.reset(0)
            assert env.step({"proposer": text}).info["refused"].startswith("is held out"), text


def broken(text: str, parent: Task) -> Task:
    raise KeyError("no such thing")


def hangs(text: str, parent: Task) -> Task:
    time.sleep(30)
    raise AssertionError


def test_a_validator_that_fails_refuses_and_one_that_hangs_is_bounded():
    env = ProposerEnv(Sums, 1, read=broken)
    env.reset(0)
    assert env.step({"proposer": "2 + 2 ="}).info["refused"] == "cannot be read (KeyError: 'no such thing')"
    team = Team(dict.fromkeys(("proposer", "solver-1"), ScriptedPolicy(scripted_proposals())))
    began = time.perf_counter()
    turns = rollout(proposer(Sums, 1, read=hangs), team, groups=2, timeout=0.3)
    assert time.perf_counter() - began < 10
    assert turns["error"].str.starts_with("env-timeout").all()
    assert len(turns) >= 2


def test_a_reader_that_returns_no_task_is_named():
    env = ProposerEnv(Sums, 1, read=lambda text, parent: text)
    env.reset(0)
    with pytest.raises(EnvError, match=r"read=.*lambda.* returned str, expected a Task"):
        env.step({"proposer": "2 + 2 ="})


def test_in_evaluation_the_held_out_tasks_are_answered_and_nothing_is_proposed():
    env = ProposerEnv(HeldOut, 2)
    for seed in range(20):
        assert set(env.reset(seed)) == {"solver-1", "solver-2"}
    done = env.step({"solver-1": "5", "solver-2": "1"})
    assert done.rewards == {"solver-1": 1.0, "solver-2": 0.0}
    assert "proposer" not in done.info["success"]


def test_a_share_of_the_episodes_asks_the_given_task():
    env = ProposerEnv(Sums, 1, given=0.3)
    share = np.mean(["proposer" not in env.reset(seed) for seed in range(2000)])
    assert share == pytest.approx(0.3, abs=0.03)


def test_a_stated_answer_counts():
    env = ProposerEnv(Sums, 3, read="stated")
    env.reset(0)
    assert env.step({"proposer": "How many legs have two dogs? #### 8"}).observations["solver-1"].text.endswith("dogs?")
    assert env.step({"solver-1": "8.0", "solver-2": "eight", "solver-3": "They have 8"}).info["score"] == {
        "solver-1": 1.0, "solver-2": 0.0, "solver-3": 1.0,
    }  # fmt: skip
    env.reset(0)
    assert "does not read" in env.step({"proposer": "How many?"}).info["refused"]


def table(scores: list[float | None], control: float | None = None, **columns: list) -> Turns:
    """An episode: a proposal and answers to it."""
    rows = 1 + len(scores) + (control is not None)
    controls = [None] * (1 + len(scores)) + ([control] if control is not None else [])
    return Turns(
        {
            "group": [0] * rows,
            "episode": [0] * rows,
            "turn": [0] + [1] * (rows - 1),
            "agent": ["proposer", *(f"solver-{n}" for n in range(len(scores))), *["control-1"] * (control is not None)],
            "policy": ["p"] + ["s"] * (rows - 1),
            "reward": [None, *scores, *([control] if control is not None else [])],
            "score": [None, *scores, *[None] * (control is not None)],
            "control_score": controls,
        }
        | columns
    )


@pytest.mark.parametrize(
    ("pay", "scores", "paid"),
    [
        ("learnability", [1.0, 0.0, 0.0, 0.0], 0.75),
        ("learnability", [1.0, 1.0], 0.0),
        ("learnability", [1.0, 0.0], 1.0),
        ("challenge", [1.0, 0.0, 0.0, 0.0], 0.75),
        ("challenge", [1.0, 1.0, 1.0], 0.0),
        ("challenge", [0.0, 0.0, 0.0], 0.0),
    ],
)
def test_pay_of_a_proposal(pay, scores, paid):
    found = parse(f"proposer_reward({pay!r})").evaluate(table(scores))
    assert found.tolist() == pytest.approx([paid, *scores])


def test_regret_is_what_a_control_solves_and_the_solvers_do_not():
    assert proposer_reward("regret").evaluate(table([0.0, 1.0], 1.0)).tolist() == [0.5, 0.0, 1.0, 1.0]
    assert regret().evaluate(table([1.0, 1.0], 0.0))[0] == 0.0
    with pytest.raises(ExpressionError, match=r"'regrett'.*'regret'"):
        proposer_reward("regrett")


def test_a_refused_proposal_and_a_repeated_one_are_paid_as_said():
    refused = Turns({"group": [0], "episode": [0], "turn": [0], "agent": ["proposer"], "reward": [None],
                     "score": [None], "control_score": [None], "repeats": [None]})  # fmt: skip
    refused = refused.with_column(score=np.array([np.nan]), reward=np.array([np.nan]))
    assert proposer_reward(refused=-0.5).evaluate(refused).tolist() == [-0.5]
    again = table([1.0, 0.0], repeats=[3.0, None, None])
    assert proposer_reward(repeated=0.0).evaluate(again).tolist() == [0.0, 1.0, 0.0]
    assert proposer_reward().evaluate(again).tolist() == [1.0, 1.0, 0.0]


def test_each_role_has_a_baseline_of_its_own():
    turns = Turns(
        {
            "group": [0] * 6,
            "episode": [0, 0, 0, 1, 1, 1],
            "turn": [0, 1, 1] * 2,
            "agent": ["proposer", "solver-1", "solver-2"] * 2,
            "policy": ["p", "s", "s"] * 2,
            "reward": [1.0, 1.0, 0.0, 0.0, 1.0, 1.0],
        }
    )
    credit = proposer_credit(eps=0.0).evaluate(turns)
    half = 1 / np.sqrt(2)
    assert credit.tolist() == pytest.approx([half, half, -half, -half, 0.0, 0.0])


def test_options_that_cannot_be():
    for options in ({"given": 1.5}, {"controls": -1}, {"solvers": 0}, {"longest": 0}, {"read": "solveable"}):
        with pytest.raises(InputError):
            proposer(Sums, **options)


def test_who_proposes_is_trained_like_everybody_and_learns_what_is_learnable():
    """One of two proposals is solved half of the time, the other always: the share of the first rises."""
    pytest.importorskip("torch")
    from palaestra.agents import TabularPolicy
    from palaestra.learning import PolicyGradient

    class Menu(ProposerEnv):
        """Proposals from a menu, so that a table can make them."""

        def reset(self, seed):
            seen = super().reset(seed)
            return {name: dataclasses.replace(each, choices=("7 + 7 =", "2 + 2 =")) for name, each in seen.items()}

        def step(self, actions):
            if "proposer" in actions:
                actions = {"proposer": ("7 + 7 =", "2 + 2 =")[int(actions["proposer"])]}
            return super().step(actions)

    def answer(request):
        return "14" if request.observation.text == "7 + 7 =" and request.rng.random() < 0.5 else "4"

    writer = TabularPolicy(2, name="writer")
    solver = ScriptedPolicy(answer, name="solver")
    team = Team({"proposer": writer, "solver-1": solver, "solver-2": solver})
    learner, shares = PolicyGradient(team, lr=0.3), []
    for iteration in range(15):
        turns = rollout(functools.partial(Menu, Sums, 2), team, groups=2, group_size=16, iteration=iteration)
        proposals = turns.filter(turns["agent"] == "proposer")
        assert proposals["logprobs"].null_count() == 0
        shares.append(float((proposals["proposal"] == "7 + 7 =").mean()))
        paid = turns.with_column(reward=proposer_reward())
        learner.update(paid.with_column(advantage=proposer_credit()))
    assert np.mean(shares[:2]) < 0.75
    assert np.mean(shares[-2:]) > 0.9


def test_repeated_sentences_have_a_price():
    frame = Turns(
        {
            "group": [0] * 8, "episode": [0, 0, 1, 1, 2, 2, 3, 3], "agent": ["proposer", "solver-1"] * 4,
            "proposal": ["a", None, "a", None, "a", None, "b", None], "reward": [None, 0.5] * 4,
            "score": [None, 0.5] * 4,
        }
    )  # fmt: skip
    paid = proposer_reward(alike=2.0).evaluate(frame)[::2]
    np.testing.assert_allclose(paid, [1 - 2 * 3 / 4] * 3 + [1 - 2 / 4])
    with pytest.raises(ExpressionError, match="at least 0"):
        proposer_reward(alike=-1.0)


def test_one_policy_in_all_seats_is_compared_by_role():
    frame = Turns(
        {
            "group": [0] * 6, "episode": [0, 0, 0, 1, 1, 1], "agent": ["proposer", "solver-1", "solver-2"] * 2,
            "policy": ["one"] * 6, "reward": [9.0, 1.0, 0.0, 5.0, 1.0, 1.0],
        }
    )  # fmt: skip
    root = np.sqrt(0.5)
    np.testing.assert_allclose(proposer_credit(eps=0.0).evaluate(frame), [root, root, -root, -root, 0, 0])
