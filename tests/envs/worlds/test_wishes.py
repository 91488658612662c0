"""Wishes: the best answer is where the formula says, and what is told is what was given."""

from __future__ import annotations

import math

import pytest

from palaestra.envs.worlds.wishes import Wishes
from palaestra.errors import InputError
from palaestra.testing import check_env


def test_the_best_answer_to_each_wish() -> None:
    env = Wishes(wishes=5, answers=100)
    found = {}
    for seed in range(30):
        seen = env.reset(seed)["writer"]
        wish = env.state.wish
        worth = []
        for choice in range(200):
            env.reset(seed)
            outcome = env.step({"writer": choice})
            worth.append((outcome.rewards["writer"], choice, outcome.info["success"]))
        best = max(worth)
        assert best[2] is True
        found[wish] = (best[1] + 1) / 100
        helpful, words = (round(100 * each) for each in env.wishes[wish])
        assert seen.text == f"helpfulness {helpful}, words {words}"
    angles = [math.pi / 4 * (1 - k / 4) for k in range(5)]
    for wish, h in found.items():
        assert h == pytest.approx(min(1, 0.5 / math.tan(angles[wish])) if angles[wish] > 0 else 1.0, abs=0.01)
    assert len(found) == 5


def test_it_keeps_the_protocol() -> None:
    check_env(Wishes)
    with pytest.raises(InputError, match="answers=1"):
        Wishes(answers=1)
