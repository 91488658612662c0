"""A beam over stages: how many answers there are, which are gone on from, and which attempt counts at the end."""

from __future__ import annotations

import functools

import polars as pl
import pytest

from palaestra.agents import TabularPolicy, Team
from palaestra.envs.worlds import Dilemma, Repository, Review
from palaestra.errors import InputError
from palaestra.play.rollout import rollout
from palaestra.teams import WORKFLOWS, stage_beam
from palaestra.testing.env import check_env


def play(env, groups=12):
    policy = TabularPolicy(2, name="table")
    return rollout(env, Team(dict.fromkeys(env().agents, policy)), groups=groups, group_size=1, seed=0).frame


def test_as_many_answers_at_each_stage_and_the_best_are_gone_on_from():
    frame = play(stage_beam(Repository, 6, keep=3))
    assert (frame.group_by("group", "turn").len()["len"] == 6).all()
    kept = frame.filter("kept").group_by("group", "turn").len().sort("group", "turn")["len"].to_list()
    assert kept == [3, 3, 1] * 12
    for _, part in frame.filter(pl.col("turn") < 2).group_by("group", "turn"):
        assert part.filter("kept")["process"].min() > part.filter(~pl.col("kept"))["process"].max()


def test_the_attempt_that_counts_gives_success_and_reward():
    frame = play(stage_beam(functools.partial(Repository, rank_noise=0.0), 4, keep=2), groups=30)
    last = frame.filter((pl.col("turn") == 2) & pl.col("kept"))
    assert (last["right"] == last["success"]).all()
    assert (last["reward"] == last["right"].cast(float)).all()
    assert frame.filter(~pl.col("kept"))["reward"].sum() == 0
    assert frame.filter("kept")["passes"].drop_nulls().any()


def test_it_is_an_env_and_says_what_it_cannot_do():
    check_env(stage_beam(Repository, 4, keep=2))
    assert "stage_beam" in WORKFLOWS
    for options, message in (({"candidates": 1}, "candidates=1"), ({"candidates": 6, "keep": 4}, "must divide")):
        with pytest.raises(InputError, match=message):
            stage_beam(Repository, **options)
    with pytest.raises(InputError, match="no fact 'process'"):
        stage_beam(Review, 4)
    with pytest.raises(InputError, match="no fact 'progress'"):
        stage_beam(Repository, 4, score="progress")
    with pytest.raises(InputError, match="no fact"):
        stage_beam(Dilemma, 4)
