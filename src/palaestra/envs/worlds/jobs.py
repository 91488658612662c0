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
    earlier: str | None = None
    over: bool = False


@ENVS.register("native/jobs")
class Jobs(NativeEnv):
    """One-turn env of program choice: `engineer` picks a fast (score 0.5), slow (score 1) or failing program.

    The fast one takes one second, the slow one `seconds`.

    broken: so many programs that fail after a second, number k after k of the 7 milestones, without a score. boast: one
    more that fails at once and prints all milestones itself. improve: share of the tasks that begin from an earlier
    program, which the engineer sees. facts: seconds, what the job takes on the clock of the world (see the stage
    `asynchronous`); log, the milestones by the prints that the world puts into the program; printed, its own prints.
    """

    agents: tuple[str, ...] = ("engineer",)
    facts = {"seconds": float, "log": str, "printed": str}

    def __init__(self, *, seconds: float = 20.0, broken: int = 0, boast: bool = False, improve: float = 0.0) -> None:
        if seconds <= 0 or not 0 <= broken <= len(MILESTONES) or not 0 <= improve <= 1:
            raise InputError(
                f"Jobs: seconds={seconds} must be above 0, broken={broken} from 0 to {len(MILESTONES)}, "
                f"improve={improve} in [0, 1]"
            )
        self.seconds, self.improve = float(seconds), improve
        failing = [f"broken {number}" for number in range(broken)]
        self.choices = ("fast", "slow", *failing, *(["boast"] if boast else []))
        self.earlier = ("fast, which scores 0.5", *(f"{name}, which fails" for name in failing))

    def begin(self) -> tuple[str, _JobsState]:
        """Draw the task: a new program, or the improvement of an earlier one."""
        if self.improve and self.rng.random() < self.improve:
            return "improvement", _JobsState(str(self.rng.choice(self.earlier)))
        return "job", _JobsState()

    def look(self) -> dict[str, Observation]:
        """Observation of the engineer: the task, and the earlier program if there is one to improve."""
        asked = f"improve the program {self.state.earlier}" if self.state.earlier else "write a program"
        return {} if self.state.over else {"engineer": Observation(asked, choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Run the chosen program; an invalid choice prints nothing."""
        self.state.over = True
        action = chosen["engineer"]
        name = self.choices[action] if isinstance(action, int) else ""
        works = name in ("fast", "slow")
        reached = len(MILESTONES) if works else int(name.split()[1]) if name.startswith("broken") else 0
        info = {
            "seconds": self.seconds if name == "slow" else 1.0,
            "log": "\n".join(MILESTONES[:reached]),
            "printed": "\n".join(MILESTONES) if name == "boast" else "",
            "success": name == "slow",
        }
        score: Any = {"fast": 0.5, "slow": 1.0}.get(name)
        return {"engineer": score}, info
