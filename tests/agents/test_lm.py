from __future__ import annotations

import gc
import json
import os
import re
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
import transformers
from peft import AutoPeftModelForCausalLM

from palaestra.agents import LMPolicy, Request, Team
from palaestra.agents.backends import loading
from palaestra.agents.backends.forward import Generic
from palaestra.agents.backends.head import Head
from palaestra.agents.backends.llama import Llama
from palaestra.agents.tiny import tokenizer
from palaestra.algebra.turns import Turns
from palaestra.envs.base import Observation
from palaestra.errors import InputError
from palaestra.learning import PolicyGradient, checkpoints
from palaestra.testing.policy import check_policy

IDS = pl.List(pl.Int32)
LORA = {"r": 2, "target_modules": ["c_attn"], "fan_in_fan_out": True}


def gpt2(**options) -> LMPolicy:
    """Another architecture: learned positions, the generic way through the model."""
    tokens = tokenizer(["bet", "pass", "which card?"])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.GPT2Config(
            vocab_size=len(tokens), n_embd=32, n_layer=2, n_head=2, n_positions=160, initializer_range=0.1
        )
        model = transformers.GPT2LMHeadModel(config)
    return LMPolicy(model, tokens, **options)


def tiny(**options) -> LMPolicy:
    return LMPolicy.tiny(["bet", "pass", "which card?"], **options)


POLICIES = [tiny, gpt2]


def rows_of(decisions) -> pl.DataFrame:
    return pl.DataFrame(
        {name: [getattr(d, name).tolist() for d in decisions] for name in ("prompt_ids", "action_ids")},
        schema={"prompt_ids": IDS, "action_ids": IDS},
    )


@pytest.mark.parametrize("make", POLICIES)
def test_it_keeps_the_promises_of_a_policy(make) -> None:
    policy = make(temperature=0.8, max_new_tokens=6)
    assert isinstance(policy.forward, Llama if make is tiny else Generic)
    check_policy(policy, [Observation("which card? " * n + "bet", choices=("bet", "pass")) for n in range(6)])


@pytest.mark.parametrize("make", POLICIES)
def test_a_ragged_batch_equals_one_by_one(make, requests) -> None:
    policy = make(max_new_tokens=12, batch_size=3)
    together = policy.act(requests())
    for i, decision in enumerate(together):
        alone = policy.act([requests()[i]])[0]
        assert alone.action_ids.tolist() == decision.action_ids.tolist()
        assert alone.action == decision.action
        np.testing.assert_allclose(alone.logprobs, decision.logprobs, atol=1e-5)
        np.testing.assert_allclose(alone.entropies, decision.entropies, atol=1e-5)


@pytest.mark.parametrize("make", POLICIES)
def test_score_gives_back_what_was_sampled_and_what_the_model_says(make, requests) -> None:
    policy = make(temperature=0.6)
    decisions = policy.act(requests() + requests(seed=1))
    scored = policy.score(rows_of(decisions))
    for row, decision in enumerate(decisions):
        n = len(decision.action_ids)
        assert scored.mask[row].tolist() == [True] * n + [False] * (scored.mask.shape[1] - n)
        np.testing.assert_allclose(scored.logprobs[row, :n].detach(), decision.logprobs, atol=1e-5)
        np.testing.assert_allclose(scored.entropies[row, :n].detach(), decision.entropies, atol=1e-5)
        ids = torch.tensor([*decision.prompt_ids.tolist(), *decision.action_ids.tolist()])
        logits = policy.model(input_ids=ids[None]).logits[0, -n - 1 : -1] / 0.6
        torch.testing.assert_close(scored.logits[row, :n], logits.log_softmax(-1), atol=1e-5, rtol=0)
    assert scored.logprobs[~scored.mask].abs().sum() == 0
    with torch.no_grad():
        again = policy.score(rows_of(decisions))
    torch.testing.assert_close(again.logprobs, scored.logprobs, atol=1e-5, rtol=0)


