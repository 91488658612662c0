from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from palaestra.agents.backends import forward
from palaestra.agents.backends.forward import Generic, Llama, forward_of

SIZES = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def make(kind: str) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        if kind == "gpt2":  # learned absolute positions
            config = transformers.GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_positions=64)
        elif kind == "mistral":  # fewer key heads than heads, and attention to the last 6 tokens only
            config = transformers.MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=6, head_dim=8)
        else:
            config = transformers.LlamaConfig(**SIZES, initializer_range=0.3)
        return transformers.AutoModelForCausalLM.from_config(config).eval()


PROMPTS = [np.array(ids, np.int32) for ids in ([5], [1, 2, 3], [9, 8, 7, 6, 5, 4, 3, 2, 1])]
ROWS = torch.tensor([2, 0, 0, 1])
ACTIONS = torch.tensor([[11, 12, 13], [14, 15, 16], [17, 18, 19], [20, 21, 22]])


def through(way: forward.Forward) -> torch.Tensor:
    """[rows, 4, vocabulary]: after the prompt and after each token of the action, in two steps."""
    logits, state = way.read(PROMPTS, ROWS, 3)
    return torch.cat([logits, way.extend(state, ACTIONS[:, :1]), way.extend(state, ACTIONS[:, 1:])], 1)


def directly(model: torch.nn.Module) -> torch.Tensor:
    """The same, a row at a time, without padding and cache."""
    rows = []
    for row, action in zip(ROWS.tolist(), ACTIONS, strict=True):
        ids = torch.cat([torch.from_numpy(PROMPTS[row]).long(), action])
        rows.append(model(input_ids=ids[None]).logits[0, -4:])
    return torch.stack(rows)


WAYS = [("llama", Llama), ("llama", Generic), ("gpt2", Generic), ("mistral", Generic)]


@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_ragged_shared_prompts_with_a_cache_equal_one_row_at_a_time(kind: str, way: type) -> None:
    model = make(kind)
    with torch.no_grad():
        torch.testing.assert_close(through(way(model)), directly(model), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral"])
def test_prompts_of_one_length_need_no_mask(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, prompts = make(kind), [np.array(ids, np.int32) for ids in ([1] * 9, [2] * 9, [3] * 9)]
    monkeypatch.setitem(globals(), "PROMPTS", prompts)
    given: list[set[str]] = []
    model.register_forward_pre_hook(lambda module, args, kwargs: given.append(set(kwargs)), with_kwargs=True)
    with torch.no_grad():
        found = through(Generic(model))
        assert len(given) == 3
        assert not any("attention_mask" in arguments for arguments in given)
        torch.testing.assert_close(found, directly(model), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("kind", "way"), WAYS[:3])
def test_gradients_equal_those_of_the_model(kind: str, way: type) -> None:
    model = make(kind)
    weights = torch.linspace(-1, 1, 4 * 4 * 40).view(4, 4, 40)
    gradients = []
    for logits in (through(way(model)), directly(model)):
        model.zero_grad()
        (logits * weights).sum().backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})
    for name, expected in gradients[1].items():
        torch.testing.assert_close(gradients[0][name], expected, atol=1e-4, rtol=1e-4, msg=name)


@pytest.mark.parametrize("way", [Llama, Generic])
def test_rows_that_are_kept_go_on_as_if_alone(way: type) -> None:
    model, kept = make("llama"), torch.tensor([0, 3])
    with torch.no_grad():
        one = way(model)
        _, state = one.read(PROMPTS, ROWS, 3)
        one.extend(state, ACTIONS[:, :1])
        state.keep(kept)
        last = one.extend(state, ACTIONS[kept, 1:])
        torch.testing.assert_close(last, directly(model)[kept, 2:], atol=1e-5, rtol=0)


def test_blocks_do_not_change_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    way = Llama(make("llama"))
    with torch.no_grad():
        whole = through(way)
        monkeypatch.setattr(forward, "BLOCK", 4)
        assert [len(block) for block in forward._blocks(PROMPTS)] == [1, 1, 1]
        torch.testing.assert_close(through(way), whole, atol=1e-5, rtol=0)
    monkeypatch.setattr(forward, "BLOCK", 6)
    assert [len(block) for block in forward._blocks(PROMPTS)] == [2, 1]


def test_only_a_plain_small_float_llama_takes_the_short_way() -> None:
    assert isinstance(forward_of(make("llama")), Llama)
    assert isinstance(forward_of(make("llama").to(torch.bfloat16)), Generic)
    assert isinstance(forward_of(make("gpt2")), Generic)
    assert isinstance(forward_of(make("mistral")), Generic)
    biased = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, attention_bias=True))
    assert isinstance(forward_of(biased), Generic)
