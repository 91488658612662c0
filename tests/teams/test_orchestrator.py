from __future__ import annotations

import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.messages import messages
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import EnvError, InputError
from palaestra.play.rollout import rollout
from palaestra.teams import WORKFLOWS, orchestrated
from palaestra.testing.env import check_env


class Echo(TaskEnv):
    """Say the word."""

    def draw(self, seed: int) -> Task:
        word = ("ant", "bee")[seed // 2 % 2]
        return Task(word, f"say {word}", lambda text: float(text == word), word)


PLANS = {"alone": "single()", "talk": "debate(2, rounds=2)"}


def test_the_seat_chooses_the_team_and_pays_for_its_turns():
    env = orchestrated(Echo, PLANS, price=0.1)()
    seen = env.reset(0)
    assert seen["orchestrator"].choices == ("alone", "talk")
    assert seen["orchestrator"].text == "say ant"
    result = env.step({"orchestrator": "talk"})
    assert set(result.observations) == {"debater-1", "debater-2"}
    result = env.step({"debater-1": "ant", "debater-2": "bee"})
    result = env.step({"debater-1": "ant", "debater-2": "ant"})
    assert result.rewards == {agent: pytest.approx(0.6) for agent in ("debater-1", "debater-2", "orchestrator")}
    assert result.info["plan_calls"] == {"orchestrator": 4}
    assert result.info["success"] is True


def test_any_plan_keeps_the_protocol_and_the_task():
    check_env(orchestrated(Echo, PLANS))
    env = orchestrated(Echo, PLANS)()
    for seed in range(4):
        env.reset(seed)
        first = env.question
        result = env.step({"orchestrator": 1})
        assert result.observations["debater-1"].text == first


def test_messages_count_the_turns_of_the_whole_episode():
    team = Team({name: ScriptedPolicy(lambda request: "talk" if request.observation.choices else "ant", name="s")
                 for name in ("x",)})  # fmt: skip
    seats = Team(dict.fromkeys(("orchestrator", "solver", "debater-1", "debater-2"), team["x"]))
    table = messages(rollout(orchestrated(Echo, PLANS), seats, groups=2, group_size=1))
    assert set(table["sender_turn"]) == {1}
    assert set(table["receiver_turn"]) == {2}


def test_what_cannot_work_is_named():
    with pytest.raises(InputError, match="at least two"):
        orchestrated(Echo, {"alone": "single()"})
    with pytest.raises(InputError, match="did you mean 'debate'"):
        orchestrated(Echo, {"a": "single()", "b": "debat()"})
    with pytest.raises(InputError, match=r"plans\.b"):
        orchestrated(Echo, {"a": "single()", "b": "debate(hands=2)"})
    with pytest.raises(InputError, match="no team of a graph"):
        orchestrated(Echo, {"a": "single()", "b": "self_summary()"})
    with pytest.raises(InputError, match="rename one"):
        orchestrated(Echo, PLANS, seat="solver")
    env = orchestrated(Echo, PLANS)()
    env.reset(0)
    with pytest.raises(EnvError, match="the agents to act are"):
        env.step({"solver": "x"})
    assert {"debate", "orchestrated", "pipeline"} <= set(WORKFLOWS)
