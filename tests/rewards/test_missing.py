"""Not scored is not zero: an outcome that nobody knows is not paid, and what has no gold answer is not wrong."""

from __future__ import annotations

import numpy as np
import pytest

import palaestra  # noqa: F401  (registers everything)
from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.credit import agent_return
from palaestra.rewards.combine.mix import Component, components

FACTS = {
    "group": [0] * 6, "episode": [0, 0, 0, 1, 1, 1], "turn": [0, 1, 2] * 2, "agent": ["a"] * 6,
    "success": [True] * 3 + [None] * 3, "score": [0.9, 0.8, 0.7] + [None] * 3, "truncated": [False] * 6,
    "valid": [True] * 6, "judge": [None, 1, 0] * 2, "relevance": [0.9, 0.9, 0.1] * 2,
    "gate": [1] * 3 + [None] * 3, "detail": [1.0, 1.0, None] * 2, "delta": [3, 4, 5] + [None] * 3,
    "progress": [0.1, 0.5, 0.9] * 2, "task_progress": [0.1, 0.5, 0.9] * 2, "surprise": [0.5, 0.4, 0.6] + [None] * 3,
}  # fmt: skip
OUTCOMES = (
    "success_reward()",
    "clip_and_delta()",
    "delta('score')",
    "era_reward()",
    "robo_dopamine()",
    "deep_travel_reward('gate', 'detail')",
    "rlver_reward()",
    "reseek_reward('judge', 'relevance', answer=success)",
    "novelty_difference('surprise')",
)


@pytest.mark.parametrize("text", OUTCOMES)
def test_an_episode_without_an_outcome_has_no_return(text: str) -> None:
    turns = Turns(FACTS)
    returns = np.asarray(agent_return(parse(text, columns=turns.columns)).evaluate(turns))
    assert np.isfinite(returns[:3]).all()
    assert np.isnan(returns[3:]).all(), "a sum over zeros and nothing else would be a failure"


def test_a_component_of_the_episode_that_was_not_scored_is_missing() -> None:
    turns = components(Turns(FACTS), {"solved": Component("success", "episode")})
    assert turns["reward"].to_list() == [0.0, 0.0, 1.0, None, None, None]


def test_a_turn_without_a_reward_has_none_on_any_token() -> None:
    turns = Turns({"episode": [0, 1], "reward": [1.0, None], "logprobs": [[-1.0, -1.0], [-1.0, -1.0]]})
    found = parse("on_last_token('reward')").evaluate(turns)
    np.testing.assert_array_equal(getattr(found, "values"), [0.0, 1.0, np.nan, np.nan])  # noqa: B009


SCREEN = {
    "box": [[0, 0, 9, 9]] * 3, "target": [[0, 0, 9, 9], None, [50, 50, 60, 60]], "size": [[99, 99]] * 3,
    "action": ["click"] * 3, "gold": ["click", None, "wait"], "point": [[5, 5]] * 3,
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "gui_g1_reward('box', 'target', 'size')",
        "ui_venus_grounding('box', 'target')",
        "ui_r1_reward('action', 'gold', 'point', 'target')",
        "ui_venus_navigation('action', 'gold')",
    ],
)
def test_what_nobody_says_would_be_right_is_not_wrong(text: str) -> None:
    found = np.asarray(parse(text, columns=SCREEN).evaluate(Turns(SCREEN)))
    assert found[0] > found[2]
    assert np.isnan(found[1])


def test_a_goal_without_an_origin_has_no_direction() -> None:
    vectors = {"s": [[1.0, 1.0]] * 2, "g": [[1.0, 0.0]] * 2, "b": [[0.0, 1.0], None]}
    found = np.asarray(parse("goal_projection('s', 'g', 'b')", columns=vectors).evaluate(Turns(vectors)))
    assert np.isfinite(found[0])
    assert np.isnan(found[1])
