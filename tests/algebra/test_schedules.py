"""Schedules: values at their ends and between."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError
from palaestra.rewards import cosine, linear, two_phase


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("linear(2, 1, steps=20)", [2, 1.75, 1.5, 1, 1]),
        ("linear(0, 1, steps=10, begin=5)", [0, 0, 0.5, 1, 1]),
        ("cosine(1, 0, steps=20)", [1, 0.5 + 0.5**0.5 / 2, 0.5, 0, 0]),
        ("cosine_restarts(1, 0.2, steps=20, warm_up=0, cycles=1)", [1, 0.6 + 0.4 * 0.5**0.5, 0.6, 1, 1]),
        ("two_phase(0.5, 0.1, share=0.5, steps=20)", [0.5, 0.5, 0.1, 0.1, 0.1]),
        ("two_phase(0.5, 0.1, share=0.3, steps=10)", [0.5, 0.1, 0.1, 0.1, 0.1]),
    ],
)
def test_values(text: str, expected: list[float]) -> None:
    turns = Turns({"iteration": [0, 5, 10, 20, 1000]})
    np.testing.assert_allclose(parse(text).evaluate(turns), expected, atol=1e-12)


def test_schedules_without_steps_are_refused() -> None:
    for schedule in (linear, cosine):
        with pytest.raises(ExpressionError, match="steps=0"):
            schedule(0, 1, steps=0)
    with pytest.raises(ExpressionError, match="share=2"):
        two_phase(0, 1, share=2, steps=10)


def test_after_the_warm_up_each_cycle_falls_from_the_top() -> None:
    turns = Turns({"iteration": [0, 1, 3, 4, 6, 8, 11, 12, 16]})
    found = parse("cosine_restarts(1, 0.2, steps=20, warm_up=4, cycles=2)").evaluate(turns)
    last = 0.6 + 0.4 * np.cos(7 / 8 * np.pi)
    np.testing.assert_allclose(found, [0.25, 0.5, 1, 1, 0.6 + 0.08**0.5, 0.6, last, 1, 0.6], atol=1e-12)
    later = Turns({"iteration": [4, 6, 8, 12, 13]})
    np.testing.assert_allclose(
        cosine(1, 0, steps=8, begin=4).evaluate(later), [1, 0.5 + 0.125**0.5, 0.5, 0, 0], atol=1e-12
    )
