"""Paths of a search tree: episodes of the group, told apart, rescored, and different where rollouts are alike."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.agents import TabularPolicy, Team
from palaestra.envs import make
from palaestra.errors import EnvError, InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.search_paths import search_paths
from palaestra.play.executors import Local, Plan


def played(
    env: str = "native/lock", seats: tuple[str, ...] = ("opener",), **options: object
) -> tuple[pl.DataFrame, Context]:
    """Two groups of eight attempts by a policy that is sure of its first action."""
    policy = TabularPolicy(4 if len(seats) == 1 else 2, name="table")
    told = Context(np.random.default_rng(0), 1, make(env, **options), Team(**dict.fromkeys(seats, policy)), Local())
    stage = search_paths(share=0.5)
    first = Local().play(told.env, told.team, stage.plan(Plan(groups=2, group_size=8, seed=3), told))
    return stage(first, told).frame, told


def test_as_many_episodes_as_without_of_which_half_are_paths_of_a_tree() -> None:
    frame, told = played(steps=2, numbers=4)
    ends = frame.group_by("group", "episode").agg(pl.col("source").first(), pl.col("action"), pl.col("seed").first())
    assert sorted(ends.group_by("group", "source").len().rows()) == [
        (0, "policy", 4), (0, "search", 4), (1, "policy", 4), (1, "search", 4),
    ]  # fmt: skip
    assert ends.group_by("group").agg(pl.col("seed").n_unique())["seed"].to_list() == [1, 1]
    for _, each in ends.filter(source="search").group_by("group"):
        assert each["action"].list.first().n_unique() == 4, "what was not tried comes first"
    rows = frame.filter(pl.col("source") == "search")
    assert rows["rescored"].all()
    np.testing.assert_allclose(rows["logprobs"].list.first().to_numpy(), np.log(1 / 4), atol=1e-6)
    assert told.metrics == {"paths": 8.0, "distinct": 8.0}


def test_options_are_checked_and_envs_that_cannot_be_searched_are_named() -> None:
    with pytest.raises(InputError, match="share=1"):
        search_paths(share=1)
    with pytest.raises(EnvError, match="agents act at once"):
        played("native/dilemma", seats=("first", "second"))
