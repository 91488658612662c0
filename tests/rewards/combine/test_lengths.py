"""Answers that were cut off, and those that are nearly too long: DAPO's worked numbers, and what reaches the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.credit import grpo
from palaestra.errors import ExpressionError
from palaestra.rewards import cut_off, mask_truncated, overlong
from palaestra.runs.inline import learn

SAID = {"group": [0] * 4, "episode": [0, 0, 1, 1], "agent": ["a", "b", "a", "a"]}


def test_the_punishment_of_dapo() -> None:
    turns = Turns({"tokens_out": [0, 16384, 18432, 20480, 25000]})
    found = overlong(limit=20480, cache=4096).evaluate(turns)
    assert found.tolist() == [0.0, 0.0, -0.5, -1.0, -1.0], "16,384 tokens are free, a cache of 4,096 follows"
    assert overlong(limit=20480, cache=0).evaluate(turns).tolist() == [0.0, 0.0, 0.0, 0.0, -1.0]


@pytest.mark.parametrize(("limit", "cache"), [(4, 5), (0, 0), (4, -1)])
def test_a_cache_lies_below_the_limit(limit: float, cache: float) -> None:
    with pytest.raises(ExpressionError, match="cache"):
        overlong(limit=limit, cache=cache)


def test_a_conversation_is_left_out_as_a_whole_and_counts_in_the_baseline() -> None:
    turns = Turns(SAID | {"reward": [1.0, 1.0, 0.0, 0.0], "finish": ["stop", "length", "length", "stop"]})
    assert cut_off().evaluate(turns).tolist() == [0, 1, 1, 0]
    credit = grpo()
    whole, masked = credit.evaluate(turns), mask_truncated(credit).evaluate(turns)
    assert masked[0] == whole[0], "the baseline is that of all"
    assert np.isnan(masked).tolist() == [False, True, True, True], "agent a of episode 1 was cut off in one turn"
    alone = mask_truncated(credit, over=()).evaluate(turns)
    assert np.isnan(alone).tolist() == [False, True, True, False]


def test_a_recipe_trains_without_what_was_cut_off() -> None:
    seen: list[Turns] = []
    recipe: dict[str, Any] = {
        "name": "cut",
        "env": {"make": "native/answers"},
        "policies": {"p": {"kind": "tiny", "options": {"max_new_tokens": 40}}},
        "team": {"answerer": "p"},
        "credit": "mask_truncated(grpo())",
        "reward": "success_reward() + overlong(limit=40, cache=20)",
        "train": {"iterations": 1, "groups": 8, "group_size": 8},
    }
    learn(recipe, on_turns=lambda _, turns: seen.append(turns))
    (turns,) = seen
    cut = (turns["finish"] == "length").to_numpy()
    assert set(turns["finish"]) == {"stop", "length"}
    assert (turns["advantage"].is_null() | turns["advantage"].is_nan()).to_numpy().tolist() == cut.tolist()
    assert turns["reward"].to_numpy()[cut].max() <= 0
