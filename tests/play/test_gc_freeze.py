"""In processes of their own: whether something was set aside is a matter of the whole process."""

from __future__ import annotations

import subprocess
import sys

import pytest

PLAY = """
import gc
from palaestra.agents import Team
from palaestra.agents.policy import Decision
from palaestra.envs.protocol import Observation, StepResult
from palaestra.play.gc_freeze import set_aside_for_good
from palaestra.play.rollout import rollout

class One:
    agents, task = ("a",), ""
    def reset(self, seed): return {"a": Observation("go")}
    def step(self, actions): return StepResult({}, terminated=True)

class Policy:
    name = "policy"
    def act(self, requests):
        seen.append(gc.get_freeze_count())
        if stops: raise KeyboardInterrupt
        return [Decision("x")] * len(requests)

seen, stops = [], False

def play():
    try:
        for _ in range(2): rollout(One, Team(a=Policy()), groups=1)
    except KeyboardInterrupt:
        pass
    print(min(seen) > 10_000, gc.get_freeze_count() > 10_000)
    seen.clear()
"""
FOR_A_WHILE = "play(); stops = True; play(); stops = False; set_aside_for_good(); play()"


@pytest.mark.parametrize(
    ("then", "expected"),
    [(FOR_A_WHILE, "True False, True False, True True"), ("gc.freeze(); play()", "True True")],
)
def test_what_was_there_is_set_aside_while_one_plays_or_for_good(then: str, expected: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"{PLAY}\n{then}"], capture_output=True, text=True, timeout=60)
    assert ", ".join(done.stdout.splitlines()) == expected, done.stderr
