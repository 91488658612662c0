"""Top-p and stop texts of a language model: what is sampled, what is learned from, and what is left of the answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from transformers import TopPLogitsWarper

from palaestra.agents import ChatPolicy, Team
from palaestra.agents.backends.head import Head
from palaestra.agents.backends.nucleus import OUTSIDE, nucleus
from palaestra.agents.lm import LMPolicy
from palaestra.agents.policy import Decision, Request
from palaestra.agents.served import ServedPolicy
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.learning import PolicyGradient
from palaestra.testing.endpoint import StubEndpoint


def act(policy: Any, number: int = 40, text: str = "say something") -> list[Decision]:
    return policy.act([Request(Observation(text), "a", np.random.default_rng(n)) for n in range(number)])


def rows(said: list[Decision]) -> pl.DataFrame:
    return pl.DataFrame(
        {"prompt_ids": [each.prompt_ids for each in said], "action_ids": [each.action_ids for each in said]}
    )


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999, 1.0])
def test_the_nucleus_is_that_of_transformers(top_p: float) -> None:
    logits = torch.randn(50, 300, generator=torch.Generator().manual_seed(0)) * 3
    theirs = TopPLogitsWarper(top_p)(torch.zeros(50, 1, dtype=torch.long), logits) if top_p < 1 else logits
    ours = nucleus(logits, top_p)
    assert torch.equal(ours.masked_fill(ours <= OUTSIDE, -torch.inf), theirs)
    assert torch.equal(torch.log_softmax(ours, -1).exp(), torch.log_softmax(theirs, -1).exp())


def test_what_was_sampled_stays_in_the_nucleus_and_nothing_is_nan() -> None:
    logits = torch.tensor([[5.0, 4.0, -3.0]], requires_grad=True)
    logp = torch.log_softmax(nucleus(logits, 0.5, torch.tensor([[2]])), -1)
    (logp[0, 2] - (logp.exp() * logp).sum()).backward()
    assert logp.exp().detach().numpy().ravel() == pytest.approx(
        [1 / (1 + np.exp(-8)), 0, 1 / (1 + np.exp(8))], abs=1e-7
    )
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0, 1] == 0


def test_log_probabilities_are_those_of_what_was_sampled_from() -> None:
    policy = LMPolicy.tiny(seed=1, top_p=0.6, temperature=0.7, max_new_tokens=6)
    said = act(policy)
    scored = policy.score(rows(said))
    for row, each in enumerate(said):
        assert each.logprobs is not None
        assert scored.logprobs[row][scored.mask[row]].detach().numpy() == pytest.approx(each.logprobs, abs=1e-4)
    whole = LMPolicy.tiny(seed=1, temperature=0.7, max_new_tokens=6)
    below = whole.score(rows(said))
    assert bool((scored.logprobs >= below.logprobs - 1e-5).all())
    assert float((scored.logprobs - below.logprobs)[scored.mask].mean().detach()) > 0.2  # renormalised


def test_samples_come_from_the_nucleus_in_its_proportions() -> None:
    policy = LMPolicy.tiny(seed=1, top_p=0.3, max_new_tokens=1)
    said = [int(each.action_ids[0]) for each in act(policy, 4000)]  # type: ignore[index]
    logits = nucleus(policy.score(rows(act(policy, 1))).logits[0, 0], 0.3).softmax(-1)
    inside = logits > 0
    share = np.bincount(said, minlength=len(logits)) / len(said)
    assert share[~inside.numpy()].sum() == 0
    assert np.abs(share - logits.detach().numpy()).max() < 0.03


def test_a_head_in_chunks_says_the_same() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 50)
    hidden, ids = torch.randn(3, 7, 8, requires_grad=True), torch.randint(50, (3, 7))
    mask = torch.ones(3, 7, dtype=torch.bool)
    whole = Head(layer).score(hidden, ids, mask, 0.8, 0.5)

    class Chunked(Head):
        step = 4  # type: ignore[assignment]

    parts = Chunked(layer).score(hidden, ids, mask, 0.8, 0.5)
    assert torch.allclose(parts.logprobs, whole.logprobs, atol=1e-6)
    assert torch.allclose(parts.entropies, whole.entropies, atol=1e-6)
    grads = [torch.autograd.grad(each.logprobs.sum(), layer.weight, retain_graph=True)[0] for each in (whole, parts)]
    assert torch.allclose(*grads, atol=1e-5)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("terms", ["surrogate(), kl(.05)", "surrogate(), pinned(.05, 'advantage')"])
def test_an_exact_kl_is_that_before_the_nucleus(chunked: bool, terms: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if chunked:
        monkeypatch.setattr(Head, "step", 4)
    policy = LMPolicy.tiny(seed=1, top_p=0.6, max_new_tokens=4, name="lm", hidden=16, heads=2)
    whole = LMPolicy.tiny(seed=1, max_new_tokens=4, name="lm", hidden=16, heads=2)
    learner = PolicyGradient(Team(a=policy), terms, lr=1e-2)
    for _ in range(2):
        said = act(policy, 8)
        frame = rows(said).with_columns(
            policy=pl.lit("lm"),
            logprobs=pl.Series([each.logprobs for each in said]),
            advantage=pl.Series([1.0, -1.0] * 4),
        )
        metrics = learner.update(Turns(frame))["lm"]
    assert abs(metrics.get("kl") or metrics["pinned_kl"] or 0) < 1
    start = {key: value.clone() for key, value in learner.references["lm"].state_dict().items()}
    found = learner.divergence(Turns(frame))["lm"]
    whole.load_state_dict(policy.state_dict())
    plain = PolicyGradient(Team(a=whole)).divergence(Turns(frame), start={"lm": start})["lm"]
    assert 1e-5 < found == pytest.approx(plain, rel=1e-3), "as without top-p"


def test_an_answer_ends_with_a_stop_text_and_its_tokens_are_kept() -> None:
    free = act(LMPolicy.tiny(seed=1, max_new_tokens=40))
    letter = max("abcdefghijklmnopqrstuvwxyz ,.", key=lambda each: sum(each in str(said.action)[1:] for said in free))
    policy = LMPolicy.tiny(seed=1, max_new_tokens=40, stop=letter)
    cut = 0
    for said, whole in zip(act(policy), free, strict=True):
        assert said.action_ids is not None
        assert whole.action_ids is not None
        n = len(said.action_ids)
        assert said.action_ids.tolist() == whole.action_ids[:n].tolist()  # who else is in the batch changes nothing
        assert letter not in str(said.action)
        if n < len(whole.action_ids):
            cut += 1
            assert said.finish == "stop"
            assert letter in policy.tokenizer.decode(said.action_ids)
            assert letter not in policy.tokenizer.decode(said.action_ids[:-1])
            assert len(said.logprobs) == n == said.tokens_out  # type: ignore[arg-type]
    assert cut > 3


def test_settings_survive_copies_and_folders(tmp_path: Any) -> None:
    policy = LMPolicy.tiny(seed=1, top_p=0.5, stop=["x", "y"])
    policy.save(tmp_path / "lm")
    for copied in (policy.frozen_copy(), policy.twin(), LMPolicy.load(tmp_path / "lm")):
        assert (copied.top_p, copied.stop) == (0.5, ["x", "y"])


@pytest.mark.parametrize("options", [{"top_p": 0}, {"top_p": 1.5}, {"top_p": True}, {"stop": ""}, {"stop": [1]}])
def test_impossible_settings_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"LMPolicy: (top_p|stop) is"):
        LMPolicy.tiny(**options)


@pytest.mark.parametrize("options", [{"top_p": 0.9}, {"stop": ["x"]}])
def test_a_server_is_not_asked_for_another_distribution(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="is then not what is learned from here"):
        ServedPolicy.check("any", server="vllm", **options)
    with pytest.raises(InputError, match="is then not what is learned from here"):
        ServedPolicy(LMPolicy.tiny(**options), url="http://127.0.0.1:9/v1")


def test_an_endpoint_is_sent_them_and_the_variables_of_its_chat_template() -> None:
    with StubEndpoint(lambda body: "yes") as stub:
        policy = ChatPolicy(
            "m",
            base_url=stub.url,
            api_key_env=None,
            top_p=0.9,
            stop="END",
            chat_template_kwargs={"enable_thinking": False},
        )
        act(policy, 1)
    (body,) = stub.bodies
    assert (body["top_p"], body["stop"]) == (0.9, ["END"])
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert "extra_body" not in body
