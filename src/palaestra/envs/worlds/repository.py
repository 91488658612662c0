"""`Repository`: an issue is solved in stages, each of which is right or wrong, and scores of it are noisy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

STAGES = ("understand", "locate", "patch")


@dataclass
class _RepositoryState:
    issue: int
    said: list[int | None] = field(default_factory=list)
    right: bool = True


@ENVS.register("native/repository")
class Repository(NativeEnv):
    """Issue-solving env of three turns: `engineer` picks an option to understand, locate, patch; 1 if all are right.

    One of `issues` issues, `options` options of which one is right.

    Which one is drawn from `draw`. A stage on a wrong one is wrong, whatever is said. Reward 1 if all stages are right.
    After each stage a process model tells `process`, whether all is right so far plus `noise` times a normal number. At
    the end the patch is run: a right one passes the tests, a wrong one with the chance `weak`; and an outcome model
    tells `outcome`, whether it is right plus `rank_noise` times a normal number.
    The first `trivial` issues are solved by everything that is said.

    facts: right, whether all is right so far; process; passes; outcome.
    """

    agents: tuple[str, ...] = ("engineer",)
    facts = {"right": bool, "process": float, "passes": bool, "outcome": float}

    def __init__(
        self,
        *,
        issues: int = 64,
        options: int = 2,
        noise: float = 1.0,
        weak: float = 0.3,
        rank_noise: float = 1.0,
        trivial: int = 0,
        draw: int = 0,
    ) -> None:
        if issues < 1 or options < 2 or min(noise, rank_noise, trivial) < 0 or not 0 <= weak <= 1:
            raise InputError(
                f"Repository: issues={issues} >= 1, options={options} >= 2, noise={noise}, rank_noise={rank_noise} and "
                f"trivial={trivial} at least 0, weak={weak} in [0, 1]"
            )
        self.issues, self.noise, self.weak, self.rank_noise, self.trivial = issues, noise, weak, rank_noise, trivial
        self.gold = np.random.default_rng(draw).integers(options, size=(issues, len(STAGES)))
        self.choices = tuple(f"option {number}" for number in range(options))

    def begin(self) -> tuple[str, _RepositoryState]:
        """Draw an issue."""
        issue = int(self.rng.integers(self.issues))
        return f"issue {issue}", _RepositoryState(issue)

    def look(self) -> dict[str, Observation]:
        """Observation of the engineer: the issue, the stage, and what was said before."""
        state = self.state
        if len(state.said) == len(STAGES):
            return {}
        before = ", ".join(f"{stage} {said}" for stage, said in zip(STAGES, state.said, strict=False)) or "nothing"
        text = f"issue {state.issue}: {STAGES[len(state.said)]}, after {before}"
        return {"engineer": Observation(text, choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take one stage's option; after the last stage pay."""
        state, said = self.state, chosen["engineer"]
        state.right &= state.issue < self.trivial or said == self.gold[state.issue, len(state.said)]
        state.said.append(said)
        right = bool(state.right)
        info: dict[str, Any] = {"right": right, "process": right + self.noise * float(self.rng.normal())}
        if self.look():
            return {}, info
        info["passes"] = right or float(self.rng.random()) < self.weak
        info["outcome"] = right + self.rank_noise * float(self.rng.normal())
        return {"engineer": float(right)}, info | {"success": right}
