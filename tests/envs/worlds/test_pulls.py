"""Pulls: what is remembered of the unknown arm, and what policies are worth."""

from __future__ import annotations

import pytest

from palaestra.envs.worlds import Pulls


def test_the_unknown_arm_alone_is_remembered() -> None:
    env = Pulls(pulls=3, known=1.0)
    assert env.reset(0)["puller"].text == "unknown: 0 of 0"
    first = env.step({"puller": "known"})
    assert (first.rewards, first.info["known"]) == ({"puller": 1.0}, True)
    assert first.observations["puller"].text == "unknown: 0 of 0", "that the known arm won says nothing of the other"
    env.state.theta = 0.0
    second = env.step({"puller": "unknown"})
    assert (second.rewards, second.info["known"]) == ({"puller": 0.0}, False)
    assert second.observations["puller"].text == "unknown: 0 of 1"
    env.state.theta = 1.0
    last = env.step({"puller": "unknown"})
    assert (last.rewards, last.terminated, last.info["success"]) == ({"puller": 1.0}, True, True)
    env = Pulls(pulls=1, known=0.0)
    env.reset(0)
    last = env.step({"puller": "known"})
    assert (last.rewards, last.info["success"]) == ({"puller": 0.0}, False), "the other arm was never tried"


def test_a_policy_that_draws_is_worth_the_mean() -> None:
    """Each of two pulls is worth .25 · .5 + .75 · .6, as what was won before is not looked at."""
    assert Pulls(pulls=2, known=0.6).worth(lambda pulled, tried, won: 0.25) == pytest.approx(2 * 0.575)


@pytest.mark.parametrize(
    ("recurring", "worth"), [(True, 0.5 + 0.5 * (2 / 3 + 1 / 2 + 0.55 / 3) + 0.55), (False, 1.5625)]
)
def test_wins_say_something_of_an_arm_that_comes_again(recurring: bool, worth: float) -> None:
    """An arm that has only won wins again by 1/2, 2/3 and 3/4 if it stays the same arm, and by 1/2 each time if not."""
    env = Pulls(pulls=3, known=0.55, recurring=recurring)
    assert env.worth(lambda pulled, tried, won: tried == won) == pytest.approx(worth)


def test_the_best_policy_looks_no_further_than_the_end_and_ties_go_to_the_known_arm() -> None:
    assert not Pulls(pulls=1, known=0.5).best()(0, 0, 0)
    assert not Pulls(pulls=20).best(5)(19, 0, 0), "one pull is left"
    assert Pulls(pulls=20).best(5)(10, 0, 0)
    assert not Pulls(memory=False).best()(0, 0, 0), "what cannot be remembered is not worth a try"
