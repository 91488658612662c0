"""`VerdictEnv`: a text was found, a cue says how likely it is of use; accept it or not. From which odds on? ([180])."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

CHANCES = (0.3, 0.4, 0.5, 0.55, 0.65, 0.7, 0.8)


@dataclass
class _VerdictState:
    cue: int
    over: bool = False


@ENVS.register("native/verdict")
class VerdictEnv(NativeEnv):
    """One-turn judging env: `reader` sees a cue and says whether its hidden text is useful; paid 1 if right.

    Cue k's texts are of use with the chance `chances[k]`. A group finds one text: groups of one compare texts.

    facts: judge, 1 for yes and 0 for no; relevance, .9 of a text of use, else .1; chance, of the cue. They are what
    `reseek_reward("judge", "relevance")` scores. Reward 1 for the right verdict.
    """

    agents: tuple[str, ...] = ("reader",)
    facts = {"judge": int, "relevance": float, "chance": float}

    def __init__(self, *, chances: Sequence[float] = CHANCES) -> None:
        if not chances or not all(0 <= chance <= 1 for chance in chances):
            raise InputError(f"VerdictEnv: chances={list(chances)} in [0, 1], at least one")
        self.chances = tuple(float(each) for each in chances)

    def begin(self) -> tuple[str, _VerdictState]:
        """Draw a cue."""
        cue = int(self.rng.integers(len(self.chances)))
        return f"cue {cue}", _VerdictState(cue)

    def look(self) -> dict[str, Observation]:
        """Observation of the reader: the cue's number."""
        return {} if self.state.over else {"reader": Observation(f"cue {self.state.cue}", choices=("no", "yes"))}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Score the verdict; an invalid one judges nothing."""
        self.state.over, said = True, chosen["reader"]
        chance = self.chances[self.state.cue]
        useful = bool(self.rng.random() < chance)
        info: dict[str, Any] = {"relevance": 0.9 if useful else 0.1, "chance": chance}
        right = said == useful
        return {"reader": float(right)}, info | {"judge": said, "success": right}
