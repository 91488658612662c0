"""Goals taken apart: counts of batches, tools that stay, stock that is used, and books that are refused."""

from __future__ import annotations

import pytest

from palaestra.envs.worlds.tech_tree import Recipe
from palaestra.errors import InputError
from palaestra.teams.goal_tree import GoalTree, read_book

BOOK = {
    "log": Recipe("mine"), "plank": Recipe("craft", {"log": 1}, makes=4), "bench": Recipe("craft", {"plank": 4}),
    "pick": Recipe("craft", {"plank": 3}, ("bench",)), "stone": Recipe("mine", tools=("pick",), layer=1),
    "slab": Recipe("craft", {"stone": 2}, ("bench", "pick")),
}  # fmt: skip


def row(name, verb="mine", material=(), counts=(), tools=(), layer=0, makes=1):
    return {"object": name, "verb": verb, "material": material, "counts": counts, "tools": tools, "layer": layer,
            "makes": makes}  # fmt: skip


def subgoals(goal, count=1, **options):
    return [(each.object, each.count) for each in GoalTree(BOOK).decompose(goal, count, **options)]


def test_post_order_with_batches_and_tools_once():
    assert subgoals("slab", 2) == [
        ("log", 1), ("plank", 4), ("bench", 1), ("log", 1), ("plank", 3), ("pick", 1), ("stone", 4), ("slab", 2)
    ]  # fmt: skip
    assert subgoals("plank", 5) == [("log", 2), ("plank", 5)]


def test_what_there_is_is_used_first():
    assert subgoals("pick", have={"bench": 1, "plank": 2}) == [("log", 1), ("plank", 1), ("pick", 1)]
    assert subgoals("pick", have={"pick": 1}) == []


def test_depth():
    assert [GoalTree(BOOK).depth(name) for name in BOOK] == [1, 2, 3, 4, 5, 6]


def test_refused():
    with pytest.raises(InputError, match="slabs"):
        GoalTree(BOOK).decompose("slabs")
    with pytest.raises(InputError, match="needs 'a' itself"):
        read_book([row("a", "craft", ["b"], [1]), row("b", "craft", ["a"], [1])])
    with pytest.raises(InputError, match="verb"):
        read_book([row("a", "dig")])
    with pytest.raises(InputError, match="counts"):
        read_book([row("b"), row("a", "craft", ["b"], [0])])
    assert read_book([row("a", "mine", layer=2)])["a"] == Recipe("mine", layer=2)
