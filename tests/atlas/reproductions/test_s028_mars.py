"""[28]: the game is Kuhn poker, the meter is exact, and the check fails when credit is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.signals import cumulative
from palaestra.atlas.harness import reproduce
from palaestra.atlas.reproductions.credit import s028_mars
from palaestra.atlas.reproductions.credit.s028_mars import (
    INFORMATION_SETS,
    exploitability_of,
    play,
    seat_bias,
    self_play,
)
from palaestra.credit import mars
from palaestra.envs.worlds.exact.exploitability import expected_returns


def streams(*seeds: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in seeds]


def test_the_game_has_the_value_that_open_spiel_computes() -> None:
    bet = np.random.default_rng(0).random(12)
    table = {name: {0: 1 - p, 1: p} for name, p in zip(INFORMATION_SETS, bet, strict=True)}
    value = expected_returns("kuhn_poker", table)
    games = 200_000
    batch = play(np.stack([1 - bet, bet], axis=-1)[None], streams(1), games)
    gains = [np.bincount(batch.game[batch.seat == seat], batch.reward[batch.seat == seat], games) for seat in (0, 1)]
    np.testing.assert_array_equal(gains[0], -gains[1])
    assert abs(gains[0].mean() - value[0]) < 4 * gains[0].std() / np.sqrt(games)


def test_a_pass_that_is_raised_is_answered_in_the_third_turn() -> None:
    never_then_call = np.array([0.0] * 3 + [1.0] * 3 + [1.0] * 6)  # pass, and call if the other bets
    batch = play(np.stack([1 - never_then_call, never_then_call], axis=-1)[None], streams(0), 6)
    assert batch.turn.tolist() == [0] * 6 + [1] * 6 + [2] * 6
    assert set(batch.reward[:6]) == {0.0}
    assert set(np.abs(batch.reward[6:])) == {2.0}


def test_exploitability_is_zero_at_an_equilibrium_and_known_for_uniform_play() -> None:
    third = 1 / 3
    equilibrium = np.array([0, 0, 0, 0, third, 1, third, 0, 1, 0, third, 1])
    assert exploitability_of(equilibrium) == pytest.approx(0, abs=1e-9)
    assert exploitability_of(np.full(12, 0.5)) == pytest.approx(0.4583, abs=1e-4)


def test_own_centring_leaves_no_seat_a_bias_and_pooled_leaves_its_value() -> None:
    policy = np.full((2, 12, 2), 0.5)
    bias = seat_bias(play(policy, streams(0, 1)))
    assert bias["seat_bias_own"] < 1e-9
    assert bias["seat_value"] > 0.01
    assert bias["seat_bias_pooled"] == pytest.approx(bias["seat_value"], abs=1e-12)


def test_a_run_does_not_depend_on_its_neighbours() -> None:
    credit = mars()
    together, alone = self_play(credit, [3, 4], updates=5), self_play(credit, [4], updates=5)
    assert together.last[1] == alone.last[0]
    assert together.average[1] == alone.average[0]


def test_it_fails_when_credit_has_the_wrong_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s028_mars, "mars", lambda: -cumulative("reward", reverse=True))
    assert not reproduce(28, seeds=[0]).holds
