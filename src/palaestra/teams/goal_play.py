"""Subgoals one after the other: a planner that errs, structured actions, feedback, and remembered plans.

The rest of Ghost in the Minecraft ([177], arXiv 2305.17144), of which no code is public. A structured action is a text,
`VERB ARGUMENT`: equip, dig (down or up, to a layer), explore, approach, mine, craft, smelt. Left out: a language model
as planner; the script here writes a wrong step now and then, and knows of recipes only what stands in its subgoal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.envs.worlds.tech_tree import VERBS, TechTree
from palaestra.errors import InputError
from palaestra.evaluation.analyses import ANALYSES, Analysis, table
from palaestra.teams.goal_tree import Goal, GoalTree, read_book
from palaestra.teams.plan_memory import PlanMemory

ACTIONS = ("equip", "dig", "explore", "approach", "mine", "craft", "smelt")
NEEDED = ("object", "verb", "material", "counts", "tools", "layer", "makes")
TRIES = 12
"""Moves after which the interface gives an action up."""


@dataclass(frozen=True)
class Feedback:
    """Data on why a plan stopped: the action that failed, and the reason."""

    action: str
    reason: str


class ErringPlanner:
    """Scripted planner for a `TechTree`: writes a subgoal's steps as a list of actions on `names`, some of them wrong.

    A subgoal tells how its object is got, with which tool and in which layer. Of an object that an action of its last
    plan lacked it knows nothing: it puts a guess before the plan, to mine, craft or smelt it.

    Args:
        rng: Of its errors. names: Objects that it may write. wrong: Chance that a step is any other action. copied: The
            same for a step that it takes from a reference plan.
    """

    def __init__(self, rng: np.random.Generator, names: Sequence[str], *, wrong: float = 0.2, copied: float = 0.02):
        if not 0 <= copied <= wrong <= 1:
            raise InputError(f"ErringPlanner: 0 <= copied={copied} <= wrong={wrong} <= 1")
        self.rng, self.names, self.wrong, self.copied = rng, list(names), wrong, copied
        self.turns, self.meant = 0, [""]

    def plan(self, goal: Goal, feedback: Feedback | None = None, reference: Sequence[str] | None = None) -> list[str]:
        """A list of structured actions to get one more of the goal's object."""
        self.turns += 1
        steps, wrong = (list(reference), self.copied) if reference else (self.steps(goal), self.wrong)
        if feedback is not None and feedback.reason.startswith("lacks ") and feedback.action in self.meant:
            steps = [*self._guess(feedback.reason.removeprefix("lacks ")), *steps]
        self.meant = steps
        return [self._other() if self.rng.random() < wrong else each for each in steps]

    def steps(self, goal: Goal) -> list[str]:
        """The right structured actions for a subgoal, by its recipe."""
        recipe, name = goal.recipe, goal.object
        if recipe.verb != "mine":
            return [f"{recipe.verb} {name}"]
        steps = [f"equip {tool}" for tool in recipe.tools[:1]]
        return [*steps, f"dig {recipe.layer}", f"explore {name}", f"approach {name}", f"mine {name}"]

    def _guess(self, name: str) -> list[str]:
        verb = VERBS[int(self.rng.integers(len(VERBS)))]
        return [f"explore {name}", f"approach {name}", f"mine {name}"] if verb == "mine" else [f"{verb} {name}"]

    def _other(self) -> str:
        action = ACTIONS[int(self.rng.integers(len(ACTIONS)))]
        return f"{action} {self.names[int(self.rng.integers(len(self.names)))]}"


def next_move(action: str, world: TechTree) -> tuple[str, str] | None:
    """The next primitive move (verb, argument) in a `TechTree` that carries out a structured action; None if done.

    The interface asks again after each move, so that one action becomes as many moves as the world wants.
    """
    verb, _, thing = action.rpartition(" ")
    if verb == "dig":
        wanted = int(thing) if thing.isdecimal() else world.layer
        return None if wanted == world.layer else ("down" if wanted > world.layer else "up", "")
    if verb == "explore":
        return None if world.near == thing else ("look", "")
    if verb == "approach":
        return ("walk", "") if world.near == thing and world.distance else None
    if verb == "equip":
        return None if world.held == thing else ("hold", thing)
    return ("hit", "") if verb == "mine" else ("make", thing)


