from __future__ import annotations

import polars as pl
import pytest

from palaestra.agents import TabularPolicy, Team
from palaestra.envs.worlds import Dilemma, Review
from palaestra.errors import EnvError, InputError
from palaestra.play.rollout import rollout
from palaestra.teams import WORKFLOWS, branches
from palaestra.testing.env import check_env

SIZES = {"generator": 5, "verifier": 2, "refiner": 5}


def play(env, groups=3):
    policies = {role: TabularPolicy(size, name=role) for role, size in SIZES.items()}
    team = Team({seat: policies[seat.rpartition("-")[0]] for seat in env().agents})
    return rollout(env, team, groups=groups, seed=0).frame


def test_a_tree_of_the_widths_with_names_that_tell_the_way():
    frame = play(branches(Review, 2, 3))
    one = frame.filter(pl.col("group") == 0)
    assert one.group_by("turn").len().sort("turn")["len"].to_list() == [2, 6, 6]
    assert one["node"].to_list()[:4] == ["1", "2", "1.1", "1.2"]
    below = one.drop_nulls("parent")
    assert (below["node"].str.replace(r"\.\d+$", "") == below["parent"]).all()
    assert one["leaf"].sum() == 6
    assert one.filter(~pl.col("leaf"))["answer"].null_count() == 8


def test_siblings_see_the_same_and_chance_goes_on_anew():
    frame = play(branches(Review, 2, 2, 1), groups=60)
    seen = frame.group_by("group", "parent").agg(pl.col("observation").n_unique())
    assert (seen["observation"] == 1).all()
    signs = (
        frame.filter(pl.col("policy") == "verifier")
        .group_by("group")
        .agg(pl.col("observation").str.split(" ").list.last().n_unique())
    )
    assert (signs["observation"] > 1).any(), "both drafts of a question had the same sign every time"


def test_held_out_questions_are_asked_once():
    frame = play(branches(lambda: Review(split="test"), 3, 3, 3))
    assert frame["agent"].cast(pl.String).unique().sort().to_list() == ["generator-1", "refiner-1", "verifier-1"]
    assert len(frame) == 9


def test_it_is_an_env_and_says_what_it_cannot_do():
    check_env(branches(Review, 2, 1, 2))
    assert "branches" in WORKFLOWS
    with pytest.raises(InputError, match="at least 1"):
        branches(Review, 2, 0)
    with pytest.raises(EnvError, match="act at once"):
        branches(Dilemma, 2)().reset(0)
