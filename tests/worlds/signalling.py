"""A small world for whole runs, named in recipes as `signalling:Signalling`, with the faults that a run must survive.

The guide sees a colour and says a word, the seeker hears the word and names the colour.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

import palaestra as pa
from palaestra.agents import Request
from palaestra.algebra.signals import Signal
from palaestra.credit import agent_return, centre
from palaestra.envs import Action, Observation, StepResult

COLOURS, WORDS = ("red", "green", "blue"), ("la", "mi", "so")


class Signalling:
    """failing, hanging, nan: shares of steps that raise, take 3 s, or pay NaN. These are no facts of the seed.

    pace: seconds that every step takes, for runs that are to be killed in the middle. places: three tasks in each.
    """

    agents = ("guide", "seeker")

    def __init__(
        self, failing: float = 0.0, hanging: float = 0.0, nan: float = 0.0, pace: float = 0.0, places: int = 1000
    ) -> None:
        self.failing, self.hanging, self.nan, self.pace, self.places = failing, hanging, nan, pace, places
        self.fate = np.random.default_rng()

    def reset(self, seed: int) -> Mapping[str, Observation]:
        rng = np.random.default_rng(seed)
        self.colour, self.place = int(rng.integers(3)), int(rng.integers(self.places))
        self.task = f"{COLOURS[self.colour]} in {self.place}"
        self.shown = Observation(f"see {COLOURS[self.colour]}", choices=WORDS)
        return {"guide": self.shown}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        if self.fate.random() < self.failing:
            raise RuntimeError("the world broke")
        if self.fate.random() < self.hanging:
            time.sleep(3)
        time.sleep(self.pace)
        ((agent, action),) = actions.items()
        chosen = self.shown.index(action)
        if agent == "guide" and chosen is not None:
            self.shown = Observation(f"hear {WORDS[chosen]}", choices=COLOURS)
            return StepResult({"seeker": self.shown}, info={"valid": {agent: True}})
        won = chosen == self.colour
        reward = float("nan") if self.fate.random() < self.nan else float(won)
        info = {"valid": {agent: chosen is not None}, "success": won}
        return StepResult({}, dict.fromkeys(self.agents, reward), terminated=True, info=info)


def mumbler(clarity: float = 0.5) -> Callable[[Request], Action]:
    """A teacher: with probability `clarity` the word of the colour or the colour of the word, else anything."""

    def play(request: Request) -> Action:
        if request.rng.random() >= clarity:
            return int(request.rng.integers(3))
        told = request.observation.text.split()[1]
        return (COLOURS if request.agent == "guide" else WORDS).index(told)

    return play


@pa.register()
def by_sight() -> Signal:
    """The agent's return, minus its mean over all rows in which it saw the same."""
    return centre(agent_return(), over=("agent", "state"))
