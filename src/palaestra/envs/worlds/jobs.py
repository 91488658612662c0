"""`Jobs`: programs that take their time. What is quick is tried often, what is slow may be better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

MILESTONES = ("libraries imported", "data loaded", "model built", "model trained", "model tested",
              "predictions made", "file written")  # fmt: skip


@dataclass
class _JobsState:
    over: bool = False


@ENVS.register("native/jobs")
class Jobs(NativeEnv):
    """One choice: a `fast` program of one second, score 0.5, or a `slow` one of `seconds`, score 1; or a broken one.

    broken: so many programs that fail after a second, number k after k of the 7 milestones, without a score. facts:
    seconds, what the job takes on the clock of the world (see the stage `asynchronous`); log, the milestones printed.
    """

    agents: tuple[str, ...] = ("engineer",)
    facts = {"seconds": float, "log": str}

    def __init__(self, *, seconds: float = 20.0, broken: int = 0) -> None:
        if seconds <= 0 or not 0 <= broken <= len(MILESTONES):
            raise InputError(f"Jobs: seconds={seconds} must be above 0, broken={broken} from 0 to {len(MILESTONES)}")
        self.seconds = float(seconds)
        self.choices = ("fast", "slow", *(f"broken {number}" for number in range(broken)))

    def begin(self) -> tuple[str, _JobsState]:
        """One task."""
        return "job", _JobsState()

    def look(self) -> dict[str, Observation]:
        """Nothing but the task."""
        return {} if self.state.over else {"engineer": Observation("write a program", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Run it; what is no program prints nothing."""
        self.state.over = True
        action = chosen["engineer"]
        works = isinstance(action, int) and action < 2
        reached = len(MILESTONES) if works else action - 2 if isinstance(action, int) else 0
        info = {
            "seconds": self.seconds if action == 1 else 1.0,
            "log": "\n".join(MILESTONES[:reached]),
            "success": action == 1,
        }
        return {"engineer": (0.5, 1.0)[action] if works else None}, info  # type: ignore[dict-item]
