from __future__ import annotations

import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import EnvError
from palaestra.play.rollout import rollout
from palaestra.testing.env import check_env


class Doubling(TaskEnv):
    """What is twice the number? Half the score for being one off; the scorer trips over anything but digits."""

    threshold = 1.0

    def draw(self, seed: int) -> Task:
        number = seed % 7
        return Task(
            f"double:{number}", f"{number} * 2", lambda text: 1 - abs(int(text) - 2 * number) / 2, str(2 * number)
        )


def test_a_users_task_keeps_the_protocol():
    check_env(Doubling)


@pytest.mark.parametrize(
    ("answer", "reward", "success", "valid"),
    [
        ("6", 1.0, True, True),
        (" 6\n", 1.0, True, True),
        ("7", 0.5, False, True),
        ("six", 0.0, False, False),
        ("", 0.0, False, False),
        (6, 0.0, False, False),
    ],
)
def test_the_answer_is_scored_once(answer, reward, success, valid):
    env = Doubling()
    assert env.reset(3)["solver"].text == "3 * 2"
    assert (env.task, env.question, env.answer) == ("double:3", "3 * 2", "6")
    result = env.step({"solver": answer})
    assert result.rewards == {"solver": reward}
    assert result.terminated
    assert result.info == {"valid": {"solver": valid}, "success": success, "expected": "6"}
    with pytest.raises(EnvError, match="agents to act are \\[\\]"):
        env.step({"solver": answer})


def test_a_score_that_is_no_number_does_not_count():
    class Odd(Doubling):
        def draw(self, seed: int) -> Task:
            return Task("odd", "?", lambda text: float("nan"))

    env = Odd()
    env.reset(0)
    assert env.score("1") is None
    assert env.answer is None
    assert env.step({"solver": "1"}).info["valid"] == {"solver": False}


def test_a_scorer_that_fails_is_an_error_and_no_wrong_answer():
    def judge(text: str) -> float:
        raise ConnectionError("the judge is down")

    class Judged(Doubling):
        def draw(self, seed: int) -> Task:
            return Task("judged", "?", judge)

    frame = rollout(Judged, Team(solver=ScriptedPolicy(lambda request: "6")), groups=1, group_size=1, retries=0).frame
    assert frame["reward"].to_list() == [None]
    assert frame["error"].to_list() == ["env: EnvError: score: ConnectionError: the judge is down"]


def test_success_has_a_threshold():
    env = Doubling()
    env.threshold = 0.5
    env.reset(3)
    assert env.step({"solver": "7"}).info["success"] is True


def test_only_the_solver_may_answer():
    env = Doubling()
    with pytest.raises(EnvError):
        env.step({"solver": "1"})
    env.reset(0)
    with pytest.raises(EnvError, match="solver"):
        env.step({"checker": "1"})
