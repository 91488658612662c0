"""Worked numbers of the cards, plain references, and what must not change a loss."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from palaestra.errors import InputError
from palaestra.learning.reward_models.losses import (
    binary_loss,
    both_orders_loss,
    bradley_terry_loss,
    distill,
    distill_rank_loss,
    mixture_bt_loss,
    rank_loss,
    regress,
)

EACH = pytest.mark.parametrize("seed", range(3))


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=shape), requires_grad=True)


def test_dear_worked_numbers() -> None:
    student, teacher = torch.tensor([[1.0, 0.0, 2.0]]), torch.tensor([[3.0, 1.0, 2.0]])
    assert float(rank_loss(student, teacher, "ranknet")) == pytest.approx(0.713865, abs=1e-6)
    assert float(distill(student, teacher, temperature=2.0)) == pytest.approx(0.398569, abs=1e-6)
    assert float(rank_loss(student, None, "ce")) == pytest.approx(1.407606, abs=1e-6)
    assert float(distill_rank_loss(student, teacher, rank="ce")) == pytest.approx(1.306702, abs=1e-6)


def test_bradley_terry_worked_numbers() -> None:
    """Leads 1 and -3 less a margin of .5, weights 1 and 3; sums of scores 3 and -5: squares 9, 25, mean -3."""
    chosen, rejected, weight = torch.tensor([[2.0, -4.0], [1.0, -1.0], [1.0, 3.0]])
    plain = (math.log(1 + math.exp(-0.5)) + 3 * math.log(1 + math.exp(3.5))) / 4
    for options, more in (({}, 0.0), ({"centre": 0.1}, 0.1 * (9 + 75) / 4), ({"centre": 0.1, "centring": "mean"}, 0.3)):
        found = bradley_terry_loss(chosen, rejected, margin=0.5, weight=weight, **options)  # type: ignore[arg-type]
        assert float(found) == pytest.approx(plain + more, abs=1e-5)


@EACH
def test_ranknet_and_listnet_beside_plain_references(seed: int) -> None:
    """Groups of several sizes, padded; the references loop over pairs and items in NumPy."""
    rng = np.random.default_rng(seed)
    s, t, sizes = rng.normal(size=(6, 5)), rng.normal(size=(6, 5)), rng.integers(1, 6, 6)
    mask = torch.tensor(np.arange(5) < sizes[:, None])
    pairs, lists = [], []
    for a, b, n in zip(s, t, sizes, strict=True):
        if n < 2:
            continue
        each = []
        for i in range(n):
            for j in range(i + 1, n):
                p, q = 1 / (1 + np.exp(b[j] - b[i])), 1 / (1 + np.exp(a[j] - a[i]))
                each.append(-p * np.log(q) - (1 - p) * np.log(1 - q))
        pairs.append(np.mean(each))
        goal, found = np.exp(b[:n]) / np.exp(b[:n]).sum(), np.exp(a[:n]) / np.exp(a[:n]).sum()
        lists.append(-(goal * np.log(found)).sum())
    student, teacher = torch.tensor(s, requires_grad=True), torch.tensor(t)
    for kind, known in (("ranknet", pairs), ("listnet", lists)):
        loss = rank_loss(student, teacher, kind, mask=mask)  # type: ignore[arg-type]
        assert loss.item() == pytest.approx(np.mean(known), abs=1e-12)
        (slope,) = torch.autograd.grad(loss, student)
        assert slope.isfinite().all()
        assert slope[mask].abs().sum() > 0
        assert slope[~mask].abs().sum() == 0


def test_ce_takes_the_teachers_best() -> None:
    scores = torch.tensor([[0.0, 1.0, 5.0]])
    found = rank_loss(scores, torch.tensor([[0.0, 2.0, 1.0]]), "ce", mask=torch.tensor([[True, True, False]]))
    assert float(found) == pytest.approx(math.log(1 + math.exp(-1)))


@EACH
def test_mixture_is_a_mixture_of_probabilities(seed: int) -> None:
    delta, gate = numbers(seed, 7, 3).detach(), numbers(seed + 9, 7, 3).detach().log_softmax(-1)
    plain = -(gate.exp() * torch.sigmoid(delta)).sum(-1).log()
    assert float(mixture_bt_loss(delta, gate)) == pytest.approx(float(plain.mean()), abs=1e-12)
    with_entropy = mixture_bt_loss(delta, gate, entropy=0.5) - plain.mean()
    assert float(with_entropy) == pytest.approx(0.5 * float((gate.exp() * gate).sum(-1).mean()), abs=1e-12)
    alone = mixture_bt_loss(delta[:, :1], torch.zeros(7, 1))
    assert float(alone) == pytest.approx(float(bradley_terry_loss(delta[:, 0], torch.zeros(7))), abs=1e-12)


def test_a_gate_that_is_shut_gives_no_nan() -> None:
    gate = torch.tensor([[0.0, -torch.inf]])
    assert float(mixture_bt_loss(torch.zeros(1, 2), gate, entropy=0.5)) == pytest.approx(math.log(2))


@EACH
def test_both_orders_of_the_token_judge(seed: int) -> None:
    """-½·(log P(yes | w, l) + log P(no | l, w)); a judge that does not care for order gives Bradley-Terry."""
    lead = numbers(seed, 6)
    yes, no = torch.nn.functional.logsigmoid(lead), torch.nn.functional.logsigmoid(lead)
    found = both_orders_loss(yes, no)
    assert float(found) == pytest.approx(float(bradley_terry_loss(lead, torch.zeros(6))), abs=1e-12)
    assert float(both_orders_loss(yes, no + 1)) == pytest.approx(float(found) - 0.5, abs=1e-12)


@EACH
def test_weight_zero_is_as_if_absent(seed: int) -> None:
    chosen, rejected, three = numbers(seed, 6), numbers(seed + 9, 6), torch.tensor([True] * 3 + [False] * 3)
    for kind in ("square", "mean"):
        part = bradley_terry_loss(chosen[:3], rejected[:3], margin=0.3, centre=0.1, centring=kind)  # type: ignore[arg-type]
        for how in ({"mask": three}, {"weight": three.double()}, {"weight": 7 * three.double()}):
            whole = bradley_terry_loss(chosen, rejected, margin=0.3, centre=0.1, centring=kind, **how)  # type: ignore[arg-type]
            assert float(whole) == pytest.approx(float(part), abs=1e-12)
    nobody = bradley_terry_loss(chosen, rejected, mask=torch.zeros(6, dtype=torch.bool))
    assert float(nobody) == 0
    assert torch.autograd.grad(nobody, chosen)[0].abs().sum() == 0


def test_labels_that_are_missing_leave_the_mean() -> None:
    logit = torch.tensor([0.0, 5.0, -5.0], requires_grad=True)
    label = torch.tensor([1.0, torch.nan, 0.0])
    loss = binary_loss(logit, label)
    assert float(loss) == pytest.approx((math.log(2) + math.log(1 + math.exp(-5))) / 2, abs=1e-6)
    assert torch.autograd.grad(loss, logit)[0][1] == 0
    heads = regress(torch.zeros(2, 2), torch.tensor([[1.0, torch.nan], [3.0, 0.0]]))
    assert float(heads) == pytest.approx((1 + 9 + 0) / 3)
    assert float(regress(torch.zeros(2, 2), torch.ones(2, 2) * 2, weight=torch.tensor([1.0, 0.0]))) == 4


def test_what_is_unknown_is_named() -> None:
    with pytest.raises(InputError, match=r"ranknett.*'ranknet'"):
        rank_loss(torch.zeros(1, 2), torch.zeros(1, 2), "ranknett")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="teacher"):
        rank_loss(torch.zeros(1, 2))
    with pytest.raises(InputError, match="centring"):
        bradley_terry_loss(torch.zeros(1), torch.zeros(1), centre=0.1, centring="squared")  # type: ignore[arg-type]
