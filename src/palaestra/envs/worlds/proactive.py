"""`Proactive`: events go by, some call for help; propose it or stay silent ([155])."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _ProactiveState:
    event: int = 0
    need: bool = False
    cue: bool = False
    right: bool = True


@ENVS.register("native/proactive")
class Proactive(NativeEnv):
    """Env of proactive help: at each event `assistant` sees a cue and proposes or stays silent; a judge pays ±1 or 0.

    A stream of `events`; somebody needs help with the chance `need`, and the cue is wrong with `blur`.

    A judge who errs with the chance `error` accepts a proposal where there is need, and silence where there is none.
    Reward 1 for an accepted proposal, -1 for a rejected one, 0 for silence. facts: proposed; accepted, the judge's
    verdict; needed. success of an episode: no event was answered wrongly.
    """

    agents: tuple[str, ...] = ("assistant",)
    facts = {"proposed": bool, "accepted": bool, "needed": bool}

    def __init__(self, *, events: int = 4, need: float = 0.3, blur: float = 0.05, error: float = 0.08) -> None:
        if events < 1 or not all(0 <= x <= 1 for x in (need, blur, error)):
            raise InputError(f"Proactive: events={events} >= 1 and need={need}, blur={blur}, error={error} in [0, 1]")
        self.events, self.need, self.blur, self.error = events, need, blur, error

    def begin(self) -> tuple[str, _ProactiveState]:
        """Draw the first event."""
        first = self._next(0)
        return f"events after {'a search' if first.cue else 'work'}", first

    def _next(self, event: int, right: bool = True) -> _ProactiveState:
        needed = bool(self.rng.random() < self.need)
        return _ProactiveState(event, needed, needed != bool(self.rng.random() < self.blur), right)

    def look(self) -> dict[str, Observation]:
        """Observation of the assistant: the cue of the event."""
        if self.state.event >= self.events:
            return {}
        seen = "somebody stops and searches" if self.state.cue else "somebody works on"
        return {"assistant": Observation(seen, choices=("stay silent", "propose help"))}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Score the proposal by the judge, and go on to the next event."""
        state, proposed = self.state, chosen["assistant"] == 1
        right = proposed == state.need
        accepted = right != bool(self.rng.random() < self.error)
        info: dict[str, Any] = {"proposed": proposed, "accepted": accepted, "needed": state.need}
        self.state = self._next(state.event + 1, state.right and right)
        if self.state.event >= self.events:
            info["success"] = self.state.right
        return {"assistant": (1.0 if accepted else -1.0) if proposed else 0.0}, info
