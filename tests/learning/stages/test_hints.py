"""Hints: how many, how long, what is written down of them, and that they open a lock."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra import envs
from palaestra.agents import LMPolicy, TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.hints import hints, hold_back
from palaestra.learning.stages.stage import Context
from palaestra.play.executors import Local, Plan


def hinted(stage: hints, policy: Any, **options: Any) -> tuple[Turns, Context]:
    env, team = envs.make("native/lock", **options), Team(opener=policy)
    context = Context(np.random.default_rng(0), 1, env, team, Local())
    plan = stage.plan(Plan(groups=3, group_size=8, iteration=1), context)
    assert plan.group_size == [8 - round(8 * stage.share)] * 3
    return stage(Local().play(env, team, plan), context), context


def test_half_of_a_hopeless_group_gets_the_longest_hint() -> None:
    turns, _ = hinted(hints(high=0.75), TabularPolicy(4), locks=4)
    episodes = turns.frame.group_by("group", "episode").agg(
        pl.col("hinted").first(), pl.col("hint").sum(), pl.col("seed").first(), pl.col("task").first()
    )
    assert len(episodes) == 24
    assert episodes.group_by("group").agg(pl.col("hinted").sum())["hinted"].to_list() == [4] * 3
    assert set(episodes.filter("hinted")["hint"]) == {6}, "success 0, so 0.75 of 8 steps"
    assert set(episodes.filter(~pl.col("hinted"))["hint"]) == {0}
    assert episodes.group_by("group").agg(pl.col("seed", "task").n_unique()).select("seed", "task").unique().rows() == [
        (1, 1)
    ]
    shown = turns.frame.filter("hint")
    reference = shown.select(pl.col("reference").list.get(pl.col("turn")))["reference"]
    assert shown["action"].to_list() == reference.to_list()
    assert shown["right"].all()
    assert "hint_id" not in turns.columns


def test_one_of_a_group_is_left_to_play_first_and_one_to_get_a_hint() -> None:
    plan, more = hold_back(Plan(groups=2, group_size=2), 0.5, "hints")
    assert (plan.group_size, more) == ([1, 1], {0: 1, 1: 1})
    for size, share in ((1, 0.5), (4, 0.1), (2, 0.8)):
        with pytest.raises(InputError, match=f"hints: groups of {size} leave none to play"):
            hold_back(Plan(groups=2, group_size=size), share, "hints")


def test_forced_turns_carry_the_policys_own_probabilities() -> None:
    policy = TabularPolicy(4)
    turns, context = hinted(hints(), policy)
    shown = turns.frame.filter("hint")
    np.testing.assert_allclose(shown["logprobs"].list.first().to_numpy(), np.log(1 / 4), rtol=1e-6)
    np.testing.assert_allclose(shown["entropies"].list.first().to_numpy(), np.log(4), rtol=1e-6)
    assert shown["action_ids"].list.first().to_list() == [int(action[-1]) for action in shown["action"]]
    assert context.spent.calls == 0


def test_a_language_model_is_made_to_say_it() -> None:
    policy = LMPolicy.tiny(["lock 0, step 0 1 2 3 turn to 0 1 2 3"], name="lm", seed=0, max_new_tokens=6)
    turns, _ = hinted(hints(), policy, steps=4)
    shown = turns.frame.filter("hint")
    for row in shown.iter_rows(named=True):
        assert row["action_ids"] == policy.encode(row["observation"], row["action"])[1].tolist()
        assert len(row["logprobs"]) == len(row["action_ids"])


def test_what_was_solved_gets_the_shortest_hint() -> None:
    policy = TabularPolicy(2)
    stage = hints(low=0.0, high=1.0)
    turns, _ = hinted(stage, policy, steps=1, numbers=2)
    per_group = turns.frame.group_by("group").agg(
        solved=pl.col("success").filter(~pl.col("hinted")).mean(), shown=pl.col("hint").filter("hinted").mean()
    )
    assert all(shown == float(solved <= 0.5) for _, solved, shown in per_group.rows())


def test_a_reference_that_cannot_be_played_is_named() -> None:
    stage = hints()
    env, team = envs.make("native/lock"), Team(opener=TabularPolicy(4))
    context = Context(np.random.default_rng(0), 1, env, team, Local())
    turns = Local().play(env, team, stage.plan(Plan(groups=1, group_size=4, iteration=1), context))
    wrong = Turns(turns.frame.with_columns(reference=pl.lit(["jump"] * 8, pl.List(pl.String))))
    with pytest.raises(InputError, match="'jump' is no legal action"):
        stage(wrong, context)


@pytest.mark.parametrize("options", [{"share": 0.0}, {"share": 1.0}, {"low": 0.8}, {"high": 1.2}, {"noise": -1.0}])
def test_numbers_out_of_range(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match="hints: share"):
        hints(**options)  # type: ignore[arg-type]
