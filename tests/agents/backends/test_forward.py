from __future__ import annotations

from typing import Any

import numpy as np
import peft
import pytest
import torch
import transformers

from palaestra.agents.backends import forward, llama, modules
from palaestra.agents.backends.fastest import forward_of
from palaestra.agents.backends.llama import Llama
from palaestra.agents.backends.modules import Generic
from palaestra.errors import InputError

SIZES = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = SIZES | {"num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.3}
ROPE = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 2.0, "original_max_position_embeddings": 16,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0}  # fmt: skip
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SIZES, initializer_range=0.3),
    "grouped": lambda: transformers.LlamaConfig(**GROUPED, attention_bias=True, mlp_bias=True),
    "llama3": lambda: transformers.LlamaConfig(**GROUPED, rope_parameters=ROPE, tie_word_embeddings=True),
    "mistral": lambda: transformers.MistralConfig(**GROUPED, sliding_window=None),
    "qwen2": lambda: transformers.Qwen2Config(**GROUPED),  # biases of queries, keys and values
    "qwen3": lambda: transformers.Qwen3Config(**GROUPED),  # norms of queries and keys
    "window": lambda: transformers.MistralConfig(**GROUPED, sliding_window=6),  # attention to the last 6 tokens only
    "gpt2": lambda: transformers.GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_positions=64),
    "granite": lambda: transformers.GraniteConfig(**GROUPED, logits_scaling=3.0),
    "cohere": lambda: transformers.CohereConfig(**SIZES, logit_scale=0.3),
    "gemma2": lambda: transformers.Gemma2Config(**GROUPED, final_logit_softcapping=0.5, sliding_window=6),
}  # fmt: skip
WALKED = ["llama", "grouped", "llama3", "mistral", "qwen2", "qwen3"]


def make(kind: str) -> torch.nn.Module:
    """A model of two layers; `+lora` with adapters that do something."""
    kind, _, lora = kind.partition("+")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = transformers.AutoModelForCausalLM.from_config(CONFIGS[kind]()).eval()
        for name, parameter in model.named_parameters():  # norms and biases begin at 1 and 0
            if parameter.dim() == 1:
                parameter.data += torch.randn_like(parameter) * 0.1
                assert "norm" in name or "bias" in name or "ln_" in name
        if lora:
            heads = {"head": ["lm_head"], "body": ["q_proj", "v_proj", "o_proj", "down_proj"]}[lora]
            model = peft.get_peft_model(model, peft.LoraConfig(r=3, lora_alpha=7, target_modules=heads))
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.data += torch.randn_like(parameter) * 0.3
    return model.eval()


PROMPTS = [np.array(ids, np.int32) for ids in ([5], [1, 2, 3], [9, 8, 7, 6, 5, 4, 3, 2, 1])]
ROWS = torch.tensor([2, 0, 0, 1])
ACTIONS = torch.tensor([[11, 12, 13], [14, 15, 16], [17, 18, 19], [20, 21, 22]])


def through(way: forward.Forward) -> torch.Tensor:
    """[rows, 4, vocabulary]: after the prompt and after each token of the action, in two steps."""
    hidden, state = way.read(PROMPTS, ROWS, 3)
    parts = [hidden, way.extend(state, ACTIONS[:, :1]), way.extend(state, ACTIONS[:, 1:])]
    return way.head.logits(torch.cat(parts, 1))


def directly(model: torch.nn.Module) -> torch.Tensor:
    """The same, a row at a time, without padding and cache."""
    rows = []
    for row, action in zip(ROWS.tolist(), ACTIONS, strict=True):
        ids = torch.cat([torch.from_numpy(PROMPTS[row]).long(), action])
        rows.append(model(input_ids=ids[None]).logits[0, -4:])
    return torch.stack(rows)


WAYS = [(kind, Llama) for kind in [*WALKED, "llama+body", "qwen2+body", "qwen3+head"]]
WAYS += [(kind, Generic) for kind in [*CONFIGS, "qwen3+body", "llama3+head"]]


@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_ragged_shared_prompts_with_a_cache_equal_one_row_at_a_time(kind: str, way: type) -> None:
    model = make(kind)
    with torch.no_grad():
        torch.testing.assert_close(through(way(model)), directly(model), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "window"])
