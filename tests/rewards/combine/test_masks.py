"""Two masks: who counts in the baseline and who is trained on; E-GRPO's and CM2's worked numbers."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.tables import values

from palaestra.algebra.signals import Signal, as_signal
from palaestra.algebra.turns import Turns
from palaestra.credit import dr_grpo, grpo
from palaestra.rewards import cm2, e_grpo, e_grpo_reward, masked
from palaestra.testing import check_signal

ENTITIES = ["aa", "bb", "cc", "dd"]


def searches(
    found: list[int], right: list[bool], long: list[bool] | None = None, bad: list[bool] | None = None
) -> Turns:
    n = len(found)
    keys = {"group": [0] * n, "episode": range(n), "turn": [0] * n, "agent": ["a"] * n, "gold": [ENTITIES] * n}
    said = {"action": [" ".join(ENTITIES[:k]) for k in found], "success": right}
    return Turns(keys | said | {"truncated": long or [False] * n, "bad": bad or [False] * n})


def test_e_grpo_worked_numbers() -> None:
    turns = searches([3, 2, 0, 4], [True, False, False, False], bad=[False, False, False, True])
    np.testing.assert_allclose(values(e_grpo_reward("action", "gold", error="bad"), turns), [1, 0.15, 0, 0])
    found = values(e_grpo("action", "gold", error="bad"), turns)
    np.testing.assert_allclose(found, [1.4837, -0.2863, -0.5987, -0.5987], atol=1e-4)


def test_a_group_without_a_right_answer_has_a_signal() -> None:
    turns = searches([2, 1, 0, 0], [False] * 4)
    np.testing.assert_allclose(values(e_grpo_reward("action", "gold"), turns), [0.3, 0.15, 0, 0])
    np.testing.assert_allclose(values(e_grpo("action", "gold"), turns), [1.3056, 0.2611, -0.7833, -0.7833], atol=1e-4)
    assert not values(grpo("success"), turns).any()


def test_too_long_counts_in_the_baseline_and_is_not_trained_on() -> None:
    kept = searches([3, 2, 0, 4], [True, False, False, False], bad=[False, False, False, True])
    long = searches([3, 2, 0, 4], [True, False, False, False], long=[False, False, False, True])
    expected = values(e_grpo("action", "gold", error="bad"), kept)
    expected[3] = np.nan
    np.testing.assert_allclose(values(e_grpo("action", "gold"), long), expected)


def test_nothing_found_by_anyone_is_zero() -> None:
    turns = searches([0, 0], [False, False])
    np.testing.assert_array_equal(values(e_grpo_reward("action", "gold"), turns), [0, 0])
    unknown = searches([3, 0], [False, True]).with_column(gold=pl.Series([None] * 2, dtype=pl.List(pl.String)))
    np.testing.assert_array_equal(values(e_grpo_reward("action", "gold"), unknown), [0, 1])


def graded(scores: list[float], **columns: object) -> Turns:
    n = len(scores)
    table = {"group": [0] * n, "episode": range(n), "turn": [0] * n, "agent": ["a"] * n, "score": scores}
    return Turns(table | columns)


def test_cm2_worked_numbers() -> None:
    scores = [1.0, 0.6, 0.3, 0.0, 1.0]
    np.testing.assert_allclose(values(cm2("score"), graded(scores)), [0.42, 0.02, -0.28, -0.58, 0.42])
    scaled = values(cm2("score", scale=True, eps=0.0), graded(scores))
    np.testing.assert_allclose(scaled, [0.9585, 0.0456, -0.6390, -1.3237, 0.9585], atol=1e-4)
    assert not values(cm2("score"), graded(scores[:4])).any()


def test_failed_judging_is_in_no_baseline_and_gets_zero() -> None:
    turns = graded([1.0, 0.6, 0.3, 0.0, 1.0, 9.0], ok=[1, 1, 1, 1, 1, 0])
    np.testing.assert_allclose(values(cm2("score", judged="ok"), turns), [0.42, 0.02, -0.28, -0.58, 0.42, 0])
    too_few = graded([1.0, 0.6, 0.3, 0.0, 1.0], ok=[1, 1, 1, 1, 0])
    assert not values(cm2("score", judged="ok"), too_few).any()


def test_one_failed_turn_takes_its_whole_episode_out() -> None:
    """Six episodes of two turns; in the last one the judge failed at the first turn alone. Rows in another order."""
    scores = [1.0, 0.6, 0.3, 0.0, 1.0, 9.0]
    keys = {"group": [0] * 12, "episode": [*range(6)] * 2, "turn": [0] * 6 + [1] * 6, "agent": ["a"] * 12}
    turns = graded([*scores, *scores], **keys, ok=[1] * 5 + [0] + [1] * 6)
    order = np.random.default_rng(0).permutation(12)
    found = values(cm2("score", judged="ok"), Turns(turns.frame[order.tolist()]))
    np.testing.assert_allclose(found, np.tile([0.42, 0.02, -0.28, -0.58, 0.42, 0], 2)[order], atol=1e-12)


def test_turn_level_compares_with_those_that_got_there() -> None:
    episode, turn = np.repeat(np.arange(6), 2), np.tile([0, 1], 6)
    keep = np.ones(12, bool)
    keep[11] = False  # one episode never reached the second turn
    score = np.arange(12.0)
    columns = {"group": np.zeros(11, int), "episode": episode[keep], "turn": turn[keep], "agent": ["a"] * 11}
    found = values(cm2("score"), Turns(columns | {"score": score[keep]}))
    np.testing.assert_allclose(found[turn[keep] == 0], score[turn == 0] - 5)
    np.testing.assert_allclose(found[turn[keep] == 1], score[keep][turn[keep] == 1] - 5)


def test_without_masks_it_is_grpo() -> None:
    turns = graded([1.0, 0.0, 0.5, 0.2])
    np.testing.assert_allclose(values(masked("score"), turns), values(grpo("score"), turns))
    np.testing.assert_allclose(values(masked("score", scale=False), turns), values(dr_grpo("score"), turns))


def uneven() -> Turns:
    """Two groups, three episodes of one to three turns in the first and two of one and two turns in the second."""
    rows = [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 0), (0, 2, 0), (0, 2, 1), (1, 3, 0), (1, 3, 1), (1, 4, 0)]
    group, episode, turn = zip(*rows, strict=True)
    keys = {"group": group, "episode": episode, "turn": turn, "agent": ["a"] * 9}
    score = np.array([0.0, 0.0, 3.0, 2.0, 0.0, 6.0, 1.0, 0.0, 5.0])
    return Turns(keys | {"score": score})


def test_an_episode_counts_once_however_long_by_hand() -> None:
    """Means of the episodes 1, 2, 3 and .5, 5: of those 2 and 2.75, deviations √(2/3) and 2.25. Turns have others."""
    turns = uneven()
    less = np.array([-2, -2, 1, 0, -2, 4, -1.75, -2.75, 2.25])
    np.testing.assert_allclose(values(masked("score", scale=False), turns), less)
    by_turn = values(masked("score", scale=False, unit="row"), turns)
    np.testing.assert_allclose(by_turn, turns["score"].to_numpy() - np.repeat([11 / 6, 2.0], [6, 3]))
    scaled = values(masked("score", unit="row", eps=0.0, ddof=0), turns)
    size = [turns["score"].to_numpy()[part].std() for part in (slice(6), slice(6, 9))]
    np.testing.assert_allclose(scaled, by_turn / np.repeat(size, [6, 3]))
    with_eps = less / np.repeat([1 + np.sqrt(2 / 3), 3.25], [6, 3])
    np.testing.assert_allclose(values(masked("score", eps=1.0, ddof=0), turns), with_eps)
    np.testing.assert_allclose(
        values(cm2("score", over="group", scale=True, ddof=0, eps=1.0, least=1), turns), with_eps
    )
    few = values(masked("score", scale=False, least=3), turns)  # three episodes are enough, two are not
    np.testing.assert_allclose(few, [*less[:6], 0, 0, 0])


def test_e_grpo_of_long_episodes_in_two_groups_by_hand() -> None:
    """Group 0: four, two and no entities met in two turns each, the second wrong and the first right by `solved`.

    Its best is 4/4, so the rewards are 1, α · 2/4 and 0. Group 1: one and no entity; the best is 1/4, so α and 0. Paid
    once, on the last turn. The last episode says nothing at all.
    """
    said = ["aa bb", "cc dd", "bb", "cc", "none", "none", "dd", "none", None, None]
    episode = np.repeat(np.arange(5), 2)
    keys = {"group": np.repeat([0, 1], [6, 4]), "episode": episode, "turn": [0, 1] * 5, "agent": ["a"] * 10}
    told = {"action": said, "gold": [ENTITIES] * 10, "truncated": [False] * 10, "success": [False] * 10}
    turns = Turns(keys | told | {"solved": episode == 0})
    how = {"correct": "solved", "alpha": 0.4}
    paid = values(e_grpo_reward("action", "gold", **how), turns)
    np.testing.assert_allclose(paid, [0, 1, 0, 0.2, 0, 0, 0, 0.4, 0, 0])
    together = values(e_grpo_reward("action", "gold", over=(), **how), turns)  # the best of all is 4/4
    np.testing.assert_allclose(together[7], 0.1)
    found = values(e_grpo("action", "gold", ddof=0, eps=0.0, **how), turns)
    scores = [np.array([1, 0.2, 0]), np.array([0.4, 0])]
    np.testing.assert_allclose(found, np.repeat(np.concatenate([(x - x.mean()) / x.std() for x in scores]), 2))


def test_the_two_masks_are_different_things() -> None:
    turns = graded([4.0, 1.0, 1.0], out=[1, 0, 0])
    out = as_signal("out") != 0.0
    excluded = values(masked("score", in_baseline=~out, scale=False), turns)
    untrained = values(masked("score", in_loss=~out, scale=False), turns)
    np.testing.assert_allclose(excluded, [3, 0, 0])
    np.testing.assert_allclose(untrained, [np.nan, -1, -1])


@pytest.mark.parametrize("signal", [masked("reward", least=3), cm2("reward", over="group")])
def test_they_pass_the_common_tests(signal: Signal) -> None:
    check_signal(signal, promises=["unscored"])