def test_an_answer_includes_its_end_but_its_text_does_not(requests) -> None:
    policy = tiny(max_new_tokens=5)
    end = policy.tokenizer.eos_token_id
    with torch.no_grad():  # "pass", then the end, whatever came before
        policy.model.model.norm.weight.zero_()
        policy.forward = Scripted(
            policy.forward, [policy.tokenizer(" pass", add_special_tokens=False)["input_ids"], end]
        )
    decision = policy.act(requests()[:1])[0]
    assert decision.action == "pass"
    assert decision.action_ids[-1] == end
    assert decision.tokens_out == len(decision.action_ids) == len(decision.logprobs)
    assert decision.tokens_in == len(decision.prompt_ids)
    assert decision.duration > 0
    assert (decision.prompt_ids.dtype, decision.action_ids.dtype, decision.logprobs.dtype) == ("i4", "i4", "f4")


class Scripted:
    """A forward that wants exactly one sequence of tokens."""

    def __init__(self, forward, ids) -> None:
        self.device, self.size, self.head = forward.device, forward.model.config.vocab_size, Head(None)
        self.ids = [*ids[0], ids[1]]

    def _logits(self, rows: int) -> torch.Tensor:
        wanted = torch.full((rows, 1, self.size), -30.0)
        wanted[:, :, self.ids.pop(0)] = 30.0
        return wanted

    def read(self, prompts, rows, room):
        return self._logits(len(rows)), None

    def extend(self, state, ids):
        return self._logits(len(ids))


def test_every_end_token_of_the_model_ends_an_answer(requests) -> None:
    policy = tiny(max_new_tokens=8)
    first = policy.act(requests())[0].action_ids
    policy.model.generation_config.eos_token_id = [policy.tokenizer.eos_token_id, int(first[2])]
    again = LMPolicy(policy.model, policy.tokenizer, max_new_tokens=8).act(requests())[0].action_ids
    assert again.tolist() == first[: first.tolist().index(first[2]) + 1].tolist()


def test_a_prompt_that_does_not_fit_fails_alone(requests) -> None:
    policy = gpt2(max_new_tokens=10)
    good, bad, also = policy.act(requests(["bet", "long " * 200, "pass"]))
    assert good.error is None
    assert also.error is None
    assert bad.error == (
        f"InputError: what 'player' sees has {bad.tokens_in} tokens, at most 150 fit beside max_new_tokens=10 in the "
        f"160 positions of 'lm': shorten the env's observation, which begins {('long ' * 8)!r}"
    )
    assert bad.action_ids is None
    assert policy.act(requests(["bet", "pass"], seed=0))[0].action == good.action


def test_templates() -> None:
    policy = tiny(prompt_template='{"q": {text}}\nA:')
    shown = policy.prompt_ids([Observation("what {is} it?")])[0]
    assert policy.tokenizer.decode(shown, skip_special_tokens=True) == '{"q": what {is} it?}\nA:'

    chat = tokenizer(["bet"])
    chat.chat_template = (
        "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}[assistant] {% endif %}"
    )
    policy = LMPolicy(tiny().model, chat, prompt_template="> {text}")
    messages = ({"role": "system", "content": "play"}, {"role": "user", "content": "card?"})
    shown = policy.prompt_ids([Observation("card?"), Observation("x", messages=messages)])
    assert policy.tokenizer.decode(shown[0]) == "[user] > card?\n[assistant] "
    assert policy.tokenizer.decode(shown[1]) == "[system] play\n[user] card?\n[assistant] "


def test_encode_is_the_prompt_of_acting_and_an_action_with_its_end(requests) -> None:
    policy = tiny()
    prompt, action = policy.encode("which card?", "bet")
    request = Request(Observation("which card?"), "player", np.random.default_rng(0))
    assert prompt.tolist() == policy.act([request])[0].prompt_ids.tolist()
    assert action[-1] == policy.tokenizer.eos_token_id
    assert policy.tokenizer.decode(action[:-1]) == "bet"
    assert policy.encode(Observation("which card?"), "bet")[0].tolist() == prompt.tolist()


def test_an_empty_observation_can_be_answered() -> None:
    plain = tokenizer(["bet"])
    plain.backend_tokenizer.post_processor = None
    policy = LMPolicy(tiny().model, plain)
    decision = policy.act([Request(Observation(""), "player", np.random.default_rng(0))])[0]
    assert decision.error is None
    assert decision.prompt_ids.tolist() == [plain.eos_token_id]


