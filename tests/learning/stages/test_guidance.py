"""Help in play: only where it is needed, within the iteration's number of episodes, and out of what is learned from."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs import make
from palaestra.envs.helped import Help, HelpedEpisode
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.guidance import guidance, injection, play_helped
from palaestra.play.executors import Local, Plan
from palaestra.runs.inline import learn


def context(policy: TabularPolicy) -> Context:
    env = make("native/lock", locks=3, steps=3)
    return Context(np.random.default_rng(0), 1, env, Team(opener=policy), Local())


def test_a_failed_group_learns_what_it_was_told() -> None:
    locks: dict[str, Any] = {"env": {"make": "native/lock", "options": {"locks": 2, "steps": 6}}, "learn": {"lr": 0.3}}
    told = learn(
        "world", locks | {"stages": ["guidance()"], "train": {"iterations": 15, "groups": 2, "group_size": 16}}
    )
    alone = learn("world", locks | {"train": {"iterations": 15, "groups": 2, "group_size": 16}})
    assert told.curve()[-1] > 0.4
    assert alone.curve()[-1] < 0.1
    assert told.lines[0]["stages"]["guidance"]["failed"] == 2


def test_helped_episodes_are_those_of_the_group_and_numbered_on() -> None:
    policy = TabularPolicy(4, name="opener")
    told = context(policy)
    first = Local().play(told.env, told.team, Plan(groups=2, group_size=2, seed=5))
    seed = int(first["seed"][0])
    wanted = [(0, HelpedEpisode(seed, {1: Help("hint: turn to 3", "turn to 3")})), (0, HelpedEpisode(seed, {}))]
    made = play_helped(told, first, wanted, source="guided")
    assert made["group"].unique().to_list() == [0]
    assert made["episode"].unique().sort().to_list() == [2, 3]
    assert made["seed"].unique().to_list() == [seed]
    assert made.filter(pl.col("source") == "guided").select("episode", "turn", "action").rows() == [(2, 1, "turn to 3")]
    row = made.filter(pl.col("source") == "guided").row(0, named=True)
    assert row["action_ids"] == [3]
    assert row["state"] == Observation(row["observation"]).key()
    assert row["observation"].startswith("lock ")
    shown = play_helped(told, first, wanted, source="guided", visible=True)
    assert shown.filter(pl.col("source") == "guided")["observation"].str.starts_with("hint: ").all()


def test_an_action_that_is_no_choice_is_named() -> None:
    told = context(TabularPolicy(4, name="opener"))
    first = Local().play(told.env, told.team, Plan(groups=1, group_size=2, seed=5))
    with pytest.raises(InputError, match="turn to 9"):
        play_helped(told, first, [(0, HelpedEpisode(1, {0: Help(action="turn to 9")}))], source="guided")


def test_a_random_action_is_put_in_where_a_group_failed() -> None:
    policy = TabularPolicy(4, name="opener")
    told = context(policy)
    stage = injection()
    first = Local().play(told.env, told.team, stage.plan(Plan(groups=3, group_size=8, seed=2), told))
    whole = stage(first, told).frame
    assert len(whole.unique(["group", "episode"])) == 24, "as many episodes as were planned"
    put = whole.filter(pl.col("source") == "injected")
    assert len(put) == told.metrics["injected"] == 12
    assert put.group_by("group", "episode").len()["len"].to_list() == [1] * 12
    assert set(put["turn"]) == {0, 1, 2}, "any of the three turns"
    assert set(put["action"]) == {f"turn to {number}" for number in range(4)}
    np.testing.assert_allclose(put["logprobs"].list.first().to_numpy(), np.log(1 / 4), atol=1e-6)


def test_bad_options_are_refused() -> None:
    for bad in ({"share": 1.0}, {"places": 0}, {"template": "hint"}):
        with pytest.raises(InputError, match="guidance: "):
            guidance(**bad)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="injection: "):
        injection(share=0)
    assert isinstance(Turns({"group": []}), Turns)


def why(request: Any) -> str:
    """Repeats the act that it was told."""
    act = request.observation.text.split("I do: ")[1].splitlines()[0]
    return "" if act == "turn to 0" else f"I want {act[-1]}"


def test_a_reason_is_written_after_the_act_and_counted() -> None:
    from palaestra.teams import thoughts

    policy = TabularPolicy(16, name="opener")
    told = context(policy)
    told.env = thoughts(told.env, ["I want 1", "I want 2", "I want 3"])
    stage = injection(explain=f"{__name__}:why")
    first = Local().play(told.env, told.team, stage.plan(Plan(groups=3, group_size=16, seed=5), told))
    rows = stage(first, told).frame.filter(pl.col("source") == "injected")
    assert set(rows["action"].to_list()) == {"turn to 0", *(f"<think>I want {n}</think>turn to {n}" for n in (1, 2, 3))}
    assert set(rows["rationale"]) == {"", "I want 1", "I want 2", "I want 3"}
    assert rows["action_ids"].list.first().to_list() == [
        {"0": 0, "1": 5, "2": 10, "3": 15}[said[-1]] for said in rows["action"]
    ]
    assert told.spent.calls > 0
    again = injection(explain=f"{__name__}:why")
    again.load_state_dict(stage.state_dict())
    assert again.state_dict() == stage.state_dict()
    assert injection(explain="writer").asks == ("writer",)
    told = context(TabularPolicy(4, name="opener"))
    stage.plan(Plan(groups=3, group_size=16, seed=5), told)
    first = Local().play(told.env, told.team, Plan(groups=3, group_size=8, seed=5))
    with pytest.raises(InputError, match="thoughts"):
        stage(first, told)


@pytest.mark.parametrize(
    ("success", "failed", "injected"),
    [([None, None], 0, 0), ([None, False], 1, 2), ([False, None], 1, 2), ([None, True], 0, 0), ([False, True], 0, 2)],
)
def test_an_attempt_without_a_score_neither_failed_nor_succeeded(
    success: list[bool | None], failed: int, injected: int
) -> None:
    for stage in (guidance(), injection()):
        told = context(TabularPolicy(4, name="opener"))
        plan = stage.plan(Plan(groups=1, group_size=4, seed=5), told)
        first = Local().play(told.env, told.team, plan)
        went = pl.col("episode").replace_strict({0: success[0], 1: success[1]}, return_dtype=pl.Boolean)
        stage(Turns(first.frame.with_columns(success=went)), told)
        name = "failed" if isinstance(stage, guidance) else "injected"
        assert told.metrics[name] == (failed if name == "failed" else injected)
