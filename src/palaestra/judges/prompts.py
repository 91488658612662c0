"""Prompts for a model that writes rewards: the task, columns of a turn, requirements, earlier errors.

The texts are templates in the folder `prompts`. `NameMap` lets it write in general names, of which it has read much,
and translates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from palaestra.algebra.turns import SCHEMA, Turns
from palaestra.errors import InputError
from palaestra.judges.templates import write_prompt

if TYPE_CHECKING:
    from palaestra.judges.writing import Issue


@dataclass(frozen=True)
class Brief:
    """Builder of prompts that ask a model for reward programs; a method for each form of program.

    Attributes:
        task: the agent's task.
        seen: the columns, as `describe(turns, columns)` gives them.
        hints: on structure.
        own: a user's template `program` in place of every one of them; see `palaestra.judges.templates`.
    """

    task: str
    seen: str
    hints: Sequence[str] = field(default_factory=tuple)
    own: Mapping[str, str] = field(default_factory=dict)

    def auto_mc(self) -> str:
        """[34]'s prompt: asks for functions `dense` and `sparse`, of which only the sign counts, with a memory."""
        return self._prompt("signs")

    def step(self, functions: Sequence[str]) -> str:
        """Prompt that asks for functions of a turn by these names, each returning a number."""
        return self._prompt("step", functions=functions)

    def text2reward(self, shots: Sequence[tuple[str, str]] = ()) -> str:
        """[216]'s prompt: asks for one dense reward function; shots: (instruction, code) of other tasks."""
        return self._prompt("dense", ["compute_dense_reward"], shots)

    def factors(self) -> str:
        """[51]'s prompt: asks for a function that returns latent factors of a step, a list of numbers."""
        return self._prompt("factors", ["evaluation_func"])

    def _prompt(
        self, form: str, functions: Sequence[str] = ("dense", "sparse"), examples: Sequence[tuple[str, str]] = ()
    ) -> str:
        values: dict[str, Any] = {"task": self.task, "hints": self.hints, "seen": self.seen}
        values |= {"functions": functions, "examples": examples}
        return write_prompt("program", values, self.own, shipped=f"{form}_program")


def similar(task: str, examples: Mapping[str, str], number: int = 1) -> list[tuple[str, str]]:
    """List of (task, code): the `number` of `examples` (task -> code) most similar to a task, by Jaccard index.

    Similar are tasks of the same words.

    >>> similar("open the door", {"push the cube": "a", "open the drawer": "b"})
    [('open the drawer', 'b')]
    """
    words = set(task.lower().split())

    def shared(other: str) -> float:
        theirs = set(other.lower().split())
        return len(words & theirs) / max(len(words | theirs), 1)

    return sorted(examples.items(), key=lambda each: -shared(each[0]))[:number]


def repair_prompt(prompt: str, code: str, issues: Sequence[Issue]) -> str:
    """Text: `prompt` extended by the refused `code` and the reasons, a list of `Issue`."""
    return write_prompt("repair_program", {"prompt": prompt, "code": code, "issues": issues})


def revise_prompt(prompt: str, code: str, summary: str) -> str:
    """Text of the prompt extended by the last program and a summary of training with it."""
    return write_prompt("revise_program", {"prompt": prompt, "code": code, "summary": summary})


def describe(turns: Turns, columns: Sequence[str], *, notes: Mapping[str, str] | None = None) -> str:
    """Text like a class that tells a model columns of `Turns` a program reads: name, type, meaning, range or examples.

    >>> print(describe(Turns({"cost": [1.0, 0.5]}), ["cost"]))
    class Turn(TypedDict):
        cost: float  # price of the call; from 0.5 to 1.0
    """
    lines = ["class Turn(TypedDict):"]
    for name in columns:
        series = turns[name]
        known = (notes or {}).get(name) or (SCHEMA[name].meaning if name in SCHEMA else "")
        if series.dtype.is_numeric() and series.count():
            low, high = map(str, (series.min(), series.max()))
            seen = f"from {low} to {high}"
        else:
            seen = "such as " + ", ".join(repr(each)[:60] for each in series.drop_nulls().cast(pl.String).head(2))
        lines.append(f"    {name}: {_python_type(series.dtype)}  # {'; '.join(filter(None, [known, seen]))}")
    return "\n".join(lines)


def _python_type(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.List):
        return f"list[{_python_type(dtype.inner)}]"  # type: ignore[arg-type]
    names = {"integer": dtype.is_integer(), "float": dtype.is_float(), "bool": dtype == pl.Boolean}
    return next((name.replace("integer", "int") for name, holds in names.items() if holds), "str")


@dataclass(frozen=True)
class NameMap:
    """[216] Text2Reward: renames columns in code from general names, which a model knows, to a table's, and back.

    names: general -> specific. Longest first, and whole names only, so that `key` leaves `key_pos` alone.

    >>> NameMap({"key": "k", "key_pos": "k_xy"}).to_specific("turn['key_pos'] - turn['key']")
    "turn['k_xy'] - turn['k']"
    """

    names: dict[str, str]

    def __post_init__(self) -> None:
        if len(set(self.names.values())) < len(self.names):
            raise InputError(f"NameMap: two general names stand for one specific name in {self.names}")
        if both := set(self.names) & set(self.names.values()):
            raise InputError(f"NameMap: {sorted(both)} are general and specific names at once; there is no way back")

    def to_specific(self, text: str) -> str:
        """The text with general names replaced by the table's."""
        return _rename(text, self.names)

    def to_general(self, text: str) -> str:
        """The text with the table's names replaced by general ones; inverse of `to_specific`."""
        return _rename(text, {specific: general for general, specific in self.names.items()})


def _rename(text: str, names: dict[str, str]) -> str:
    if not names:
        return text
    longest_first = sorted(names, key=len, reverse=True)
    pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, longest_first)) + r")(?!\w)")
    return pattern.sub(lambda match: names[match[0]], text)
