"""An evaluator: what it is shown, and what becomes of what it says."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.final_verdict import final_verdict
from palaestra.play.executors import Local


def test_last_observations_and_three_kinds_of_answers() -> None:
    read: list[str] = []

    def say(request: Request) -> str:
        read.append(request.observation.text)
        return {"t0": "Yes.", "t1": "no, never", "t2": "perhaps"}[read[-1].splitlines()[0].removeprefix("Task: ")]

    rows = {"group": [0, 0, 0, 1, 2], "episode": [0] * 5, "turn": [0, 1, 2, 0, 0], "agent": ["a"] * 5}
    rows |= {"task": ["t0"] * 3 + ["t1", "t2"], "observation": list("abcde"), "action": list("vwxyz")}
    told = Context(
        np.random.default_rng(0),
        1,
        None,
        Team(a=ScriptedPolicy(say)),
        Local(),
        advisers={"evaluator": ScriptedPolicy(say)},
    )  # type: ignore[arg-type]
    frame = final_verdict(last=2)(Turns(rows), told).frame
    assert frame["verdict"].to_list() == [True, True, True, False, None]
    assert read[0] == "Task: t0\nObservation: b\nObservation: c\nLast action: x\nWas the task done? Answer yes or no."
    assert told.metrics == {"yes": 0.5, "unread": 1.0}
    with pytest.raises(InputError, match="last=0"):
        final_verdict(last=0)
