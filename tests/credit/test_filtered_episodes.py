"""The filter of whole episodes, by hand."""

from __future__ import annotations

import pytest

from palaestra.algebra.turns import Turns
from palaestra.credit import digirl
from palaestra.errors import ExpressionError

ROWS = {
    "episode": [0, 0, 1, 1, 2, 2], "agent": ["a"] * 6, "turn": [0, 1] * 3, "reward": [0.0, 1, 0, 1, 0, 0],
    "first_value": [0.9, 0.9, 0.2, 0.2, 0.5, 0.5], "value": [0.9, 0.95, 0.2, 0.1, 0.5, 0.6],
}  # fmt: skip


def test_the_surprising_success_is_cloned() -> None:
    assert digirl().evaluate(Turns(ROWS)).tolist() == [0, 0, 1, 1, 0, 0]
    assert digirl(gamma=0.0).evaluate(Turns(ROWS)).tolist() == [0, 0, 0, 1, 0, 0]
    assert digirl(first=0.0).evaluate(Turns(ROWS)).tolist() == [1, 1, 1, 1, 0, 0]


def test_steps_of_failures_count_where_few_succeed() -> None:
    assert digirl(top=1.0).evaluate(Turns(ROWS)).tolist() == [1, 1, 1, 1, 1, 0]


def test_what_is_refused() -> None:
    with pytest.raises(ExpressionError, match="top=2"):
        digirl(top=2)
