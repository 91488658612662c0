"""Goals taken apart through a book of recipes: what has to be had, how much of it, and in which order.

The decomposer of Ghost in the Minecraft ([177], arXiv 2305.17144). Left out: recipes that are looked up in a text; the
book is a table. Plans for one subgoal are made in `palaestra.teams.goal_play`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from palaestra.envs.worlds.tech_tree import VERBS, Book, Recipe
from palaestra.errors import InputError, nearest


@dataclass(frozen=True)
class Goal:
    """Data of a subgoal: the object to get, how many more of it, and its recipe."""

    object: str
    count: int
    recipe: Recipe


def read_book(rows: Iterable[Mapping[str, Any]]) -> dict[str, Recipe]:
    """Dict {object: `Recipe`} from dicts of object, verb, material and counts (lists), tools, layer and makes.

    Raises:
        InputError: A verb is unknown, a recipe names what the table lacks, or an object needs itself.
    """
    book: dict[str, Recipe] = {}
    for row in rows:
        if row["verb"] not in VERBS:
            raise InputError(f"recipe of {row['object']!r}: verb {row['verb']!r}{nearest(str(row['verb']), VERBS)}")
        material = dict(zip(row["material"], map(int, row["counts"]), strict=True))
        tools, layer, makes = tuple(row["tools"]), int(row["layer"]), int(row["makes"])
        if makes < 1 or min(material.values(), default=1) < 1 or layer < 0:
            raise InputError(f"recipe of {row['object']!r}: makes and counts of at least 1, layer of at least 0")
        book[str(row["object"])] = Recipe(row["verb"], material, tools, layer, makes)
    tree = GoalTree(book)
    for name in book:
        tree.depth(name)
    return book


class GoalTree:
    """Tree of recipes {object: `Recipe`}: `decompose(goal, count)` lists the ordered subgoals of 6 planks, say.

    >>> book = {"log": Recipe("mine"), "plank": Recipe("craft", {"log": 1}, makes=4)}
    >>> [(goal.object, goal.count) for goal in GoalTree(book).decompose("plank", 6)]
    [('log', 2), ('plank', 6)]
    """

    def __init__(self, book: Book) -> None:
        self.book = book

    def decompose(self, goal: str, count: int = 1, *, have: Mapping[str, int] | None = None) -> list[Goal]:
        """Subgoals in post-order: tools and material of an object come before it, and the goal is the last one.

        Each asks for so many *more* of its object. What is left of a batch, and what there is already, is used first.

        Args:
            goal: An object of the book.
            count: How many.
            have: What is there already, with its numbers.

        Raises:
            InputError: The book has no such object, or one needs itself.
        """
        return list(self._expand(goal, count, Counter(have or {}), ()))

    def depth(self, name: str, above: tuple[str, ...] = ()) -> int:
        """Depth of an object: the longest chain of recipes below it, itself included."""
        recipe = self._recipe(name, above)
        below = [self.depth(each, (*above, name)) for each in (*recipe.tools, *recipe.material)]
        return 1 + max(below, default=0)

    def _expand(self, name: str, count: int, stock: Counter[str], above: tuple[str, ...]) -> Iterator[Goal]:
        recipe, used = self._recipe(name, above), min(stock[name], count)
        stock[name] -= used
        if count == used:
            return
        times = -(-(count - used) // recipe.makes)
        for tool in recipe.tools:
            yield from self._expand(tool, 1, stock, (*above, name))
            stock[tool] += 1  # it stays
        for material, number in recipe.material.items():
            yield from self._expand(material, number * times, stock, (*above, name))
        yield Goal(name, count - used, recipe)
        stock[name] += times * recipe.makes - (count - used)

    def _recipe(self, name: str, above: tuple[str, ...]) -> Recipe:
        if name not in self.book:
            raise InputError(f"the book of recipes has no {name!r}{nearest(name, self.book)}")
        if name in above:
            raise InputError(f"the recipe of {name!r} needs {name!r} itself, by way of {' and '.join(above)}")
        return self.book[name]
