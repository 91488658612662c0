"""Tasks proposed once: what is asked, what is refused, and that nobody is asked again after a stop."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.envs.worlds import Corridor, ErrandGrid, ToolSteps
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.proposed_tasks import proposed_tasks
from palaestra.play.executors import Local, Plan
from palaestra.teams import stage_beam


def told(said: object, env: object = ErrandGrid) -> Context:
    advisers = {"proposer": ScriptedPolicy(said, name="proposer")}  # type: ignore[arg-type]
    return Context(
        np.random.default_rng(0), 1, env, Team(walker=ScriptedPolicy(lambda r: 0)), Local(), advisers=advisers
    )  # type: ignore[arg-type]


def test_lines_become_tasks_or_reasons() -> None:
    read: list[str] = []

    def say(request: Request) -> str:
        read.append(request.observation.text)
        return "go to 0,1\ngo to 0,1\n\ngo to 9,9\ngo home\ngo to 0,0\ngo to 3,3\ngo to 0,2"

    stage, context = proposed_tasks("proposer", number=2), told(say)
    plan = stage.plan(Plan(groups=5), context)
    assert stage.tasks == {"go to 0,1": 0, "go to 0,2": 1}
    assert set(stage.refused) == {
        "is outside of the grid", "does not read `go to X,Y`", "is held out", "is where the walker begins"
    }  # fmt: skip
    assert sorted(plan.env_seeds or ()) in ([0, 0, 0, 1, 1], [0, 0, 1, 1, 1])
    assert context.metrics == {"lines": 7, "tasks": 2, "repeated": 1, "refused": 4, "played": 2}
    assert "A grid of 7 by 7 cells" in read[0]
    assert "Propose 25 tasks" in read[0]
    again = proposed_tasks("proposer", number=2)
    again.load_state_dict(stage.state_dict())
    again.plan(Plan(groups=1), context)
    assert len(read) == 1


def test_around_a_workflow() -> None:
    env = stage_beam(ToolSteps, 2, check=None, rank=None)
    stage = proposed_tasks("proposer", number=1)
    stage.plan(Plan(groups=1), told(lambda request: "tea.txt: backward, count", env))
    team = Team(dict.fromkeys(env().agents, ScriptedPolicy(lambda request: 0)))
    played = Local().play(env, team, Plan(1, env_seeds=[*stage.tasks.values()]))
    assert set(played.frame["task"]) == {"tea.txt: backward, count"}


def test_faults() -> None:
    with pytest.raises(InputError, match="number=0"):
        proposed_tasks("proposer", number=0)
    with pytest.raises(InputError, match="none of 20 proposals is a task; most often: is outside"):
        proposed_tasks("proposer").plan(Plan(groups=1), told(lambda request: "go to 9,9"))
    with pytest.raises(InputError, match="Corridor has no describe"):
        proposed_tasks("proposer").plan(Plan(groups=1), told(lambda request: "", Corridor))
