"""StableReinforce's pre-clip: the card's numbers, and that it changes nothing else."""

from __future__ import annotations

import math

import pytest
import torch

from palaestra.errors import InputError
from palaestra.learning.terms import MicroBatch, stable, surrogate


def lost(term, difference: float, advantage: float = -1.0) -> tuple[float, float]:
    """Loss and gradient of one token."""
    new = torch.tensor([[difference]], dtype=torch.double, requires_grad=True)
    loss = term(MicroBatch.of(new, old=torch.zeros(1, 1, dtype=torch.double), advantage=advantage))
    loss.backward()
    assert new.grad is not None
    return float(loss.detach()), float(new.grad)


def test_large_ratios_of_bad_tokens_stop_at_a_thousand_without_gradient() -> None:
    assert lost(surrogate(), 8.0)[0] == pytest.approx(2980.958, abs=1e-3)
    for difference in (8.0, 50.0, 100.0):
        assert lost(stable(), difference) == pytest.approx((1000.0, 0.0))
    assert lost(stable(high=math.exp(2)), 3.0) == pytest.approx((math.exp(2), 0.0))


@pytest.mark.parametrize("difference", [-3.0, -0.1, 0.0, 0.1, 3.0])
@pytest.mark.parametrize("advantage", [-2.0, 1.5])
def test_inside_of_its_range_it_is_ppo(difference: float, advantage: float) -> None:
    assert lost(stable(), difference, advantage) == pytest.approx(lost(surrogate(), difference, advantage))


def test_below_a_thousandth_the_gradient_is_gone_too() -> None:
    value, gradient = lost(stable(clip=None), -8.0, 1.0)
    assert (value, gradient) == pytest.approx((-1e-3, 0.0))


def test_a_mean_over_turns_as_the_code() -> None:
    mask = torch.tensor([[True, True], [True, False]])
    piece = MicroBatch.of(torch.zeros(2, 2), advantage=torch.tensor([[1.0, 3.0], [4.0, 0.0]]), mask=mask)
    assert float(stable()(piece)) == pytest.approx(-3.0)
    with pytest.raises(InputError, match="low of the ratio"):
        stable(low=0.0)
