"""[143] MACT (arXiv 2508.03404): plan, execute, judge, answer, each with a budget and with the team's outcome.

Every role earns its own score, of a process scorer or an outcome scorer, and the outcome of the whole process. The
process scorer slightly prefers a wrong plan. Left out: documents, vision-language models, supervised tuning before;
the answerer sees the last result alone, not what was wrong before.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Procedure
from palaestra.rewards import mact, mact_reward
from palaestra_atlas.reproductions import exact

BUDGET = {"planners": 3, "executors": 3, "thoughts": 3}


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of four roles with a table each, `mact.yaml`."""
    seats = {f"{role}-{k}": role for role in ("planner", "executor") for k in (1, 2, 3)}
    sizes = {"planner": 6, "executor": 6, "judge": 3, "answerer": 6}
    made = {
        "name": "mact",
        "env": {"make": "native/procedure", "options": BUDGET},
        "policies": {role: {"kind": "tabular", "options": {"actions": size}} for role, size in sizes.items()},
        "team": seats | {"judge": "judge", "answerer": "answerer"},
        "reward": "mact_reward()",
        "credit": "mact()",
        "learn": {"lr": 0.15},
        "train": {"iterations": 80, "groups": 16, "group_size": 8, "evaluate_every": 80, "checkpoint_every": 80,
                  "save_turns": "all"},
        "evaluation": {"tasks": 300, "trials": 1, "look_tasks": 5, "look_trials": 1},
    }  # fmt: skip
    (folder / "mact.yaml").write_text(json.dumps(made))


def rows() -> Turns:
    """A process that went well: plan, two candidates, a wrong verdict, a right one, an answer."""
    seats = ["planner-1", "executor-1", "executor-2", "judge", "judge", "answerer"]
    return Turns(
        {
            "group": [0] * 6, "episode": [0] * 6, "agent": seats, "policy": [each.partition("-")[0] for each in seats],
            "process": [0.9, 1.0, 0.0, None, None, None], "outcome": [None, None, None, 0.0, 1.0, 1.0],
            "reward": [0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        }
    )  # fmt: skip


@exact
def own_score_and_outcome() -> None:
    """Process scores .9, 1 and 0 for planner and executors, outcome scores 0, 1 and 1 for judge and answer, + 1."""
    np.testing.assert_allclose(np.asarray(mact_reward().evaluate(rows()), float), [1.9, 2, 1, 1, 2, 2])


@exact
def a_liked_plan_earns_less_than_a_right_one() -> None:
    """The process scorer prefers a wrong plan, 1 to .9; with the outcome the right one earns 1.9, the wrong one 1."""
    env = Procedure(planners=1)
    env.reset(0)
    question = env.state.question
    liked, right = (env.plan_score(int(each[question])) for each in (env.liked_plan, env.right_plan))
    assert (liked, right) == (1.0, 0.9)
    two = pl.DataFrame({"group": [0, 0], "episode": [0, 1], "process": [liked, right], "reward": [0.0, 1.0]})
    two = two.with_columns(outcome=pl.lit(None, pl.Float64))
    np.testing.assert_allclose(np.asarray(mact_reward().evaluate(Turns(two)), float), [1.0, 1.9])


def process(env: Procedure, choose: Any, seed: int = 0) -> list[tuple[str, dict[str, Any]]]:
    """Each role that acted, with what was told of its step."""
    seen, found = env.reset(seed), []
    while seen:
        role = next(iter(seen)).partition("-")[0]
        result = env.step({seat: choose(env, seat) for seat in seen})
        found.append((role, dict(result.info)))
        seen = result.observations
    return found


def flagging(*verdicts: int) -> Any:
    """Seats that do everything wrong, and a judge that gives these verdicts, the last one over and over."""
    said: list[int] = []

    def choose(env: Procedure, seat: str) -> int:
        if seat == "judge":
            said.append(0)
            return verdicts[min(len(said), len(verdicts)) - 1]
        if seat.startswith("planner"):
            return int(env.right_plan[env.state.question] + 1) % env.plans
        return int(env.right_execution[env.state.plan] + 1) % env.executions

    return choose


@exact
def control_returns_to_the_role_that_was_flagged() -> None:
    """After "plan wrong" a planner acts, after "execution wrong" an executor, after "fine" the answer is given."""
    want = ["planner", "executor", "judge", "planner", "executor", "judge", "executor", "judge", "answerer"]
    for seed in range(8):
        assert [role for role, _ in process(Procedure(), flagging(1, 2, 0), seed)] == want
    told = [
        info["flagged"] for role, info in process(Procedure(), flagging(1, 2, 0)) if role in ("planner", "executor")
    ]
    assert [each for info in told for each in info.values()] == [None, None, "plan", None, "execute"]


@exact
def three_corrections_at_most() -> None:
    """A judge that is never content sends back three times; then the answer is given, in turn 13 or 10."""
    again = [role for role, _ in process(Procedure(), flagging(1))]
    assert (again.count("planner"), again.count("judge"), len(again)) == (4, 4, 13)
    short = [role for role, _ in process(Procedure(), flagging(2))]
    assert (short.count("planner"), short.count("executor"), len(short)) == (1, 4, 10)


@exact
def each_role_has_its_budget() -> None:
    """Three plans at once, of which the commonest is taken; the best of three candidates; three thoughts."""

    def choose(env: Procedure, seat: str) -> int:
        number = int(seat[-1]) if seat[-1].isdigit() else 0
        if seat.startswith("planner"):
            return int(env.right_plan[env.state.question] + (number == 2)) % env.plans
        if seat.startswith("executor"):
            return int(env.right_execution[env.state.plan] + (number != 3)) % env.executions
        return 1 if seat == "judge" and env.state.thoughts < 2 else env.state.truth if seat == "answerer" else 0

    env = Procedure(planners=3, executors=3, thoughts=3)
    found = process(env, choose)
    assert [role for role, _ in found] == ["planner", "executor", "judge", "judge", "judge", "answerer"]
    assert len(found[0][1]["process"]) == len(found[1][1]["process"]) == 3
    assert list(found[1][1]["process"].values()) == [0, 0, 1]
    assert env.wrong() == 0, "the commonest plan and the best candidate are right"
    assert found[-1][1]["success"]


@exact
def advantages_within_group_and_role() -> None:
    """Each role's advantages have mean 0 and deviation 1 in a group, of all its seats; another group is for itself."""
    frame = pl.concat([rows().frame, rows().frame.with_columns(episode=1, reward=0.0, outcome=0.0, process=0.5)])
    turns = Turns(frame).with_column(reward=mact_reward())
    found = turns.with_column(advantage=mact()).frame.group_by("group", "policy").agg(pl.col("advantage").mean())
    np.testing.assert_allclose(found["advantage"].to_numpy(), 0, atol=1e-9)
    seats = ["planner-1", "planner-2", "planner-1", "judge", "planner-1", "planner-2", "judge", "judge"]
    frame = pl.DataFrame({"group": [0] * 4 + [1] * 4, "policy": [each.partition("-")[0] for each in seats]})
    frame = frame.with_columns(episode=0, agent=pl.Series(seats), reward=pl.Series([1.0, 3, 5, 7, 11, 13, 2, 6]))
    expected = [-1, 0, 1, 0, -(0.5**0.5), 0.5**0.5, -(0.5**0.5), 0.5**0.5]
    np.testing.assert_allclose(np.asarray(mact().evaluate(Turns(frame)), float), expected, atol=1e-5)
