"""`Quest`: things are carried from room to room, in an order that is told; its size is a matter of three numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

ROOMS = ("kitchen", "hall", "attic", "cellar", "garden", "study")
OBJECTS = ("lamp", "coin", "rope", "book", "cup", "key")
HAND = -1
"""Place of what is carried."""
ABSENT = -2


@dataclass
class _QuestState:
    places: list[int]
    quest: tuple[tuple[int, int], ...]
    room: int
    done: int = 0
    turns: int = 0

    @property
    def hand(self) -> int | None:
        return self.places.index(HAND) if HAND in self.places else None


@ENVS.register("native/quest")
class Quest(NativeEnv):
    """Text-adventure env: `hero` walks rooms and moves objects as a list of steps says; paid 1 if all are done in time.

    There are `objects` things in `rooms` rooms in a row; each of `length` steps takes one thing and leaves it in a
    room.

    A step counts when it is done after all steps before it; one thing can be carried at a time. Reward 1 at the end if
    all steps were done, within length · (rooms + 1) turns, which is enough for the shortest way. Which things there
    are, where they lie and what the quest asks for is drawn for each episode.

    facts: gained, 1 if the turn did the step that was due, else 0; most, how many steps there are. features: the thing
    of the step, whether it is to be taken or left, whether its place is to the west, here or to the east, what is
    carried and what lies here: as many for every size, so that what was learned in small quests can be tried in large
    ones. `script` plays the shortest way.

    Args:
        rooms: Number of rooms, 2 to 6.
        objects: Number of things, 2 to 6.
        length: Number of steps of the quest.
        larger: Rooms, objects and length of the split "test"; None: as in training.
        split: "train" or "test".
    """

    agents: tuple[str, ...] = ("hero",)
    facts = {"gained": float, "most": int}
    choices = ("west", "east", "leave", *(f"take {name}" for name in OBJECTS))

    def __init__(
        self,
        *,
        rooms: int = 2,
        objects: int = 3,
        length: int = 4,
        larger: Sequence[int] | None = None,
        split: str = "train",
    ) -> None:
        sizes = (rooms, objects, length) if larger is None or split != "test" else tuple(larger)
        if len(sizes) != 3 or not 2 <= sizes[0] <= len(ROOMS) or not 2 <= sizes[1] <= len(OBJECTS) or sizes[2] < 1:
            raise InputError(
                f"Quest: rooms, objects, length = {sizes}: 2 to {len(ROOMS)}, 2 to {len(OBJECTS)} and at least 1"
            )
        self.rooms, self.objects, self.length = sizes
        self.horizon = self.length * (self.rooms + 1)

    def begin(self) -> tuple[str, _QuestState]:
        """Draw which things there are, their places, and the steps; each moves a thing that the one before did not."""
        there = self.rng.choice(len(OBJECTS), self.objects, replace=False)
        places = np.full(len(OBJECTS), ABSENT)
        places[there] = self.rng.integers(self.rooms, size=self.objects)
        planned, steps, last = places.copy(), list[tuple[int, int]](), -1
        while len(steps) < self.length:
            last = int(self.rng.choice(there[there != last]))
            goal = int((planned[last] + self.rng.integers(1, self.rooms)) % self.rooms)
            steps += [(last, HAND), (last, goal)]
            planned[last] = goal
        room = int(self.rng.integers(self.rooms))
        state = _QuestState(places.tolist(), tuple(steps[: self.length]), room)
        return ", then ".join(map(_step, state.quest)), state

    def look(self) -> dict[str, Observation]:
        """Observation of the hero: the rooms with what lies there, where it is, and the steps that are left."""
        state = self.state
        if state.done == self.length or state.turns >= self.horizon:
            return {}
        rooms = ", ".join(f"{ROOMS[room]} ({self._lying(room)})" for room in range(self.rooms))
        hand = "nothing" if state.hand is None else f"the {OBJECTS[state.hand]}"
        left = ", then ".join(map(_step, state.quest[state.done :]))
        text = f"From west to east: {rooms}. You are in the {ROOMS[state.room]}, with {hand} in hand. Now {left}."
        return {"hero": Observation(text, choices=self.choices, array=self._features())}

    def _lying(self, room: int) -> str:
        return " and ".join(name for name, place in zip(OBJECTS, self.state.places) if place == room) or "empty"

    def _features(self) -> np.ndarray:
        state, things = self.state, len(OBJECTS)
        thing, goal = state.quest[state.done]
        # to take what is carried already, or to leave what is not, needs a way to the thing itself
        target = state.places[thing] if state.hand != thing else goal if goal != HAND else state.room
        places = np.array(state.places)
        seen = np.zeros(3 * things + 5, np.float32)
        seen[thing] = seen[things + int(goal != HAND)] = 1.0
        seen[things + 2 + int(np.sign(target - state.room)) + 1] = 1.0
        seen[things + 5 : 2 * things + 5] = places == HAND
        seen[2 * things + 5 :] = places == state.room
        return seen

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Walk, take or leave; what cannot be done changes nothing."""
        state, at = self.state, chosen["hero"]
        state.turns += 1
        hand = state.hand
        if at in (0, 1):
            state.room = min(max(state.room + 2 * at - 1, 0), self.rooms - 1)
        elif at == 2 and hand is not None:
            state.places[hand] = state.room
        elif at is not None and at > 2 and hand is None and state.places[at - 3] == state.room:
            state.places[at - 3] = HAND
        thing, goal = state.quest[state.done]
        gained = state.places[thing] == goal
        state.done += gained
        info: dict[str, Any] = {"gained": float(gained), "most": self.length}
        if self.look():
            return {}, info
        won = state.done == self.length
        return {"hero": float(won)}, info | {"success": won}


def _step(step: tuple[int, int]) -> str:
    thing, goal = step
    return f"take the {OBJECTS[thing]}" if goal == HAND else f"leave it in the {ROOMS[goal]}"


def shortest(request: Any, errs: float = 0.0) -> str:
    """Action (str) for a request in `native/quest`: next one on the shortest way; with chance `errs` a random one."""
    seen = request.observation.array
    if errs and request.rng.random() < errs:
        return str(request.rng.choice(Quest.choices))
    things = len(OBJECTS)
    thing, carried = int(np.argmax(seen[:things])), seen[things + 5 : 2 * things + 5]
    west, here = seen[things + 2], seen[things + 3]
    if carried.any() and not carried[thing]:
        return "leave"
    if not here:
        return "west" if west else "east"
    return "leave" if carried[thing] else f"take {OBJECTS[thing]}"