@pytest.mark.parametrize("make", POLICIES)
def test_choice_probabilities_are_those_of_whole_answers(make) -> None:
    policy = make(temperature=1.3, max_new_tokens=10, batch_size=4)
    choices = ("bet", "pass", "check it")
    seen = [
        Observation("which card?", choices=choices),
        Observation("longer: which card?", choices=choices, mask=np.array([True, False, True])),
    ]
    probabilities, illegal = policy.choice_probabilities(seen)
    for i, observation in enumerate(seen):
        mass = {}
        for choice in observation.legal:
            prompt, action = policy.encode(observation, choice)
            ids = torch.tensor([*prompt.tolist(), *action.tolist()])
            logp = (policy.model(input_ids=ids[None]).logits[0] / 1.3).log_softmax(-1)[-len(action) - 1 : -1]
            mass[choice] = logp.gather(1, ids[-len(action) :, None]).sum().exp().item()
        assert illegal[i] == pytest.approx(1 - sum(mass.values()), abs=1e-6)
        expected = [mass.get(choice, 0) / sum(mass.values()) for choice in choices]
        np.testing.assert_allclose(probabilities[i], expected, atol=1e-5)


def test_choice_probabilities_are_the_frequencies_of_play() -> None:
    policy = LMPolicy.tiny(["go", "stop", "?"], max_new_tokens=1)  # one token each, no room for an end
    observation = Observation("?", choices=("go", "stop"))
    probabilities, illegal = policy.choice_probabilities([observation])
    requests = [Request(observation, "player", np.random.default_rng(i)) for i in range(20_000)]
    actions = [decision.action for decision in policy.act(requests)]
    for column, name in enumerate(observation.choices):
        expected = probabilities[0, column] * (1 - illegal[0])
        error = 4 * np.sqrt(expected / 20_000)
        assert actions.count(name) / 20_000 == pytest.approx(expected, abs=error)


def test_choices_that_cannot_be_said_are_an_error() -> None:
    policy = tiny(max_new_tokens=2)
    with pytest.raises(InputError, match=r"'impossible' takes \d+ tokens.*max_new_tokens=2"):
        policy.choice_probabilities([Observation("?", choices=("bet", "impossible"))])
    with pytest.raises(InputError, match="observation 0 has no choices"):
        policy.choice_probabilities([Observation("?")])


@pytest.mark.parametrize("make", POLICIES)
def test_save_and_load(make, requests, tmp_path: Path) -> None:
    policy = make(name="solver", temperature=0.7, max_new_tokens=9, prompt_template="{text} =")
    policy.save(tmp_path / "solver")
    loaded = LMPolicy.load(tmp_path / "solver")
    assert (loaded.name, loaded.temperature, loaded.max_new_tokens) == ("solver", 0.7, 9)
    for a, b in zip(policy.act(requests()), loaded.act(requests()), strict=True):
        assert a.action == b.action
        np.testing.assert_array_equal(a.prompt_ids, b.prompt_ids)
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-6)
    assert (tmp_path / "solver" / "model.safetensors").exists()
    foreign = LMPolicy.from_pretrained(tmp_path / "solver", name="other")
    assert foreign.temperature == 1.0
    with pytest.raises(InputError, match=r"no palaestra\.json"):
        LMPolicy.load(tmp_path)
    with pytest.raises(InputError, match="cannot load a model and tokenizer from"):
        LMPolicy.from_pretrained(tmp_path)