def test_prompts_of_one_length_need_no_mask(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, prompts = make(kind), [np.array(ids, np.int32) for ids in ([1] * 9, [2] * 9, [3] * 9)]
    monkeypatch.setitem(globals(), "PROMPTS", prompts)
    way = Generic(model)
    assert way.body is not None
    given: list[set[str]] = []
    model.register_forward_pre_hook(lambda module, args, kwargs: given.append(set(kwargs)), with_kwargs=True)
    with torch.no_grad():
        found = through(way)
        assert len(given) == 3
        assert not any("attention_mask" in arguments for arguments in given)
        torch.testing.assert_close(found, directly(model), atol=1e-5, rtol=0)


def gradients(model: torch.nn.Module, logits: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    (logits * torch.linspace(-1, 1, logits.numel()).view_as(logits)).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_gradients_equal_those_of_the_model(kind: str, way: type) -> None:
    model = make(kind)
    found, expected = gradients(model, through(way(model))), gradients(model, directly(model))
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        rounding = 1e-5 * (1 + float(gradient.abs().max()))
        torch.testing.assert_close(found[name], gradient, atol=rounding, rtol=1e-4, msg=name)


@pytest.mark.parametrize(
    ("kind", "way"), [("qwen3", Llama), ("qwen2+body", Llama), ("gpt2", Generic), ("window", Generic)]
)
def test_checkpoints_change_neither_values_nor_gradients(kind: str, way: type) -> None:
    model, answers = make(kind), torch.cat([ACTIONS, ACTIONS[:, :1]], 1)  # the last is not read
    kept = []
    for checkpoints in (False, True):
        held: list[int] = []

        def count(tensor: torch.Tensor, held: list[int] = held) -> torch.Tensor:
            held.append(tensor.numel())
            return tensor

        one = way(model, checkpoints=checkpoints)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            logits = one.head.logits(one.whole(PROMPTS, ROWS, answers))
        torch.testing.assert_close(logits, directly(model), atol=1e-5, rtol=1e-5)
        expected, found = gradients(model, directly(model)), gradients(model, logits)
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, atol=1e-4, rtol=1e-4, msg=name)
        kept.append(sum(held))
    assert kept[1] < kept[0] / 2


@pytest.mark.parametrize("longest", [9, 3])
def test_under_checkpoints_a_layer_holds_the_activations_of_one_block(
    longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rows of three tokens, or one prompt if that is longer; the answers alone are twelve tokens."""
    model, answers = make("qwen2"), torch.cat([ACTIONS, ACTIONS[:, :1]], 1)
    prompts = PROMPTS if longest == 9 else [np.full(3, i, np.int32) for i in (1, 2, 3)]  # these need no padding
    monkeypatch.setitem(globals(), "PROMPTS", prompts)
    monkeypatch.setattr(llama, "BLOCK", 6)
    tokens: list[int] = []

    def silu(x: torch.Tensor, own: Any = llama.F.silu) -> torch.Tensor:
        tokens.append(x.shape[0] * x.shape[1])
        return own(x)  # type: ignore[no-any-return]

    one = Llama(model, checkpoints=True)
    with monkeypatch.context() as patched:
        patched.setattr(llama.F, "silu", silu)
        found = gradients(model, one.head.logits(one.whole(PROMPTS, ROWS, answers)))
    assert max(tokens) == max(6, longest)
    for name, gradient in gradients(model, directly(model)).items():
        torch.testing.assert_close(found[name], gradient, atol=1e-4, rtol=1e-4, msg=name)


@pytest.mark.parametrize(("call", "calls"), [(0, 2), (2**15, 1)])
@pytest.mark.parametrize(
    ("kind", "way"), [("gpt2", Generic), ("window", Generic), ("qwen3", Generic), ("llama", Llama), ("qwen2", Llama)]
)
def test_prompts_have_a_call_of_their_own_where_that_pays(
    kind: str, way: type, call: int, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, answers = make(kind), torch.cat([ACTIONS, ACTIONS[:, :1]], 1)
    one, made = way(model), []
    assert way is Llama or one.steps == (kind == "qwen3")
    monkeypatch.setattr(forward, "CALL", call)
    name = "_walk" if way is Llama else "_hidden"
    own = getattr(one, name)
    monkeypatch.setattr(one, name, lambda *args, **options: made.append(1) or own(*args, **options))
    logits = one.head.logits(one.whole(PROMPTS, ROWS, answers))
    assert len(made) == calls
    torch.testing.assert_close(logits, directly(model), atol=1e-5, rtol=1e-5)
    found, expected = gradients(model, logits), gradients(model, directly(model))
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-4, rtol=1e-4, msg=name)


def test_a_model_without_layers_that_can_be_made_again_says_so() -> None:
    with pytest.raises(InputError, match="Sequential has no layers that gradient_checkpointing=True could use"):
        modules._layers(torch.nn.Sequential())


@pytest.mark.parametrize(
    ("kind", "way"), [("qwen2", Llama), ("llama+body", Llama), ("gpt2", Generic), ("cohere", Generic)]
)
def test_rows_that_join_go_on_as_if_alone(kind: str, way: type) -> None:
    model = make(kind)
    with torch.no_grad():
        one, expected = way(model), directly(model)
        _, state = one.read(PROMPTS[:1], torch.tensor([0, 0]), 3)  # rows 1 and 2
        one.extend(state, ACTIONS[1:3, :1])
        _, others = one.read(PROMPTS, torch.tensor([2, 1]), 3)  # rows 0 and 3, longer than what is there
        state.join(others)
        assert state.joins
        order = torch.tensor([1, 2, 0, 3])
        ids = torch.cat([ACTIONS[1:3, 1:2], ACTIONS[[0, 3], :1]])
        logits = one.head.logits(one.extend(state, ids))[:, 0]
        torch.testing.assert_close(logits, torch.stack([expected[row, at] for row, at in zip(order, (2, 2, 1, 1))]),
                                   atol=1e-5, rtol=1e-5)  # fmt: skip
        state.keep(torch.tensor([0, 1]))  # the long one leaves, and places that nobody needs any more go
        _, others = one.read(PROMPTS[:1], torch.tensor([0]), 3)
        state.join(others)
        assert state.length == 3
        logits = one.head.logits(one.extend(state, torch.tensor([[16], [19], [14]])))[:, 0]
        wanted = torch.stack([expected[1, 3], expected[2, 3], expected[1, 1]])
        torch.testing.assert_close(logits, wanted, atol=1e-5, rtol=1e-5)


def test_layers_that_forget_are_not_joined() -> None:
    with torch.no_grad():
        _, state = Generic(make("window")).read(PROMPTS, ROWS, 3)
    assert not state.joins


@pytest.mark.parametrize("bounds", [(0, 0), (2**22, 0)])
@pytest.mark.parametrize("kind", WALKED)
def test_the_fused_kernel_and_products_say_the_same(
    kind: str, bounds: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, bound in zip(("LARGE", "FEW"), bounds, strict=True):
        monkeypatch.setattr(llama, name, bound)
    model = make(kind)
    torch.testing.assert_close(through(Llama(model)), directly(model), atol=1e-5, rtol=1e-5)


def test_a_model_that_does_something_else_to_its_logits_makes_them_itself() -> None:
    model = make("llama")
    said = model.forward
    model.forward = lambda *args, **kwargs: _squared(said(*args, **kwargs))
    way = Generic(model)
    way.accepted |= {"logits_to_keep", "position_ids", "past_key_values"}
    assert way.head.layer is None
    with torch.no_grad():
        torch.testing.assert_close(through(way), directly(model), atol=1e-4, rtol=1e-5)


def _squared(output):
    output.logits = output.logits.square()
    return output


@pytest.mark.parametrize("way", [Llama, Generic])
def test_rows_that_are_kept_go_on_as_if_alone(way: type) -> None:
    model, kept = make("llama"), torch.tensor([0, 3])
    with torch.no_grad():
        one = way(model)
        _, state = one.read(PROMPTS, ROWS, 3)
        one.extend(state, ACTIONS[:, :1])
        state.keep(kept)
        last = one.head.logits(one.extend(state, ACTIONS[kept, 1:]))
        torch.testing.assert_close(last, directly(model)[kept, 2:], atol=1e-5, rtol=0)


def test_blocks_do_not_change_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    way = Llama(make("llama"))
    with torch.no_grad():
        whole = through(way)
        monkeypatch.setattr(llama, "BLOCK", 4)
        assert [len(block) for block in llama._blocks(PROMPTS)] == [1, 1, 1]
        torch.testing.assert_close(through(way), whole, atol=1e-5, rtol=0)
    monkeypatch.setattr(llama, "BLOCK", 6)
    assert [len(block) for block in llama._blocks(PROMPTS)] == [2, 1]


def test_what_takes_the_short_way() -> None:
    for kind in CONFIGS:
        assert isinstance(forward_of(make(kind)), Llama if kind in WALKED else Generic), kind
    assert isinstance(forward_of(make("llama").to(torch.bfloat16)), Generic)
    assert isinstance(forward_of(make("llama"), torch.bfloat16), Generic)
    assert isinstance(forward_of(make("qwen2+body")), Llama)
    dora = peft.get_peft_model(make("llama"), peft.LoraConfig(r=2, target_modules=["q_proj"], use_dora=True))
    assert isinstance(forward_of(dora), Generic)
    assert isinstance(forward_of(peft.get_peft_model(make("llama"), peft.IA3Config(
        target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]))), Generic)  # fmt: skip


def test_rows_are_read_whole_where_that_costs_less_than_another_call() -> None:
    """Prompts of 50 tokens, width 8: a token costs 24 and the places it sees, another call 32 768.

    4 rows of 50 more cost 4·100·124 = 49 600 whole; apart 50·74 + 4·50·124 + 32 768 = 61 268. 8 rows cost 99 200 whole;
    apart 86 068.
    """

    def whole(rows: int) -> bool:
        return forward.whole_rows_pay([np.zeros(50, int)], torch.zeros(rows, 51), 8)

    assert whole(4)
    assert not whole(8)
