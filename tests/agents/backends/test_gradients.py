from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

from palaestra.agents.backends import head
from palaestra.agents.backends.gradients import adding_up
from palaestra.agents.backends.llama import Llama
from palaestra.agents.backends.modules import Generic

VOCABULARY, WIDTH = 60, 8
PROMPTS = [np.array(ids, np.int32) for ids in ([5], [9, 5, 5, 1])]
SAID = torch.tensor([[11, 5, 13], [5, 15, 0]])
MASK = torch.tensor([[True, True, True], [True, True, False]])


def model(tied: bool = True) -> Any:
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, tie_word_embeddings=tied, initializer_range=0.3,
    )  # fmt: skip
    return transformers.Qwen2ForCausalLM(config).eval()


def step(made: Any, way: type, inside: Callable[[], Any]) -> dict[str, torch.Tensor]:
    """The gradient of a step of two pieces."""
    made.zero_grad()
    through = way(made)
    for rows in (torch.tensor([0, 1]), torch.tensor([1, 1])):
        with inside():
            hidden = through.whole(PROMPTS, rows, SAID)
            scored = through.head.score(hidden, SAID, MASK, 0.7)
            loss = (scored.logprobs * torch.tensor([[1.0], [-2.0]])).sum() + 0.1 * scored.entropies.sum()
        loss.backward()
    return {name: p.grad.clone() for name, p in made.named_parameters()}


@pytest.fixture(autouse=True)
def chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "CHUNK", 2 * VOCABULARY)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("way", [Llama, Generic])
def test_what_adds_up_in_place_is_the_same_gradient(way: type, tied: bool) -> None:
    made = model(tied)
    expected, found = step(made, way, nullcontext), step(made, way, adding_up)
    assert len(expected) == len(found)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-6, rtol=1e-5, msg=name)


class Matrices(TorchDispatchMode):
    """Where tensors of the size of the vocabulary's matrix lie that operations return."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[torch.Tensor] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and made.numel() == VOCABULARY * WIDTH:
            self.kept.append(made)
        return made


def matrices(inside: Any) -> int:
    """How many such tensors a step makes beside the weight, the copy that `step` returns left out."""
    made = model()
    with Matrices() as seen:
        step(made, Llama, inside)
    places = {each.untyped_storage().data_ptr() for each in seen.kept}
    return len(places - {made.lm_head.weight.untyped_storage().data_ptr()}) - 1


def test_a_step_makes_one_gradient_of_the_vocabulary() -> None:
    assert matrices(adding_up) == 1
    assert matrices(nullcontext) >= 4  # two uses in each of two pieces


def test_a_matrix_with_hooks_keeps_its_own_way() -> None:
    made, heard = model(), []
    expected = step(made, Llama, nullcontext)["model.embed_tokens.weight"]
    made.lm_head.weight.register_hook(lambda gradient: heard.append(gradient.clone()))
    step(made, Llama, adding_up)
    torch.testing.assert_close(sum(heard), expected, atol=1e-6, rtol=1e-5)


def test_what_does_not_learn_gets_no_gradient() -> None:
    made = model(tied=False)
    made.model.embed_tokens.weight.requires_grad_(False)
    with adding_up():
        loss = Llama(made).whole(PROMPTS, torch.tensor([0, 1]), SAID).sum()
    loss.backward()
    assert made.model.embed_tokens.weight.grad is None
