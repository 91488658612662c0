"""Latents of neighbours: slots, running behaviours, attention over who is there."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from palaestra.agents import ContextualPolicy
from palaestra.agents.encoders import NeighbourEncoder, RelationNet, soft_update
from palaestra.errors import InputError


def windows(rows=3, steps=5, others=3, own=2):
    rng = np.random.default_rng(0)
    slots = np.concatenate([np.ones((rows, steps, others, 1)), rng.random((rows, steps, others, 2))], axis=-1)
    front = np.concatenate([np.ones((rows, steps, 1)), rng.random((rows, steps, own))], axis=-1)
    return torch.from_numpy(np.concatenate([front, slots.reshape(rows, steps, -1)], axis=-1).astype(np.float32))


def test_the_soft_update_runs_to_a_constant():
    found = soft_update(torch.ones(2, 4, 1), torch.ones(2, 4, dtype=torch.bool), 0.25)
    np.testing.assert_allclose(found[0, :, 0], 1 - 0.75 ** np.arange(1, 5), rtol=1e-6)


def test_neighbours_in_another_order_have_their_latents_in_that_order():
    made = NeighbourEncoder(11, others=3, own=2, window=3)
    for each in (made.pairs, made.gate):  # a bidirectional GRU over the pairs does know an order
        for parameter in each.parameters():
            torch.nn.init.zeros_(parameter)
    torch.nn.init.constant_(made.gate.bias, 1.0)
    with torch.no_grad():
        made.gate.bias[0] = 0.0
    x = windows()
    turned = torch.cat([x[..., :3], x[..., 3:].unflatten(-1, (3, 3)).flip(-2).flatten(-2)], -1)
    one, two = (made(each).detach().unflatten(-1, (3, 16)) for each in (x, turned))
    torch.testing.assert_close(one.flip(1), two)


def test_own_numbers_are_not_read():
    made = NeighbourEncoder(11, others=3, own=2, window=3)
    x = windows()
    other = x.clone()
    other[..., 1:3] += 5
    torch.testing.assert_close(made(x), made(other))


def test_features_that_are_no_equal_parts_are_named():
    with pytest.raises(InputError, match="not 1 and those of 3 others"):
        ContextualPolicy(5 * 12, 3, steps=5, others={"others": 3, "own": 1})
    with pytest.raises(InputError, match="others"):
        ContextualPolicy(5 * 12, 3, steps=5, others={"othrs": 3})


def test_the_encoder_says_how_long_a_context_is():
    policy = ContextualPolicy(5 * 12, 3, steps=5, others={"others": 3, "own": 2, "behaviour": 2, "instant": 3})
    assert policy.context == 15


def test_a_relation_by_hand():
    """Own 1; others at 1 and -1 and an empty slot; units tanh(own + other + latent), logits 1 and -2 times.

    Under latent 0, of 0, the units are tanh 2 and tanh 0 = 0; under latent 1, of -1, tanh 1 and tanh -1.
    """
    net = RelationNet(1, 1, latents=2, heads=2, width=1)
    with torch.no_grad():
        net.pair.weight.fill_(1.0)
        net.pair.bias.zero_()
        net.latent.weight.copy_(torch.tensor([[0.0], [-1.0]]))
        net.attend.weight.copy_(torch.tensor([[1.0], [-2.0]]))
    others = torch.tensor([[[1.0, 1.0], [0.0, 5.0], [1.0, -1.0]]])
    found = net(torch.ones(1, 1), others, torch.tensor([[1, 0]]))
    expected = []
    for units in (np.tanh([1.0, -1.0]), np.tanh([2.0, 0.0])):
        for slope in (1.0, -2.0):
            weights = np.exp(slope * units)
            expected.append(weights @ units / weights.sum())
    np.testing.assert_allclose(found.detach().ravel(), expected, rtol=1e-5)
