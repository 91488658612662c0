"""`Kitchen`: bring things into the state that is wanted, one attribute at a time. States are told as objects ([52])."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

PLACES = ("on the table", "in the hand", "in the fridge", "in the sink")
LOOKS = ("cold", "warm", "clean", "dirty")
THINGS = ("mug", "plate", "knife")
Things = dict[str, dict[str, str]]


@dataclass
class _KitchenState:
    things: Things
    goal: Things
    steps: int = 0


@ENVS.register("native/kitchen")
class Kitchen(NativeEnv):
    """Rearrangement env: `cook` sees things' places and looks and sets one attribute a turn; paid 1 at the goal.

    `things` things with a place and a look.

    A task is a start and a goal, one of `tasks`. stays: it goes on to the horizon, and what counts is its end. facts,
    both as JSON of objects with attributes (`goal_score` reads it): objects, before the step, and wanted.
    """

    agents: tuple[str, ...] = ("cook",)
    facts = {"objects": str, "wanted": str}

    def __init__(self, *, things: int = 2, tasks: int = 1, horizon: int = 12, stays: bool = False) -> None:
        if not 1 <= things <= len(THINGS) or tasks < 1 or horizon < 1:
            raise InputError(f"Kitchen: {things=} from 1 to {len(THINGS)}, {tasks=} and {horizon=} at least 1")
        self.things, self.tasks, self.horizon, self.stays = THINGS[:things], tasks, horizon, stays
        self.acts = [
            (thing, name, value)
            for thing in self.things
            for name, values in (("place", PLACES), ("look", LOOKS))
            for value in values
        ]
        self.choices = tuple(f"make the {thing} be {value}" for thing, _, value in self.acts)

    def begin(self) -> tuple[str, _KitchenState]:
        """Draw a task, a start whose attributes all differ from the goal's."""
        number = int(self.rng.integers(self.tasks))
        start = {thing: {"place": PLACES[number % 4], "look": LOOKS[number // 4 % 4]} for thing in self.things}
        goal = {
            thing: {"place": PLACES[(number + 2 + at) % 4], "look": LOOKS[(number // 4 + 1 + at) % 4]}
            for at, thing in enumerate(self.things)
        }
        return f"kitchen {number}", _KitchenState(start, goal)

    def look(self) -> dict[str, Observation]:
        """Observation of the cook: state and goal in words."""
        state = self.state
        if (state.things == state.goal and not self.stays) or state.steps >= self.horizon:
            return {}
        return {"cook": Observation(f"{_words(state.things)}; wanted: {_words(state.goal)}", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Set the chosen attribute of a thing in the kitchen."""
        state = self.state
        info: dict[str, Any] = {"objects": _objects(state.things), "wanted": _objects(state.goal)}
        if chosen["cook"] is not None:
            thing, name, value = self.acts[chosen["cook"]]
            state.things[thing][name] = value
        state.steps += 1
        done = state.things == state.goal and (not self.stays or state.steps >= self.horizon)
        if done or state.steps >= self.horizon:
            info["success"] = done
        return ({"cook": 1.0} if done else {}), info


def reader(whole: bool = False) -> Callable[[Any], str]:
    """Makes a policy function (request -> text) that restates the kitchen's sentences as JSON; for stage `scene`.

    whole: each sentence as one object without attributes, what a comparison of flat texts sees.
    """

    def read(text: str) -> str:
        return json.dumps([{"description": text.replace(",", "")}]) if whole else _objects(_things(text))

    def play(request: Any) -> str:
        told = [line for line in request.observation.text.splitlines() if "; wanted: " in line][-1]
        parts = dict(zip(("NOW", "WANTED"), told.split("; wanted: "), strict=True))
        return "\n".join(f"{name}: {read(text)}" for name, text in parts.items())

    return play


def _things(text: str) -> Things:
    found: Things = {}
    for piece in text.split(", "):
        thing, *place, look = piece.split()
        found[thing] = {"place": " ".join(place), "look": look}
    return found


def _words(things: Things) -> str:
    return ", ".join(f"{thing} {' '.join(given.values())}" for thing, given in things.items())


def _objects(things: Things) -> str:
    return json.dumps([{"description": thing, "attributes": given} for thing, given in things.items()])
