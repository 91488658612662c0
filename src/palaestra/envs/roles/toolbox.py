"""`Toolbox`: questions that need Python, a look into local files, or one after the other.

The files are an archive of invented stores ("the red mill keeps 37 sacks"), which is always the same; a question in
five, by store and by product, is kept for tests, so what is learned is to use the tools. With `folder` the files and
the questions are yours.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from palaestra.envs.local_tools import Library, python
from palaestra.envs.registry import ENVS
from palaestra.envs.tool_calls import Call, write
from palaestra.envs.tools import ToolEnv, ToolTask
from palaestra.errors import InputError, StorageError, nearest

COLOURS = ("amber", "black", "blue", "brown", "gold", "green", "grey", "pink", "red", "silver", "violet", "white")
PLACES = (
    "barn",
    "cellar",
    "chapel",
    "cottage",
    "granary",
    "harbour",
    "mill",
    "quarry",
    "shed",
    "stable",
    "tower",
    "vault",
)
KINDS = ("python", "search", "both")
SPLITS = ("train", "test", "all")
QUESTIONS = "questions.jsonl"


@functools.cache
def archive() -> Mapping[str, int]:
    """Mapping from store to its number of sacks, the data behind the tool `search`; the same in every process."""
    rng = np.random.default_rng(180)
    return {f"{colour} {place}": int(rng.integers(10, 100)) for colour in COLOURS for place in PLACES}


@functools.cache
def _library(folder: str | None) -> Library:
    if folder is not None:
        return Library.read(folder)
    return Library({f"{name}.txt": f"The {name} keeps {sacks} sacks." for name, sacks in archive().items()})


@ENVS.register("roles/toolbox")
class Toolbox(ToolEnv):
    """Tool-use env: `assistant` answers a question with the tools `python(code)` and `search(query)`; 1 if right.

    Facts and reward are those of `ToolEnv`.

    Kinds of questions: "python" (What is 13 * 7?), "search" (How many sacks are in the red mill?), "both" (How many
    sacks are 4 times those in the red mill?). Tasks follow from the seed.

    Args:
        kinds: which questions are asked.
        split: "train", "test" (a store or a product in five) or "all".
        folder: files of your own, *.txt and *.md; questions are lines of `questions.jsonl` in it, objects with
            "question", "answer", and "split" if it is not train.
        results: most files that a search shows.
        **options: of `ToolEnv`.

    Raises:
        InputError: an argument is out of range. StorageError: the folder has no questions that can be read.
    """

    def __init__(
        self,
        kinds: Sequence[str] = KINDS,
        *,
        split: Literal["train", "test", "all"] = "train",
        folder: str | None = None,
        results: int = 1,
        turns: int = 4,
        format: str = "auto",
        native: bool = True,
        system: str | None = None,
    ) -> None:
        for found, known in ((split, SPLITS), *((kind, KINDS) for kind in kinds)):
            if found not in known:
                raise InputError(f"Toolbox: no {found!r} here{nearest(str(found), known)}")
        if not kinds or results < 1:
            raise InputError(f"Toolbox: kinds={list(kinds)} must not be empty, results={results} at least 1")
        tools = [python(), _library(folder).tool(results)]
        super().__init__(tools, turns=turns, format=format, native=native, system=system)
        self.kinds, self.split = tuple(kinds), split
        self.own = None if folder is None else _questions(Path(folder), split)

    def draw(self) -> ToolTask:
        """A question of the split."""
        if self.own is not None:
            return self.own[int(self.rng.integers(len(self.own)))]
        kind = self.kinds[int(self.rng.integers(len(self.kinds)))]
        while True:
            name = list(archive())[int(self.rng.integers(len(archive())))]
            one, other = int(self.rng.integers(11, 40)), int(self.rng.integers(2, 6))
            held = _held_out(name) if kind != "python" else (one + other) % 5 == 0
            if self.split in ("all", "test" if held else "train"):
                return _task(kind, name, one, other)


def _held_out(name: str) -> bool:
    """A store in five: every colour and every place is known from other stores."""
    colour, place = name.split()
    return (COLOURS.index(colour) + 2 * PLACES.index(place)) % 5 == 0


def _task(kind: str, name: str, one: int, other: int) -> ToolTask:
    sacks = archive()[name]
    search = Call("search", {"query": name})
    if kind == "python":
        code = f"{one} * {other}"
        question, answer, gold = f"What is {code}?", one * other, [Call("python", {"code": code})]
    elif kind == "search":
        question, answer, gold = f"How many sacks are in the {name}?", sacks, [search]
    else:
        question = f"How many sacks are {other} times those in the {name}?"
        answer, gold = sacks * other, [search, Call("python", {"code": f"{sacks} * {other}"})]
    return ToolTask(question, question, str(answer), tuple(gold))


def _questions(folder: Path, split: str) -> list[ToolTask]:
    path = folder / QUESTIONS
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
        tasks = [
            ToolTask(str(line["question"]), str(line["question"]), str(line["answer"]))
            for line in lines
            if split in ("all", line.get("split", "train"))
        ]
    except (OSError, UnicodeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(f"{path}: expected lines of JSON with question and answer ({error!r})") from error
    if not tasks:
        raise InputError(f"{path}: no question of the split {split!r}")
    return tasks


def solve(messages: Sequence[Mapping[str, Any]]) -> str:
    """Right next assistant message on the archive, as text (tool call or answer), for a list of message dicts."""
    question = next(str(each["content"]) for each in messages if each["role"] == "user")
    told = [re.findall(r"\d+", str(each["content"])) for each in messages if each["role"] == "tool"]
    known = [str(numbers[-1]) for numbers in told if numbers]
    name = next((name for name in archive() if name in question), None)
    factor = re.search(r"\d+ \* \d+|\d+ times", question)
    if name and not known:
        return write([Call("search", {"query": name})])
    if factor and len(known) == (name is not None):
        left, right = re.findall(r"\d+", factor[0]) if name is None else (known[0], factor[0].split()[0])
        return write([Call("python", {"code": f"{left} * {right}"})])
    return known[-1]
