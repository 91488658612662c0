"""Screen rewards: worked numbers of UI-R1, its length term, UI-Venus; the hybrid of CRAFT-GUI."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tables import values

from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError
from palaestra.rewards import (
    content_reward,
    distance,
    hybrid_reward,
    length_aware,
    scroll_reward,
    stepwise_point,
    ui_r1_reward,
    ui_venus_grounding,
    ui_venus_navigation,
)
from palaestra.testing import check_signal


def test_ui_r1() -> None:
    did, gold = ["click", "click", "scroll", "click", None], ["click", "click", "scroll", "scroll", "click"]
    points = [[1, 1], [9, 9], None, [1, 1], [1, 1]]
    turns = Turns({"did": did, "gold": gold, "p": points, "box": [[0, 0, 1, 1]] * 5, "ok": [1, 0, 1, 1, 1]})
    np.testing.assert_array_equal(values(ui_r1_reward("did", "gold", "p", "box", format="ok"), turns), [3, 1, 3, 1, 1])


def test_the_length_term() -> None:
    turns = Turns({"group": [0] * 4, "reward": [3, 3, 2, 1], "tokens_out": [40, 80, 60, 100]})
    np.testing.assert_allclose(values(length_aware("reward"), turns), [3.75, 3.5, 1.675, 0.9])
    nobody = Turns({"group": [0] * 2, "reward": [2, 1], "tokens_out": [50, 100]})
    np.testing.assert_allclose(values(length_aware("reward"), nobody), [2 - 0.55, 1 - 0.1])


def test_points_scrolls_words() -> None:
    turns = Turns({"p": [[d, 0.0] for d in (5, 10, 39, 40)] + [None], "aim": [[0.0, 0.0]] * 5})
    np.testing.assert_array_equal(values(stepwise_point("p", "aim"), turns), [1, 0.5, 0.5, 0, np.nan])
    far = Turns({"p": [[3.0, 4.0]], "aim": [[0.0, 0.0]]})
    assert values(distance("p", "aim"), far)[0] == 5
    boxed = Turns({"p": [[3.0, 4.0]] * 2, "aim": [[0.0, 0.0]] * 2, "box": [[-3.0, -2.0, 3.0, 2.0], [0.0] * 4]})
    np.testing.assert_allclose(values(distance("p", "aim", box="box"), boxed), [5**0.5, np.nan])
    scrolls = Turns({"s": [1, 1, 0, 0], "e": [1, 0, 0, 1], "d": [1, 1, 1, 0]})
    np.testing.assert_array_equal(values(scroll_reward("s", "e", "d", value=2.0), scrolls), [3, 2, 1, 0])
    texts = Turns({"a": ["buy two red apples", "no"], "b": ["two red apples", "yes"]})
    np.testing.assert_array_equal(values(content_reward("a", "b"), texts), [1, 0])


def test_ui_venus() -> None:
    turns = Turns({"box": [[0, 0, 2, 2], [8, 8, 9, 9], None], "aim": [[0, 0, 3, 3]] * 3, "ok": [1, 1, 0]})
    found = values(ui_venus_grounding("box", "aim", format="ok"), turns)
    np.testing.assert_allclose(found, [1, 0.1, 0])
    steps = Turns({"did": ["click", "type", "click"], "gold": ["click", "click", "click"], "near": [1.0, 1.0, None]})
    found = values(ui_venus_navigation("did", "gold", coordinates="near", weights=(0.0, 1.0)), steps)
    np.testing.assert_allclose(found, [2, 0, 1])


def test_a_judge_where_no_rule_decides() -> None:
    turns = Turns({"rule": [1.0, None, None], "judge": [0.2, 0.8, None], "open": [0, 1, 1]})
    found = values(hybrid_reward("rule", "judge", "open", weights=(1.0, 0.5)), turns)
    np.testing.assert_array_equal(found, [1, 0.4, np.nan])
    with pytest.raises(ExpressionError, match="must not be negative"):
        hybrid_reward("rule", "judge", "open", weights=(1.0, -1.0))


def test_common_tests() -> None:
    check_signal(length_aware("reward", length="cost", best=0.5))
