"""`TechTree`: a world of layers where objects are found, mined, crafted and smelted by a book of recipes, move by move.

It stands for Minecraft in Ghost in the Minecraft ([177], arXiv 2305.17144): the same kind of dependencies, no pictures.
It is no registered env, for its player is told plans by `palaestra.teams.goal_play`. Left out: enemies, hunger, time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from palaestra.errors import InputError

VERBS = ("mine", "craft", "smelt")
FAR = 4
"""Largest distance at which something is found."""


@dataclass(frozen=True)
class Recipe:
    """Data of a recipe of a technology tree: verb, material used up, tools, depth it is mined at (layer), number made.

    Attributes:
        verb: mine, craft or smelt.
        material: Objects that are used up, with their numbers.
        tools: Objects that must be there and stay; the first one is held.
        layer: Depth at which it is mined, from 0, the surface.
        makes: Number of objects that one action gives.
    """

    verb: str
    material: Mapping[str, int] = field(default_factory=dict)
    tools: tuple[str, ...] = ()
    layer: int = 0
    makes: int = 1


Book = Mapping[str, Recipe]


class TechTree:
    """Simulator of a crafting game with recipes `book`, one player: `move(verb, thing)` returns why it failed, else "".

    Moves are `look`, `walk`, `hit`, `up`, `down`, `hold X`, `make X`.

    Each takes a step.

    `look` finds one of the objects of the layer, drawn uniformly, some steps away, or nothing; `walk` comes nearer;
    `hit` mines what is right in front with the chance `chance`, if the tools of its recipe are there and the first one
    is held. `make` crafts or smelts if tools and material are there.

    Attributes:
        book: Recipes by object.
        has: Inventory.
        got: Objects that were had at some time.
        layer: Depth, from 0, the surface, to the deepest layer of the book.
        held, near, distance: What is in hand; what was found, and how far away it is.
        steps: Number of moves so far.

    Args:
        book: Recipes by object. rng: Of what is found and mined. chance: That a hit mines, in (0, 1].

    Raises:
        InputError: The chance is out of range.
    """

    def __init__(self, book: Book, rng: np.random.Generator, *, chance: float = 0.7) -> None:
        if not 0 < chance <= 1:
            raise InputError(f"TechTree: chance={chance} is not in (0, 1]")
        self.book, self.rng, self.chance = book, rng, chance
        self.has: Counter[str] = Counter()
        self.got: set[str] = set()
        self.layer, self.distance, self.steps = 0, 0, 0
        self.held: str | None = None
        self.near: str | None = None
        self.deepest = max((each.layer for each in book.values()), default=0)

    def move(self, verb: str, thing: str = "") -> str:
        """Make a move; returns why it had no effect, else an empty text."""
        self.steps += 1
        if verb == "look":
            return self._look()
        if verb in ("up", "down"):
            return self._dig(1 if verb == "down" else -1)
        if verb == "walk":
            self.distance = max(self.distance - 1, 0)
            return "" if self.near else "nothing is near"
        if verb == "hold":
            self.held = thing if self.has[thing] else self.held
            return "" if self.has[thing] else f"lacks {thing}"
        if verb == "hit":
            return self._hit()
        return self._make(thing) if verb == "make" else f"no move {verb}"

    def _look(self) -> str:
        here = [name for name, each in self.book.items() if each.verb == "mine" and each.layer == self.layer]
        found = int(self.rng.integers(len(here) + 1))
        self.near = here[found] if found < len(here) else None
        self.distance = int(self.rng.integers(1, FAR + 1))
        return "" if self.near else "nothing is near"

    def _dig(self, way: int) -> str:
        goes = 0 <= self.layer + way <= self.deepest
        self.layer, self.near = self.layer + way * goes, None
        return "" if goes else "no layer there"

    def _hit(self) -> str:
        if self.near is None or self.distance:
            return "nothing is in front"
        needed = self.book[self.near].tools
        for tool in needed:
            if not self.has[tool]:
                return f"lacks {tool}"
        if needed and self.held != needed[0]:
            return f"needs {needed[0]} in hand"
        if self.rng.random() < self.chance:
            self._get(self.near)
            self.near = None
            return ""
        return "not yet"

    def _make(self, thing: str) -> str:
        recipe = self.book.get(thing)
        if recipe is None or recipe.verb == "mine":
            return f"{thing} is not made"
        for tool in recipe.tools:
            if not self.has[tool]:
                return f"lacks {tool}"
        for material, number in recipe.material.items():
            if self.has[material] < number:
                return f"lacks {material}"
        self.has.subtract(recipe.material)
        self._get(thing)
        return ""

    def _get(self, thing: str) -> None:
        self.has[thing] += self.book[thing].makes
        self.got.add(thing)
