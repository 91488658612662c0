"""Which tasks come next."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.agents import Team, fixed
from palaestra.algebra.turns import Turns
from palaestra.envs import make
from palaestra.envs.worlds import Answers
from palaestra.errors import InputError
from palaestra.learning.stages.stage import Context, Stages
from palaestra.learning.stages.tasks import FailureReplay, StagedCurriculum, curriculum, failure_replay
from palaestra.play.executors import Local, Plan

DIFFICULTY = {"a": 1.0, "b": 2.0, "c": 9.0}


def test_stages_by_success() -> None:
    stages = StagedCurriculum(DIFFICULTY, edges=(1, 5), at_success=0.8)
    assert stages.tasks(1000) == stages.newest() == ["a"]
    stages.report(0.79)
    assert stages.tasks() == ["a"]
    for newest, every in ((["b"], ["a", "b"]), (["c"], ["a", "b", "c"]), (["c"], ["a", "b", "c"])):
        stages.report(0.8)
        assert (stages.newest(), stages.tasks()) == (newest, every)


@pytest.mark.parametrize(
    "options", [{}, {"at_step": (1, 2), "at_success": 0.5}, {"at_step": (1,)}, {"at_step": (2, 1)}]
)
def test_stages_that_cannot_be(options: dict) -> None:
    with pytest.raises(InputError, match="StagedCurriculum"):
        StagedCurriculum(DIFFICULTY, edges=(1, 5), **options)


def test_failed_tasks_come_back_until_they_are_solved() -> None:
    replay: FailureReplay[str] = FailureReplay(capacity=2, every=2, fraction=0.5)
    replay.add({"a": 0.0, "b": 0.0, "c": 0.0, "d": 1.0})
    rng = np.random.default_rng(0)
    assert replay.choose(list("wxyz"), iteration=1, rng=rng) == list("wxyz")
    chosen = replay.choose(list("wxyz"), iteration=2, rng=rng)
    assert sorted(chosen[:2]) == ["b", "c"]  # the newest two
    assert chosen[2:] == ["y", "z"]
    replay.add({"b": 0.5})
    assert replay.choose(list("wxyz"), iteration=4, rng=rng) == ["c", "x", "y", "z"]


def test_failed_tasks_of_a_table() -> None:
    turns = Turns(
        {
            "group": [0, 0, 1, 1],
            "episode": [0, 1, 0, 1],
            "turn": [0] * 4,
            "agent": ["x"] * 4,
            "task": ["a", "a", "b", "b"],
            "reward": [0.0, 1.0, 0.0, 0.0],
        }
    )
    replay: FailureReplay[str] = FailureReplay()
    replay.add(turns)
    assert list(replay.failed) == ["b"]


def context(iteration: int) -> Context:
    return Context(np.random.default_rng(iteration), iteration, Answers, Team(answerer=fixed(0)), Local())


def planned(stage: failure_replay | curriculum, iteration: int) -> list[int | None]:
    return list(stage.plan(Plan(4, 2, iteration=iteration), context(iteration)).env_seeds or ())


def played(column: str, by_group: list[float | None]) -> Turns:
    rows = [(group, episode, value) for group, value in enumerate(by_group) for episode in range(2)]
    groups, episodes, values = (list(each) for each in zip(*rows))
    facts = {"group": groups, "episode": episodes, "turn": [0] * 8, "agent": ["answerer"] * 8, column: values}
    return Turns(facts)


def test_a_run_plays_failed_tasks_again_and_goes_on_the_same_after_a_stop() -> None:
    stage = failure_replay(every=2)
    first = planned(stage, 1)
    plain = Local().starts(Answers, Plan(4, 2, iteration=1))
    chosen = Local().starts(Answers, Plan(4, 2, iteration=1, env_seeds=first))
    assert [each.text for each in plain] == [each.text for each in chosen], "nobody has failed yet"
    stage(played("reward", [1.0, 0.0, None, 0.0]), context(1))
    assert not set(planned(stage, 3)) & set(first)
    again = planned(stage, 2)
    assert set(again[:2]) == {first[1], first[3]}
    assert not set(again[2:]) & set(first)
    other = failure_replay(every=2)
    other.load_state_dict(stage.state_dict())
    assert planned(other, 2) == again
    older = played("reward", [0.0] * 4).frame.with_columns(pl.col("group") + 4)
    stage(Turns.concat([played("reward", [1.0] * 4), older]), context(2))
    assert not set(planned(stage, 4)) & set(first), "solved tasks leave, and groups of earlier iterations are none"


def tasks(seeds: list[int | None]) -> list[int]:
    starts = Local().starts(Answers, Plan(4, env_seeds=seeds))
    return [int(each.text.removeprefix("task ")) for each in starts if each]


HARD = {f"task {number}": number for number in range(8)}


def test_a_run_plays_easy_tasks_first() -> None:
    stage = curriculum(edges=(3,), at_step=(10,), difficulty=HARD, draws=8)
    easy = [task for iteration in range(10) for task in tasks(planned(stage, iteration))]
    late = [task for iteration in range(10, 20) for task in tasks(planned(stage, iteration))]
    assert max(easy) == 3
    assert set(late) == set(range(8))


def test_enough_success_on_the_newest_tasks_begins_the_next_stage() -> None:
    stage = curriculum(edges=(3,), at_success=0.75, difficulty=lambda start: HARD[start.text], draws=8)
    for solved, reached in (([True, False, True, False], 0), ([True, True, True, False], 1)):
        planned(stage, 1)
        stage(played("success", solved), context(1))
        assert stage.state_dict() == {"stage": reached}
    assert max(task for iteration in range(10) for task in tasks(planned(stage, iteration))) > 3


def test_too_few_easy_tasks_are_filled_up_with_the_easiest() -> None:
    stage = curriculum(edges=(-1,), at_step=(10,), difficulty=HARD, draws=8)
    drawn = curriculum(edges=(9,), at_step=(10,), difficulty=HARD, draws=8)
    planned(stage, 0)
    assert sum(tasks(planned(stage, 0))) < sum(tasks(planned(drawn, 0)))
    with pytest.raises(InputError, match="draws"):
        curriculum(edges=(1,), at_step=(1,), draws=0)


def test_a_curriculum_that_is_planned_ahead_moves_on_once_for_each_stage() -> None:
    stages = Stages([curriculum(edges=[1, 2], at_success=0.5, difficulty=lambda start: 1.0, draws=1)], seed=0)
    made = stages[0]

    def call(iteration: int) -> None:
        groups = {"group": [0, 1], "episode": [0, 0], "agent": ["a", "a"], "success": [True, True]}
        stages.before_reward(Turns(pl.DataFrame(groups)), iteration, context)

    def context(rng: np.random.Generator) -> Context:
        return Context(rng=rng, iteration=0, env=make("roles/user"), team=None, executor=Local())  # type: ignore[arg-type]

    plans = []
    for iteration in (1, 2):
        stages.plan(Plan(2, iteration=iteration), context)
        plans.append(stages.notes())
    for iteration, notes in zip((1, 2), plans, strict=True):
        stages.recall(notes)
        call(iteration)
    assert made.memory.stage == 1, "the second one succeeded in the first stage, too, which was over by then"


def test_a_task_that_is_just_as_hard_as_an_edge_came_with_the_stage_below() -> None:
    stages = StagedCurriculum({"below": 0.5, "on": 1.0, "above": 1.5}, edges=(1.0,), at_success=0.8)
    assert (stages.tasks(), stages.newest()) == (["below", "on"], ["below", "on"])
    stages.report(0.8)
    assert (stages.tasks(), stages.newest()) == (["below", "on", "above"], ["above"])
