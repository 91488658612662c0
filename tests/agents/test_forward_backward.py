"""Tests of policies from forward and backward embeddings; the worked numbers stand with system [201]."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from palaestra.agents import TabularPolicy, Team
from palaestra.agents.forward_backward import ForwardBackward, spread
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import GoalGrid
from palaestra.errors import InputError
from palaestra.play.rollout import rollout
from palaestra.runs.forward_backward_policies import imitating


def env() -> GoalGrid:
    return GoalGrid(side=4, horizon=30, ends=False, told=False)


@pytest.fixture(scope="module")
def walks() -> Turns:
    return rollout(env, Team(walker=TabularPolicy(4, name="table")), groups=30, seed=0)


def test_rewards_are_not_read(walks: Turns) -> None:
    """Another reward, another order of rows: the same embeddings."""
    other = Turns(walks.frame.with_columns(reward=pl.lit(7.0), success=pl.lit(False)))
    first, second = ForwardBackward(walks, rank=4), ForwardBackward(other, rank=4)
    np.testing.assert_array_equal(first.forward, second.forward)


def test_what_was_never_tried_is_never_chosen(walks: Turns) -> None:
    """Without any step to the east a policy goes east nowhere, wherever it is asked to go."""
    east = pl.col("action_ids").list.first() == 0
    model = ForwardBackward(Turns(walks.frame.filter(~east)), rank=8, actions=4)
    assert not model.tried[:, 0].any()
    policy = model.policy(model.task(np.array([[3.0, 3.0]])))
    turns = rollout(env, Team(walker=policy), groups=10, seed=1).frame
    known = turns.filter(pl.col("state").is_in(model.keys))
    assert len(known) > 200
    assert not known.filter(pl.col("action_ids").list.first() == 0).height


def test_points_far_from_each_other_come_first() -> None:
    assert spread(np.array([[0.0], [1.0], [10.0], [4.0]]), 3) == [0, 2, 3]
    assert sorted(spread(np.zeros((3, 1)), 5)) == [0, 1, 2], "no point twice"


def test_what_cannot_be_read_is_named(walks: Turns, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gamma=1\.0"):
        ForwardBackward(walks, gamma=1.0)
    with pytest.raises(InputError, match=r"frames of shape \[1, 3\], expected at least one with 2 features"):
        ForwardBackward(walks).project(np.zeros((1, 3)))
    with pytest.raises(InputError, match="in 0 states, expected 1"):
        ForwardBackward(Turns(walks.frame.with_columns(features=pl.lit(None, walks.frame.schema["features"]))))
    walks.save(tmp_path / "walks.parquet")
    pl.DataFrame({"place": ["a"]}).write_parquet(tmp_path / "frames.parquet")
    with pytest.raises(InputError, match="no Parquet file with a column 'features'"):
        imitating(str(tmp_path / "walks.parquet"), str(tmp_path / "frames.parquet"))


def test_a_feature_counts_in_units_of_its_spread(walks: Turns) -> None:
    """(3, 0) is 1 from the third state, which is twice the deviation there; the last feature says nothing."""
    model = ForwardBackward(walks, rank=4)
    model.features = np.array([[0.0, 0.0, 5.0], [10.0, 0.0, 5.0], [3.0, 1.0, 5.0]])
    assert model.project(np.array([[3.0, 0.0, 6.0], [3.0, 0.9, 6.0]])).tolist() == [0, 2]
