"""`Repair`: a small repository in which some modules do not parse; edits mend, break or leave it ([176])."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

SOUND, UNSOUND = "x = 1\n", "x = (\n"


@dataclass
class _RepairState:
    broken: list[bool]
    start: str
    turn: int = 0


@ENVS.register("native/repair")
class Repair(NativeEnv):
    """Code repair env: `coder` sees which modules parse and edits one per turn; paid 1 if all parse at the end.

    `broken` of `modules` modules do not parse, drawn anew; `turns` edits, each of which mends or breaks one module.

    A further choice edits a file outside of the workspace, which nothing comes of. Reward 1, success, if all of it
    parses at the end. facts: edits, of the turn, as JSON; start, the workspace at the beginning, on every turn: what
    the stage `checked("edits", start="start")` reads.
    """

    agents: tuple[str, ...] = ("coder",)
    facts = {"edits": str, "start": str}

    def __init__(self, *, modules: int = 5, broken: int = 3, turns: int = 5) -> None:
        if not (1 <= broken <= modules and turns >= 1):
            raise InputError(f"Repair: broken={broken} must be from 1 to modules={modules}, turns={turns} at least 1")
        self.modules, self.number, self.turns = modules, broken, turns
        self.choices = (
            *(f"mend {module}" for module in range(modules)),
            *(f"break {module}" for module in range(modules)),
            "outside",
        )

    def begin(self) -> tuple[str, _RepairState]:
        """Break some modules at random."""
        broken = np.zeros(self.modules, bool)
        broken[self.rng.permutation(self.modules)[: self.number]] = True
        files = {self._path(module): UNSOUND if bad else SOUND for module, bad in enumerate(broken)}
        return f"repair {_marks(broken.tolist())}", _RepairState(broken.tolist(), json.dumps(files))

    def look(self) -> dict[str, Observation]:
        """Observation of the coder: which modules parse and which are broken."""
        if self.state.turn == self.turns:
            return {}
        return {"coder": Observation(f"modules {_marks(self.state.broken)}", self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Write a module; an invalid action writes nothing."""
        state, action = self.state, chosen["coder"]
        state.turn += 1
        edits = []
        if isinstance(action, int) and action < 2 * self.modules:
            module, bad = action % self.modules, action >= self.modules
            state.broken[module] = bad
            edits = [{"path": self._path(module), "new": UNSOUND if bad else SOUND}]
        elif isinstance(action, int):
            edits = [{"path": "../outside.py", "new": SOUND}]
        info: dict[str, Any] = {"edits": json.dumps(edits), "start": state.start}
        if state.turn < self.turns:
            return {}, info
        sound = not any(state.broken)
        return {"coder": float(sound)}, info | {"success": sound}

    def _path(self, module: int) -> str:
        return f"module_{module}.py"


def _marks(broken: list[bool]) -> str:
    return "".join("x" if bad else "." for bad in broken)
