from __future__ import annotations

import copy

import peft
import pytest
import torch
import transformers
from tests.agents.backends.test_forward import CONFIGS, GROUPED, ROWS, directly, make, through
from torch import nn

from palaestra.agents.backends.modules import Generic, Once
from palaestra.agents.backends.shadows import Direct, bare, shadow, shadowed

IDS = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]])


@pytest.mark.parametrize("kind", [*CONFIGS, "qwen3+body", "llama3+head"])
def test_the_body_of_a_model_is_found_and_said_by_a_shadow_to_the_last_bit(kind: str) -> None:
    model = make(kind)
    way, whole = Generic(model), Generic(model)
    whole.body = None
    assert way.body is not None
    assert way._inside() is not None
    with torch.no_grad():
        assert torch.equal(through(way), through(whole))


@pytest.mark.parametrize("kind", ["llama", "window"])
def test_half_precision_and_autocast_likewise(kind: str) -> None:
    assert Generic(make(kind).to(torch.bfloat16)).body is not None
    assert Generic(make(kind), torch.bfloat16).body is not None


def test_a_shadow_reads_live_parameters_and_its_module_stays_as_it_is() -> None:
    model = make("qwen2+body")
    body = Generic(model).body
    before = {module: dict(vars(module)) for module in model.modules()}
    for _ in range(2):
        assert torch.equal(shadowed(body)(IDS).last_hidden_state, body(IDS).last_hidden_state)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.01
    assert all(vars(module) == before[module] for module in model.modules())
    copied = copy.deepcopy(model)
    assert not any(type(each) is Direct for module in copied.modules() for each in vars(module).values())


def test_a_dynamic_rotary_embedding_is_not_stretched_by_its_shadow() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 2.0}
    config = transformers.LlamaConfig(**GROUPED, rope_parameters=rope, max_position_embeddings=4)
    body = transformers.LlamaModel(config).eval()
    before = body.rotary_emb.inv_freq.clone()
    with torch.no_grad():
        expected = body(IDS[:, :3]).last_hidden_state
        shadowed(body)(torch.cat([IDS, IDS], 1))
        assert torch.equal(shadowed(body)(IDS[:, :3]).last_hidden_state, expected)
    assert torch.equal(body.rotary_emb.inv_freq, before)


def test_gradients_reach_the_parameters() -> None:
    model = make("qwen2")
    body = Generic(model).body
    found = []
    for each in (body, shadowed(body)):
        model.zero_grad()
        each(IDS).last_hidden_state.square().sum().backward()
        found.append([p.grad.clone() for p in body.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_a_shadow_is_its_module_to_everything_but_a_call() -> None:
    model = make("qwen2")
    layer = shadow(model.model).layers[0]
    assert type(layer.mlp.up_proj) is Direct
    assert isinstance(layer.mlp.up_proj, nn.Linear)
    assert layer.mlp.up_proj.weight is model.model.layers[0].mlp.up_proj.weight
    assert layer.self_attn.layer_idx == 0
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = layer.mlp.nothing


def test_hooks_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = make("llama"), []
    layer = model.model.layers[1].mlp.down_proj
    way = Generic(model)
    assert way.steps
    handle = layer.register_forward_hook(lambda *_: seen.append(1))
    assert not bare(layer)
    with torch.no_grad():
        torch.testing.assert_close(through(way), directly(model), atol=1e-5, rtol=1e-5)
    assert len(seen) == 3 + len(ROWS)
    handle.remove()
    for outside in (model, model.model):
        handle = outside.register_forward_pre_hook(lambda *_: seen.append(2))
        assert way._inside() is None
        handle.remove()
    monkeypatch.setattr(model, "forward", model.forward)
    assert way._inside() is None
    monkeypatch.undo()
    assert way._inside() is not None
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert shadow(model.model) is model.model
    handle.remove()


def test_what_is_not_the_same_is_called_as_a_whole() -> None:
    model = make("llama")
    said = model.model.forward
    model.model.forward = lambda *args, **kwargs: said(*args, **kwargs)
    assert Generic(model)._inside() is None
    assert Once(make("llama"))._inside() is None
    prompted = peft.get_peft_model(make("llama"), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))
    assert Generic(prompted).body is None
    way = Generic(Reading(make("llama")))
    assert way.head.layer is not None
    assert way.body is None


class Reading(nn.Module):
    """A model whose head is given twice what its body says."""

    base_model_prefix = "body"

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.body, self.config = model, model.model, model.config
        self.device, self.dtype = model.device, model.dtype

    def get_output_embeddings(self) -> nn.Module:
        return self.model.lm_head  # type: ignore[no-any-return]

    def forward(self, input_ids, past_key_values=None, position_ids=None, attention_mask=None, use_cache=True):
        output = self.body(input_ids, attention_mask, position_ids, past_key_values, use_cache=use_cache)
        output["logits"] = self.model.lm_head(output.last_hidden_state * 2)
        return output


def test_adapters_are_switched_between_passes() -> None:
    model = make("qwen3+body")
    way = Generic(model)
    with torch.no_grad():
        first = through(way)
        with model.disable_adapter():
            second = through(way)
            torch.testing.assert_close(second, directly(model), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(first, second)
