"""The trials of credit: each check fails when the method is replaced by what it is compared with."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from palaestra import credit
from palaestra.algebra.signals import Signal, col
from palaestra.atlas.harness import reproduce
from palaestra.atlas.reproductions.bandits import play as answer
from palaestra.atlas.reproductions.credit import s067_advevo_marl as s067
from palaestra.atlas.reproductions.credit import s075_adhint as s075
from palaestra.atlas.reproductions.credit import s077_spae as s077
from palaestra.atlas.reproductions.credit import s103_mas_host as s103
from palaestra.atlas.reproductions.credit import s172_gui_g1 as s172
from palaestra.atlas.reproductions.tabular import sample, softmax
from palaestra.credit import dr_grpo, grpo, reinforce, standardise
from palaestra.rewards import hit


def instead(signal: Signal) -> Callable[..., Signal]:
    """A function that gives this signal whatever it is asked."""
    return lambda *args, **options: signal


def by_name(function: Callable[..., Any], items: Any, judge: Any, *, topology: str, rng: Any) -> Any:
    """The topologies of a tournament in each other's place."""
    swapped = {"round_robin": "anchor", "anchor": "round_robin"}
    return function(items, judge, topology=swapped.get(topology, topology), rng=rng)


@pytest.mark.parametrize(
    ("module", "name", "replacement"),
    [
        ("s027_ml_engineering", "duration_aware", lambda credit: credit),
        ("s061_a_grae", "a_grae", instead(grpo())),
        ("s067_advevo_marl", "advevo_marl", lambda reward="reward", teams=None: reinforce(over="agent", reward=reward)),
        ("s071_adora", "adora", instead(grpo())),
        ("s075_adhint", "hint_prefix", lambda solution, ratio: []),
        ("s077_spae", "spae", instead(dr_grpo())),
        ("s097_matchtir", "match_reward", lambda calls, gold: credit.fill_missing(0.0 * credit.col("turn"), 0.0)),
        ("s100_arena_rl", "tournament", functools.partial(by_name, credit.tournament)),
        ("s103_mas_host", "mas_host", instead(grpo())),
        ("s145_ssl", "sweet_spot", instead(1.0 * col("success"))),
        ("s148_spo", "self_play_preference", lambda item, preference: dr_grpo(item)),
        ("s147_comam", "comam", instead(standardise("reward", over=("group", "agent"), unit="episode"))),
        ("s168_igpo", "igpo", lambda **options: grpo()),
        ("s172_gui_g1", "gui_g1_reward", instead(hit())),
        ("s174_empg", "empg", instead(grpo("reward"))),
        ("s195_stratified_grpo", "stratified_grpo", lambda **options: grpo(ddof=0)),
    ],
)
def test_it_fails_without_the_method(module: str, name: str, replacement: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module(f"palaestra.atlas.reproductions.credit.{module}"), name, replacement)
    assert not reproduce(int(module[1:4]), seeds=[0, 1, 2]).holds


def test_samples_follow_their_probabilities() -> None:
    luck = np.random.default_rng(0).random(50_000)
    drawn = np.bincount(sample(np.array([0.2, 0.0, 0.5, 0.3]), luck), minlength=4) / len(luck)
    np.testing.assert_allclose(drawn, [0.2, 0, 0.5, 0.3], atol=0.01)
    assert sample(np.array([0.0, 1.0]), np.array([0.0])).tolist() == [1]  # an impossible action is never drawn


def test_bandits_pay_right_answers_only() -> None:
    policy = np.full((2, 3, 4), 0.25)
    batch = answer(policy, np.eye(3, 4, dtype=bool), [np.random.default_rng(seed) for seed in (0, 1)], 5)
    np.testing.assert_array_equal(batch.reward, batch.answer == batch.task)
    assert len(batch.run) == 2 * 3 * 5


def test_two_of_three_defenders_decide() -> None:
    wary = s067.train(instead(col("safe") * 0.0)(), [0], attacker_learns=False)
    p = softmax(np.array([s067.TRUSTING, 0.0]))[1]
    majority = 3 * p**2 * (1 - p) + p**3
    np.testing.assert_allclose([wary[0][0], wary[1][0]], 1 - majority)


def test_a_guesser_that_always_halves_is_right_and_wastes_the_rest() -> None:
    policy = np.tile([1.0, 0.0], (1, s077.LEVELS + 1, 1))
    batch = s077.play(policy, [np.random.default_rng(0)])
    assert batch.wasted[0] == s077.HORIZON - 1 - s077.LEVELS
    assert 0.9 < batch.right[0] <= 1  # it answers in the last turn, at times in doubt
    assert batch.reward[batch.turn < s077.HORIZON - 1].sum() == 0


def test_an_answer_at_once_is_right_one_time_in_eight() -> None:
    policy = np.tile([0.0, 1.0], (1, s077.LEVELS + 1, 1))
    plays = [s077.play(policy, [np.random.default_rng(seed)]).right[0] for seed in range(100)]
    assert np.mean(plays) == pytest.approx(1 / 8, abs=0.02)


def test_a_team_with_its_pair_and_an_edge_solves_the_query() -> None:
    policy = np.zeros((1, len(s103.NEEDED) * 2**s103.ROLES, s103.STOP + 1))
    nobody = s103.ROLES
    for query, (first, second) in enumerate(s103.NEEDED):
        start, one = query * 2**s103.ROLES, query * 2**s103.ROLES + (1 << first)
        policy[0, start, (s103.ROLES + 1) * first + nobody] = 1
        policy[0, one, (s103.ROLES + 1) * second + first] = 1
        policy[0, one + (1 << second), s103.STOP] = 1
    batch = s103.play(policy, [np.random.default_rng(0)])
    assert batch.solved[0] == 1
    assert batch.members[0] == 2
    assert set(batch.reward[batch.turn == 2].round(9)) == {0.9}
    assert batch.action_reward.tolist() == np.where(batch.turn < 2, s103.RATIONAL, 0.0).tolist()


def test_a_hint_of_everything_is_a_success() -> None:
    assert s075.train("none", [0])[0] == pytest.approx(s075.ACTIONS**-s075.STEPS, rel=0.5)


def test_boxes_are_cut_at_the_edge_of_the_screen() -> None:
    box = s172.boxes(np.array([0.0, 50.0, np.log(20.0), np.log(500.0)]))
    np.testing.assert_allclose(box, [0, 0, 10, 100])
    assert s172.areas(box) == pytest.approx(0.1)
    assert s172.overlap(s172.TARGET) == 1