def test_lora_learns_adapters_only_and_shares_the_rest(requests, tmp_path: Path) -> None:
    gpt2().save(tmp_path / "base")
    policy = LMPolicy.from_pretrained(tmp_path / "base", lora=LORA, max_new_tokens=4)
    names = list(policy.state_dict())
    assert names
    assert all("lora_" in name for name in names)
    assert len(policy.parameters()) == len(names)
    before = torch.get_rng_state()
    twin = LMPolicy.from_pretrained(tmp_path / "base", lora=LORA, max_new_tokens=4)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(policy.parameters(), twin.parameters(), strict=True))

    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3)
    check_policy(policy, [r.observation for r in requests()])
    frozen = policy.frozen_copy()
    shared = {p.data_ptr() for p in policy.model.parameters()} & {p.data_ptr() for p in frozen.model.parameters()}
    assert len(shared) == len(list(policy.model.parameters())) - len(names)

    policy.save(tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    loaded = LMPolicy.load(tmp_path / "adapter")
    assert [d.action for d in loaded.act(requests())] == [d.action for d in policy.act(requests())]
    assert len(loaded.parameters()) == len(names)


def test_a_frozen_copy_has_a_state_and_nothing_to_train() -> None:
    policy = tiny()
    frozen = policy.frozen_copy()
    assert frozen.parameters() == []
    assert frozen.state_dict().keys() == policy.state_dict().keys()
    with torch.no_grad():
        policy.parameters()[0].add_(1.0)
    policy.load_state_dict(frozen.state_dict())
    assert torch.equal(policy.parameters()[0], next(iter(frozen.state_dict().values())))


def test_a_state_of_another_model_is_refused() -> None:
    policy = tiny()
    with pytest.raises(InputError, match="state does not fit the model, 1 times: 'extra'"):
        policy.load_state_dict(policy.state_dict() | {"extra": torch.zeros(1)})
    wider = LMPolicy.tiny(hidden=32).state_dict()
    with pytest.raises(InputError, match="does not fit"):
        policy.load_state_dict(wider)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"prompt_template": "Answer:"}, "lacks '{text}'"),
    ],
)
def test_settings_that_cannot_work(options, message) -> None:
    with pytest.raises(InputError, match=message):
        tiny(**options)


def test_rows_without_tokens_are_named() -> None:
    rows = pl.DataFrame(
        {"prompt_ids": [[1], [2]], "action_ids": [[3], None]}, schema={"prompt_ids": IDS, "action_ids": IDS}
    )
    with pytest.raises(InputError, match="row 1 has no action_ids"):
        tiny().score(rows)


def test_it_learns_what_it_is_shown() -> None:
    facts = {"card K": "bet", "card Q": "pass", "card J": "fold"}
    policy = LMPolicy.tiny([*facts, *facts.values()], hidden=32, max_new_tokens=3)
    pairs = [policy.encode(prompt, action) for prompt, action in facts.items()]
    rows = pl.DataFrame(
        {"prompt_ids": [p.tolist() for p, _ in pairs], "action_ids": [a.tolist() for _, a in pairs]},
        schema={"prompt_ids": IDS, "action_ids": IDS},
    )
    optimiser = torch.optim.AdamW(policy.parameters(), lr=1e-2)
    for _ in range(40):
        optimiser.zero_grad()
        scored = policy.score(rows)
        (-(scored.logprobs * scored.mask).sum() / scored.mask.sum()).backward()
        optimiser.step()
    seen = [Observation(prompt, choices=("bet", "pass", "fold")) for prompt in facts]
    probabilities, illegal = policy.choice_probabilities(seen)
    assert illegal.max() < 0.05
    assert np.diag(probabilities).min() > 0.95


def test_agents_that_share_the_object_share_the_parameters() -> None:
    policy = tiny(name="both")
    team = Team(solver=policy, checker=policy)
    assert list(team.policies) == ["both"]
    assert team.trainable == [policy]
    copied = team.frozen_copy()
    assert copied["solver"] is copied["checker"]
    assert copied["solver"] is not policy


def test_settings_are_plain_json(tmp_path: Path) -> None:
    tiny().save(tmp_path)
    assert set(json.loads((tmp_path / "palaestra.json").read_text())) == {
        "kind", "dtype", "name", "max_new_tokens", "temperature", "batch_size", "prompt_template", "history",
    }  # fmt: skip


# -- precision --------------------------------------------------------------------------------------------------------

EXAMPLES = [("which card?", "bet"), ("which card? pass", "pass"), ("bet", "which")]


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


# -- what is loaded ---------------------------------------------------------------------------------------------------


