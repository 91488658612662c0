"""[146] A³T (arXiv 2403.14589): where an attempt failed another action is put in; successes are cloned, with contrast.

A table that was taught one wrong step of each lock, and is sure of it, never tries another: more attempts do not
help. One random action put in at a random step does. Successes are cloned, failures of the same task pushed away from,
with no more weight than its successes. Every action is said with a reason, one of a few texts; that of an injected
action is written after it and learned with it. Left out: reasons in free words; each round goes on from the policy of
the last one instead of refitting the base.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from palaestra.agents import TabularPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.credit import signed
from palaestra.envs.worlds import Lock
from palaestra.learning import PolicyGradient
from palaestra.learning.stages import Context
from palaestra.learning.stages.guidance import injection
from palaestra.learning.stages.selection import accumulate, weights
from palaestra.play.executors import Local, Plan
from palaestra.teams.thoughts import Thoughts, thoughts, with_thought
from palaestra_atlas.reproductions import exact

LOCKS, STEPS, NUMBERS = 6, 4, 4
REASONS = tuple(f"{number} is next" for number in range(NUMBERS))


def writer(request: Request) -> str:
    """ActRe in a script: the reason for the action that it reads of."""
    return REASONS[int(request.observation.text.split("I do: turn to ")[1].split()[0])]


def mistaken(sure: float = 0.995) -> Any:
    """A script that opens each lock, with a reason for each number, but for one step: it is sure of a wrong one."""
    right = Lock(locks=LOCKS, steps=STEPS, numbers=NUMBERS).right

    def play(request: Request) -> str:
        lock, step = (int(word.strip(",")) for word in request.observation.text.split()[1:4:2])
        number = int(right[lock, step])
        number = (number + 1) % NUMBERS if step == lock % STEPS else number
        said = number if request.rng.random() < sure else int(request.rng.integers(NUMBERS))
        return with_thought(REASONS[said], f"turn to {said}")

    return play


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of a table that was taught by `mistaken`, `a3t.yaml`."""
    made = {
        "name": "a3t",
        "env": {"make": "native/lock", "options": {"locks": LOCKS, "steps": STEPS, "numbers": NUMBERS},
                "workflow": f"thoughts({list(REASONS)})"},
        "policies": {"table": {"kind": "tabular", "options": {"actions": NUMBERS * (1 + len(REASONS))}}},
        "team": {"opener": "table"},
        "warm_start": {"script": f"{__name__}:mistaken", "groups": 300, "steps": 300, "lr": 0.1},
        "stages": [f"injection(explain='{__name__}:writer')", "accumulate(2)",
                   'weights(\'signed("success", over="task")\')'],
        "credit": "return_to_go()",
        "learn": {"lr": 0.4, "terms": ['clone(column="weight")']},
        "train": {"iterations": 25, "groups": 6, "group_size": 16, "evaluate_every": 25, "checkpoint_every": 25,
                  "save_turns": "all"},
        "evaluation": {"tasks": 60, "trials": 2, "look_tasks": 20, "look_trials": 1},
    }  # fmt: skip
    (folder / "a3t.yaml").write_text(json.dumps(made))


def outcomes() -> Turns:
    """A task with two successes and three failures, one with failures alone, one that always succeeds."""
    won = [True, True, False, False, False, False, True]
    rows = {"task": ["a"] * 5 + ["b", "c"], "group": [0] * 5 + [1, 2], "episode": list(range(7)), "success": won}
    return Turns(rows | {"iteration": [1] * 7, "turn": [0] * 7, "agent": ["opener"] * 7})


@exact
def failures_weigh_as_much_as_successes() -> None:
    """The weights of a task's episodes add up to 0, however long they are; a task that never succeeded has none."""
    told = Context(np.random.default_rng(0), 1, None, None, None)  # type: ignore[arg-type]
    found = weights('signed("success", over="task")')(outcomes(), told)["weight"].to_list()
    np.testing.assert_allclose(found[:5], [1, 1, -2 / 3, -2 / 3, -2 / 3])
    assert abs(sum(found[:5])) < 1e-12
    assert found[5] is None
    assert found[6] == 1
    unlike = Turns({"task": ["a"] * 6, "group": [0] * 6, "episode": [2, 0, 1, 0, 2, 0], "turn": [0, 0, 0, 1, 1, 2],
                    "success": [False, True, False, True, False, True]})  # fmt: skip
    np.testing.assert_allclose(np.asarray(signed("success").evaluate(unlike)), [-0.5, 1, -0.5, 1, -0.5, 1])
    np.testing.assert_array_equal(np.asarray(signed("success", balanced=False).evaluate(outcomes()))[2:5], [-1] * 3)


