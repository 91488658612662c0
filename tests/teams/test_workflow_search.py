"""Edits of workflows, and the search that makes them."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError
from palaestra.foundation.registry import read_call
from palaestra.play.rollout import rollout
from palaestra.teams import WORKFLOWS
from palaestra.teams.workflow_edits import SHAPES, WorkflowDesign, read_edit
from palaestra.teams.workflow_search import (
    Proposed,
    Review,
    SearchStep,
    drawn_edits,
    search_workflows,
    surrogate_critic,
)

ROLES = ("reader", "planner", "checker")
START = WorkflowDesign("chain", ("reader",))


class Coin(TaskEnv):
    def draw(self, seed: int) -> Task:
        return Task("", "heads or tails?", lambda text: float(text == "heads"), "heads")


@pytest.mark.parametrize(
    ("shape", "calls"), [("chain", 3), ("one_conversation", 3), ("vote", 3), ("debate", 6), ("star", 3)]
)
def test_every_shape_is_a_workflow_that_can_be_played(shape, calls) -> None:
    told = {"reader": "Read.", "checker": "Check."}
    design = WorkflowDesign(shape, ("reader", "checker", "reader"))
    for instructions in (None, told):
        name, values, options = read_call(design.text(instructions))
        env = WORKFLOWS.find(name)(Coin, *values, **options)
        policy = ScriptedPolicy(lambda request: "heads")
        turns = rollout(env, Team(dict.fromkeys(env().agents, policy)), groups=1, timeout=None).frame
        assert len(turns) == calls
        assert turns["success"].all()
        assert ("Check." in design.text(instructions)) == bool(instructions)


def test_edits_change_one_thing_and_stay_below_the_most() -> None:
    design = WorkflowDesign("chain", ("reader", "checker"))
    edits = design.edits(ROLES, most=3)
    assert edits["add planner 2"].roles == ("reader", "planner", "checker")
    assert edits["drop 1"] == WorkflowDesign("chain", ("checker",))
    assert edits["replace 2 planner"].roles == ("reader", "planner")
    assert edits["swap 1 2"].roles == ("checker", "reader")
    assert edits["shape debate"] == WorkflowDesign("debate", design.roles)
    assert design not in edits.values()
    assert not [text for text in design.edits(ROLES, most=2) if text.startswith("add")]
    assert not [text for text in START.edits(ROLES, most=2) if text.startswith(("drop", "shape", "swap"))]
    assert WorkflowDesign("debate", ("reader",)) == START


@pytest.mark.parametrize(
    ("said", "edit"),
    [
        ("add planner 2", "add planner 2"),
        ("Add the role `planner` at position 2.", "add planner 2"),
        ("Swap nodes 1 and 2", None),  # "nodes" is no word of an edit: nothing is guessed
        ("swap 1 and 2", "swap 1 2"),
        ("**Shape: one_conversation**", "shape one_conversation"),
        ("replace 2 by planner", "replace 2 planner"),
        ("add planner 9", None),
        ("add planner 2, then drop 1", None),
        ("", None),
    ],
)
def test_an_edit_is_read_in_other_words_but_never_guessed(said, edit) -> None:
    assert read_edit(said, WorkflowDesign("chain", ("reader", "checker")).edits(ROLES, most=4)) == edit


@pytest.mark.parametrize("wrong", [("rings", ("a",)), ("chain", ())])
def test_a_design_that_is_none_is_named(wrong) -> None:
    with pytest.raises(InputError, match="workflow design"):
        WorkflowDesign(*wrong)


def worth(design: WorkflowDesign) -> tuple[float, float]:
    """A planner before a checker in one chain solves all, each node costs 10."""
    roles = design.roles
    right = 0.2 + 0.4 * ("planner" in roles) * (design.shape == "chain")
    right += (
        0.4 * (design.shape == "chain" and "checker" in roles[roles.index("planner") :]) if "planner" in roles else 0
    )
    return right, 10.0 * len(roles)


def searched(budget=30, seed=0, **options):
    rng = np.random.default_rng(seed)
    return search_workflows(START, worth, ROLES, budget=budget, rng=rng, critic=surrogate_critic(ROLES), **options)


def test_the_search_finds_the_best_for_its_cost_and_marks_what_is_pareto_optimal() -> None:
    table = searched()
    (best,) = table.filter("best").to_dicts()
    assert best["workflow"] == "chain(['planner', 'checker'])"
    assert best["reward"] == pytest.approx(1.0 - 0.1 * 20 / 10)
    front = table.filter("pareto").sort("cost").rows(named=True)
    assert [row["nodes"] for row in front] == [1, 2]
    assert front[1]["best"]
    for row in table.filter(~table["pareto"]).to_dicts():
        assert any(row["cost"] >= each["cost"] and row["accuracy"] <= each["accuracy"] for each in front)
    assert len(table) == 30
    assert table["workflow"].n_unique() == 30  # nothing is played twice
    rows = {row["step"]: row for row in table.to_dicts()}
    for row in table.filter(table["parent"].is_not_null()).to_dicts():
        _, values, _ = read_call(rows[row["parent"]]["workflow"])
        assert row["step"] > row["parent"]
        assert abs(row["nodes"] - len(values[0])) <= 1  # one edit apart
    assert table["reason"][1:].str.contains("is predicted").all()


def test_the_table_is_that_of_the_seed() -> None:
    assert searched(seed=3).equals(searched(seed=3))
    assert not searched(seed=3).equals(searched(seed=4))


def test_the_price_of_a_node_is_weighed_against_what_it_brings() -> None:
    assert searched(price=0.5)["reward"].max() == pytest.approx(0.6 - 0.5)  # the planner alone
    assert searched(price=0.5).filter("best")["reward"].item() == searched(price=0.5)["reward"].max()
    every = searched(price=0.0, most=3, budget=200)
    assert every.filter("best")["nodes"].item() == 2  # of equal rewards the one with fewer nodes
    assert every.filter(every["accuracy"] == 1.0)["nodes"].max() == 3


def test_what_the_critic_turns_down_is_not_played_nor_proposed_again() -> None:
    asked: list[SearchStep] = []

    def propose(step, rng):
        asked.append(step)
        return [Proposed(next(iter(step.edits)), tokens=7)]

    def review(step, edits, rng):
        return [Review("checker" in edits[0] and step.number > 2, "no checker in it", 3)]

    rng = np.random.default_rng(0)
    table = search_workflows(START, worth, ROLES, budget=4, rng=rng, designer=propose, critic=review)
    turned_down = table.filter(status="rejected")
    assert turned_down["reason"].to_list() == ["no checker in it"] * len(turned_down)
    assert turned_down["tokens"].to_list() == [10] * len(turned_down)
    assert turned_down["accuracy"].null_count() == len(turned_down) > 0
    later = [step for step in asked if step.rejected]
    assert later
    assert all(edit not in step.edits for step in later for edit in step.rejected)
    assert table.filter(status="evaluated")["edit"].drop_nulls().str.contains("checker").all()


def test_replies_that_cannot_be_read_are_rows_and_end_the_search_some_day() -> None:
    options = {"budget": 3, "rng": np.random.default_rng(0)}
    table = search_workflows(START, worth, ROLES, designer=lambda step, rng: [Proposed(None, "hm", 5)], **options)
    assert table["status"].to_list() == ["evaluated", *["unread"] * 8]
    assert table["reason"][1] == "designer: hm"
    assert table["tokens"][1] == 5
    assert table.filter("best")["step"].item() == 0
    unread = lambda step, edits, rng: [Review(None, "hm")] * len(edits)  # noqa: E731
    table = search_workflows(START, worth, ROLES, designer=drawn_edits(1), critic=unread, **options)
    assert table["status"].to_list() == ["evaluated", *["unread"] * 8]
    assert table["reason"][1] == "critic: hm"
    assert table["edit"].null_count() == 1


def test_a_small_space_is_searched_to_its_end() -> None:
    table = search_workflows(START, worth, ["reader"], budget=99, rng=np.random.default_rng(0), most=2)
    assert len(table) == 1 + len(SHAPES)


@pytest.mark.parametrize("wrong", [{"budget": 0}, {"price": -1}, {"roles": []}, {"most": 0}])
def test_options_out_of_range_are_named(wrong) -> None:
    options = {"budget": 3, "roles": ROLES, "rng": np.random.default_rng(0)} | wrong
    with pytest.raises(InputError, match="search_workflows"):
        search_workflows(START, worth, **options)
    with pytest.raises(InputError, match="cost"):
        search_workflows(START, lambda design: (1.0, 0.0), ROLES, budget=3, rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="width"):
        drawn_edits(0)
