"""The trials of credit: each check fails when the method is replaced by what it is compared with."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from palaestra.algebra.signals import Signal
from palaestra.atlas.harness import reproduce
from palaestra.atlas.reproductions.bandits import play as answer
from palaestra.atlas.reproductions.tabular import sample
from palaestra.credit import grpo


def instead(signal: Signal) -> Callable[..., Signal]:
    """A function that gives this signal whatever it is asked."""
    return lambda *args, **options: signal


@pytest.mark.parametrize(
    ("module", "name", "replacement"),
    [
        ("s071_adora", "adora", instead(grpo())),
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
