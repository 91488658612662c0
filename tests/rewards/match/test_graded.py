"""Graded rewards: worked numbers of [172] and [27], and the order that [145] promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import values

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError, InputError
from palaestra.rewards import (
    block_share,
    edge_closeness,
    gui_g1_reward,
    hit,
    iou,
    ml_engineering_reward,
    sweet_spot,
    tier,
)

tables = st.integers(1, 6).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(0.01, 9), min_size=n, max_size=n, unique=True).map(sorted),
        st.lists(st.floats(0, 1), min_size=n, max_size=n, unique=True).map(lambda x: sorted(x, reverse=True)),
    )
)


@given(tables, st.floats(0, 0.999), st.lists(st.floats(0, 20), min_size=1, max_size=10))
def test_solved_always_earns_more_than_unsolved(
    table: tuple[list[float], list[float]], alpha: float, distances: list[float]
) -> None:
    edges, levels = map(tuple, table)
    turns = Turns({"cost": distances * 2, "success": [True] * len(distances) + [False] * len(distances)})
    reward = values(sweet_spot("cost", alpha=alpha, edges=edges, levels=levels), turns).reshape(2, -1)
    assert reward[0].min() > reward[1].max()
    order = np.argsort(distances, kind="stable")
    assert (np.diff(reward[1][order]) <= 0).all()


@pytest.mark.parametrize(
    ("edges", "levels", "complaint"),
    [
        ((0.1,), (1.0, 0.5), "1 edges for 2 levels"),
        ((0.3, 0.1), (1.0, 0.5), "must rise"),
        ((0.1, 0.3), (0.5, 1.0), "must rise and levels"),
        ((0.1,), (1.5,), r"outside \[0, 1\]"),
    ],
)
def test_a_tier_that_is_not_one_is_named(edges: tuple[float, ...], levels: tuple[float, ...], complaint: str) -> None:
    with pytest.raises(ExpressionError, match=complaint):
        tier("cost", edges=edges, levels=levels)


def test_a_grade_that_outweighs_success_is_refused_and_a_missing_distance_is_missing() -> None:
    with pytest.raises(ExpressionError, match=r"alpha=1 times the highest level 1.0 must be in \[0, 1\)"):
        sweet_spot("cost", alpha=1)
    turns = Turns({"cost": [None, 0.2], "success": [False, False]})
    np.testing.assert_allclose(values(parse("sweet_spot(cost)"), turns), [np.nan, 0.3])


def test_block_share() -> None:
    target = np.arange(16).reshape(4, 4)
    answer = target.copy()
    answer[0, 0] = 99
    assert block_share(answer, target) == 15 / 16
    assert block_share(answer, target, (2, 2)) == 3 / 4
    assert block_share(answer[:2], target) == 0
    with pytest.raises(InputError, match="do not tile"):
        block_share(answer, target, (3, 3))


PATTERNS = tuple(f"step {k} done" for k in range(7))


def test_programs_that_get_further_score_strictly_more() -> None:
    logs = ["\n".join(PATTERNS[:k]) for k in range(8)]
    turns = Turns({"metadata": logs, "reward": [None] * 8})
    reward = values(ml_engineering_reward(patterns=PATTERNS), turns)
    np.testing.assert_allclose(reward, [-10, *np.arange(1, 8) * 0.1])
    assert (np.diff(reward) > 0).all()
    submitted = Turns({"metadata": [logs[7], None], "reward": [0.4, -1.0]})
    np.testing.assert_allclose(values(ml_engineering_reward(patterns=PATTERNS), submitted), [1.1, -1.0])


def test_no_patterns() -> None:
    with pytest.raises(ExpressionError, match="no patterns"):
        ml_engineering_reward(patterns=())


BOXES = [[20, 20, 60, 40], [30, 25, 50, 35], [0, 0, 100, 60], [70, 70, 90, 90], None]
TURNS = Turns({"box": BOXES, "target_box": [[20, 20, 60, 40]] * 5, "image_size": [[100, 100]] * 5})


def test_gui_g1_worked_numbers() -> None:
    np.testing.assert_array_equal(values(hit(), TURNS), [1, 1, 1, 0, np.nan])
    np.testing.assert_allclose(values(iou(), TURNS), [1, 0.25, 0.1333, 0, np.nan], atol=1e-4)
    np.testing.assert_allclose(values(edge_closeness(), TURNS), [1, 0.9243, 0.7385, 0.5385, np.nan], atol=1e-4)
    np.testing.assert_allclose(values(gui_g1_reward(), TURNS), [1.375, 1.1780, 1.1256, 0.0673, 0], atol=1e-4)


def test_boxes_at_the_edge_of_sense() -> None:
    boxes = [[5, 5, 5, 5], [59.5, 20, 80, 40], [20, 20, 120, 140]]
    turns = Turns({"box": boxes, "target_box": [[20, 20, 60, 40]] * 3, "image_size": [[100, 100]] * 3})
    assert np.isfinite(values(gui_g1_reward(), turns)).all()
    overlap, released = values(iou(), turns), values(iou(whole_pixel=True), turns)
    assert overlap[1] > 0 == released[1]
    assert overlap[2] == released[2]
    touching = Turns({"box": [[59, 20, 80, 40], [58, 20, 80, 40]], "target_box": [[20, 20, 60, 40]] * 2})
    np.testing.assert_allclose(values(iou(whole_pixel=True), touching), [0, 40 / 1200])
    sides = [[10, 20, 30, 40], [50, 20, 70, 40], [30, 10, 50, 30], [30, 30, 50, 50], [9, 20, 30, 40]]
    on_the_edge = Turns({"box": sides, "target_box": [[20, 20, 60, 40]] * 5})
    np.testing.assert_array_equal(values(hit(), on_the_edge), [1, 1, 1, 1, 0])
    sizeless = turns.with_column(image_size=[[0, 100]] * 3)
    np.testing.assert_array_equal(values(edge_closeness(), sizeless), [np.nan, np.nan, 0])
    assert values(edge_closeness(), turns)[2] == 0  # an edge is a whole image away
