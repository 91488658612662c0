from __future__ import annotations

import numpy as np
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError
from palaestra.evaluation.teamwork import best_of_n
from palaestra.play.rollout import rollout
from palaestra.teams import workflows
from palaestra.teams.rules import VERIFIERS


class Higher(TaskEnv):
    """A larger number is better."""

    def draw(self, seed: int) -> Task:
        return Task(f"{seed}", "?", lambda text: int(text) / 10, None)


def play(condition, answers="375", **options):
    env = workflows.refine(Higher, len(answers), condition=condition, stop="never()", **options)
    left = iter(answers)
    return rollout(env, Team(solver=ScriptedPolicy(lambda request: next(left), name="s")), groups=1, seed=0).frame


def test_what_is_read_and_what_counts_depends_on_the_condition():
    last, best, none = (play(condition) for condition in ("last", "best", "none"))
    assert last["observation"].to_list() == ["?", "? | 3", "? | 7"]
    assert last["reward"].to_list()[-1] == 0.5
    assert best["observation"].to_list() == ["?", "? | 3", "? | 7"]
    assert best["reward"].to_list()[-1] == 0.7
    assert play("best", "735")["observation"].to_list() == ["?", "? | 7", "? | 7"]
    assert none["observation"].to_list() == ["?", "?", "?"]
    assert none["reward"].to_list()[-1] == 0.7


class Word(TaskEnv):
    """A word letter by letter."""

    def draw(self, seed: int) -> Task:
        return Task(f"{seed}", "?", lambda text: sum(a == b for a, b in zip(text, "nail")) / 4, "nail")


def test_feedback_and_the_worst_answer_are_told_with_the_best():
    left = iter(("mail", "xxxx", "nail"))
    env = workflows.refine(Word, 3, condition="best", stop="never()", feedback="marks", worst=True)
    seen = rollout(env, Team(solver=ScriptedPolicy(lambda request: next(left), name="s")), groups=1, seed=0).frame
    assert seen["observation"].to_list() == ["?", "? | mail | _ail", "? | mail | xxxx | _ail"]
    left = iter(("mail", "nail"))
    env = workflows.refine(Word, 2, condition="last", feedback="score")
    seen = rollout(env, Team(solver=ScriptedPolicy(lambda request: next(left), name="s")), groups=1, seed=0).frame
    assert seen["observation"].to_list() == ["?", "? | mail | 0.75"]


def test_the_verifier_chooses_and_the_task_pays():
    turns = play("best", "19", verifier="accepts(tpr=0.0, fpr=1.0, least=0.5)")
    assert turns["score"].to_list() == [0.1, 0.9]  # the task's own
    assert turns["reward"].to_list()[-1] == 0.1


def test_verifiers_err_as_often_as_they_say():
    rng = np.random.default_rng(0)
    verify = VERIFIERS.build("accepts(.8, .2)")
    assert np.mean([verify(1.0, lambda: rng) for _ in range(4000)]) == pytest.approx(0.8, abs=0.03)
    assert np.mean([verify(0.0, lambda: rng) for _ in range(4000)]) == pytest.approx(0.2, abs=0.03)
    assert VERIFIERS.build("noisy(.1)")(None, lambda: rng) is None
    for bad in ("accepts(2)", "noisy(-1)"):
        with pytest.raises(InputError):
            VERIFIERS.build(bad)
    with pytest.raises(InputError, match="did you mean 'marks'"):
        workflows.refine(Higher, feedback="mark")
    with pytest.raises(InputError, match="did you mean 'best'"):
        workflows.refine(Higher, condition="bst")


def test_best_of_n_is_what_drawing_gives():
    rng = np.random.default_rng(1)
    right = rng.random((40_000, 4)) < 0.3
    taken = rng.random(right.shape) < np.where(right, 0.8, 0.2)
    order = rng.random(right.shape) + np.where(taken, 0.0, 10.0)
    chosen = right[np.arange(len(right)), order.argmin(1)]
    assert chosen.mean() == pytest.approx(best_of_n(0.3, 4, tpr=0.8, fpr=0.2), abs=0.01)


def test_noise_has_the_deviation_that_is_asked_for():
    drawn = np.random.default_rng(3).normal()
    scores = [
        VERIFIERS.build(f"noisy({deviation})")(0.5, lambda: np.random.default_rng(3)) for deviation in (0.0, 0.2, 3.0)
    ]
    assert scores == pytest.approx([0.5, 0.5 + 0.2 * drawn, 0.5 + 3 * drawn])
