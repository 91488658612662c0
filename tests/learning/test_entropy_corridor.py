"""The entropy corridor of [166]: worked numbers, and that its gradient leads back into it."""

from __future__ import annotations

import pytest
import torch

from palaestra.learning.losses import corridor_weight, entropy_corridor, epo_entropy


def test_worked_penalty_ignores_padding() -> None:
    entropy = torch.tensor([[0.5, 1.0, 1.5, 0.85], [1.0, 9.0, 9.0, 9.0]])
    mask = torch.tensor([[True] * 4, [True, False, False, False]])
    assert float(entropy_corridor(entropy, mask, 1.0)) == pytest.approx(0.15 / 2)
    assert float(entropy_corridor(entropy, mask, None)) == 0
    assert [round(corridor_weight(k, 40), 4) for k in (0, 10, 20, 40)] == [2.0, 1.6065, 1.3679, 1.1353]


def test_descent_leads_back_into_the_corridor() -> None:
    for start, sign in ((0.5, -1), (1.5, 1), (1.0, 0)):
        entropy = torch.tensor([[start]], requires_grad=True)
        entropy_corridor(entropy, torch.ones(1, 1, dtype=torch.bool), 1.0).backward()  # type: ignore[no-untyped-call]
        assert entropy.grad is not None
        assert float(entropy.grad) == sign


def test_the_term_is_a_bonus_minus_the_weighted_penalty() -> None:
    entropy, mask = torch.tensor([[0.5, 1.0]]), torch.ones(1, 2, dtype=torch.bool)
    found = float(epo_entropy(entropy, mask, 1.0, step=0, steps=10, weight=0.1, low=0.9))
    assert found == pytest.approx(-0.1 * (0.75 - 2 * 0.2))
