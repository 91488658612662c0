"""Free speech around a numbered move: everything before the last line is said, the last line is the move."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.replies import read_reply


def spoken(action: int | str | None, moves: Sequence[str]) -> tuple[int | None, str]:
    r"""Splits an action text into (index in names `moves` of its last line, or None; text before it); an int stays.

    >>> spoken("I have no time.\n**Keep 60.**", ["keep 60", "accept"])
    (0, 'I have no time.')
    """
    if not isinstance(action, str):
        return action, ""
    reply = read_reply(action, "action")
    if reply.form == "json":
        said, move = [read_reply(action, "message").text], reply.text
    else:
        *said, move = reply.shown.split("\n")
        move = reply.text if reply.form == "line" else move
    found = Observation("", tuple(moves)).index(move)
    return found, " ".join(" ".join(said).split())


def ask(text: str, moves: tuple[str, ...], legal: Sequence[bool], *, talk: bool) -> Observation:
    """`Observation` of `text` that asks for a legal move by number, or with `talk` for speech, the move at its end."""
    mask = np.array(legal, bool)
    if not talk:
        return Observation(text, moves, mask)
    named = ", ".join(move for move, ok in zip(moves, mask, strict=True) if ok)
    asked = f"{text}\nSay what you like, then write your move on a line of its own, one of: {named}."
    return Observation(asked, fields=("message", "action"))
