from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from tests.agents.backends.test_forward import ACTIONS, CONFIGS, GROUPED, PROMPTS, ROWS, make

from palaestra.agents.backends.decoding import Steps
from palaestra.agents.backends.modules import Generic

WINDOWED_OR_OTHER_PARTS = {"window", "gpt2", "gemma2"}
ANSWERS = torch.arange(4 * 24).view(4, 24) % 40


def stepped(way: Generic) -> torch.Tensor:
    """Hidden states of rows that read prompts, then say 12 tokens, lose a row, gain two, and say 12 more."""
    with torch.no_grad():
        said, state = way.read(PROMPTS, ROWS, 24)
        found = [said.flatten()]
        for at in range(12):
            found.append(way.extend(state, ANSWERS[:, at : at + 1]).flatten())
        state.keep(torch.tensor([0, 2, 3]))
        if state.joins:
            state.join(way.read(PROMPTS[:2], torch.tensor([1, 0]), 24)[1])
        for at in range(12, 24):
            found.append(way.extend(state, torch.cat([ANSWERS, ANSWERS])[: len(state.pad), at : at + 1]).flatten())
        return torch.cat(found)


def both(model: torch.nn.Module, compute: torch.dtype | None = None) -> tuple[Generic, torch.Tensor, torch.Tensor]:
    """A way through a model, and hidden states with its steps and without."""
    way, other = Generic(model, compute), Generic(model, compute)
    other.steps = False
    return way, stepped(way), stepped(other)


@pytest.mark.parametrize("kind", [*CONFIGS, "qwen3+body", "llama3+head"])
def test_steps_say_what_the_body_says_to_the_last_bit(kind: str) -> None:
    way, found, expected = both(make(kind))
    assert way.steps == (kind not in WINDOWED_OR_OTHER_PARTS)
    assert torch.equal(found, expected)


def test_prompts_of_one_length_likewise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "PROMPTS", [PROMPTS[2], PROMPTS[2] + 1, PROMPTS[2] + 2])
    way, found, expected = both(make("grouped"))
    assert way.steps
    assert torch.equal(found, expected)


@pytest.mark.parametrize("kind", ["grouped", "qwen3"])
def test_half_precision_and_autocast_likewise(kind: str) -> None:
    for way, found, expected in (both(make(kind).to(torch.bfloat16)), both(make(kind), torch.bfloat16)):
        assert way.steps
        assert torch.equal(found, expected)


def test_eager_attention_likewise() -> None:
    way, found, expected = both(of(transformers.LlamaConfig(**GROUPED, attn_implementation="eager")))
    assert way.steps
    assert torch.equal(found, expected)


def test_the_body_is_not_called_for_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    way, calls = Generic(make("grouped")), []
    assert way.steps
    monkeypatch.setattr(Steps, "__call__", lambda self, **given: calls.append(given) or self.forward(**given))
    stepped(way)
    assert len(calls) == 2  # prompts of rows, and of those that join


def test_gradients_pass_through_steps() -> None:
    model = make("qwen3+body")
    found = []
    for steps in (True, False):
        way = Generic(model)
        assert way.steps
        way.steps = steps
        model.zero_grad()
        _, state = way.read(PROMPTS, ROWS, 3)
        way.extend(state, ACTIONS[:, :1]).square().sum().backward()
        found.append([each.grad.clone() for each in model.parameters() if each.requires_grad])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))
    assert any(bool(each.any()) for each in found[0])


ROPES = {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 2.0}
LONG = {
    "rope_type": "yarn", "rope_theta": 500.0, "factor": 2.0, "short_mscale": 1.0, "long_mscale": 2.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip


@pytest.mark.parametrize(
    "config",
    [
        transformers.GraniteConfig(**GROUPED, embedding_multiplier=2.0),  # the body scales embeddings
        transformers.LlamaConfig(**GROUPED, rope_parameters=ROPES, max_position_embeddings=8),  # angles of long rows
        transformers.PhimoeConfig(  # angles of the longest row
            **{**GROUPED, "num_local_experts": 2}, rope_parameters=LONG, max_position_embeddings=64
        ),
        transformers.GPTNeoXConfig(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4),
    ],
    ids=["granite", "dynamic", "phimoe", "gpt_neox"],
)
def test_bodies_that_do_more_are_called_themselves(config: Any) -> None:
    model = of(config)
    way, whole = Generic(model), Generic(model)
    assert not way.steps
    assert way.body is not None
    whole.body = None
    assert torch.equal(stepped(way), stepped(whole))


def of(config: Any) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return transformers.AutoModelForCausalLM.from_config(config).eval()  # type: ignore[no-any-return]
