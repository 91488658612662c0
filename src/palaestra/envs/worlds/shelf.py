"""`Shelf`: requests for several skills in a row, and workers that have one skill each.

A request names operations on a row of letters, each by one of several words. Each worker is told the letters alone and
does what it can; who can do what is nowhere written. A coordinator reads the request and calls one worker after the
other. With `solo`, one agent reads what is asked for next and the letters, and does all of it itself.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

Letters = tuple[str, ...]

WORDS = {
    "reverse": ("flip", "mirror", "backwards"),
    "sort": ("order", "arrange", "rank"),
    "shift": ("next", "advance", "raise"),
    "rotate": ("turn", "roll", "cycle"),
}
"""Operations, and the words that ask for each."""


def operate(operation: str, letters: Letters, alphabet: str) -> Letters:
    """The letters (tuple) after one operation: "shift" in the alphabet, "reverse", "sort" or "rotate".

    >>> operate("shift", ("c", "a", "e"), "abcde")
    ('d', 'b', 'a')
    """
    if operation == "shift":
        return tuple(alphabet[(alphabet.index(letter) + 1) % len(alphabet)] for letter in letters)
    done: dict[str, Callable[[], Any]] = {
        "reverse": lambda: letters[::-1],
        "sort": lambda: sorted(letters),
        "rotate": lambda: (*letters[1:], letters[0]),
    }
    return tuple(done[operation]())


@dataclass
class _ShelfState:
    asked: tuple[str, ...]
    letters: Letters
    wanted: Letters
    called: list[int] = field(default_factory=list)
    steps: int = 0


@ENVS.register("native/shelf")
class Shelf(NativeEnv):
    """Delegation env: a coordinator sees a request and calls workers, each with one skill; all are paid if it is right.

    facts: worker, who was called (rows of the coordinator). Success: the letters are as asked for in the end.

    Args:
        steps: operations of a request. letters: length of the row. alphabet: number of different letters.
        solo: one agent, `solo`, does every operation itself instead.

    Raises:
        InputError: a number is out of range.
    """

    facts = {"worker": int}
    prompt = "native/shelf"

    def __init__(self, *, steps: int = 2, letters: int = 4, alphabet: int = 5, solo: bool = False) -> None:
        if steps < 1 or letters < 2 or not 2 <= alphabet <= 26:
            raise InputError(f"Shelf: steps={steps} >= 1, letters={letters} >= 2, 2 <= alphabet={alphabet} <= 26")
        self.steps, self.length, self.solo = steps, letters, solo
        self.alphabet = string.ascii_lowercase[:alphabet]
        self.operations = tuple(WORDS)
        self.choices = tuple(f"w{number}" for number in range(len(WORDS)))
        self.agents = ("solo",) if solo else ("coordinator", *self.choices)

    def begin(self) -> tuple[str, _ShelfState]:
        """Draw a request, and the letters that it is about."""
        operations = [self.operations[int(self.rng.integers(len(self.operations)))] for _ in range(self.steps)]
        asked = tuple(WORDS[each][int(self.rng.integers(len(WORDS[each])))] for each in operations)
        letters: Letters = tuple(self.alphabet[int(self.rng.integers(len(self.alphabet)))] for _ in range(self.length))
        wanted = functools.reduce(lambda row, each: operate(each, row, self.alphabet), operations, letters)
        return f"{' '.join(asked)}: {' '.join(letters)}", _ShelfState(asked, letters, wanted)

    def look(self) -> dict[str, Observation]:
        """The coordinator sees the request and whom it called; a worker sees the letters."""
        state = self.state
        if state.steps == self.steps:
            return {}
        letters = " ".join(state.letters)
        if self.solo:
            return {"solo": Observation(f"{state.asked[state.steps]} {letters}")}
        if len(state.called) > state.steps:
            return {self.choices[state.called[-1]]: Observation(letters)}
        return {"coordinator": Observation(state.asked[state.steps], self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take a call, or a worker's result, which is passed on as it is."""
        state = self.state
        if "coordinator" in chosen:
            worker = chosen["coordinator"]
            if worker is None:
                state.steps = self.steps
                return {"coordinator": 0.0}, {"success": False}
            state.called.append(worker)
            return {}, {"worker": worker}
        state.letters = tuple(str(next(iter(chosen.values()))).split())
        state.steps += 1
        if state.steps < self.steps:
            return {}, {}
        right = state.letters == state.wanted
        seats = {"solo"} if self.solo else {"coordinator", *(self.choices[each] for each in state.called)}
        return dict.fromkeys(seats, float(right)), {"success": right}


def worker(request: Any, *, skill: str | None, alphabet: str) -> str:
    """Action (str) for a `native/shelf` request: a worker's operation, or solo's `skill`; the coordinator calls any.

    skill: all that `solo` can do; whatever it is asked for, it does this. None: it does what it is asked for.
    """
    text: str = request.observation.text
    agent: str = request.agent
    if agent == "coordinator":
        return f"w{int(request.rng.integers(len(WORDS)))}"
    words = text.split()
    if agent == "solo":
        operation = skill or next(each for each, names in WORDS.items() if words[0] in names)
        words = words[1:]
    else:
        operation = tuple(WORDS)[int(agent[1:])]
    if any(word not in alphabet for word in words):
        return text
    return " ".join(operate(operation, tuple(words), alphabet))
