"""[177] Ghost in the Minecraft (arXiv 2305.17144): goals taken apart, plans of structured actions, plans remembered.

No code of the agent is public: its structure is that of the paper's text, and details are reconstructed. A world of
layers with the same dependencies instead of Minecraft, a script that errs instead of a language model as planner.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.envs.worlds.tech_tree import Recipe, TechTree
from palaestra.evaluation.analyses import analyze
from palaestra.teams.goal_play import ErringPlanner, Played, achieve
from palaestra.teams.goal_tree import Goal, GoalTree, read_book
from palaestra.teams.plan_memory import PlanMemory
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

DIAMOND = [
    ("log", "mine", {}, [], 0, 1), ("sand", "mine", {}, [], 0, 1), ("plank", "craft", {"log": 1}, [], 0, 4),
    ("stick", "craft", {"plank": 2}, [], 0, 4), ("workbench", "craft", {"plank": 4}, [], 0, 1),
    ("wooden_pickaxe", "craft", {"plank": 3, "stick": 2}, ["workbench"], 0, 1),
    ("cobblestone", "mine", {}, ["wooden_pickaxe"], 1, 1), ("coal", "mine", {}, ["wooden_pickaxe"], 1, 1),
    ("stone_pickaxe", "craft", {"cobblestone": 3, "stick": 2}, ["workbench"], 0, 1),
    ("furnace", "craft", {"cobblestone": 8}, ["workbench"], 0, 1), ("iron_ore", "mine", {}, ["stone_pickaxe"], 2, 1),
    ("iron_ingot", "smelt", {"iron_ore": 1, "coal": 1}, ["furnace"], 0, 1),
    ("iron_pickaxe", "craft", {"iron_ingot": 3, "stick": 2}, ["workbench"], 0, 1),
    ("diamond", "mine", {}, ["iron_pickaxe"], 3, 1),
]  # fmt: skip
"""The way to a diamond: object, verb, material, tools, layer, how many a recipe makes."""


def rows(seed: int | None = None) -> list[dict[str, Any]]:
    """The recipes as a table; with a seed, materials are asked for in other numbers, and layers have other objects."""
    rng, made = np.random.default_rng(seed), []
    for name, verb, material, tools, layer, makes in DIAMOND:
        counts = [number if seed is None else int(rng.integers(1, number + 2)) for number in material.values()]
        made.append({"object": name, "verb": verb, "material": list(material), "counts": counts, "tools": tools,
                     "layer": layer, "makes": makes})  # fmt: skip
    if seed is not None:
        for layer in range(4):
            made += [_stone(f"stone_{layer}_{number}", layer) for number in range(int(rng.integers(2)))]
    return made


def _stone(name: str, layer: int) -> dict[str, Any]:
    return {"object": name, "verb": "mine", "material": [], "counts": [], "tools": [], "layer": layer, "makes": 1}


def recipes(seed: int, folder: Path) -> None:
    """Recipes of the seed as `recipes.json`."""
    (folder / "recipes.json").write_text(json.dumps(rows(seed)), encoding="utf-8")


def mean_depth() -> Measure:
    """Mean depth of the deepest object of an episode."""

    def measured(left: Left) -> list[float]:
        return [float(np.mean([row["depth"] for row in json.loads(left.stdout)]))]

    return measured


BOOK = read_book(rows())


@exact
def counts_of_a_diamond() -> None:
    """A diamond needs 3 logs, 11 cobblestones, 3 of coal, ore and ingots, and one of each of five tools."""
    subgoals = GoalTree(BOOK).decompose("diamond")
    needed: Counter[str] = Counter()
    for goal in subgoals:
        needed[goal.object] += goal.count
    wanted = {"log": 3, "cobblestone": 11, "coal": 3, "iron_ore": 3, "iron_ingot": 3, "workbench": 1, "furnace": 1}
    wanted |= {"wooden_pickaxe": 1, "stone_pickaxe": 1, "iron_pickaxe": 1, "diamond": 1}
    assert {name: needed[name] for name in wanted} == wanted, needed
    assert needed["sand"] == 0
    again = GoalTree(BOOK).decompose("diamond", have={"iron_pickaxe": 1})
    assert [(goal.object, goal.count) for goal in again] == [("diamond", 1)]
    assert (again[0].recipe.tools, again[0].recipe.layer) == (("iron_pickaxe",), 3)


@exact
def order_is_topological() -> None:
    """Whatever a subgoal uses is there when its turn comes: one after the other they go through without a lack."""
    for seed in range(20):
        book = read_book(rows(seed))
        has: Counter[str] = Counter()
        for goal in GoalTree(book).decompose("diamond"):
            for _ in range(-(-goal.count // goal.recipe.makes)):
                assert all(has[tool] for tool in goal.recipe.tools), goal
                has.subtract(goal.recipe.material)
                assert min(has.values(), default=0) >= 0, goal
                has[goal.object] += goal.recipe.makes
        assert has["diamond"] == 1


SIMPLE = {"log": Recipe("mine"), "plank": Recipe("craft", {"log": 1})}


def played(
    goals: Sequence[Goal], *, book: Any = SIMPLE, wrong: float = 0.0, memory: PlanMemory | None = None, seed: int = 0,
    limit: int = 400,
) -> tuple[Played, TechTree]:  # fmt: skip
    """An episode of these subgoals."""
    rng = np.random.default_rng(seed)
    world = TechTree(book, rng, chance=0.7)
    planner = ErringPlanner(rng, list(book), wrong=wrong, copied=min(0.02, wrong))
    found = achieve(goals, world, planner, PlanMemory() if memory is None else memory, limit=limit)
    return found, world


@exact
def one_turn_is_many_moves() -> None:
    """A planner that does not err needs one turn for each object; the interface makes several moves of it."""
    goals = GoalTree(BOOK).decompose("diamond")
    found, world = played(goals, book=BOOK)
    units = sum(-(-goal.count // goal.recipe.makes) for goal in goals)
    assert "diamond" in world.got
    assert found.turns <= 1.2 * units, (found.turns, units)
    assert found.steps > 4 * found.turns, (found.steps, found.turns)


@exact
def a_plan_that_failed_is_changed() -> None:
    """With one of five steps wrong every plan is mended within a few turns: 20 episodes of ten logs end in time."""
    ended = [played([Goal("log", 10, SIMPLE["log"])], wrong=0.2, seed=seed)[1].has["log"] >= 10 for seed in range(20)]
    assert sum(ended) >= 18, sum(ended)


@exact
def what_was_lacking_is_got_first() -> None:
    """Asked for a plank without a log, a planner that does not err reads what its action lacked, and gets it first."""
    found, world = played([Goal("plank", 1, SIMPLE["plank"])])
    assert world.has["plank"] == 1, found


@exact
def what_worked_is_a_reference_after_some_times() -> None:
    """Four lists are none yet; the fifth makes the common part a reference. Failed lists are not kept."""
    memory = PlanMemory(least=5)
    for number in range(5):
        assert memory.reference("log") is None
        memory.add("log", ["dig 0", f"craft {number}", "explore log", "approach log", "mine log"], success=True)
        memory.add("log", ["mine log"], success=False)
    assert memory.reference("log") == ("dig 0", "explore log", "approach log", "mine log")
    played([Goal("log", 1, SIMPLE["log"])], memory=(short := PlanMemory(least=1)), limit=1)
    assert not short.plans, "the episode was over before there was a log"


def failures(episodes: int, memory: PlanMemory) -> int:
    """Plans that failed in the second half of so many episodes of eight logs."""
    goals = [Goal("log", 8, SIMPLE["log"])]
    found = [played(goals, wrong=0.2, memory=memory, seed=seed)[0].failures for seed in range(episodes)]
    return sum(found[episodes // 2 :])


@exact
def memory_spares_failures() -> None:
    """On repeated subgoals the planner with a memory of its own runs fails less than half as often as without."""
    own, none = failures(20, PlanMemory()), failures(20, PlanMemory(least=10**6, most=10**6))
    assert own < 0.5 * none, (own, none)


@exact
def the_next_run_finds_what_this_one_saved() -> None:
    """The first run writes its plans; in the second one the first episode already has references, and fails less."""
    first, second = [], []
    for seed in range(4):
        with tempfile.TemporaryDirectory() as folder:
            file, saved = Path(folder) / "recipes.json", Path(folder) / "plans.json"
            file.write_text(json.dumps(rows()), encoding="utf-8")
            line = f"goals('stone_pickaxe', episodes=6, memory={str(saved)!r}, seed={seed})"
            first.append(analyze(line, file)["failures"][0])
            assert PlanMemory.load(saved).reference("log")
            second.append(analyze(line, file)["failures"][0])
    assert all(after < before for before, after in zip(first, second, strict=True)), (first, second)
    assert 2 * sum(second) < sum(first), (first, second)


@reproduction(
    177,
    claim="A planner whose goal is taken apart by recipes gets deep where the same planner, asked for the goal itself, "
    "gets next to nothing; with plans remembered fewer of its plans fail than without. No weight changes.",
    baseline="the same planner, with as many moves, asked for the final goal; and with the tree but without memory",
    criterion="mean depth of the deepest object, of 10: at least 7 with tree and memory, at most 3 without the tree; "
    "median number of failed plans with memory at most .7 of that without",
    seeds=(0, 1, 2),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Three lines of twenty episodes on the recipes of each seed."""
    lines = {"tree": "goals(episodes=20)", "whole": "goals(episodes=20, tree=False)",
             "forgetful": "goals(episodes=20, remember=False)"}  # fmt: skip
    measured: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, line in lines.items():
            depth, won, failed = [], [], []
            for seed in seeds:
                recipes(seed, Path(folder))
                found = analyze(line, Path(folder) / "recipes.json")
                depth.append(float(found["depth"].mean()))  # type: ignore[arg-type]
                won.append(float(found["success"].mean()))  # type: ignore[arg-type]
                failed.append(float(found["failures"].median()))  # type: ignore[arg-type]
            measured |= {f"depth_{name}": float(np.mean(depth)), f"success_{name}": float(np.mean(won))}
            measured |= {f"failures_{name}": float(np.mean(failed))}
    deep = measured["depth_tree"] >= 7 and measured["depth_whole"] <= 3
    return Outcome(measured, deep and measured["failures_tree"] <= 0.7 * measured["failures_forgetful"])
