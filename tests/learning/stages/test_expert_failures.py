"""Failed runs of an expert: where the learner takes over, what of both is learned from, and what is remembered."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, TabularPolicy, Team
from palaestra.envs.worlds import Slips
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.expert_failures import chances, expert_failures, helpful
from palaestra.play.executors import Local, Plan

WORLD = functools.partial(Slips, paths=2, cells=4, moves=2, spare=1)


def expert(request: Any) -> str:
    """Walks path 0, and the first two cells of path 1."""
    words = request.observation.text.replace(",", "").split()
    path, cell = int(words[1]), int(words[3])
    right = int(WORLD().paths[path, cell])
    return f"move {right if path == 0 or cell < 2 else 1 - right}"


def played(
    stage: expert_failures, policy: Any, iteration: int = 1, groups: int = 6, adviser: ScriptedPolicy | None = None
) -> tuple[pl.DataFrame, Context]:
    team = Team(walker=policy)
    advisers = {"expert": adviser or ScriptedPolicy(expert, name="expert")}
    told = Context(np.random.default_rng(iteration), iteration, WORLD, team, Local(), advisers=advisers)
    plan = stage.plan(Plan(groups=groups, group_size=8, seed=3, iteration=iteration), told)
    return stage(Local().play(WORLD, team, plan), told).frame, told


def test_the_learner_plays_as_many_episodes_as_the_iteration_has() -> None:
    stage = expert_failures("expert", starts=3)
    frame, told = played(stage, TabularPolicy(3, name="table"))
    assert frame.filter(pl.col("start").is_not_null()).select("group", "episode").n_unique() == 6 * 8
    assert told.metrics["restarts"] == 6 * 4
    assert (told.metrics["runs"], told.metrics["failed"]) == (2, 1)
    assert frame.filter(pl.col("group") >= 6)["task"].unique().sort().to_list() == ["path 0", "path 1"]
    assert frame.filter(pl.col("start").is_null())["task"].unique().to_list() == ["path 0"]
    _, again = played(stage, TabularPolicy(3, name="table"), 2)
    assert again.metrics["runs"] == 2


def test_runs_of_two_tasks_have_two_numbers_though_a_first_run_was_illegal() -> None:
    stage, legal = expert_failures("expert"), ScriptedPolicy(expert, name="expert")

    def stumbling(request: Any) -> str:
        return "nowhere" if "path 1" in request.observation.text else expert(request)

    _, told = played(stage, TabularPolicy(3, name="table"), adviser=ScriptedPolicy(stumbling, name="expert"))
    assert told.metrics["runs"] == 1
    _, told = played(stage, TabularPolicy(3, name="table"), 2, adviser=legal)
    assert told.metrics["runs"] == 2
    nothing = expert_failures("expert")
    for _ in range(2):
        _, told = played(nothing, TabularPolicy(3, name="table"), adviser=ScriptedPolicy(lambda _: "", name="expert"))
        assert told.metrics["runs"] == 0


def test_a_forced_row_is_the_learners_but_for_who_chose() -> None:
    frame, _ = played(expert_failures("expert", starts=5), TabularPolicy(3, name="table"))
    forced = frame.filter((pl.col("source") == "expert") & pl.col("start").is_not_null())
    assert forced["policy"].cast(pl.String).unique().to_list() == ["table"]
    np.testing.assert_allclose(forced["logprobs"].list.first().to_numpy(), np.log(1 / 3), atol=1e-6)
    assert forced.filter(pl.col("turn") < 2)["bad"].any() is False
    won = frame["success"].fill_null(False).any()
    assert frame.filter("loss_mask")["reward"].sum() > 0 or not won


def test_gains_are_between_neighbours_of_one_group() -> None:
    rows = {"group": [0, 0, 0, 1, 1], "episode": [0, 1, 2, 0, 1], "start": [0, 0, 2, 0, 3]}
    found = chances(pl.DataFrame(rows | {"won": [False, True, True, True, False]}), "won")
    assert found.select("group", "start", "p", "gain").rows() == [
        (0, 0, 0.5, None), (0, 2, 1.0, 0.5), (1, 0, 1.0, None), (1, 3, 0.0, -1.0)
    ]  # fmt: skip
    turns = pl.DataFrame({"group": [0, 0, 0, 1], "turn": [1, 0, 2, 1]})
    assert helpful(turns, found).to_list() == [True, True, False, False]
    assert helpful(turns, found.head(0)).to_list() == [False] * 4


def test_most_bounds_the_runs_and_the_state_is_found_again() -> None:
    stage = expert_failures("expert", most=1)
    _, told = played(stage, TabularPolicy(3, name="table"))
    assert told.metrics["runs"] == 1
    stage.recovery = {0: [2, 3]}
    again = expert_failures("expert", most=1)
    again.load_state_dict(stage.state_dict())
    assert again.recovery == {0: [2, 3]}
    assert again.runs is not None
    assert stage.runs is not None
    assert again.runs.select("action", "group", "_won").equals(stage.runs.select("action", "group", "_won"))
    frames = [played(each, TabularPolicy(3, name="table"), 2)[0] for each in (stage, again)]
    assert frames[0].select("action", "loss_mask", "start").equals(frames[1].select("action", "loss_mask", "start"))


def test_bad_options_are_refused() -> None:
    with pytest.raises(InputError, match="starts=0"):
        expert_failures("expert", starts=0)
    stage = expert_failures("nobody")
    with pytest.raises(InputError, match="no adviser 'nobody'"):
        played(stage, TabularPolicy(3, name="table"))


def test_where_the_learner_failed_after_it_had_won_earlier_is_kept_until_it_wins_there() -> None:
    """Run 1, whose restarts are group 7: from turn 1 it wins, from 3 never."""
    stage = expert_failures("expert")

    def note(*chance: tuple[int, float]) -> None:
        rows = {"group": [7] * len(chance), "start": [at for at, _ in chance], "p": [p for _, p in chance]}
        stage._note(pl.DataFrame(rows, schema={"group": pl.Int64, "start": pl.Int64, "p": pl.Float64}), 6)

    note((0, 0.0), (1, 0.5), (3, 0.0))
    assert stage.recovery == {1: [3]}
    note((1, 0.5), (2, 0.0))
    assert stage.recovery == {1: [2, 3]}
    note((3, 0.1))
    assert stage.recovery == {1: [2]}
