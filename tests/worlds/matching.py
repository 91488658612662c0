"""A run to be killed: the asker sees a digit and passes it on, the answerer must say it. A script, it trains slowly."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from palaestra.agents import LMPolicy, TabularPolicy, Team
from palaestra.credit import grpo
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.learning import PolicyGradient, Trainer
from palaestra.play.executors import Local

DIGITS = ("0", "1", "2")


class Matching:
    """Success if the answer is the digit; the answerer is told what the asker said."""

    agents = ("asker", "answerer")
    task = ""

    def __init__(self, failing: float, luck: np.random.Generator) -> None:
        self.failing, self.luck = failing, luck

    def reset(self, seed: int) -> Mapping[str, Observation]:
        self.rng = np.random.default_rng(seed)
        self.digit = int(self.rng.integers(3))
        self.task = f"digit {self.digit}"
        return {"asker": Observation(f"see {self.digit}", choices=DIGITS)}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        if self.luck.random() < self.failing:
            raise RuntimeError("the world broke")
        if "asker" in actions:
            said = DIGITS[int(actions["asker"])]
            return StepResult({"answerer": Observation(f"heard {said}", choices=DIGITS)}, {"asker": 0.0})
        answer = actions["answerer"]
        if isinstance(answer, int):
            answer = DIGITS[answer]
        right = answer == DIGITS[self.digit]
        reward = 1.0 if right else -len(answer) / 20  # so that a new language model learns at once to be brief
        return StepResult({}, {"asker": reward, "answerer": reward}, terminated=True, info={"success": right})


def trainer(
    directory: Path | None, *, failing: float = 0.0, tables: bool = False, devices: Any = "one", **options: Any
) -> Trainer:
    """A tabular asker and a language model that answers (or a table), in minibatches, with a pull to the start."""
    answerer: Any = TabularPolicy(3, name="answerer", capacity=8)
    if not tables:
        words = ["see 0", "heard 1", "2"]
        answerer = LMPolicy.tiny(words, name="answerer", hidden=16, layers=1, heads=2, max_new_tokens=2)
    team = Team(asker=TabularPolicy(3, name="asker", capacity=8), answerer=answerer)
    learner = PolicyGradient(
        team, "surrogate(), kl(0.01)", lr=0.02, minibatch=16, epochs=2, schedule="cosine", updates=12, devices=devices
    )
    settings: dict[str, Any] = {"iterations": 12, "groups": 4, "group_size": 6, "seed": 3, "checkpoint_every": 3}
    settings |= {"directory": directory, "credit": grpo(), "executor": Local(timeout=None, retries=1)}
    luck = np.random.default_rng(0)  # all envs share it: a crash is no fact of an episode's seed
    return Trainer(lambda: Matching(failing, luck), team, learner=learner, **(settings | options))


def slowly(directory: Path) -> None:
    """For somebody who wants to be in the middle of it, after eight iterations."""
    torch.set_num_threads(1)

    def linger(iteration: int, team: Team) -> dict[str, float]:
        time.sleep(0.05 if iteration < 9 else 10)
        return {}

    trainer(directory, after_iteration=linger).run()
