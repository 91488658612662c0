"""Parameters of a simulation by gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from palaestra.errors import InputError
from palaestra.learning.simulation_fit import epidemic_curve, fit_chance, straight_through


def test_draws_have_the_gradient_of_their_chances():
    chances = torch.tensor([0.2, 0.8], requires_grad=True)
    drawn = straight_through(chances, torch.tensor([0.5, 0.5]))
    assert drawn.tolist() == pytest.approx([0.0, 1.0], abs=1e-6)
    drawn.sum().backward()
    assert chances.grad.tolist() == [1.0, 1.0]
    assert straight_through(torch.zeros(1), torch.zeros(1)).item() == 0, "without a chance never"


def test_a_curve_has_a_gradient_and_the_same_seed_the_same_numbers():
    chance = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    first, second = (epidemic_curve(chance, np.zeros(8), people=200) for _ in range(2))
    assert first.tolist() == second.tolist()
    first.sum().backward()
    assert chance.grad.item() > 0


def test_what_cannot_be_is_named():
    for start, observed in ((0.0, np.ones(2)), (0.5, np.zeros(2))):
        with pytest.raises(InputError, match="fit_chance"):
            fit_chance(lambda chance: chance.expand(2), observed, start=start, steps=1)


def test_the_first_guess_is_the_start_and_the_best_is_kept():
    def line(chance):
        return torch.stack([chance, 2 * chance])

    guess, error = fit_chance(line, np.array([0.4, 0.8]), start=0.3, steps=1)
    assert guess == pytest.approx(0.3)
    assert error == pytest.approx(np.sqrt((0.1**2 + 0.2**2) / 2) / 0.6)
    guess, error = fit_chance(line, np.array([0.4, 0.8]), start=0.3, steps=60)
    assert (guess, error) == pytest.approx((0.4, 0.0), abs=2e-2)
