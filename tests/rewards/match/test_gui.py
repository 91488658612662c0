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


def test_what_ui_r1_asks_for_decides() -> None:
    """A click where none was asked for pays nothing of its place; points may be on another scale than boxes.

    Without a gold action, or a box to be clicked, nobody knows; a box is not missed where something else is asked for.
    """
    did, gold = ["click", "click", "click", "click", "scroll"], ["scroll", "click", None, "click", "scroll"]
    points, boxes = [[9, 9], [4, 4], [1, 1], [1, 1], None], [[0, 0, 2, 2]] * 3 + [None, None]
    turns = Turns({"did": did, "gold": gold, "p": points, "box": boxes})
    found = values(ui_r1_reward("did", "gold", "p", "box", scale=0.5), turns)
    np.testing.assert_array_equal(found, [0, 2, np.nan, np.nan, 2])
    both = values(ui_r1_reward("did", "gold", "p", "box", clicks=("click", "scroll")), turns)
    np.testing.assert_array_equal(both, [0, 1, np.nan, np.nan, np.nan])


def test_lengths_are_compared_within_a_group_by_hand() -> None:
    """Group 0: half are full, at a length of 10, the longest 30: L_b = 20. λ = -.5 and .5; 2 + min(.45 - .1, -.1).

    Group 1: two of four are full, at 100 and 500, mean 300, longest 900: L_b = 600, and one more is not scored, however
    long. λ of 100, 500, 300, 900: -5/6, -1/6, -1/2, 1/2. Of rewards of 3 the term is at least .1: group 2, all full, at
    1, 1, 1 and 17: L_b = 5, λ = -.8 and 2.4.
    """
    group = [1, 0, 1, 1, 0, 1, 1] + [2] * 4
    reward = [3, 3, 3, 2, 2, 2, None, 3, 3, 3, 3]
    length = [100, 10, 500, 300, 30, 900, 9999, 1, 1, 1, 17]
    found = values(length_aware("reward", length="words"), Turns({"group": group, "reward": reward, "words": length}))
    of_1 = [3 + 0.5 + 5 / 12, 3 + 0.5 + 1 / 12, 2 - 0.55, 2 - 0.1]
    expected = [of_1[0], 3.75, of_1[1], of_1[2], 1.9, of_1[3], np.nan, 3.9, 3.9, 3.9, 3.1]
    np.testing.assert_allclose(found, expected)


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
    scrolls = Turns({"s": [1, 1, 0, 0, 1, 1], "e": [1, 0, 0, 1, 0, 1], "d": [1, 1, 1, 0, 0, 0]})
    np.testing.assert_array_equal(values(scroll_reward("s", "e", "d", value=2.0), scrolls), [3, 2, 1, 0, 1, 1])
    np.testing.assert_array_equal(values(stepwise_point("p", "aim", value=3.0), turns), [3, 1.5, 1.5, 0, np.nan])
    texts = Turns({"a": ["buy two red apples", "no"], "b": ["two red apples", "yes"]})
    np.testing.assert_array_equal(values(content_reward("a", "b"), texts), [1, 0])
    half = Turns({"a": ["red apples"], "b": ["two apples"]})  # one word of two in both: F1 is 1/2, which is enough
    np.testing.assert_array_equal(values(content_reward("a", "b", value=2.0), half), [2])


def test_ui_venus() -> None:
    boxes, aims = [[0, 0, 2, 2], [8, 8, 9, 9], None, [0, 0, 2, 2]], [[0, 0, 3, 3]] * 3 + [None]
    turns = Turns({"box": boxes, "aim": aims, "ok": [1, 1, 0, 1]})
    found = values(ui_venus_grounding("box", "aim", format="ok"), turns)
    np.testing.assert_allclose(found, [1, 0.1, 0, np.nan])
    steps = Turns({"did": ["click", "type", "click"], "gold": ["click", "click", "click"], "near": [1.0, 1.0, None]})
    found = values(ui_venus_navigation("did", "gold", coordinates="near", weights=(0.0, 1.0)), steps)
    np.testing.assert_allclose(found, [2, 0, 1])
    written = {"did": ["type", "type"], "gold": ["type", "type"], "said": [1.0, None]}
    found = values(ui_venus_navigation("did", "gold", content="said", weights=(0.0, 1.0)), Turns(written))
    np.testing.assert_allclose(found, [2, 1])


def test_a_judge_where_no_rule_decides() -> None:
    turns = Turns({"rule": [1.0, None, None], "judge": [0.2, 0.8, None], "open": [0, 1, 1]})
    found = values(hybrid_reward("rule", "judge", "open", weights=(1.0, 0.5)), turns)
    np.testing.assert_array_equal(found, [1, 0.4, np.nan])
    with pytest.raises(ExpressionError, match="must not be negative"):
        hybrid_reward("rule", "judge", "open", weights=(1.0, -1.0))


def test_common_tests() -> None:
    check_signal(length_aware("reward", length="cost", best=0.5))