@exact
def failures_are_pushed_away_from() -> None:
    """The action of a failure has a gradient away from it: its log-probability falls in a step of cloning."""
    policy = TabularPolicy(4, name="table")
    rows = outcomes().frame.with_columns(
        policy=pl.lit("table"), state=pl.lit(7, pl.UInt64), action_ids=pl.Series([[0], [0], [1], [1], [2], [3], [0]])
    )
    told = Context(np.random.default_rng(0), 1, None, None, None)  # type: ignore[arg-type]
    whole = weights('signed("success", over="task")')(Turns(rows), told)
    PolicyGradient(Team(opener=policy), 'clone(column="weight")').forward_backward(whole)
    slope = policy.module.get_parameter("logits").grad
    assert slope is not None
    torch.testing.assert_close(slope[0] * 6, torch.tensor([-3 + 1 / 4, 4 / 3 + 1 / 4, 2 / 3 + 1 / 4, 1 / 4]))


@exact
def an_action_is_put_in_where_an_attempt_failed() -> None:
    """Each further attempt of a group with a failure has one random turn's action put in; a solved group has none."""
    policy = TabularPolicy(NUMBERS, name="table")
    team = Team(opener=policy)

    def env() -> Lock:
        return Lock(locks=LOCKS, steps=STEPS)

    told = Context(np.random.default_rng(0), 1, env, team, Local())
    stage = injection()
    first = Local().play(env, team, stage.plan(Plan(groups=4, group_size=8, seed=1), told))
    put = stage(first, told).frame.filter(pl.col("source") == "injected")
    assert put.group_by("group", "episode").len()["len"].to_list() == [1] * 16
    assert put["turn"].n_unique() > 1
    assert put["action"].n_unique() > 1
    np.testing.assert_allclose(put["logprobs"].list.first().to_numpy(), np.log(1 / NUMBERS), atol=1e-6)
    solved = Turns(first.frame.with_columns(success=pl.lit(True)))
    stage.plan(Plan(groups=4, group_size=8, seed=1), told)
    assert (stage(solved, told)["source"] == "policy").all()


@exact
def a_reason_is_written_after_the_act_and_learned_with_it() -> None:
    """An injected turn says the reason for its action, scored as one choice; a step of cloning raises both."""
    policy = TabularPolicy(NUMBERS * (1 + len(REASONS)), name="table")
    team = Team(opener=policy)
    env = thoughts(functools.partial(Lock, locks=LOCKS, steps=STEPS), REASONS)
    told = Context(np.random.default_rng(0), 1, env, team, Local())
    stage = injection(explain=f"{__name__}:writer")
    first = Local().play(env, team, stage.plan(Plan(groups=4, group_size=8, seed=1), told))
    whole = stage(first, told)
    put = whole.frame.filter(pl.col("source") == "injected")
    assert len(put) == 16
    choices = env().reset(0)["opener"].choices
    assert choices is not None
    for said, ids, logprobs, seen in put.select("action", "action_ids", "logprobs", "observation").iter_rows():
        number = int(said[-1])
        assert said == f"<think>{number} is next</think>turn to {number}"
        assert choices[ids[0]] == said
        np.testing.assert_allclose(logprobs, [np.log(1 / len(choices))], atol=1e-6)
        assert seen.startswith("lock"), "the turn that is learned from says nothing of the act"
    cloned = Turns(put.head(1).with_columns(weight=pl.lit(1.0)))
    PolicyGradient(team, 'clone(column="weight")').forward_backward(cloned)
    slope = policy.module.get_parameter("logits").grad
    assert slope is not None
    assert int(slope[0].argmin()) == cloned["action_ids"][0][0]
    env_ = Thoughts(functools.partial(Lock, locks=1, steps=1), REASONS)
    env_.reset(0)
    right = env_.env.right[0, 0]  # type: ignore[attr-defined]
    result = env_.step({"opener": with_thought(REASONS[0], f"turn to {right}")})
    assert (result.info["success"], result.info["rationale"]) == (True, {"opener": REASONS[0]})


@exact
def rounds_accumulate() -> None:
    """The table that is fitted holds the rounds before, so that what was once solved stays in it."""
    stage, told = accumulate(2), Context(np.random.default_rng(0), 1, None, None, None)  # type: ignore[arg-type]
    stage(outcomes(), told)
    second = Turns(outcomes().frame.with_columns(iteration=pl.lit(2), success=pl.lit(False)))
    whole = stage(second, told)
    found = weights('signed("success", over="task")')(whole, told).frame
    assert len(found) == 14
    assert found.filter((pl.col("weight") > 0) & ~pl.col("fresh"))["task"].to_list() == ["a", "a", "c"]
    assert found.filter(pl.col("fresh") & (pl.col("task") == "c"))["weight"].to_list() == [-1.0]
