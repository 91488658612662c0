"""`Talk`: a few turns, each with one right thing to say. What is judged turn by turn."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

SAYINGS = ("greet", "ask", "look up", "confirm", "thank", "shrug")


@dataclass
class _TalkState:
    steps: int = 0
    right: int = 0


@ENVS.register("native/talk")
class Talk(NativeEnv):
    """Dialogue env: each turn `clerk` sees which saying is due and picks one of six; paid the share that was right.

    `turns` turns; in turn k the k-th of six sayings is right.

    manners: every saying can also be said with a please, which is as right. facts: fits, whether the turn's saying was
    right; with manners also kind, whether it was polite. Success: all were right.
    """

    agents: tuple[str, ...] = ("clerk",)
    facts = {"fits": bool}

    def __init__(self, *, turns: int = 4, manners: bool = False) -> None:
        if not 1 <= turns <= len(SAYINGS):
            raise InputError(f"Talk: {turns=} from 1 to {len(SAYINGS)}")
        self.turns, self.manners = turns, manners
        self.choices = (*SAYINGS, *(f"{each}, please" for each in SAYINGS)) if manners else SAYINGS
        if manners:
            self.facts = {"fits": bool, "kind": bool}

    def begin(self) -> tuple[str, _TalkState]:
        """Start at the first turn."""
        return "talk", _TalkState()

    def look(self) -> dict[str, Observation]:
        """Observation of the clerk: the number of the turn, and what it is time to say."""
        if self.state.steps >= self.turns:
            return {}
        return {
            "clerk": Observation(
                f"turn {self.state.steps + 1}: time to {SAYINGS[self.state.steps]}", choices=self.choices
            )
        }

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Say it, and after the last turn pay."""
        state = self.state
        said = chosen["clerk"]
        fits = said is not None and said % len(SAYINGS) == state.steps
        told = {"fits": fits} | ({"kind": said is not None and said >= len(SAYINGS)} if self.manners else {})
        state.steps, state.right = state.steps + 1, state.right + fits
        if state.steps < self.turns:
            return {}, told
        return {"clerk": state.right / self.turns}, told | {"success": state.right == self.turns}


def polite() -> Callable[[Any], str]:
    """Makes a judge (request -> text), no arguments: "VERDICT: yes" if the last action has "please", else no."""

    def play(request: Any) -> str:
        said = re.findall(r"action: (.*)", request.observation.text)
        return f"VERDICT: {'yes' if said and 'please' in said[-1] else 'no'}"

    return play