def test_an_own_adapter_is_loaded_on_its_base(tmp_path: Path, requests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    gpt2().save("base")
    policy = LMPolicy.from_pretrained("base", lora=LORA, max_new_tokens=4)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3)
    policy.save("runs/adapter")
    there = tmp_path / "elsewhere"
    there.mkdir()
    monkeypatch.chdir(there)
    said = [d.action_ids.tolist() for d in policy.act(requests())]
    adapter = tmp_path / "runs" / "adapter"
    for loaded in (LMPolicy.from_pretrained(adapter, max_new_tokens=4), LMPolicy.load("../runs/adapter")):
        assert [d.action_ids.tolist() for d in loaded.act(requests())] == said
        assert len(loaded.parameters()) == len(policy.parameters())
    model = AutoPeftModelForCausalLM.from_pretrained(adapter)
    prompt = torch.from_numpy(policy.prompt_ids([Observation("bet")])[0].astype(np.int64))[None]
    torch.testing.assert_close(model(prompt).logits, policy.model(prompt).logits)
    with pytest.raises(InputError, match="is an adapter already: leave lora= out"):
        LMPolicy.from_pretrained(adapter, lora=LORA)

    config = json.loads((adapter / "adapter_config.json").read_text())
    for written, found in (("base", True), ("../base", True), ("./nowhere", False), ("/nowhere", False)):
        (adapter / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": written}))
        if found:
            assert [d.action_ids.tolist() for d in LMPolicy.load(adapter).act(requests())] == said
        else:
            with pytest.raises(InputError, match=f"base '{written}' of the adapter {adapter} is not there"):
                LMPolicy.load(adapter)


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
    monkeypatch.setattr(loading, "memory", lambda device: 64e9)
    parts = r"108 GB: 27 weights in float32, 27 gradients, 54 moments of Adam; cpu has 64 GB free \(.* 27 more\); lora="
    with pytest.warns(UserWarning, match=parts):
        LMPolicy.check(tmp_path)
    with pytest.warns(UserWarning, match=r"needs 121 GB: 27 weights in float32, 13 copies in bfloat16, 27 gradients"):
        LMPolicy.check(tmp_path, compute="bf16")
    monkeypatch.setattr(loading, "memory", lambda device: 16e9)
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
    monkeypatch.setattr(loading, "memory", lambda device: 13.0 * learn)
    PolicyGradient(Team(a=policy))
    with pytest.raises(InputError, match=r"policy 'lm' needs .* GB: .* reference copy to learn .* lora=\{'r': 8\}"):
        PolicyGradient(Team(a=policy), "surrogate(), kl(.1)")


# -- several adapters over one base -----------------------------------------------------------------------------------


def pair(folder: Path, **options) -> tuple[LMPolicy, LMPolicy]:
    made = [LMPolicy.from_pretrained(folder, name=name, max_new_tokens=4, **options) for name in ("solver", "checker")]
    return made[0], made[1]


def qwen(folder: Path) -> Path:
    """Another base, saved: a Qwen2 of two layers with grouped heads."""
    tokens = tokenizer(["bet", "pass", "which card?"])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.Qwen2Config(
            vocab_size=len(tokens), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=160, initializer_range=0.2, bos_token_id=None,
        )  # fmt: skip
        LMPolicy(transformers.Qwen2ForCausalLM(config), tokens).save(folder)
    return folder


def frozen_ids(policy: LMPolicy) -> dict[str, int]:
    return {name: id(p) for name, p in policy.model.named_parameters() if not p.requires_grad}


def turns_of(policies, requests) -> Turns:
    frames = []
    for policy in policies:
        decisions = policy.act(requests())
        frames.append(
            rows_of(decisions).with_columns(
                policy=pl.lit(policy.name),
                logprobs=pl.Series([d.logprobs.tolist() for d in decisions], dtype=pl.List(pl.Float32)),
                advantage=pl.Series([1.0, -1.0] * (len(decisions) // 2)),
            )
        )
    return Turns(pl.concat(frames))


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_roles_with_adapters_share_their_base_and_nothing_else(dtype: str, tmp_path: Path, requests) -> None:
    lora = {"r": 2, "target_modules": ["q_proj", "down_proj"]}
    solver, checker = pair(qwen(tmp_path / "base"), lora=lora, dtype=dtype)
    assert frozen_ids(solver) == frozen_ids(checker)
    assert {p.dtype for p in solver.parameters()} == {torch.float32}
    assert not {id(p) for p in solver.parameters()} & {id(p) for p in checker.parameters()}
    base = {name: p.clone() for name, p in solver.model.named_parameters() if not p.requires_grad}
    before = {name: p.clone() for name, p in checker.state_dict().items()}
    said = [d.action_ids.tolist() for d in checker.act(requests())]

    learner = PolicyGradient(Team(solver=solver), "surrogate(), kl(.1)", lr=0.05)
    reference = learner.references["solver"]
    assert frozen_ids(checker).items() <= {name: id(p) for name, p in reference.model.named_parameters()}.items()
    learner.update(turns_of([solver], requests))
    learner.update(turns_of([solver], requests))
    assert all(torch.equal(p, base[name]) for name, p in solver.model.named_parameters() if name in base)
    assert all(torch.equal(p, before[name]) for name, p in checker.state_dict().items())
    assert [d.action_ids.tolist() for d in checker.act(requests())] == said
    assert any(not torch.equal(p, before[name]) for name, p in solver.state_dict().items())

    both = PolicyGradient(Team(solver=solver, checker=checker))
    owned = {name: {id(p) for p in group.param_groups[0]["params"]} for name, group in both.optimisers.items()}
    assert owned == {each.name: {id(p) for p in each.parameters()} for each in (solver, checker)}


def test_adapters_over_one_base_are_stored_and_go_on(tmp_path: Path, requests) -> None:
    lora = {"r": 2, "target_modules": ["q_proj", "lm_head"]}
    team = Team({each.name: each for each in pair(qwen(tmp_path / "base"), lora=lora)})
    learner = PolicyGradient(team, "surrogate(), kl(.1)", lr=0.05)
    turns = turns_of(team.trainable, requests)
    learner.update(turns)
    checkpoints.save(tmp_path / "checkpoints", 1, {"team": team.state_dict(), "learner": learner.state()})
    team.save(tmp_path / "team")
    loaded = Team.load(tmp_path / "team")
    solver, checker = loaded.trainable
    assert frozen_ids(solver) == frozen_ids(checker) == frozen_ids(team["solver"])
    for name in team:
        assert [d.action for d in loaded[name].act(requests())] == [d.action for d in team[name].act(requests())]

    again = Team({each.name: each for each in pair(tmp_path / "base", lora=lora)})
    resumed = PolicyGradient(again, "surrogate(), kl(.1)", lr=0.05)
    state = checkpoints.load(checkpoints.path_of(tmp_path / "checkpoints", 1))
    again.load_state_dict(state["team"])
    resumed.restore(state["learner"])
    learner.update(turns)
    resumed.update(turns)
    for name, policy in team.learnable.items():
        for key, tensor in policy.state_dict().items():
            assert torch.equal(tensor, again.learnable[name].state_dict()[key])


@pytest.mark.parametrize("options", [{"bias": "all"}, {"init_lora_weights": "pissa"}])
def test_adapters_that_change_their_base_have_one_of_their_own(options, tmp_path: Path) -> None:
    lora = {"r": 2, "target_modules": ["q_proj"]}
    one, _ = pair(qwen(tmp_path), lora=lora)
    weights = {name: p.clone() for name, p in one.model.named_parameters()}
    other = LMPolicy.from_pretrained(tmp_path, lora=lora | options)
    assert not set(frozen_ids(one).values()) & {id(p) for p in other.model.parameters()}
    assert all(torch.equal(p, weights[name]) for name, p in one.model.named_parameters())


def test_a_base_that_was_written_anew_or_that_nobody_holds_is_loaded_again(tmp_path: Path) -> None:
    lora = {"r": 2, "target_modules": ["q_proj"]}
    one = LMPolicy.from_pretrained(qwen(tmp_path), lora=lora)
    file = tmp_path / "model.safetensors"
    os.utime(file, ns=(0, 0))
    assert not set(frozen_ids(one).values()) & set(frozen_ids(LMPolicy.from_pretrained(tmp_path, lora=lora)).values())
    del one
    gc.collect()
    assert not loading._BASES
