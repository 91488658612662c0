"""[190] SWE-Reasoner (arXiv 2503.23803): candidates are chosen between at every stage, not only between whole attempts.

Issues of three stages that are right or wrong, a process model and an outcome model with noise, tests that a wrong
patch may pass. Left out: repositories, language models, long reasoning in words.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.credit import hard_success
from palaestra.envs.worlds import Repository
from palaestra.learning import PolicyGradient
from palaestra.learning.stages import Context
from palaestra.learning.stages.selection import keep
from palaestra.play.executors import Local, Plan
from palaestra.play.rollout import rollout
from palaestra.runs.inline import learn
from palaestra.teams import stage_beam
from palaestra_atlas.reproductions import exact

STAGED, AT_THE_END, ORACLE = 0.532, 0.322, 0.656
"""Solved shares of the card's simulation: a choice at each stage, at the end, and of any right attempt of eight."""


def played(issues: int = 300, *, seed: int = 0, world: Any = None, **options: Any) -> pl.DataFrame:
    """Issues solved by a table that says anything, eight candidates at a time."""
    env = stage_beam(functools.partial(Repository, **(world or {})), 8, **options)
    policy = TabularPolicy(2, name="table", capacity=4096)
    return rollout(env, Team(dict.fromkeys(env().agents, policy)), groups=issues, group_size=1, seed=seed).frame


def solved(frame: pl.DataFrame) -> float:
    """Share of solved issues."""
    return float(frame.group_by("group").agg(pl.col("success").drop_nulls().last())["success"].mean())  # type: ignore[arg-type]


@exact
def the_best_by_process_score_goes_on() -> None:
    """Only the answer that was scored highest is gone on from; with a scorer with noise 1 .532 of issues are solved."""
    frame = played(check=None, rank=None)
    kept = frame.filter("kept").select("group", "turn", best="process")
    best = frame.group_by("group", "turn").agg(pl.max("process"))
    assert kept.join(best, on=["group", "turn"]).select((pl.col("best") == pl.col("process")).all()).item()
    later = frame.filter(pl.col("turn") > 0)
    assert (later.group_by("group", "turn").agg(pl.col("observation").n_unique())["observation"] == 1).all()
    assert abs(solved(frame) - STAGED) < 0.06


@exact
def a_choice_at_every_stage_beats_one_at_the_end() -> None:
    """With 24 steps each and the same scorer, .532 are solved, and .322 if all eight attempts go to the end."""
    staged, end = (played(check=None, rank=None, keep=kept, seed=1) for kept in (1, 8))
    assert (staged.group_by("group").len()["len"] == 24).all()
    assert (end.group_by("group").len()["len"] == 24).all()
    assert abs(solved(end) - AT_THE_END) < 0.06
    assert solved(staged) - solved(end) > 0.12
    assert (
        abs(
            float(
                end.group_by("group").agg(pl.col("right").filter(pl.col("turn") == 2).any())["right"].mean()  # type: ignore[arg-type]
            )
            - ORACLE
        )
        < 0.07
    )  # type: ignore[arg-type]


@exact
def only_patches_that_pass_are_ranked() -> None:
    """Tests that no wrong patch passes leave only right ones, however little the outcome model knows."""
    frame = played(200, keep=2, world={"weak": 0.0, "rank_noise": 100.0})
    one = pl.col("passes").filter("kept").first().alias("one")
    ends = frame.filter(pl.col("turn") == 2).group_by("group")
    ends = ends.agg(pl.col("passes").any(), pl.col("success").drop_nulls().last(), one)  # type: ignore[assignment]
    assert (ends["passes"] == ends["success"]).all()  # type: ignore[index]
    assert (ends["one"] == ends["passes"]).all()  # type: ignore[index]
    assert ends["passes"].any()  # type: ignore[index]


@exact
def survivors_are_ranked_by_the_outcome_model() -> None:
    """Where every patch passes, a model that knows the outcome finds the right one if there is one."""
    frame = played(200, keep=4, world={"weak": 1.0, "rank_noise": 0.0, "noise": 3.0})
    ends = frame.filter(pl.col("turn") == 2).group_by("group").agg(
        pl.col("right").any(), pl.col("right").all().alias("all"), pl.col("success").drop_nulls().last()
    )  # fmt: skip
    assert (ends["right"] == ends["success"]).all()
    assert (ends["right"] & ~ends["all"]).any()


@exact
def a_recipe_plays_it_without_a_learner() -> None:
    """With `learn: {kind: play}` whole issues are played and counted, and nothing is learned."""
    recipe = {
        "env": {"make": "native/repository", "workflow": "stage_beam(8, keep=2)"},
        "policies": {"table": {"kind": "random"}},
        "learn": {"kind": "play"},
        "train": {"iterations": 1, "groups": 12, "group_size": 1},
    }
    assert 0 < learn("world", recipe, seed=1).lines[0]["success"] < 1


@exact
def right_and_not_trivial() -> None:
    """Of issues always, sometimes and never solved only the successes of the second are learned from."""
    rows = {"group": [0, 0, 1, 1, 2, 2], "episode": [0, 1] * 3, "success": [True, True, True, False, False, False]}
    found = hard_success(over="group").evaluate(Turns(rows | {"episode": list(range(6))}))
    np.testing.assert_array_equal(np.asarray(found, float), [0, 0, 1, 0, 0, 0])
    policy = TabularPolicy(2, name="table", capacity=4096)
    team, env = Team(engineer=policy), functools.partial(Repository, issues=8, trivial=4)
    turns = Local().play(env, team, Plan(groups=60, group_size=16, seed=2))
    told = Context(np.random.default_rng(0), 1, env, team, Local())
    kept = keep("hard_success()", between=(1, 1))(turns, told)
    learned = kept.frame.filter("kept")
    assert learned["right"].all()
    assert len(learned)
    assert learned["task"].str.split(" ").list.last().cast(pl.Int64).min() == 4, "the first four issues are trivial"
    PolicyGradient(team, "clone(column='kept')", lr=0.3).update(kept)
    hard = turns.frame.join(learned.select("state").unique(), on="state", how="semi").filter("right")
    assert np.exp([each.item() for each in policy.score(hard).logprobs.detach()]).mean() > 0.5
