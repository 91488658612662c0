from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.errors import LearnerError
from palaestra.learning.batch import Batch, minibatches, per_row


def test_sums_by_row_count_rows_without_tokens() -> None:
    assert per_row(np.array([True, False, True]), np.array([2, 0, 1])).tolist() == [1, 0, 1]


def steps(of: str, epochs: int, size: int | None, together: str | None = None, seed: int | None = 0) -> list[list[int]]:
    """Rows of each step for rows of these letters."""
    batch: Any = SimpleNamespace(size=np.zeros(len(of)), rows=pl.DataFrame({"of": list(of)}))
    rng = None if seed is None else np.random.default_rng(seed)
    return [rows.tolist() for rows in minibatches(batch, epochs, size, together, rng)]


def test_one_step_per_epoch_is_in_order_and_more_are_drawn() -> None:
    whole = list(range(6))
    for size in (None, 6, 7):
        assert steps("abcdef", 2, size) == [whole, whole]
    assert steps("abcdef", 1, 2, seed=None) == [whole]
    drawn = steps("abcdef", 2, 4)
    assert [len(rows) for rows in drawn] == [4, 2, 4, 2]
    for first, second in (drawn[:2], drawn[2:]):
        assert sorted(first + second) == whole
        assert first + second != whole
    assert steps("", 3, 2) == []


def test_rows_of_one_kind_come_in_one_step() -> None:
    orders = set()
    for seed in range(10):
        found = steps("abacbad", 1, 3, "of", seed)
        assert sorted(row for rows in found for row in rows) == list(range(7))
        kinds = [{"abacbad"[row] for row in rows} for rows in found]
        assert sum(len(kind) for kind in kinds) == 4
        assert max(len(rows) for rows in found) < 3 + 3  # at most two rows before a kind of three
        orders.add(tuple(tuple(sorted(kind)) for kind in kinds))
    assert len(orders) > 1


def test_rows_of_no_kind_are_by_themselves() -> None:
    """They are not one kind, which would be a step of its own, however many there are."""
    batch: Any = SimpleNamespace(size=np.zeros(12), rows=pl.DataFrame({"of": list("aabb") + [None] * 8}))
    found = [rows.tolist() for rows in minibatches(batch, 1, 4, "of", np.random.default_rng(0))]
    assert sorted(row for rows in found for row in rows) == list(range(12))
    assert max(map(len, found)) <= 5
    assert sum(0 in rows and 1 in rows for rows in found) == sum(2 in rows and 3 in rows for rows in found) == 1
    some = [rows.tolist() for rows in minibatches(batch, 1, 2, "of", np.random.default_rng(0), np.arange(2, 6))]
    assert sorted(row for rows in some for row in rows) == [2, 3, 4, 5]


def test_the_first_row_of_which_another_number_of_tokens_was_scored_is_named() -> None:
    rows = pl.DataFrame({"group": [0, 1, 2], "episode": 0, "turn": 0, "agent": "a"})
    batch: Any = SimpleNamespace(lengths=np.array([2, 3, 1]), rows=rows)
    scored: Any = SimpleNamespace(mask=torch.arange(3) < torch.tensor([[2], [1], [3]]))
    with pytest.raises(LearnerError, match=r"scored 1 tokens where the table has 3 .*group 1"):
        Batch.tensors(batch, "p", np.arange(3), scored)
