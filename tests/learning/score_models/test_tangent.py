"""Kernel regression beside the gradient descent that it stands for."""

from __future__ import annotations

import numpy as np
import torch

from palaestra.learning.score_models.tangent import kernel_descent, kernel_distance, tangent_features


def test_predictions_move_as_step_by_step_descent_moves_them() -> None:
    """f ← f + η K (y - f) on the rows that are learned from, f* ← f* + η K* (y - f) on others."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(5, 8)))
    others = torch.from_numpy(rng.normal(size=(3, 8)))
    kernel, between, left = x @ x.T, others @ x.T, torch.from_numpy(rng.normal(size=5))
    lr, moved, error = 0.02, torch.zeros(3, dtype=torch.double), left.clone()
    for steps in range(1, 8):
        moved, error = moved + lr * between @ error, error - lr * kernel @ error
        torch.testing.assert_close(kernel_descent(kernel, between, left, lr=lr, steps=steps), moved)
    flat = torch.ones(2, 2, dtype=torch.double)  # of rank one: what it cannot fit does not move
    even = kernel_descent(flat, torch.eye(2, dtype=torch.double), torch.tensor([1.0, 3.0]).double(), lr=0.1, steps=2)
    torch.testing.assert_close(even, torch.tensor([2 * 0.18 - 0.2, 2 * 0.18 + 0.2]).double())


def test_features_are_gradients_of_the_first_output() -> None:
    network = torch.nn.Linear(3, 2).double()
    x = torch.randn(4, 3, dtype=torch.double)
    found = tangent_features(network, x)
    expected = torch.zeros(4, 8, dtype=torch.double)
    expected[:, :3], expected[:, 6] = x, 1.0  # weights of the first output, then biases
    torch.testing.assert_close(found, expected)


def test_the_first_step_of_a_network_is_its_kernels_and_later_ones_are_not() -> None:
    samples = np.random.default_rng(1).normal(size=(60, 2))
    assert kernel_distance(samples, 64, steps=1, rows=20) < 1e-3
    assert kernel_distance(samples, 16, steps=20, rows=20) > 0.1
