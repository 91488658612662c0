from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from tests.agents.models import IDS, LORA, POLICIES, gpt2, rows_of, tiny

from palaestra.agents import LMPolicy, Request, Team
from palaestra.agents.backends.head import Head
from palaestra.agents.backends.llama import Llama
from palaestra.agents.backends.modules import Generic
from palaestra.agents.tiny import tokenizer
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.testing.policy import check_policy


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
    assert decision.finish == "stop"
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
    decision = LMPolicy(policy.model, policy.tokenizer, max_new_tokens=8).act(requests())[0]
    assert decision.finish == "stop"
    assert LMPolicy(policy.model, policy.tokenizer, max_new_tokens=2).act(requests())[0].finish == "length"
    again = decision.action_ids
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
        "system_prompt", "chat_template_kwargs", "top_p", "stop",
    }  # fmt: skip
