"""`recent`: what an agent saw in its last turns stands in its array."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.envs import make, with_recent
from palaestra.envs.protocol import Observation, StepResult
from palaestra.errors import EnvError, InputError
from palaestra.testing import check_env


class Count:
    """Agents see the number of the turn; `b` acts in every second one."""

    agents = ("a", "b")
    task = "count"

    def reset(self, seed):
        self.turn = 0
        return self.look()

    def look(self):
        seats = self.agents[: 1 + self.turn % 2]
        seen = np.array([self.turn], np.float32)
        return {seat: Observation("?", choices=("x", "y"), array=seen) for seat in seats}

    def step(self, actions):
        self.turn += 1
        return StepResult(self.look() if self.turn < 5 else {}, terminated=self.turn == 5)


def test_windows_hold_the_own_turns_newest_last():
    env = with_recent(Count, 3)()
    seen, last = env.reset(0), {}
    while seen:
        last |= {agent: each.array.reshape(3, 2).tolist() for agent, each in seen.items()}
        seen = env.step(dict.fromkeys(seen, 0)).observations
    assert last["a"] == [[1, 2], [1, 3], [1, 4]]
    assert last["b"] == [[0, 0], [1, 1], [1, 3]]  # its own turns only, padded before the first
    assert env.reset(1)["a"].array.tolist() == [0, 0, 0, 0, 1, 0]


def test_it_keeps_the_protocol():
    check_env(make("recent", env="native/opponents", steps=3, rounds=4))
    assert make("recent", env="native/opponents")().facts == {"hidden": str, "done": str}


def test_what_cannot_be_is_named():
    with pytest.raises(InputError, match="steps=0"):
        with_recent(Count, 0)
    with pytest.raises(EnvError, match="no array"):
        make("recent", env="native/corridor")().reset(0)
