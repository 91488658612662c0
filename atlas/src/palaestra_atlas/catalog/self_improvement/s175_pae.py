"""[175] PAE (arXiv 2412.13194): a proposer names tasks, an evaluator judges attempts, short successes are cloned.

Cells of a grid instead of web sites; scripts propose from the description of the place, and judge by the last
observations with a tenth of false positives. Left out: language models, pages, thoughts that are cloned with actions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, TabularPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.credit import short_success
from palaestra.envs.worlds import ErrandGrid
from palaestra.learning import PolicyGradient
from palaestra.learning.stages import Context
from palaestra.learning.stages.final_verdict import final_verdict
from palaestra.learning.stages.proposed_tasks import proposed_tasks
from palaestra.learning.stages.selection import accumulate
from palaestra.play.executors import Local, Plan
from palaestra.rewards import outcome_reward
from palaestra_atlas.reproductions import exact

STEPS = {"east": (1, 0), "west": (-1, 0), "north": (0, 1), "south": (0, -1)}
STAGES = [
    "proposed_tasks('proposer')",
    "final_verdict()",
    "accumulate(8, where='verdict')",
    "weights('short_success()')",
]
FIXED = ["final_verdict()", "accumulate(8, where='verdict')", "weights('short_success(q=1)')"]


def proposer() -> Any:
    """A script that names cells of a grid of the size that it reads of, a few of them outside."""

    def play(request: Request) -> str:
        size = int(request.observation.text.split(" by ")[1].split()[0])
        return "\n".join(f"go to {request.rng.integers(size + 1)},{request.rng.integers(size)}" for _ in range(25))

    return play


def evaluator(errs: float = 0.1) -> Any:
    """A script that says yes if the last action leads from the last observation to the goal, else with this chance."""

    def play(request: Request) -> str:
        lines = request.observation.text.splitlines()
        seen = [line for line in lines if line.startswith("Observation: ")][-1].split()
        did = STEPS.get(next(line for line in lines if line.startswith("Last action: ")).split(": ")[1], (0, 0))
        there = (int(seen[1]), int(seen[3])) == did
        return "yes" if there or request.rng.random() < errs else "no"

    return play


def recipe(seed: int, folder: Path) -> None:
    """Writes `pae.yaml`, and `fixed.yaml`, which clones all judged successes of four tasks."""
    (folder / "pae.yaml").write_text(json.dumps(made(STAGES)))
    (folder / "fixed.yaml").write_text(json.dumps(made(FIXED)))


def made(stages: list[str]) -> dict[str, Any]:
    """The recipe."""
    scripts = {
        name: {"kind": "script", "options": {"script": f"{__name__}:{name}"}} for name in ("proposer", "evaluator")
    }
    return {
        "name": "pae",
        "env": {"make": "native/errand_grid"},
        "policies": {"table": {"kind": "tabular", "options": {"actions": 4}}, **scripts},
        "team": {"walker": "table"},
        "reward": "outcome_reward('verdict')",
        "stages": stages,
        "credit": "return_to_go()",
        "learn": {"lr": 0.1, "terms": ["clone(column='weight')"]},
        "train": {"iterations": 16, "groups": 24, "group_size": 4, "evaluate_every": 16, "checkpoint_every": 16},
        "evaluation": {"tasks": 200, "trials": 1, "look_tasks": 2, "look_trials": 1},
    }


def context(iteration: int = 1, team: Team | None = None, *, errs: float = 0.0) -> Context:
    """Context of a stage, with a proposer and an evaluator."""
    advisers = {
        "proposer": ScriptedPolicy(proposer(), name="proposer"),
        "evaluator": ScriptedPolicy(evaluator(errs), name="evaluator"),
    }
    seats = team or Team(walker=TabularPolicy(4, name="table"))
    return Context(np.random.default_rng(iteration), iteration, ErrandGrid, seats, Local(), advisers=advisers)


@exact
def proposed_once_and_none_is_held_out() -> None:
    """Before the first iteration 36 tasks are made of the description; those of the test are refused."""
    stage, told = proposed_tasks("proposer"), context()
    plan = stage.plan(Plan(groups=200, seed=1, iteration=1), told)
    world = ErrandGrid()
    assert len(stage.tasks) == 36, "49 cells, 12 of them held out, and the middle"
    assert not {f"go to {x},{y}" for x, y in world.held_out} & set(stage.tasks)
    assert {"is held out", "is outside of the grid"} <= set(stage.refused)
    calls = told.spent.calls
    again = stage.plan(Plan(groups=4, seed=1, iteration=2), told)
    assert told.spent.calls == calls > 0, "nobody is asked again"
    assert again.env_seeds
    played = Local().play(ErrandGrid, told.team, plan).frame
    assert set(played["task"]) == set(stage.tasks)
    tests = Local().play(lambda: ErrandGrid(split="test"), told.team, Plan(groups=60)).frame
    assert not set(tests["task"]) & set(stage.tasks)
    plain = Local().play(ErrandGrid, told.team, Plan(groups=60)).frame
    assert plain["task"].n_unique() == 4, "without proposals a handful of tasks is all there is"


def judged(errs: float = 0.0) -> tuple[Turns, Context]:
    """Episodes of a walker that walks anyhow, with verdicts."""
    told = context(errs=errs)
    plan = proposed_tasks("proposer").plan(Plan(groups=72, group_size=4, seed=2, iteration=1), told)
    return final_verdict()(Local().play(ErrandGrid, told.team, plan), told), told


@exact
def the_verdict_is_all_that_is_paid() -> None:
    """An evaluator that errs nowhere says what happened; with a tenth of false positives that is what is paid."""
    for errs in (0.0, 0.1):
        turns, _ = judged(errs)
        ends = turns.with_column(paid=outcome_reward("verdict")).frame.group_by("group", "episode")
        told = ends.agg(pl.col("verdict").first(), pl.sum("paid"), pl.col("success").drop_nulls().last())
        assert (told["paid"] == told["verdict"].cast(float)).all()
        assert told.filter("success")["verdict"].all()
        wrong = float(told.filter(~pl.col("success"))["verdict"].mean())  # type: ignore[arg-type]
        assert abs(wrong - errs) < 0.07


def lengths(*tasks: tuple[str, list[int], bool]) -> Turns:
    """A table of episodes of these lengths."""
    rows = [
        (task, number, turn, verdict)
        for task, each, verdict in tasks
        for number, length in enumerate(each)
        for turn in range(length)
    ]
    names = {"task": 0, "episode": 1, "turn": 2, "verdict": 3}
    frame = pl.DataFrame({name: [row[place] for row in rows] for name, place in names.items()})
    group = pl.concat_str("task", pl.col("verdict").cast(pl.String)).rank("dense").cast(pl.Int32)
    return Turns(frame.with_columns(group=group, agent=pl.lit("walker")))


def kept(turns: Turns, task: str = "a", **options: Any) -> list[int]:
    """Lengths of the episodes of a task that are cloned."""
    made = turns.with_column(weight=short_success(**options)).frame
    ends = made.filter(pl.col("task") == task).group_by("group", "episode").agg(pl.len(), pl.first("weight"))
    return sorted(ends.filter(pl.col("weight") == 1)["len"].to_list())


@exact
def short_ones_of_each_task_are_kept() -> None:
    """Lengths 3, 4, 5, 6, 10 leave 3; 3, 6 leave 3; three of 4 stay; and one alone stays."""
    for given, left in (([3, 4, 5, 6, 10], [3]), ([3, 6], [3]), ([4, 4, 4], [4, 4, 4]), ([9], [9])):
        assert kept(lengths(("a", given, True))) == left


@exact
def only_judged_successes_are_cloned() -> None:
    """Shorter failures are not cloned, nor do they count among the lengths."""
    turns = lengths(("a", [1, 1, 2], False), ("a", [3, 4, 5, 6, 10], True))
    assert kept(turns) == [3]
    unread = turns.frame.with_columns(verdict=pl.when("verdict").then("verdict"))
    assert kept(Turns(unread)) == [3], "no verdict is no success"


@exact
def far_tasks_keep_their_own() -> None:
    """A task whose shortest way is nine turns keeps it, beside a task whose successes have three."""
    turns = lengths(("a", [3, 3, 3, 4], True), ("b", [9, 11], True))
    assert (kept(turns, "a"), kept(turns, "b")) == ([3, 3, 3], [9])


@exact
def later_rounds_are_of_the_improved_policy() -> None:
    """In three rounds successes join the pool, of policies that have learned once, twice …, and walks get shorter."""
    policy = TabularPolicy(4, name="table")
    team, propose, pool = Team(walker=policy), proposed_tasks("proposer"), accumulate(8, where="verdict")
    learner, length, turns = PolicyGradient(team, "clone(column='weight')", lr=0.2), [], Turns({})
    for iteration in range(1, 6):
        told = context(iteration, team)
        told.learner = learner
        plan = propose.plan(Plan(groups=36, group_size=4, seed=4, iteration=iteration, version=learner.updates), told)
        found = final_verdict()(Local().play(ErrandGrid, team, plan), told)
        length.append(len(found) / 144)
        turns = pool(found, told)
        weighed = turns.with_column(weight=short_success(), advantage=np.zeros(len(turns)))
        learner.update(weighed)
    versions = turns.frame.filter("verdict")["policy_version"].unique().sort().to_list()
    assert len(versions) == 5
    assert length[-1] < length[0] - 1.0
