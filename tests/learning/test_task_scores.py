"""Scores of given tasks, and which of them are worth training on."""

from __future__ import annotations

import numpy as np

from palaestra import Turns
from palaestra.algebra.returns import episode_score
from palaestra.learning.task_scores import judged, scores_of


def test_an_episode_that_failed_or_is_missing_has_the_floor() -> None:
    rows = {"group": [0, 0, 0, 1], "episode": [0, 0, 1, 0], "turn": [0, 1, 0, 0], "agent": ["a"] * 4}
    turns = Turns(rows | {"reward": [1.0, 2.0, 5.0, None]})
    assert scores_of(turns, episode_score(None), 2, 2, floor=-1.0).tolist() == [[3.0, 5.0], [-1.0, -1.0]]


def test_each_threshold_refuses_for_its_reason() -> None:
    own = np.array([[1, 1], [0, 0], [1, 0], [1, 0]], float)
    control = np.array([[0, 0], [0, 0], [1, 1], [0, 0]], float)
    found = judged(own, control)
    assert found.mastered.tolist() == [True, False, False, False]
    assert found.unlearned.tolist() == [False, True, True, False]
    assert found.trivial.tolist() == [False, False, True, False]
    assert judged(own, control, solved=1.1).accepted.tolist() == [True, False, False, True]
    assert not judged(own, control, margin=1.0).accepted.any()


def test_a_score_that_is_just_enough_is_no_success_and_a_share_at_its_threshold_refuses() -> None:
    half = np.array([[0.5, 0.5]])
    found = judged(half, half, enough=0.5, solved=0.01, better=0.0, easy=0.01)
    assert (found.mastered.tolist(), found.unlearned.tolist(), found.trivial.tolist()) == ([False], [True], [False])
    found = judged(np.array([[1.0, 0.0]]), half, enough=0.4, margin=0.5, solved=0.5, better=-1.0, easy=1.0)
    assert (found.mastered.tolist(), found.unlearned.tolist(), found.trivial.tolist()) == ([True], [False], [True])
    assert judged(np.array([[1.0, 0.0]]), half, margin=0.5, better=0.0).unlearned.tolist() == [True]
