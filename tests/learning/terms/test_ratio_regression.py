"""`ratio_regression` by a loop over rows of unlike length; the worked losses of single tokens are row [179]'s."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from palaestra.learning.terms import MicroBatch, ratio_regression

THEN = [[0.9, 0.8, 0.85], [0.9], [0.6, 0.7], [0.5, 0.7], [0.95, 0.7]]
RISE = [[0.1, -0.02, 0.04], [0.2], [0.3, 0.1], [-0.6, -0.4], [0.5, 0.3]]
ADVANTAGE = [0.3, -0.2, 0.0, 1.5, 2.0]


def tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probabilities of now and then, and the mask; what is masked has numbers that must not count."""
    then, new, mask = torch.full((5, 3), -7.0), torch.full((5, 3), -3.0), torch.zeros(5, 3, dtype=torch.bool)
    for row, (chances, rises) in enumerate(zip(THEN, RISE, strict=True)):
        for token, (chance, rise) in enumerate(zip(chances, rises, strict=True)):
            then[row, token], mask[row, token] = float(np.log(chance)), True
            new[row, token] = then[row, token] + rise
    return new.masked_fill(~mask, 0.0), then, mask


@pytest.mark.parametrize("negative", [0.0, 0.6])
def test_against_a_loop(negative: float) -> None:
    """β is 5 where the advantage is above 0 and the start was sure, else 1, at most |A/ρ|; rows weigh the same."""
    total = 0.0
    for chances, rises, advantage in zip(THEN, RISE, ADVANTAGE, strict=True):
        goal = 1.0 if advantage > 0 else -negative
        if advantage == 0 or goal == 0:
            continue
        rho = float(np.mean(rises))
        beta = min(5.0 if goal > 0 and np.mean(chances) >= 0.8 else 1.0, abs(goal / rho))
        away = abs(beta * rho - goal)
        total += (0.5 * away**2 if away < 1 else away - 0.5) / beta
    new, then, mask = tensors()
    advantage = torch.tensor(ADVANTAGE)[:, None]
    piece = MicroBatch.of(new, advantage=advantage, mask=mask, reference=then)
    assert float(ratio_regression(negative=negative)(piece)) == pytest.approx(total / len(THEN), rel=1e-5)


def test_a_row_that_went_far_enough_has_no_gradient() -> None:
    """Its β is the cap, so that β·ρ is the advantage's sign; a step has no share in the gradient."""
    new, then, mask = tensors()
    new = new.requires_grad_()
    piece = MicroBatch.of(new, advantage=torch.tensor(ADVANTAGE)[:, None], mask=mask, reference=then)
    ratio_regression()(piece).backward()
    slope = new.grad
    assert slope is not None
    assert slope[4].abs().max() < 1e-6, "ρ is .4, β would be 5, and is 2.5"
    assert slope[1:3].abs().max() == 0
    torch.testing.assert_close(slope[3, :2], torch.full((2,), -1 / 2 / 5))
    torch.testing.assert_close(slope[0], torch.full((3,), (5 * 0.04 - 1) / 3 / 5))
