"""`Levels`: tasks of three levels, with workers who solve some and recognise a right answer more often than that.

Where a team of several layers pays, and where one worker is enough. The workers are scripts (`worker`). Left out: what
the tasks are about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palaestra.envs.protocol import Action
from palaestra.envs.registry import ENVS
from palaestra.envs.tasks import Task, TaskEnv

LEVELS = {"easy": 0.95, "medium": 0.35, "hard": 0.12}
"""How often a worker that hears nobody is right."""
RECOGNISED, OPTIONS = 0.9, 6
RIGHT = "right"


@ENVS.register("native/levels")
class Levels(TaskEnv):
    """One-turn env of stylised tasks of level easy, medium or hard; the answer `right` is paid 1, others 0."""

    def draw(self, seed: int) -> Task:
        """A task; the levels are equally likely."""
        level = list(LEVELS)[int(np.random.default_rng(seed).integers(len(LEVELS)))]
        return Task(f"levels:{level}:{seed}", level, lambda text: float(text == RIGHT), RIGHT)


def worker(templates: Sequence[str] = ()) -> Callable[[Any], Action]:
    """Makes a policy function (request -> action): right by the level's chance; mostly copies a right answer heard.

    For the agents of `Levels`.

    templates: what it says, any of them, in a seat that is asked for a team: a warm start for one that writes.
    """

    def play(request: Any) -> Action:
        seen, rng = request.observation, request.rng
        if request.agent == "orchestrator":
            known = seen.legal or tuple(templates)
            return str(known[int(rng.integers(len(known)))])
        level, *heard = seen.text.split(" | ")
        if RIGHT in heard and rng.random() < RECOGNISED:
            return RIGHT
        if rng.random() < LEVELS[level]:
            return RIGHT
        return f"wrong {int(rng.integers(1, OPTIONS))}"

    return play


def always(plan: str) -> Callable[[Any], Action]:
    """Makes a policy function (request -> action) for the orchestrator that always returns the team plan `plan`."""
    return lambda request: plan
