"""Nodes of a tree, pairs of siblings, and a sample that is kept."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.fixed_data import fixed_data
from palaestra.learning.stages.siblings import correct_nodes, sibling_pairs


def context(iteration: int = 1) -> Context:
    return Context(np.random.default_rng(0), iteration, env=None, team=None, executor=None)  # type: ignore[arg-type]


def two(rewards: list[float | None]) -> Turns:
    """Two trees of one root and two leaves, with the same names."""
    return Turns(
        {
            "iteration": [1] * 6, "group": [0] * 3 + [1] * 3, "episode": [0] * 6, "turn": [0, 1, 1] * 2,
            "policy": ["first", "second", "second"] * 2, "node": ["a", "b", "c"] * 2, "parent": [None, "a", "a"] * 2,
            "reward": rewards,
        }
    )  # fmt: skip


def test_trees_do_not_mix_and_one_half_is_not_correct() -> None:
    told = context()
    found = correct_nodes()(two([0, 1, 0, 0, 1, 1]), told)
    assert found["correct"].to_list() == [False, True, False, True, True, True]
    assert told.metrics == {"first": 0.5, "second": 0.75}
    assert correct_nodes(leaves=True)(two([0, 1, 0, 0, 1, 1]), told)["correct"].to_list()[0]


def test_only_siblings_that_differ_are_paired() -> None:
    told = context()
    paired = sibling_pairs()(correct_nodes()(two([0, 1, 0, 0, 1, 1]), told), told).frame
    rows = paired.drop_nulls("pair")
    assert rows.select("group", "node", "chosen").rows() == [(0, "b", True), (0, "c", False)]
    assert len(paired) == 6
    assert told.metrics["kept"] == 1


def test_what_nobody_knows_is_neither_correct_nor_paired() -> None:
    told = context()
    found = correct_nodes()(two([0, None, 0, 0, None, None]), told)
    assert found["correct"].to_list()[1:3] == [None, False]
    assert sibling_pairs()(found, told).frame["pair"].null_count() == 6


def test_the_first_iterations_stand_for_later_ones() -> None:
    stage = fixed_data(2)
    tables = [two([0, 1, 0, 0, 1, 1]), two([0.0] * 6), two([0.5] * 6)]
    tables = [Turns(each.frame.with_columns(iteration=pl.lit(at + 1))) for at, each in enumerate(tables)]
    assert len(stage(tables[0], context(1))) == 6
    assert len(stage(tables[1], context(2))) == 12
    again = fixed_data(2)
    again.load_state_dict(stage.state_dict())
    found = again(tables[2], context(3))
    assert found["iteration"].unique().to_list() == [3]
    assert sorted(set(found["group"].to_list())) == [0, 1, 2, 3]
    assert 0.5 not in found["reward"].to_list()
    with pytest.raises(InputError, match="first=0"):
        fixed_data(0)
