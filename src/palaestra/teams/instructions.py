"""Tells the roles of a team, as chat messages, who they are, what is asked of them now, and who said what.

The system prompt is the template `prompts/WORKFLOW.j2`, or the user's own; what is asked is `prompts/turn.j2`. Left
out: what policies read that know no chat (`Observation.text`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from palaestra.envs.conversations import ChatMessage, Conversation, Reader, Templates, opening
from palaestra.errors import InputError, nearest

TEMPLATES = Templates("palaestra.teams")
ASKS: Mapping[str, tuple[str, ...]] = {
    "answer": ("answer",),
    "check": ("answer",),
    "plan": (),
    "bid": ("bid",),
    "marks": ("marks",),
    "listeners": ("listeners",),
    "step": ("confidence", "step"),
    "choice": ("choice",),
    "assign": ("instruction", "next"),
    "team": ("team",),
    "summary": ("answer", "summary"),
}
"""What a role may be asked for, and the fields of its reply; none: any text. `prompts/ask.j2` says how it is asked."""
KNOWN = (
    "role", "family", "roles", "others", "hears", "heard_by", "rounds", "accept", "persona", "default", "prices",
    "plans", "price", "parts", "attempts", "depth", "best", "workers", "tries", "participants", "revise", "leader",
    "members", "closing",
)  # fmt: skip
"""Variables of a system prompt."""


class Heard(NamedTuple):
    """Data of a message as its receiver reads it: the sender's role, text and round."""

    role: str
    text: str
    round: int


class Instructions:
    """Maker of a workflow's chat prompts: the system prompt of each role, and its conversation turn by turn.

    Args:
        workflow: Name of the template of its system prompts.
        roles: Name -> persona, which stands before what the template says; may be empty.
        given: Role, or role without its number, or "*" -> a Jinja template that is the system prompt instead;
            `{{ default }}` is the shipped one.
        values: Further variables of the template.

    Raises:
        InputError: `given` names no role, or is no template of these variables.
    """

    def __init__(
        self,
        workflow: str,
        roles: Mapping[str, str],
        given: Mapping[str, str] | None = None,
        **values: Any,
    ) -> None:
        self.workflow, self.roles, self.given = workflow, dict(roles), dict(given or {})
        self.values = dict.fromkeys(KNOWN) | {"hears": (), "heard_by": (), "rounds": 1} | values
        known = [*self.roles, *dict.fromkeys(map(family, self.roles)), "*"]
        for role, text in self.given.items():
            if role not in known:
                raise InputError(
                    f"instructions: {role!r} is no role{nearest(role, known)}; there are {', '.join(known)}"
                )
            TEMPLATES.check_text(text, KNOWN, f"instructions of {role!r}")
        self._systems: dict[str, str] = {}

    def system(self, role: str) -> str:
        """The system prompt of a role."""
        if role not in self._systems:
            values = self.values | {
                "role": role,
                "family": family(role),
                "roles": list(self.roles),
                "persona": self.roles[role].strip(),
                "others": [each for each in self.roles if each != role],
                "hears": list(self._of(role, "hears")),
                "heard_by": list(self._of(role, "heard_by")),
            }
            text = TEMPLATES.render(self.workflow, values)
            own = next((self.given[key] for key in (role, family(role), "*") if key in self.given), None)
            if own is not None:
                text = TEMPLATES.render_text(own, values | {"default": text})
            self._systems[role] = text
        return self._systems[role]

    def _of(self, role: str, name: str) -> Sequence[str]:
        names: Any = self.values[name]
        return tuple(names.get(role, ()) if isinstance(names, Mapping) else names)

    def turn(
        self,
        role: str,
        ask: str,
        question: str,
        *,
        heard: Sequence[Heard] = (),
        before: tuple[Conversation, str] | None = None,
        limit: int | None = None,
        left_out: list[int] | None = None,
        **values: Any,
    ) -> Conversation:
        """The conversation that a role reads before it acts, made for the reader when it is read.

        Args:
            role: Who.
            ask: What for, one of `ASKS`.
            question: The task.
            heard: What others said.
            before: Its earlier conversation in this episode and its reply to that, to go on with; else it begins anew.
            limit: Most tokens of a message that it hears, as it counts them.
            left_out: Gets the number of tokens of each message that were left out, when the messages are written.
            values: Further variables of `turn.j2`.
        """

        def write(reader: Reader) -> tuple[ChatMessage, ...]:
            found, lost = [], []
            for each in heard:
                text, size = each.text, 0
                if limit is not None and (size := max(0, reader.count(text) - limit)):
                    text = reader.first(text, limit)
                found.append({"role": each.role, "text": text, "round": each.round + 1, "left_out": size})
                lost.append(size)
            if left_out is not None:
                left_out[:] = lost
            asked = TEMPLATES.render(
                "turn",
                self.values
                | {"ask": ask, "question": question, "heard": found, "fresh": before is None, "role": role}
                | {"workflow": self.workflow}
                | {"structured": reader.structured, "own": None, "round": 1, "failed": False, "note": None}
                | {"part": None, "parts": None, "choices": (), "names": (), "turn": 1, "many": False}
                | values,
            )
            if before is None:
                return opening(self.system(role), asked)
            talk, reply = before
            said = {"role": "assistant", "content": reply}
            return (*talk.for_reader(reader), said, {"role": "user", "content": asked})

        return Conversation(write)


def family(role: str) -> str:
    """A role's name without its number.

    >>> family("debater-2"), family("node-1-2"), family("w3"), family("judge")
    ('debater', 'node', 'w', 'judge')
    """
    return re.sub(r"(-\d+)+$|(?<=^w)\d+$", "", role)
