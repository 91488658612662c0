"""Entries of a team's shared memory, and what a reader is shown of them: the latest that fit, in text and in messages.

Left out: who may write and read (`palaestra.teams.shared_memory`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from palaestra.envs.conversations import WORDS, ChatMessage, Reader
from palaestra.envs.protocol import Observation
from palaestra.teams.instructions import TEMPLATES


class MemoryEntry(NamedTuple):
    """Data of an entry of a shared memory: its text, its author's role, the turn in which it was written, and its key.

    key: an entry under the same one replaces it; may be empty.
    """

    text: str
    author: str
    turn: int
    key: str = ""


class ShownEntry(NamedTuple):
    """An entry as its reader sees it, and how many tokens of it were left out."""

    entry: MemoryEntry
    text: str
    left_out: int = 0


class MemoryView:
    """View of the memory that a role reads in a turn of the team: newest `most` entries that fit in `tokens` tokens.

    Attributes:
        seen: What the team shows it then. entries: Those that the memory had then, oldest first.
        shown: Those that fit, as the policy that reads it counts tokens. recalled: Those that it looked up.
    """

    def __init__(self, seen: Observation, entries: Sequence[MemoryEntry], most: int, tokens: int) -> None:
        self.seen, self.entries, self.recalled = seen, tuple(entries), list[MemoryEntry]()
        self._most, self._tokens = most, tokens
        self.shown = self.fit(WORDS)

    def fit(self, reader: Reader) -> tuple[ShownEntry, ...]:
        """The latest entries within both limits, oldest first; of one that is too long by itself the beginning."""
        found: list[ShownEntry] = []
        room = self._tokens
        for entry in reversed(self.entries[-self._most :]):
            size = reader.count(entry.text)
            if size > room:
                found += [] if found else [ShownEntry(entry, reader.first(entry.text, room), size - room)]
                break
            found.append(ShownEntry(entry, entry.text))
            room -= size
        self.shown = tuple(found[::-1])
        return self.shown

    @property
    def read(self) -> list[MemoryEntry]:
        """Entries that were shown or looked up, in the order of the turns that wrote them."""
        return sorted(
            dict.fromkeys([*(each.entry for each in self.shown), *self.recalled]), key=lambda entry: entry.turn
        )

    @property
    def left_out(self) -> list[int]:
        """Turns of the entries that were neither shown whole nor looked up."""
        whole = {*(each.entry for each in self.shown if not each.left_out), *self.recalled}
        return [entry.turn for entry in self.entries if entry not in whole]


def line(shown: ShownEntry) -> str:
    """An entry as policies without a chat read it, on one line, so that it cannot look like another one."""
    entry, rest = shown.entry, f" [{shown.left_out} tokens left out]" if shown.left_out else ""
    return f"memory {entry.author}{f', {entry.key}' if entry.key else ''}: {' '.join(shown.text.splitlines())}{rest}"


def block(shown: Sequence[ShownEntry], left_out: int = 0) -> str:
    """Entries as chat models read them."""
    entries = [
        {"author": each.entry.author, "key": each.entry.key, "text": each.text, "left_out": each.left_out}
        for each in shown
    ]
    return TEMPLATES.render("memory_entries", {"entries": entries, "left_out": left_out})


def remembered(views: Sequence[MemoryView], talk: Sequence[ChatMessage], reader: Reader) -> list[ChatMessage]:
    """The conversation with entries before what was asked, each where it was first shown in it."""
    blocks: dict[int, str] = {}
    known: set[MemoryEntry] = set()
    for view in views:
        before = view.seen.conversation(reader)
        if tuple(talk[: len(before)]) != tuple(before):
            continue
        shown = view.fit(reader)
        new = [each for each in shown if each.entry not in known]
        if new:
            left_out = len(view.entries) - len(shown) if not known else 0
            blocks[len(before) - 1] = block(new, left_out)
        known |= {each.entry for each in new}
    return [
        {**each, "content": f"{blocks[at]}\n\n{each['content']}"} if at in blocks else each
        for at, each in enumerate(talk)
    ]
