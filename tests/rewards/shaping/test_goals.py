"""Goals: StateFactory's and VLM-RM's worked numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.rewards import goal_match, goal_projection, goal_score, projected_similarity
from palaestra_atlas.catalog.rewards.s052_state_factory import GOAL, STAGES, card

PLATE = ("plate", {"location": "on the table"})
STATES = [[("mug", {"location": place, "temperature": look})] for place, look in STAGES]


def as_json(state: list[tuple[str, dict[str, str]]]) -> str:
    return json.dumps([{"description": name, "attributes": given} for name, given in state])


def test_factorised_states() -> None:
    states = [*STATES[:3], [*STATES[3], PLATE]]
    assert [goal_match(state, GOAL) for state in states] == [0.16, 0.33, 0.5, 1.0]
    np.testing.assert_allclose(card(), [0.1454, 0.1780], atol=1e-4)
    turns = Turns({"now": [as_json(state) for state in states] + [None], "goal": [as_json(list(GOAL))] * 5})
    np.testing.assert_array_equal(np.asarray(goal_score("now", "goal").evaluate(turns)), [0.16, 0.33, 0.5, 1, np.nan])


def test_empty_states_and_goals_without_attributes() -> None:
    assert goal_match([], GOAL) == goal_match(STATES[0], []) == 0
    assert goal_match([("red mug", {})], [("mug", {})], decimals=None) == pytest.approx(1 / np.sqrt(2))
    for one, other in (("red mug", "red red mug"), ("red red mug", "red mug")):
        assert goal_match([(one, {})], [(other, {})], decimals=None) == pytest.approx(3 / np.sqrt(10))
    assert goal_match([("mug", {})], GOAL) == 0


def test_another_similarity_may_be_given() -> None:
    exact = goal_match(STATES[2], GOAL, lambda one, other: float(one == other), decimals=None)
    assert exact == 0.5


def test_states_that_cannot_be_read() -> None:
    with pytest.raises(InputError, match=r"column 'now' holds '\[1\]'"):
        goal_score("now", "goal").evaluate(Turns({"now": ["[1]"], "goal": ["[]"]}))


@pytest.mark.parametrize(
    ("state", "right"), [((1, 1, 1), (0.57735, 0.70684, 0.75)), ((1, 0, 1), (0.70711, 0.91069, 0.97855))]
)
def test_projection(state: tuple[int, ...], right: tuple[float, ...]) -> None:
    goal, baseline = np.eye(3)[0], np.eye(3)[1]
    turns = Turns({"s": [list(map(float, state))], "g": [goal.tolist()], "b": [baseline.tolist()]})
    for alpha, value in zip((0.0, 0.5, 1.0), right, strict=True):
        assert projected_similarity(np.array([state]), goal, baseline, alpha)[0] == pytest.approx(value, abs=1e-5)
        found = np.asarray(goal_projection("s", "g", "b", alpha=alpha).evaluate(turns))
        assert found[0] == pytest.approx(value, abs=1e-5)


def test_projection_is_its_matrix_form() -> None:
    rng = np.random.default_rng(0)
    states, goals, base = rng.normal(size=(20, 7)), rng.normal(size=(3, 7)), rng.normal(size=(2, 7))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (states, goals, base)]
    g, b = unit[1].mean(axis=0), unit[2].mean(axis=0)
    v, alpha = g - b, 0.3
    p = alpha * np.outer(v, v) / (v @ v) + (1 - alpha) * np.eye(7)
    right = 1 - 0.5 * np.square((unit[0] - g) @ p.T).sum(axis=1)
    np.testing.assert_allclose(projected_similarity(states, goals, base, alpha), right)


def test_without_a_baseline_it_is_the_cosine() -> None:
    rng = np.random.default_rng(1)
    states, goal = rng.normal(size=(5, 4)), rng.normal(size=4)
    cosine = states @ goal / np.linalg.norm(states, axis=1) / np.linalg.norm(goal)
    np.testing.assert_allclose(projected_similarity(states, goal), cosine)
    with pytest.raises(InputError, match="0 without a baseline"):
        projected_similarity(states, goal, alpha=0.5)
    with pytest.raises(InputError, match="length 0"):
        projected_similarity(np.zeros((1, 4)), goal)


def test_a_state_that_is_nested_without_end_is_named() -> None:
    with pytest.raises(InputError, match="column 'shown' holds"):
        goal_score("shown", "goal").evaluate(Turns({"shown": ["[" * 200_000], "goal": ["[]"]}))
