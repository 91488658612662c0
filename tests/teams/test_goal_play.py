"""Structured actions, feedback and episodes of subgoals."""

from __future__ import annotations

import json

import numpy as np
import pytest

from palaestra.envs.worlds.tech_tree import Recipe, TechTree
from palaestra.errors import InputError
from palaestra.evaluation.analyses import analyze
from palaestra.teams.goal_play import ErringPlanner, Feedback, achieve, execute
from palaestra.teams.goal_tree import Goal, GoalTree
from palaestra.teams.plan_memory import PlanMemory

BOOK = {
    "log": Recipe("mine"), "pick": Recipe("craft", {"log": 2}), "stone": Recipe("mine", tools=("pick",), layer=1)
}  # fmt: skip


def world(chance: float = 1.0) -> TechTree:
    return TechTree(BOOK, np.random.default_rng(0), chance=chance)


def test_an_action_is_as_many_moves_as_it_needs():
    made = world()
    assert execute("mine log", made, 99) == "log is not near"
    assert execute("explore log", made, 99) == ""
    assert made.near == "log"
    assert execute("approach log", made, 99) == ""
    assert made.distance == 0
    assert execute("mine log", made, 99) == ""
    assert made.has["log"] == 1
    assert execute("craft pick", made, 99) == "lacks log"
    made.has["log"] = 2
    assert execute("craft pick", made, 99) == ""
    assert (made.has["log"], made.has["pick"]) == (0, 1)
    assert execute("dig 1", made, 99) == ""
    assert execute("explore stone", made, 99) == execute("approach stone", made, 99) == ""
    assert execute("mine stone", made, 99) == "needs pick in hand"
    assert execute("equip pick", made, 99) == execute("mine stone", made, 99) == ""
    assert made.got == {"log", "pick", "stone"}
    assert execute("explore log", made, 99) == "explore log did not end"
    assert execute("craft stone", made, 99) == "stone is not made"
    assert execute("dig 0", made, made.steps) == "no steps left"
    assert execute("equip stick", made, 99) == "lacks stick"
    assert (made.move("up"), made.move("up")) == ("", "no layer there")


def test_a_hit_needs_all_tools_and_luck():
    book = {"lamp": Recipe("craft"), "pick": Recipe("craft"), "ore": Recipe("mine", tools=("pick", "lamp"))}
    made, mined, hits = TechTree(book, np.random.default_rng(0), chance=0.5), 0, 0
    made.has["pick"], made.held = 1, "pick"
    made.near, made.distance = "ore", 0
    assert made.move("hit") == "lacks lamp"
    made.has["lamp"] = 1
    for _ in range(400):
        made.near = "ore"
        mined, hits = mined + (made.move("hit") == ""), hits + 1
    assert 0.4 < mined / hits < 0.6
    made.has["pick"] = 0
    made.near = "ore"
    assert made.move("hit") == "lacks pick", "it was used up in the hand that held it"


def test_the_planner_guesses_at_what_its_own_step_lacked():
    planner = ErringPlanner(np.random.default_rng(0), list(BOOK), wrong=0.0, copied=0.0)
    goal = Goal("stone", 1, BOOK["stone"])
    plain = ["equip pick", "dig 1", "explore stone", "approach stone", "mine stone"]
    assert planner.plan(goal) == plain
    guessed = planner.plan(goal, Feedback("equip pick", "lacks pick"))
    assert guessed[-5:] == plain
    assert guessed[-6].endswith(" pick")
    assert planner.plan(goal, Feedback("smelt log", "lacks coal")) == plain
    assert planner.plan(goal, reference=["mine stone"]) == ["mine stone"]
    assert planner.turns == 4
    with pytest.raises(InputError, match="copied"):
        ErringPlanner(np.random.default_rng(0), list(BOOK), wrong=0.1, copied=0.2)


def test_subgoals_end_in_the_goal_and_are_remembered():
    made, memory = world(0.7), PlanMemory(least=1)
    planner = ErringPlanner(np.random.default_rng(1), list(BOOK), wrong=0.0, copied=0.0)
    played = achieve(GoalTree(BOOK).decompose("stone", 2), made, planner, memory, limit=500)
    assert played.met == ["log", "pick", "stone"]
    assert made.has["stone"] == 2
    assert memory.plans["pick"] == [("craft pick",)]
    assert played.steps == made.steps <= 500
    short = achieve(GoalTree(BOOK).decompose("stone", 2), world(0.7), planner, memory, limit=3)
    assert short.met == []


def test_the_command(tmp_path):
    rows = [
        {
            "object": name, "verb": each.verb, "material": list(each.material), "tools": list(each.tools),
            "counts": list(each.material.values()), "layer": each.layer, "makes": each.makes,
        }
        for name, each in BOOK.items()
    ]  # fmt: skip
    file = tmp_path / "recipes.json"
    file.write_text(json.dumps(rows))
    found = analyze(f"goals('stone', episodes=3, memory={str(tmp_path / 'plans.json')!r})", file)
    assert found.columns == ["episode", "item", "depth", "success", "steps", "turns", "failures"]
    assert found["success"].all()
    assert found["depth"].to_list() == [3] * 3
    assert "stone" in json.loads((tmp_path / "plans.json").read_text())
    with pytest.raises(InputError, match="episodes"):
        analyze("goals(episodes=0)", file)
