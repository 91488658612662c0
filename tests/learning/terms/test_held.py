"""`pinned`: KL to the start on the rows that a column names."""

from __future__ import annotations

import numpy as np
import polars as pl
import torch

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import SecondLook
from palaestra.learning import PolicyGradient
from palaestra.play.rollout import rollout


def played() -> tuple[TabularPolicy, Turns]:
    policy = TabularPolicy(3, name="student")
    turns = rollout(lambda: SecondLook(items=2, classes=3), Team(student=policy), groups=12, group_size=1, seed=0)
    return policy, turns


def moved(weight: list[float | None], terms: str) -> np.ndarray:
    """How far each row's log-probabilities are from the start after 20 updates towards what was done."""
    policy, turns = played()
    table = Turns(turns.frame.with_columns(pl.Series("weight", weight * (len(turns) // 2)), advantage=pl.lit(1.0)))
    learner = PolicyGradient(Team(student=policy), terms, lr=0.1)
    for _ in range(20):
        learner.update(table)
    with torch.no_grad():
        now = policy.score(table.frame).logprobs[:, 0].numpy()
    return np.asarray(np.abs(now - np.log(1 / 3)))


def test_rows_with_a_weight_are_held_and_others_are_free() -> None:
    """A table: the states of first and second looks share no parameter."""
    held, free = moved([1.0, None], "surrogate(None), pinned(50)"), moved([1.0, None], "surrogate(None)")
    first, second = slice(0, None, 2), slice(1, None, 2)
    assert held[first].max() < 0.1 < free[first].max()
    np.testing.assert_allclose(held[second], free[second], atol=0.05)


def test_a_weight_of_zero_holds_nothing() -> None:
    loose = moved([0.0, 0.0], "surrogate(None), pinned(50)")
    np.testing.assert_allclose(loose, moved([0.0, 0.0], "surrogate(None)"), atol=1e-5)
