from __future__ import annotations

import peft
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from palaestra.agents.backends import head
from palaestra.agents.backends.head import Head, is_linear
from palaestra.agents.policy import Scored
from palaestra.learning.losses import kl_between, kl_exact

WIDTH, VOCABULARY, STEP = 6, 50, 4
MASK = torch.arange(7) < torch.tensor([7, 3, 1, 5])[:, None]


class Body(torch.nn.Module):
    """A linear layer where peft finds it."""

    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        self.out = torch.nn.Linear(WIDTH, VOCABULARY, bias=bias)


class Squared(torch.nn.Module):
    """A last layer that is not linear."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out_features = torch.nn.Linear(WIDTH, VOCABULARY), VOCABULARY

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).square()


def heads() -> dict[str, Head]:
    """One of each kind."""
    torch.manual_seed(0)
    lora = peft.get_peft_model(Body(bias=True), peft.LoraConfig(r=2, lora_alpha=5, target_modules=["out"]))
    adapted = lora.base_model.model.out
    torch.nn.init.normal_(adapted.lora_B["default"].weight)
    frozen = Body().out.requires_grad_(False)
    return {
        "plain": Head(Body().out), "bias": Head(Body(bias=True).out), "scale": Head(Body().out, scale=3.0),
        "cap": Head(Body(bias=True).out, cap=0.7, scale=2.0), "lora": Head(adapted), "frozen": Head(frozen),
        "other": Head(Squared()), "other cap": Head(Squared(), cap=0.7),
    }  # fmt: skip


def scored(one: Head, hidden: torch.Tensor, temperature: float = 0.7) -> Scored:
    ids = torch.arange(MASK.numel()).view_as(MASK) * 7 % VOCABULARY
    return one.score(hidden, ids, MASK, temperature)


def gradients(one: Head, hidden: torch.Tensor, loss: torch.Tensor) -> list[torch.Tensor]:
    wanted = [hidden, *(p for p in one.layer.parameters() if p.requires_grad)]
    return list(torch.autograd.grad(loss, wanted))


@pytest.mark.parametrize("name", heads())
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_chunks_have_the_values_and_gradients_of_the_whole(
    name: str, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = heads()[name]
    hidden = torch.randn(*MASK.shape, WIDTH, requires_grad=True)
    weights = torch.randn(2, *MASK.shape)
    found = []
    for size in (2**24, STEP * VOCABULARY):
        monkeypatch.setattr(head, "CHUNK", size)
        made = scored(one, hidden, temperature)
        loss = (weights[0] * made.logprobs + weights[1] * made.entropies).sum()
        found.append((made, gradients(one, hidden, loss)))
    (whole, expected), (parts, also) = found
    assert isinstance(whole.distribution, torch.Tensor)
    assert not isinstance(parts.distribution, torch.Tensor)
    torch.testing.assert_close(parts.logprobs, whole.logprobs, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(parts.entropies, whole.entropies, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(parts.logits[MASK], whole.logits[MASK], atol=1e-6, rtol=1e-6)
    for one_gradient, other in zip(also, expected, strict=True):
        torch.testing.assert_close(one_gradient, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["plain", "lora", "cap", "other"])
def test_exact_kl_in_chunks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, start = heads()[name], heads()["bias"]
    hidden = torch.randn(*MASK.shape, WIDTH, requires_grad=True)
    found = []
    for size in (2**24, STEP * VOCABULARY):
        monkeypatch.setattr(head, "CHUNK", size)
        now = scored(one, hidden)
        with torch.no_grad():
            then = scored(start, hidden.detach().roll(1, 0))
        kl = kl_between(now, then)
        torch.testing.assert_close(kl[MASK], kl_exact(now.logits, then.logits)[MASK], atol=1e-6, rtol=1e-5)
        found.append((kl * MASK, gradients(one, hidden, (kl * MASK).sum())))
    torch.testing.assert_close(found[0][0], found[1][0], atol=1e-6, rtol=1e-5)
    for one_gradient, other in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(one_gradient, other, atol=1e-5, rtol=1e-5)


class Largest(TorchDispatchMode):
    """The most numbers of one tensor that any operation returned."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for each in made if isinstance(made, tuple | list) else (made,):
            if isinstance(each, torch.Tensor):
                self.numbers = max(self.numbers, each.numel())
        return made


@pytest.mark.parametrize("name", heads())
def test_no_operation_makes_more_than_a_chunk(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "CHUNK", STEP * VOCABULARY)
    one = heads()[name]
    hidden = torch.randn(40, 10, WIDTH, requires_grad=True)
    mask = torch.ones(40, 10, dtype=torch.bool)
    with Largest() as largest:
        made = one.score(hidden, torch.zeros(40, 10, dtype=torch.long), mask, 1.0)
        gradients(one, hidden, made.logprobs.sum() + made.entropies.sum())
        with torch.no_grad():
            then = one.score(hidden * 2, torch.zeros(40, 10, dtype=torch.long), mask, 1.0)
        again = one.score(hidden, torch.zeros(40, 10, dtype=torch.long), mask, 1.0)
        gradients(one, hidden, kl_between(again, then).sum())
    assert largest.numbers <= max(STEP * VOCABULARY, hidden.numel())  # 400 tokens · 50 would be 20,000


def test_what_counts_as_linear() -> None:
    adapted = peft.get_peft_model(Body(), peft.LoraConfig(r=2, target_modules=["out"])).base_model.model.out
    assert is_linear(adapted)
    dora = peft.get_peft_model(Body(), peft.LoraConfig(r=2, target_modules=["out"], use_dora=True))
    assert not is_linear(dora.base_model.model.out)
    biased = peft.get_peft_model(Body(bias=True), peft.LoraConfig(r=2, target_modules=["out"], lora_bias=True))
    assert not is_linear(biased.base_model.model.out)
    assert not is_linear(Squared())


def test_weights_of_16_bits_score_in_32() -> None:
    one = Head(Body().out.to(torch.bfloat16).requires_grad_(False))
    made = scored(one, torch.randn(*MASK.shape, WIDTH).to(torch.bfloat16))
    assert made.logprobs.dtype == made.entropies.dtype == torch.float32


@pytest.mark.parametrize("compute", [torch.bfloat16])
def test_arithmetic_of_16_bits_gives_gradients_of_32(compute: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "CHUNK", STEP * VOCABULARY)
    one, hidden = heads()["bias"], torch.randn(*MASK.shape, WIDTH, requires_grad=True)
    exact = gradients(one, hidden, scored(one, hidden).logprobs.sum())
    one.compute = compute
    found = gradients(one, hidden, scored(one, hidden).logprobs.sum())
    for one_gradient, other in zip(found, exact, strict=True):
        assert one_gradient.dtype == torch.float32
        torch.testing.assert_close(one_gradient, other, atol=0.1, rtol=0.1)
