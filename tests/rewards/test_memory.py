"""Bounds: the card's numbers of [26], and what each bound promises for any scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import episode, values

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import col
from palaestra.algebra.turns import Turns
from palaestra.credit import return_to_go
from palaestra.errors import ExpressionError
from palaestra.rewards import cap, clip_above, clip_and_delta, delta, first_satisfied, once, shape, sign_scale

scores = st.lists(st.floats(-1, 1).map(lambda x: round(x, 3)), min_size=1, max_size=8)


@pytest.mark.parametrize("extra", [0, 10])
def test_clip_and_delta_worked_sums(extra: int) -> None:
    turns = episode(score=[0.9, 0.6, 0.95, *[0.9] * (extra + 1)])
    sums = {
        "score": 3.35 + 0.9 * extra,
        "clip_above(score, eta=0.8)": -0.2,
        "delta(score)": 0.9,
        "delta(clip_above(score, eta=0.8))": 0.0,
    }
    for text, expected in sums.items():
        assert values(parse(text, columns={"score"}), turns).sum() == pytest.approx(expected), text


@pytest.mark.parametrize(("given_scores", "expected"), [([0.7], [0.0]), ([0.7, 0.4], [0.7, 0.0])])
def test_delta_of_short_episodes(given_scores: list[float], expected: list[float]) -> None:
    np.testing.assert_array_equal(values(delta("score"), episode(score=given_scores)), expected)


@given(scores)
def test_the_return_of_delta_from_a_step_is_its_score_and_delta_is_shaping(x: list[float]) -> None:
    turns = episode(score=x, truncated=[False] * len(x), kept=[*x[:-1], 0.0])
    np.testing.assert_allclose(values(return_to_go(delta("score")), turns), [*x[:-1], 0.0], atol=1e-12)
    np.testing.assert_allclose(values(delta("score"), turns), -values(shape("kept"), turns), atol=1e-12)


def test_clip_and_delta_is_its_parts_and_success_at_the_end() -> None:
    turns = episode(score=[0.9, 0.6, 0.95, 0.9], success=[1, 1, 1, 1])
    last = np.array([0, 0, 0, 1.0])
    np.testing.assert_allclose(
        values(clip_and_delta(), turns), 0.5 * values(delta(clip_above("score", eta=0.8)), turns) + last
    )
    np.testing.assert_allclose(
        values(clip_and_delta(clipped=False, differences=False, alpha=1.0), turns), [0.9, 0.6, 0.95, 1.9]
    )


def test_clip_and_delta_of_two_agents_by_hand() -> None:
    """Scores .9 and .2 of agent a, .5 of b between them, η = .6: clipped 0, -.4 and -.1.

    Of each agent alone: a keeps 0 before its last turn, which pays the outcome, as b's does. Of the episode: 0 - -.1,
    then -.1 is kept, and the last turn pays the outcome once. A score of b that is missing is nothing, not 0.
    """
    turns = Turns(
        {"episode": [0] * 3, "turn": [2, 0, 1], "agent": ["a", "a", "b"], "score": [0.2, 0.9, 0.5], "won": [1] * 3}
    )
    np.testing.assert_allclose(values(clip_and_delta(success="won", eta=0.6), turns), [1, 0, 1])
    whole = values(clip_and_delta(success="won", eta=0.6, alpha=2.0, over="episode"), turns)
    np.testing.assert_allclose(whole, [1, 0.2, -0.2], atol=1e-12)
    unknown = turns.with_column(score=[0.2, 0.9, None])
    np.testing.assert_allclose(values(delta("score"), unknown), [0, 0.9, np.nan])


def test_only_the_sign_counts() -> None:
    both = sign_scale("sparse") + sign_scale("dense", size=0.1)
    turns = Turns({"sparse": [5.0, -2.0, 0.0, 9.0], "dense": [100.0, 3.0, -0.01, 0.0]})
    np.testing.assert_allclose(values(both, turns), [1.1, -0.9, -0.1, 1.0])


def test_once_pays_the_first_time_per_key_and_episode() -> None:
    turns = Turns(
        {
            "episode": [0, 0, 0, 0, 1],
            "turn": [0, 1, 2, 3, 0],
            "agent": ["a"] * 5,
            "room": [1, 1, 2, 1, 1],
            "reward": [0.0, 2.0, 3.0, 2.0, 2.0],
        }
    )
    np.testing.assert_array_equal(values(once("reward", key="room"), turns), [0, 2, 3, 0, 2])
    np.testing.assert_array_equal(values(once("reward"), turns), [0, 2, 0, 0, 2])
    late = episode(score=[None, 1, 1, None, 0])
    np.testing.assert_array_equal(values(once("score"), late), [np.nan, 1, 0, np.nan, 0])


@given(scores, st.floats(0, 2).map(lambda x: round(x, 2)))
def test_cap_keeps_every_running_sum_below_the_limit(x: list[float], limit: float) -> None:
    found = values(cap("score", limit=limit), episode(score=x))
    np.testing.assert_allclose(np.cumsum(found), np.minimum(np.cumsum(x), limit), atol=1e-9)


def test_cap_has_no_negative_limit() -> None:
    with pytest.raises(ExpressionError, match=r"limit=-1\.0 is negative"):
        cap("score", limit=-1)


def test_cap_lets_unscored_turns_be() -> None:
    np.testing.assert_array_equal(
        values(cap("score", limit=1.0), episode(score=[None, 0.75, 0.75, None, 1.0])), [np.nan, 0.75, 0.25, np.nan, 0]
    )


def test_first_satisfied_waits_for_what_it_depends_on() -> None:
    turns = episode(one=[1, 0, 0, 0, 0], two=[0, 0, 1, 0, 1], three=[0, 1, 0, 0, None])
    np.testing.assert_array_equal(values(first_satisfied("three", ("one", "two")), turns), [0, 0, 1, 0, 0])
    np.testing.assert_array_equal(values(first_satisfied("three", "one"), turns), [0, 1, 0, 0, 0])
    np.testing.assert_array_equal(values(first_satisfied("two"), turns), [0, 0, 1, 0, 0])
    np.testing.assert_array_equal(values(first_satisfied(col("three") > 5.0, "one"), turns), [0, 0, 0, 0, 0])
    with pytest.raises(ExpressionError, match="give signals"):
        first_satisfied("one", (("two",),))  # type: ignore[arg-type]
