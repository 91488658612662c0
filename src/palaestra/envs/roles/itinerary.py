"""`Itinerary`: plan a day of visits with a tool that knows the opening hours, or invent them (DeepTravel [191]).

Verification is hierarchical: `feasible` looks at the plan as a whole and is the gate; only behind it is each visit held
against what the tool says. `palaestra.rewards.deep_travel_reward("gate", "detail")` scores both.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.roles.tools import CachedTool
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

PLACES = ("museum", "tower", "garden", "market", "castle", "theatre")
DAY = (8, 20)
Visit = tuple[str, int]


def opening_hours(seed: int, place: str) -> list[int]:
    """List [opens, closes] of a place's opening hours, whole hours, drawn from the seed; the env's scripted tool."""
    mixed = (seed * 2654435761 + PLACES.index(place) * 40503 + 12345) % 2**32
    opens = 8 + (mixed >> 7) % 6
    return [opens, opens + 2 + (mixed >> 17) % 5]


def feasible(visits: Sequence[Visit], wanted: Sequence[str]) -> bool:
    """Whether visits (place, hour) go once to every wanted place, within the day, at increasing hours (the gate)."""
    hours = [hour for _, hour in visits]
    in_order = all(one < other for one, other in itertools.pairwise(hours))
    in_day = all(DAY[0] <= hour < DAY[1] for hour in hours)
    return sorted(place for place, _ in visits) == sorted(wanted) and in_order and in_day


def consistent(visit: Visit, hours: Sequence[int]) -> bool:
    """Whether a visit (place, hour) lies within the place's opening hours [opens, closes) (the detail)."""
    return hours[0] <= visit[1] < hours[1]


@dataclass
class _ItineraryState:
    seed: int
    wanted: tuple[str, ...]
    log: list[str] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    over: bool = False


@ENVS.register("roles/itinerary")
class Itinerary(NativeEnv):
    """Travel planning env: `planner` asks opening hours and plans; paid the share of open visits if feasible, else 0.

    It says `hours PLACE`, `visit PLACE HOUR` or `done`; the episode ends with `done` or after `turns`.

    facts: tool ("hours"), visit; at the end gate, details (one per visit; none if the gate is shut), detail (the share
    of them that hold), invented (visits of places that were never asked about): `deep_travel_reward("gate", "detail")`
    scores an episode on its last turn. Reward at the end: 0 if the gate is shut, else the share
    of consistent visits; success if that is 1.
    """

    prompt = "roles/itinerary"
    agents: tuple[str, ...] = ("planner",)
    facts = {"tool": str, "visit": str, "gate": bool, "details": list[bool], "detail": float, "invented": int}

    def __init__(
        self,
        places: int = 3,
        *,
        turns: int = 12,
        tool: CachedTool | None = None,
        gate: Callable[[Sequence[Visit], Sequence[str]], bool] = feasible,
        detail: Callable[[Visit, Sequence[int]], bool] = consistent,
        choices: bool = False,
    ) -> None:
        """Set up the town.

        Args:
            places: how many must be visited.
            turns: at most.
            tool: answers seed and place with [opens, closes]; default: the scripted one, cached.
            gate: first verifier, of the visits and the wanted places, e.g. a function that asks a model.
            detail: second verifier, of a visit and the hours of its place.
            choices: actions are numbered, every sentence that can be said; so tables can play. Else free text.
        """
        if not (1 <= places <= len(PLACES) and turns >= 1):
            raise InputError(f"Itinerary: places={places} must be 1 to {len(PLACES)}, turns={turns} at least 1")
        self.places, self.turns, self.gate, self.detail = places, turns, gate, detail
        self.tool = CachedTool(opening_hours) if tool is None else tool
        visits = (f"visit {place} {hour}" for place in PLACES for hour in range(*DAY))
        self.moves = (*(f"hours {place}" for place in PLACES), *visits, "done") if choices else None

    def begin(self) -> tuple[str, _ItineraryState]:
        """Draw the town and the places to visit."""
        seed = int(self.rng.integers(1000))
        wanted = tuple(sorted(PLACES[i] for i in self.rng.permutation(len(PLACES))[: self.places]))
        return f"itinerary:{seed}:{','.join(wanted)}", _ItineraryState(seed, wanted)

    def look(self) -> dict[str, Observation]:
        """Observation of the planner: the wanted places, and what was said and answered so far."""
        if self.state.over:
            return {}
        head = f"Visit {', '.join(self.state.wanted)}, an hour each, from {DAY[0]} to {DAY[1]}."
        return {
            "planner": Observation(
                "\n".join([f"{head} hours PLACE | visit PLACE HOUR | done", *self.state.log]), self.moves
            )
        }

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Answer a question about hours, record a visit, or end and score the plan."""
        state, action = self.state, chosen["planner"]
        said = self.moves[action] if self.moves and isinstance(action, int) else str(action or "").lower()
        asked, visit = re.fullmatch(r"hours (\w+)", said), re.fullmatch(r"visit (\w+) ([0-9]{1,2})", said)
        named = asked or visit
        info: dict[str, Any] = {}
        answer = "?"
        if named and named[1] in PLACES:
            if asked:
                opens, closes = self.tool(seed=state.seed, place=named[1])
                state.told.append(named[1])
                info, answer = {"tool": "hours"}, f"open from {opens} to {closes}"
            elif visit:
                state.visits.append((visit[1], int(visit[2])))
                info, answer = {"visit": f"{visit[1]} {visit[2]}"}, "noted"
        elif said != "done":
            info["valid"] = {"planner": False}
        state.log.append(f"{said[:40]}: {answer}")
        state.over = said == "done" or len(state.log) >= self.turns
        if not state.over:
            return {}, info
        gate = bool(self.gate(state.visits, state.wanted))
        hours = {place: self.tool(seed=state.seed, place=place) for place, _ in state.visits} if gate else {}
        details = [bool(self.detail(visit, hours[visit[0]])) for visit in state.visits] if gate else []
        score = sum(details) / len(details) if details else 0.0
        invented = sum(place not in state.told for place, _ in state.visits)
        end: dict[str, Any] = {"gate": gate, "details": details, "invented": invented, "success": score == 1.0}
        end |= {"detail": score} if details else {}
        return {"planner": score}, info | end
