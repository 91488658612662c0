"""Losses against numbers worked out by hand, and their gradients against finite differences."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from palaestra.errors import InputError
from palaestra.learning.losses import aggregate, clipped_surrogate, kl_estimate, kl_exact, log_ratio

MASK = torch.tensor([[True, True, True], [True, False, False]])


def tensor(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_token_ratio_is_the_difference_of_log_probabilities() -> None:
    ratio = log_ratio(tensor([-1.0, -2.0]), tensor([-1.5, -1.0]), torch.ones(1, 2, dtype=torch.bool)).exp()
    assert ratio[0].tolist() == pytest.approx([math.exp(0.5), math.exp(-1.0)])


def test_sequence_ratio_is_length_normalised_and_ignores_padding() -> None:
    new, old = tensor([-1.0, -2.0, -3.0], [-1.0, 9.0, -math.inf]), tensor([-1.3, -2.3, -2.7], [-2.0, 0.0, 0.0])
    ratio = log_ratio(new, old, MASK, level="sequence")
    assert ratio[0].tolist() == pytest.approx([0.1] * 3)  # (0.3 + 0.3 - 0.3) / 3
    assert ratio[1, 0].item() == pytest.approx(1.0)


def test_estimators_of_one_token() -> None:
    logprobs, reference = tensor([-1.0, -2.0]), tensor([-1.5, -1.0])  # d = -.5 and 1
    for estimator, expected in {"k1": [0.5, -1.0], "k2": [0.125, 0.5], "abs": [0.5, 1.0]}.items():
        assert kl_estimate(logprobs, reference, estimator=estimator)[0].tolist() == pytest.approx(expected)
    k3 = [math.exp(-0.5) + 0.5 - 1, math.e - 1 - 1]
    assert kl_estimate(logprobs, reference, estimator="k3")[0].tolist() == pytest.approx(k3)


def test_stop_gradient_form_has_the_gradient_of_the_plain_sequence_form() -> None:
    new = tensor([-1.0, -2.0, -3.0], [-1.0, 0.0, 0.0]).requires_grad_()
    old = tensor([-1.1, -2.3, -2.9], [-1.2, 0.0, 0.0])
    advantage = tensor([2.0], [-1.0])
    loss, _ = clipped_surrogate(log_ratio(new, old, MASK, level="sequence"), advantage.expand(2, 3))
    (ours,) = torch.autograd.grad(aggregate(loss, MASK, how="sequence-mean"), new)
    mean = ((new - old) * MASK).sum(1) / MASK.sum(1)
    plain, _ = clipped_surrogate(mean[:, None], advantage)
    (theirs,) = torch.autograd.grad(plain.mean(), new)
    torch.testing.assert_close(ours, theirs)
    assert ours.abs().sum() > 0


def test_in_the_sequence_form_each_token_keeps_its_own_advantage() -> None:
    new = tensor([-1.0, -2.0, -3.0]).requires_grad_()
    loss, _ = clipped_surrogate(log_ratio(new, new.detach(), MASK[:1], level="sequence"), tensor([1.0, 0.0, -2.0]))
    (gradient,) = torch.autograd.grad(loss.sum(), new)
    assert gradient[0].tolist() == pytest.approx([-1.0, 0.0, 2.0])


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (1.0, 2.0, -2.0, False),
        (1.5, 1.0, -1.28, True),  # may not gain beyond 1 + high
        (0.5, 1.0, -0.5, False),  # but must come back
        (0.5, -1.0, 0.8, True),  # 1 - low
        (1.5, -1.0, 1.5, False),
        (9.0, -1.0, 3.0, True),  # dual clip
        (9.0, 0.0, 0.0, False),
    ],
)
def test_clipped_surrogate_by_hand(ratio: float, advantage: float, loss: float, clipped: bool) -> None:
    value, mask = clipped_surrogate(tensor([math.log(ratio)]), tensor([advantage]), low=0.2, high=0.28, dual=3.0)
    assert value.item() == pytest.approx(loss)
    assert mask.item() is clipped


def test_open_ends_never_clip() -> None:
    value, mask = clipped_surrogate(tensor([3.0, -3.0]), tensor([1.0, -1.0]), low=None, high=None)
    assert value[0].tolist() == pytest.approx([-math.exp(3), math.exp(-3)])
    assert not mask.any()
    half, _ = clipped_surrogate(tensor([3.0, -3.0]), tensor([1.0, -1.0]), low=0.2, high=None)
    assert half[0].tolist() == pytest.approx([-math.exp(3), 0.8])


def test_aggregations_by_hand() -> None:
    loss = tensor([1.0, 2.0, 6.0], [5.0, math.nan, math.inf])  # what stands on padding must not count
    assert aggregate(loss, MASK, how="token-mean").item() == pytest.approx(14 / 4)
    assert aggregate(loss, MASK, how="sequence-mean").item() == pytest.approx((3 + 5) / 2)
    assert aggregate(loss, MASK, how="constant", constant=10).item() == pytest.approx(14 / 20)
    assert aggregate(loss, MASK, how="sequence-sum").item() == pytest.approx(14 / 2)
    assert aggregate(loss, MASK, how="token-sum").item() == pytest.approx(14)
    with pytest.raises(InputError, match="constant"):
        aggregate(loss, MASK, how="constant")


@pytest.mark.parametrize("how", ["token-mean", "sequence-mean", "sequence-sum", "token-sum", "constant"])
def test_parts_add_up_to_the_whole(how: str) -> None:
    loss = tensor([1.0, 2.0, 6.0], [5.0, 0.0, 0.0])
    whole = aggregate(loss, MASK, how=how, constant=7)  # type: ignore[arg-type]
    parts = [
        aggregate(loss[i : i + 1], MASK[i : i + 1], how=how, constant=7, rows=2, tokens=4)  # type: ignore[arg-type]
        for i in (0, 1)
    ]
    assert sum(parts).item() == pytest.approx(whole.item())  # type: ignore[union-attr]


def test_a_row_without_tokens_counts_as_a_row_of_loss_zero() -> None:
    mask = torch.tensor([[True], [False]])
    assert aggregate(tensor([4.0], [9.0]), mask, how="sequence-mean").item() == pytest.approx(2.0)
    assert aggregate(tensor([4.0]), torch.tensor([[False]])).item() == 0.0


def test_kl_estimators_by_hand() -> None:
    logprobs, reference = tensor([-1.0, -2.0]), tensor([-1.5, -1.0])
    assert kl_estimate(logprobs, reference, estimator="k1")[0].tolist() == pytest.approx([0.5, -1.0])
    expected = [math.exp(-0.5) + 0.5 - 1, math.e - 1 - 1]
    assert kl_estimate(logprobs, reference)[0].tolist() == pytest.approx(expected)


@given(st.lists(st.floats(-4, 4), min_size=3, max_size=3), st.lists(st.floats(-4, 4), min_size=3, max_size=3))
def test_both_estimators_have_the_exact_kl_as_their_mean(a: list[float], b: list[float]) -> None:
    p, q = tensor(a).log_softmax(-1), tensor(b).log_softmax(-1)
    exact = kl_exact(tensor(a)[None], tensor(b)[None]).item()
    for estimator in ("k1", "k3"):
        mean = (p.exp() * kl_estimate(p, q, estimator=estimator)).sum().item()  # type: ignore[arg-type]
        assert mean == pytest.approx(exact, abs=1e-9)
    assert exact >= -1e-12


def test_exact_kl_with_illegal_actions_and_its_gradient() -> None:
    logits = torch.tensor([[[0.0, 1.0, -math.inf]]], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([[[0.0, 0.0, -math.inf]]], dtype=torch.float64)
    divergence = kl_exact(logits, reference)
    p = math.e / (1 + math.e)
    assert divergence.item() == pytest.approx(p * math.log(2 * p) + (1 - p) * math.log(2 * (1 - p)))
    (gradient,) = torch.autograd.grad(divergence.sum(), logits)
    assert torch.isfinite(gradient).all()
    assert gradient[0, 0, 1].item() == pytest.approx(p * (1 - p))  # dKL/dz = p (log p/q - KL) = p(1-p)·z at z = 1


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("how", ["token-mean", "sequence-mean", "sequence-sum", "token-sum", "constant"])
def test_gradients_agree_with_finite_differences(level: str, how: str) -> None:
    """Finite differences cannot see a stop-gradient, so the sequence level is checked in its plain form."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    reference = torch.randn(2, 3, 5, dtype=torch.float64, generator=generator)
    action = torch.randint(5, (2, 3, 1), generator=generator)
    old = logits.detach().log_softmax(-1).gather(-1, action)[..., 0] + 0.3 * torch.randn(
        2, 3, dtype=torch.float64, generator=generator
    )
    advantage = tensor([1.0, 1.0, 1.0], [-2.0, -2.0, -2.0])

    def loss(logits: Tensor) -> Tensor:
        logp = logits.log_softmax(-1)
        new = logp.gather(-1, action)[..., 0]
        if level == "token":
            ratio = log_ratio(new, old, MASK)
        else:
            ratio = (((new - old) * MASK).sum(1, keepdim=True) / MASK.sum(1, keepdim=True)).expand(2, 3)
        surrogate, _ = clipped_surrogate(ratio, advantage, low=0.2, high=0.28, dual=3.0)
        chosen = reference.log_softmax(-1).gather(-1, action)[..., 0]
        return (
            aggregate(surrogate, MASK, how=how, constant=4)  # type: ignore[arg-type]
            + 0.1 * aggregate(kl_exact(logits, reference), MASK)
            + 0.2 * aggregate(kl_estimate(new, chosen), MASK)
            - 0.3 * aggregate(-(logp.exp() * logp).sum(-1), MASK)
        )

    assert torch.autograd.gradcheck(loss, (logits,))
