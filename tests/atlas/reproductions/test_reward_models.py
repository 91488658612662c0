"""Reward models: the exact parts of reproductions that take too long for CI, and what fails without the mechanism."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.atlas.reproductions.reward_models import (
    s030_micro,
    s047_reward_dance,
    s084_dpa,
    s134_dear,
    s185_doc_reward,
    s188_salmon,
    s212_polar,
)


def test_dears_losses_and_windows() -> None:
    assert s134_dear.worked_error() < 1e-6
    assert (s134_dear.place(25, cover_head=False), s134_dear.place(25, cover_head=True)) == (5, 0)
    assert s134_dear.place(20, cover_head=False) == 0


def test_against_a_reference_the_offset_of_a_prompt_cancels() -> None:
    moved, pointwise, slopes = s047_reward_dance.shift_and_slopes()
    assert moved < 1e-12
    assert pointwise == pytest.approx(7)
    assert slopes == pytest.approx([0.25, 0.105, 0.0177], abs=1e-3)


def test_a_direction_has_no_length() -> None:
    least, moved = s084_dpa.attributes(seed=50)
    assert least > 0.9
    assert moved < 1e-6


def test_a_mixture_fits_people_who_disagree() -> None:
    found = s030_micro.one(seed=50)
    assert found["loss_mixture"] < found["loss_single"] - 0.05
    assert found["right_after_20"] > found["right_single"] + 0.1


@pytest.mark.parametrize("seed", [50, 51])
def test_without_matching_the_content_is_learned_too(seed: int) -> None:
    assert abs(s185_doc_reward.one(seed, ("document",))[0]) < 0.02
    assert s185_doc_reward.one(seed, ())[0] > 0.7


def test_salmons_worked_numbers() -> None:
    assert s188_salmon.worked_error() < 1e-12


def test_sequences_count_their_transitions() -> None:
    rng = np.random.default_rng(0)
    chance = np.roll(np.eye(s212_polar.SYMBOLS), 1, axis=1)[None]  # every symbol is followed by the next
    counts = s212_polar.spoken(chance, 5, rng).reshape(5, s212_polar.SYMBOLS, -1)
    assert (counts.sum((1, 2)) == s212_polar.LENGTH - 1).all()
    assert (counts * (1 - chance) == 0).all()