def execute(action: str, world: TechTree, limit: int) -> str:
    """Carry out a structured action in a `TechTree` in place, until the world's step `limit`; why it failed, or ""."""
    verb, _, thing = action.rpartition(" ")
    if verb in ("approach", "mine") and world.near != thing:
        world.move("look")
        return f"{thing} is not near"
    for _ in range(TRIES):
        asked = next_move(action, world)
        if asked is None:
            return ""
        if world.steps >= limit:
            return "no steps left"
        reason = world.move(*asked)
        if (verb == "mine" and not reason) or verb in ("craft", "smelt"):
            return reason
        if reason not in ("", "not yet", "nothing is near"):
            return reason
    return f"{action} did not end"


@dataclass
class Played:
    """Data of a played episode: moves, turns of the planner, plans that failed, and objects of reached subgoals."""

    steps: int = 0
    turns: int = 0
    failures: int = 0
    met: list[str] = field(default_factory=list)


def achieve(
    goals: Sequence[Goal], world: TechTree, planner: ErringPlanner, memory: PlanMemory, *, limit: int
) -> Played:
    """Play `goals` in a `TechTree` in order until one fails: `planner` plans, `memory` gives references; a `Played`.

    Args:
        goals: Subgoals, those that come first at the beginning.
        world: Where they are reached.
        planner: Writes lists of structured actions.
        memory: Is asked for a reference before each first plan, and told every list that worked.
        limit: Moves of the episode.
    """
    played, before = Played(), planner.turns
    for goal in goals:
        had = world.has[goal.object]
        while world.has[goal.object] < had + goal.count and world.steps < limit:
            unit = world.has[goal.object]
            done: list[str] = []
            plan = planner.plan(goal, reference=memory.reference(goal.object))
            while world.has[goal.object] <= unit and world.steps < limit:
                feedback = _carry_out(plan, world, done, limit)
                if world.has[goal.object] > unit:
                    break
                played.failures += feedback is not None
                world.steps += feedback is None  # a plan that does nothing takes a step as well
                plan = planner.plan(goal, feedback)
            memory.add(goal.object, done, success=world.has[goal.object] > unit)
        if world.has[goal.object] < had + goal.count:
            break
        played.met.append(goal.object)
    played.steps, played.turns = world.steps, planner.turns - before
    return played


def _carry_out(plan: Sequence[str], world: TechTree, done: list[str], limit: int) -> Feedback | None:
    """Do the actions of a plan until one fails; those that worked are added to `done`."""
    for action in plan:
        reason = execute(action, world, limit)
        if reason:
            return Feedback(action, reason)
        done.append(action)
    return None


@ANALYSES.register("goals")
def goals(
    goal: str = "diamond",
    *,
    tree: bool = True,
    memory: str | None = None,
    remember: bool = True,
    least: int = 5,
    episodes: int = 10,
    steps: int = 600,
    wrong: float = 0.2,
    seed: int = 0,
) -> Analysis:
    """Makes an analysis (file of recipes -> DataFrame, a row per episode): how deep a planner gets in a tech tree.

    RECIPES has object, verb, material, counts, tools and layer.

    Episodes follow each other with one memory of plans. A row each: the deepest object, its depth, success, moves, the
    planner's turns, plans that failed.

    Args:
        goal: Object of every episode.
        tree: The goal is taken apart by the recipes; else the planner is asked for the goal itself.
        memory: File of plans, read if it is there, and written at the end, for the next run.
        remember: Plans are remembered at all.
        least: Successes of a subgoal from which on it has a reference plan.
        episodes: How many.
        steps: Moves of an episode.
        wrong: Chance that the planner writes a wrong step.
        seed: Of worlds and errors.
    """
    if min(episodes, steps) < 1:
        raise InputError(f"analysis goals: episodes={episodes} and steps={steps} of at least 1")

    def answer(recipes: Path) -> pl.DataFrame:
        book = read_book(table(recipes, *NEEDED).iter_rows(named=True))
        order = GoalTree(book)
        subgoals = order.decompose(goal) if tree else [Goal(goal, 1, book[goal])]
        plans = PlanMemory.load(memory, least=least) if memory else PlanMemory(least)
        rows = []
        for number in range(episodes):
            rng = np.random.default_rng([seed, number])
            world, planner = TechTree(book, rng), ErringPlanner(rng, list(book), wrong=wrong)
            played = achieve(subgoals, world, planner, plans if remember else PlanMemory(least), limit=steps)
            depth, item = max(((order.depth(name), name) for name in world.got), default=(0, ""))
            rows.append(
                {
                    "episode": number,
                    "item": item,
                    "depth": depth,
                    "success": goal in world.got,
                    "steps": played.steps,
                    "turns": played.turns,
                    "failures": played.failures,
                }
            )
        if memory:
            plans.save(memory)
        return pl.DataFrame(rows)

    return answer
