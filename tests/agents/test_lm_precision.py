"""In which precision a language model learns and computes, and what memory that takes."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import polars as pl
import pytest
import torch
import transformers
from tests.agents.models import EXAMPLES, IDS, LORA, POLICIES, gpt2, rows_of, tiny

from palaestra.agents import LMPolicy, Team
from palaestra.agents.backends import loading
from palaestra.agents.backends.modules import Generic
from palaestra.errors import InputError
from palaestra.learning import PolicyGradient


def moved(policy: LMPolicy, *, updates: int = 6, lr: float = 2e-3) -> float:
    """KL from the start after some updates, nats per token."""
    pairs = [policy.encode(prompt, action) for prompt, action in EXAMPLES]
    rows = pl.DataFrame(
        {"prompt_ids": [p.tolist() for p, _ in pairs], "action_ids": [a.tolist() for _, a in pairs]},
        schema={"prompt_ids": IDS, "action_ids": IDS},
    )
    with torch.no_grad():
        start = policy.score(rows)
    optimiser = torch.optim.AdamW(policy.parameters(), lr=lr)
    for _ in range(updates):
        optimiser.zero_grad()
        scored = policy.score(rows)
        (-(scored.logprobs * scored.mask).sum() / scored.mask.sum()).backward()
        optimiser.step()
    with torch.no_grad():
        now = policy.score(rows)
    assert torch.isfinite(now.logprobs).all()
    return float(((now.logits.exp() * (now.logits - start.logits)).sum(-1) * now.mask).sum() / now.mask.sum())


@pytest.mark.parametrize("dtype", ["float16", "bf16", torch.float16])
def test_weights_that_learn_are_float32_whatever_is_asked(dtype, tmp_path: Path) -> None:
    gpt2().save(tmp_path)
    asked = LMPolicy.from_pretrained(tmp_path, dtype=dtype)
    assert {p.dtype for p in asked.parameters()} == {torch.float32}
    kl = moved(asked)
    assert kl > 1e-3
    assert kl == pytest.approx(moved(LMPolicy.from_pretrained(tmp_path)), rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_adapters_on_a_half_base_learn_in_float32(dtype, tmp_path: Path) -> None:
    gpt2().save(tmp_path)
    half, full = (LMPolicy.from_pretrained(tmp_path, lora=LORA, dtype=d) for d in (dtype, torch.float32))
    assert {p.dtype for p in half.parameters()} == {torch.float32}
    assert {p.dtype for p in half.model.parameters() if not p.requires_grad} == {dtype}
    kl = moved(full, lr=0.02)
    assert kl > 1e-3
    assert moved(half, lr=0.02) == pytest.approx(kl, rel=0.2)
    half.save(tmp_path / "adapter")
    again = LMPolicy.load(tmp_path / "adapter")
    assert {p.dtype for p in again.model.parameters() if not p.requires_grad} == {dtype}
    for one, other in zip(half.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_that_would_learn_in_16_bits_is_refused(dtype) -> None:
    policy = gpt2()
    model = policy.model.to(dtype)
    with pytest.raises(InputError, match=rf"weights that learn are {dtype}, in which small .* model.float\(\)"):
        LMPolicy(model, policy.tokenizer)
    only_plays = LMPolicy(model.requires_grad_(False), policy.tokenizer)
    assert only_plays.parameters() == []
    assert only_plays.frozen_copy().model.dtype == dtype


def test_arithmetic_of_16_bits_moves_weights_of_32(tmp_path: Path, requests) -> None:
    """What bfloat16 means on a GPU, tried on the CPU."""
    gpt2().save(tmp_path)
    half, full = LMPolicy.from_pretrained(tmp_path, max_new_tokens=4), LMPolicy.from_pretrained(tmp_path)
    half.forward = Generic(half.model, torch.bfloat16)
    decisions = half.act(requests())
    scored = half.score(rows_of(decisions))
    assert scored.logprobs.dtype == torch.float32
    exact = full.score(rows_of(decisions)).logprobs
    assert not torch.equal(scored.logprobs, exact)
    torch.testing.assert_close(scored.logprobs, exact, atol=0.1, rtol=0)
    for row, decision in enumerate(decisions):
        sampled = torch.from_numpy(decision.logprobs)
        torch.testing.assert_close(scored.logprobs[row, : len(sampled)], sampled, atol=0.1, rtol=0)
    assert half.frozen_copy().forward.compute is torch.bfloat16
    assert moved(half) == pytest.approx(moved(full), rel=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lora": {"rank": 8}}, "lora: no field 'rank' in peft's LoraConfig; did you mean 'r'?"),
        ({"lora": {"target_module": "c_attn"}}, "did you mean 'target_modules'"),
        ({"lora": {"r": 2, "target_modules": ["q_proj"]}}, "layers of this model: c_attn, c_fc, c_proj, lm_head"),
        ({"lora": {"r": -2, "target_modules": ["c_attn"], "fan_in_fan_out": True}}, "lora: "),
        ({"lora": 8}, "lora is 8, expected fields of peft's LoraConfig"),
        ({"dtype": "bf61"}, "dtype is 'bf61'; did you mean 'bf16'"),
        ({"dtype": torch.int8}, "dtype is 'torch.int8'; "),
        ({"device": "gpu"}, "device is 'gpu': "),
        ({"device": "cuda:97"}, "device is 'cuda:97', but there are"),
        ({"max_new_tokens": 400}, "max_new_tokens is 400, but the model has 160 positions"),
        ({"max_new_tokens": 1.5}, "max_new_tokens is 1.5"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"max_new_token": 3}, "no option 'max_new_token'; did you mean 'max_new_tokens'"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, options, message: str) -> None:
    gpt2().save(tmp_path)
    with pytest.raises(InputError, match=re.escape(message)) as said:
        LMPolicy.from_pretrained(tmp_path, **options)
    assert "\n" not in str(said.value)


def test_checks_read_no_weights(tmp_path: Path) -> None:
    gpt2().save(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    LMPolicy.check(tmp_path, lora=LORA, dtype="bf16", max_new_tokens=8)
    with pytest.raises(InputError, match="max_new_tokens is 400"):
        LMPolicy.check(tmp_path, max_new_tokens=400)
    with pytest.raises(InputError, match="cannot load a model and tokenizer"):
        LMPolicy.from_pretrained(tmp_path)


def test_memory_is_said_before_it_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers.LlamaConfig(hidden_size=4096, num_hidden_layers=32, intermediate_size=11008).save_pretrained(tmp_path)
    monkeypatch.setattr(loading, "free_memory", lambda device: 64e9)
    parts = r"108 GB: 27 weights in float32, 27 gradients, 54 moments of Adam; cpu has 64 GB free \(.* 27 more\); lora="
    with pytest.warns(UserWarning, match=parts):
        LMPolicy.check(tmp_path)
    with pytest.warns(UserWarning, match=r"needs 121 GB: 27 weights in float32, 13 copies in bfloat16, 27 gradients"):
        LMPolicy.check(tmp_path, compute="bf16")
    monkeypatch.setattr(loading, "free_memory", lambda device: 16e9)
    with pytest.warns(UserWarning, match=r"needs 13.5 GB: 13 weights, 0.017 adapters, 0.017 gradients, 0.034 moments"):
        LMPolicy.check(tmp_path, lora={"r": 8}, dtype="bf16")
    with pytest.raises(
        InputError, match=r"27 weights in float32.* has 16 GB free: it cannot be loaded; take a smaller"
    ):
        LMPolicy.check(tmp_path)
    gpt2().save(tmp_path / "small")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LMPolicy.check(tmp_path / "small")


@pytest.mark.parametrize("make", POLICIES)
def test_gradient_checkpointing_changes_no_number(make, requests) -> None:
    plain, frugal = make(max_new_tokens=6), make(max_new_tokens=6, gradient_checkpointing=True)
    rows = rows_of(plain.act(requests()))
    found = []
    for policy in (plain, frugal):
        scored = policy.score(rows)
        ((scored.logprobs + scored.entropies) * scored.mask).sum().backward()
        found.append((scored, [p.grad for p in policy.parameters()]))
    torch.testing.assert_close(found[1][0].logprobs, found[0][0].logprobs, atol=1e-5, rtol=1e-5)
    for one, other in zip(found[1][1], found[0][1], strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    assert frugal.forward.checkpoints
    assert not frugal.frozen_copy().forward.checkpoints
    with pytest.raises(InputError, match="gradient_checkpointing is 'yes', expected true or false"):
        make(gradient_checkpointing="yes")


def test_arithmetic_of_16_bits_can_be_asked_for_on_a_cpu(tmp_path: Path, requests) -> None:
    gpt2().save(tmp_path / "base")
    policy = LMPolicy.from_pretrained(tmp_path / "base", dtype="bf16", compute="bf16", max_new_tokens=4)
    assert policy.forward.compute is torch.bfloat16
    assert {p.dtype for p in policy.parameters()} == {torch.float32}
    assert moved(policy) > 1e-3
    policy.save(tmp_path / "trained")
    assert LMPolicy.load(tmp_path / "trained").forward.compute is torch.bfloat16
    assert LMPolicy.from_pretrained(tmp_path / "base", dtype="bf16").forward.compute is None
    with pytest.raises(InputError, match="compute is 'float16', in which gradients vanish"):
        tiny(compute="float16")


def test_a_learner_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny()
    learn = sum(parameter.numel() for parameter in policy.parameters())
    monkeypatch.setattr(loading, "free_memory", lambda device: 13.0 * learn)
    PolicyGradient(Team(a=policy))
    with pytest.raises(InputError, match=r"policy 'lm' needs .* GB: .* reference copy to learn .* lora=\{'r': 8\}"):
        PolicyGradient(Team(a=policy), "surrogate(), kl(.1)")
