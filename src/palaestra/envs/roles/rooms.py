"""`Rooms`: find where a thing is, then submit the claim together with the turns that prove it (SmartSnap [152]).

The verifier sees the task, the claim and the rows that were submitted, nothing else: `palaestra.rewards.semi_join`
gives them, `palaestra.rewards.smart_snap_reward` scores its verdicts. A scripted verifier is here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

THINGS = ("lamp", "book", "coin", "shoe", "bell", "rope")


def verify(claim: str, rows: Sequence[str]) -> tuple[bool, bool]:
    """Two booleans: whether the evidence `rows` show the claim "THING ROOM", and whether they decide it at all.

    claim: "THING NUMBER" of a room. rows: what happened in the submitted turns, as `SUBMITTED` says.

    >>> verify("lamp 2", ["look 2: lamp"]), verify("lamp 2", ["look 2: empty"]), verify("lamp 2", ["look 1: empty"])
    ((True, True), (False, True), (False, False))
    """
    thing, _, room = claim.partition(" ")
    seen = dict(row.removeprefix("look ").split(": ", 1) for row in rows if re.fullmatch(r"look \d+: .*", row))
    shows = seen.get(room) == thing
    elsewhere = any(what == thing and number != room for number, what in seen.items())
    return shows, shows or room in seen or elsewhere


@dataclass
class _RoomsState:
    thing: str
    room: int
    log: list[str] = field(default_factory=list)
    over: bool = False


@ENVS.register("roles/rooms")
class Rooms(NativeEnv):
    """Env of search and proof: `seeker` looks into rooms, then submits a thing's room and evidence; paid 1 if right.

    It says `look ROOM` or `submit ROOM evidence TURN, TURN …`; turns are numbered from 0, as in the table.

    facts: tool ("look" or "submit"), result (what happened, for a verifier); on submission message ("THING ROOM"),
    evidence, and the scripted verifier's success_votes and valid_votes, one each, as `smart_snap_reward("evidence")`
    reads them. Reward: 1 for the right room, else 0; the evidence is scored
    from the table. Without a submission the episode ends after `turns`.
    """

    prompt = "roles/rooms"
    agents: tuple[str, ...] = ("seeker",)
    facts = {
        "tool": str,
        "result": str,
        "message": str,
        "evidence": list[int],
        "success_votes": list[float],
        "valid_votes": list[float],
    }

    def __init__(self, rooms: int = 5, *, turns: int = 8) -> None:
        """`rooms`: how many there are. turns: at most."""
        if rooms < 2 or turns < 1:
            raise InputError(f"Rooms: rooms={rooms} must be at least 2, turns={turns} at least 1")
        self.rooms, self.turns = rooms, turns

    def begin(self) -> tuple[str, _RoomsState]:
        """Hide a thing in a room."""
        thing, room = THINGS[self.rng.integers(len(THINGS))], int(self.rng.integers(self.rooms))
        return f"rooms:{thing}:{room}", _RoomsState(thing, room)

    def look(self) -> dict[str, Observation]:
        """Observation of the seeker: the task and the log of looks, numbered by turn."""
        if self.state.over:
            return {}
        head = f"{self.task.rsplit(':', 1)[0]}: where is the {self.state.thing}? look ROOM (0 to {self.rooms - 1}) |"
        lines = [f"{number}. {line}" for number, line in enumerate(self.state.log)]
        return {"seeker": Observation("\n".join([f"{head} submit ROOM evidence TURN, TURN", *lines]))}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Show a room, or score the submission."""
        state, said = self.state, str(chosen["seeker"] or "").lower()
        looked = re.fullmatch(r"look (\d{1,3})", said, re.ASCII)
        sent = re.fullmatch(r"submit (\d{1,3})(?: evidence((?:[ ,]*\d{1,3})*))?", said, re.ASCII)
        if looked and int(looked[1]) < self.rooms:
            result = f"look {looked[1]}: {state.thing if int(looked[1]) == state.room else 'empty'}"
            info: dict[str, Any] = {"tool": "look", "result": result}
        elif sent:
            evidence = [int(number) for number in re.findall(r"\d+", sent[2] or "")]
            message, rows = f"{state.thing} {sent[1]}", [state.log[i] for i in evidence if i < len(state.log)]
            state.over = True
            right = int(sent[1]) == state.room
            info = {"tool": "submit", "result": said[:60], "message": message, "evidence": evidence}
            shown, valid = verify(message, rows)
            info |= {"success_votes": [float(shown)], "valid_votes": [float(valid)]}
            return {"seeker": float(right)}, info | {"success": right}
        else:
            result = "nothing happened"
            info = {"valid": {"seeker": False}, "result": result}
        state.log.append(result)
        state.over = len(state.log) >= self.turns
        return {}, info | ({"success": False} if state.over else {})
