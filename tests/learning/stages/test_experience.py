"""Experience of similar tasks in a part of each group, and out of what is learned from."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, TabularPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs import make
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.experience import experience
from palaestra.play.executors import Local, Plan
from palaestra.runs.inline import learn

LOCK = make("native/lock", locks=1, steps=2)


def context(team: Team, iteration: int = 1) -> Context:
    return Context(np.random.default_rng(iteration), iteration, LOCK, team, Local())


def played(stage: experience, team: Team, iteration: int) -> pl.DataFrame:
    told = context(team, iteration)
    plan = stage.plan(Plan(groups=1, group_size=16, seed=4, iteration=iteration, env_seeds=[7]), told)
    return stage(Local().play(LOCK, team, plan), told).frame


def test_what_succeeded_once_is_done_again_and_scored_without_the_experience() -> None:
    stage, team = experience(take=True), Team(opener=TabularPolicy(4, name="opener"))
    frames = [played(stage, team, iteration) for iteration in range(1, 5)]
    assert stage.memory, "chance opens two numbers of four within 64 episodes"
    last = frames[-1]
    assert last.select("group", "episode").n_unique() == 16
    helped = last.filter(helped=True)
    assert helped.select("episode").n_unique() == 8
    assert helped["success"].all()
    assert not helped["observation"].str.contains("experience").any()
    assert [Observation(text).key() for text in helped["observation"]] == helped["state"].to_list()
    np.testing.assert_allclose(helped["logprobs"].list.first().to_numpy(), np.log(1 / 4), atol=1e-6)


def remembered(**options: object) -> experience:
    stage = experience(**options)  # type: ignore[arg-type]
    stage.memory = {
        "one": (1.0, "open the red door", ["left", "push"]),
        "two": (0.8, "open the blue window", ["pull"]),
        "three": (0.9, "paint a wall", ["dip"]),
    }
    return stage


def test_the_most_similar_beginnings_are_shown_at_every_turn() -> None:
    shown = remembered(k=2)._shown("open the red window")
    assert sorted(shown) == [0, 1]
    assert (
        shown[0].text
        == shown[1].text
        == ("experience: open the red door: left; push\nexperience: open the blue window: pull")
    )
    assert {each.action for each in shown.values()} == {None}
    done = remembered(k=1, take=True)._shown("paint a door")
    assert [(turn, each.action) for turn, each in done.items()] == [(0, "dip")]
    assert experience()._shown("anything") == {}


def test_the_best_success_of_a_task_is_remembered_and_survives_a_checkpoint() -> None:
    rows = {"group": [0, 0, 1], "episode": [0, 1, 0], "turn": [0] * 3, "task": ["t", "t", "u"]}
    rows |= {"action": ["a", "b", "c"], "score": [0.6, 0.9, 0.2], "help": [None, "help me", None]}
    stage = experience(score="score")
    stage._remember(Turns(rows | {"observation": ["begin", "help me\n\nbegin", "begin"]}))
    assert stage.memory == {"t": (0.9, "begin", ["b"])}, "a failure is not"
    other = experience(score="score")
    other.load_state_dict(stage.state_dict())
    assert other.memory == stage.memory
    other.load_state_dict(experience().state_dict())
    assert other.memory == {}


def test_an_episode_without_a_score_is_no_success() -> None:
    rows = {"group": [0, 1], "episode": [0, 0], "turn": [0, 0], "task": ["t", "t"], "action": ["a", "b"]}
    rows |= {"score": [None, 0.9], "help": [None, None], "observation": ["begin", "begin"]}
    stage = experience(score="score")
    stage._remember(Turns(rows))
    assert stage.memory == {"t": (0.9, "begin", ["b"])}


def test_unstripped_rows_keep_what_was_read() -> None:
    def play(request: Request) -> str:
        return str(request.rng.choice(request.observation.legal))

    stage, team = remembered(strip=False, k=1), Team(opener=ScriptedPolicy(play, name="opener"))
    helped = played(stage, team, 1).filter(pl.col("help").is_not_null())
    assert len(helped)
    assert helped["observation"].str.starts_with("experience: ").all()


def test_bad_options_are_refused() -> None:
    for bad in ({"share": 0.0}, {"k": 0}, {"template": "as before"}):
        with pytest.raises(InputError, match="experience: "):
            experience(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "stages", [["task_table(alike=.8)", "experience()"], ["critic()", "injection()"], ["accumulate(2)", "experience()"]]
)
def test_what_an_earlier_stage_filled_is_null_in_the_rows_played_after_it(stages: list[str]) -> None:
    last: dict[int, Turns] = {}
    learn("answers", {"stages": stages, "train": {"iterations": 2}}, on_turns=last.__setitem__)
    frame = last[max(last)].frame
    assert frame["helped"].any()
    for column in {"repeats", "value"} & set(frame.columns):
        assert frame.filter("helped")[column].is_null().all(), column
