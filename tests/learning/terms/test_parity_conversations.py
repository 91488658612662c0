"""Losses over conversations beside those of TRL 1.16 and verl 0.9.1 with tool results in between: value and gradient.

The whole way is compared: a table of turns through the learner with `rows="conversation"`, and the same conversations
as one padded batch with a mask of what was sampled through Hugging Face's own forward pass, then the trainers' loss:
written out here, and the one of TRL itself where it is installed (`make parity`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

from palaestra.agents import LMPolicy, Team
from palaestra.agents.conversation import sequences
from palaestra.algebra.turns import Turns
from palaestra.learning import PolicyGradient

LONGEST = 40


class Padded(NamedTuple):
    """A batch as trainers hold it: all [conversations, tokens], with an advantage per conversation.

    new, old: log-probabilities. mask: what was sampled; 0 on tool results and padding. completion: all but padding.
    """

    new: Tensor
    old: Tensor
    advantage: Tensor
    mask: Tensor
    completion: Tensor


def table(seed: int) -> Turns:
    """Six conversations of one to four turns, one of each agent, with tool results of several lengths in between."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for number in range(6):
        prompt = rng.integers(3, 250, rng.integers(2, 6)).tolist()
        advantage = float(rng.normal())
        for turn in range(int(rng.integers(1, 5)) if number else 3):
            action = rng.integers(3, 250, rng.integers(1, 5)).tolist()
            rows.append({
                "group": number // 3, "episode": number % 3, "turn": turn, "agent": "a", "policy": "lm",
                "prompt_ids": prompt, "action_ids": action, "advantage": advantage,
                "logprobs": (-5.5 - 0.4 * rng.exponential(size=len(action))).tolist(),
            })  # fmt: skip
            prompt = [*prompt, *action, *rng.integers(3, 250, rng.integers(0, 6)).tolist()]
    return Turns(pl.DataFrame(rows))


def padded(turns: Turns, policy: LMPolicy) -> Padded:
    """The same with Hugging Face's forward pass, conversation by conversation."""
    found = sequences(turns.frame)
    said = turns.frame.group_by("group", "episode", "agent", maintain_order=True).agg(
        pl.col("logprobs").explode(), pl.col("advantage").first()
    )
    width = max(map(len, found["ids"]))
    columns: tuple[list[Tensor], ...] = ([], [], [], [])
    for ids, sampled, logprobs in zip(found["ids"], found["mask"], said["logprobs"], strict=True):
        logits = policy.model(input_ids=torch.tensor([ids.to_list()])).logits[0, :-1]
        logps = logits.log_softmax(-1).gather(1, torch.tensor(ids.to_list())[1:, None])[:, 0]
        there = torch.tensor(sampled.to_list())[1:]
        before = torch.zeros(len(logps)).masked_scatter(there, torch.tensor(logprobs.to_list(), dtype=torch.float32))
        first = int(there.nonzero()[0])
        pad = (0, width - len(logps) + first)
        for column, each in zip(columns, (logps, before, there, torch.ones_like(there)), strict=True):
            column.append(torch.nn.functional.pad(each[first:], pad))
    new, old, mask, completion = map(torch.stack, columns)
    return Padded(new, old, torch.tensor(said["advantage"].to_list()), mask, completion)


def slopes(loss: Tensor, policy: LMPolicy) -> tuple[float, Tensor]:
    policy.model.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return float(loss.detach()), gradient(policy)


def gradient(policy: LMPolicy) -> Tensor:
    found = [torch.zeros_like(p) if p.grad is None else p.grad for p in policy.parameters()]
    return torch.cat([each.flatten() for each in found]).double()


def check(terms: str, seed: int, theirs: Callable[[Padded], Tensor]) -> None:
    policy = LMPolicy.tiny(hidden=16, heads=2, vocabulary=300, name="lm")
    turns = table(seed)
    learner = PolicyGradient(Team(a=policy), terms, rows="conversation", max_grad_norm=None)
    metrics = learner.forward_backward(turns)["lm"]
    ours = gradient(policy)
    loss, expected = slopes(theirs(padded(turns, policy)), policy)
    assert metrics["loss"] == pytest.approx(loss, rel=2e-6, abs=1e-6)
    assert float(expected.norm()) > 1e-3
    assert float((ours - expected).norm()) < 2e-6 * max(1.0, float(expected.norm()))
    assert metrics["rows"] == 6


# -- written out ------------------------------------------------------------------------------------------------------


def per_token(batch: Padded, *, low: float = 0.2, high: float = 0.28, level: str = "token") -> Tensor:
    """GRPO's loss of each token; GSPO's with one ratio for the sampled tokens of a conversation."""
    ratio = batch.new - batch.old
    if level == "sequence":
        ratio = ((ratio * batch.mask).sum(1) / batch.mask.sum(1))[:, None]
    ratio, advantage = ratio.exp(), batch.advantage[:, None]
    return -torch.min(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)


def per_conversation(loss: Tensor, mask: Tensor) -> Tensor:
    return ((loss * mask).sum(1) / mask.sum(1)).mean()


def sapo(batch: Padded) -> Tensor:
    tau = torch.where(batch.advantage > 0, 0.9, 1.3)[:, None]
    gate = torch.sigmoid(tau * ((batch.new - batch.old).exp() - 1)) * 4 / tau
    return per_conversation(-gate * batch.advantage[:, None], batch.mask)


def gmpo(batch: Padded) -> Tensor:
    """The mean log-ratio of a conversation, each clipped on the side where it would gain."""
    sign = batch.advantage.sign()[:, None]
    raw = batch.new - batch.old
    kept = sign * torch.min(sign * raw, sign * raw.clamp(-0.2, 0.28))
    ratio = ((kept * batch.mask).sum(1) / batch.mask.sum(1)).exp()
    return (-batch.advantage * ratio).mean()


def rloo(batch: Padded) -> Tensor:
    ratio = ((batch.new - batch.old) * batch.mask).sum(1).exp()
    return -torch.min(ratio * batch.advantage, ratio.clamp(0.8, 1.28) * batch.advantage).mean()


def cispo(batch: Padded) -> Tensor:
    weight = (batch.new - batch.old).exp().clamp(max=1.5).detach()
    return -((weight * batch.advantage[:, None] * batch.new) * batch.mask).sum() / batch.mask.sum()


WRITTEN: dict[str, Callable[[Padded], Tensor]] = {
    "surrogate([.2, .28], aggregate='sequence-mean')": lambda b: per_conversation(per_token(b), b.mask),
    "surrogate([.2, .28], aggregate='constant', constant=40)":
        lambda b: (per_token(b) * b.mask).sum() / (len(b.mask) * LONGEST),
    "surrogate([.2, .28])": lambda b: (per_token(b) * b.mask).sum() / b.mask.sum(),
    "surrogate([.2, .28], aggregate='sequence-sum')": lambda b: (per_token(b) * b.mask).sum(1).mean(),
    "gspo([.01, .02])": lambda b: per_conversation(per_token(b, low=0.01, high=0.02, level="sequence"), b.mask),
    "luspo([.2, .28])": lambda b: (per_token(b, level="sequence") * b.mask).sum(1).mean(),
    "gmpo([.2, .28])": gmpo,
    "rloo([.2, .28])": rloo,
    "cispo([None, .5])": cispo,
    "sapo(.9, 1.3)": sapo,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("terms", WRITTEN)
def test_written_out(terms: str, seed: int) -> None:
    check(terms, seed, WRITTEN[terms])


def test_turns_are_another_objective() -> None:
    """Else nothing above would be seen."""
    policy = LMPolicy.tiny(hidden=16, heads=2, vocabulary=300, name="lm")
    turns = table(0)
    for terms in WRITTEN.keys() - {"surrogate([.2, .28])", "cispo([None, .5])"}:
        found = []
        for rows in ("turn", "conversation"):
            policy.model.zero_grad()
            learner = PolicyGradient(Team(a=policy), terms, rows=rows)  # type: ignore[arg-type]
            learner.forward_backward(turns)
            found.append(gradient(policy))
        assert float((found[0] - found[1]).norm()) > 0.02 * float(found[0].norm()), terms


# -- TRL's own --------------------------------------------------------------------------------------------------------


class Stub:
    """Whatever is not set is a function that gives back its first argument."""

    def __init__(self, **known: Any) -> None:
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        return lambda first=None, *_, **__: first


def trl_loss(trainer: Any, batch: Padded, **options: Any) -> Tensor:
    """`_compute_loss` of a trainer with a tool mask; its completions hold tool results, its padding is 0."""
    arguments = {"delta": None, "use_bias_correction_kl": False, "steps_per_generation": 1,
                 "sapo_temperature_pos": 0.9, "sapo_temperature_neg": 1.3, "vespo_k_pos": 2.0, "vespo_lambda_pos": 3.0,
                 "vespo_k_neg": 3.0, "vespo_lambda_neg": 2.0}  # fmt: skip
    known = {"beta": 0.0, "epsilon_low": 0.2, "epsilon_high": 0.28, "importance_sampling_level": "token",
             "loss_type": "grpo"}  # fmt: skip
    made = Stub(
        args=SimpleNamespace(**arguments), accelerator=Stub(device="cpu", num_processes=1, sync_gradients=True),
        model=SimpleNamespace(training=True), current_gradient_accumulation_steps=1, use_vllm=False,
        off_policy_mask_threshold=None, aux_loss_enabled=False, top_entropy_quantile=1.0, _entropy_bonus_enabled=False,
        max_completion_length=LONGEST, _metrics={"train": defaultdict(list)},
        get_gamma_weights=getattr(trainer, "get_gamma_weights", None),
        _get_per_token_logps_and_entropies=lambda *_, **__: (batch.new, torch.zeros_like(batch.new), None),
        **known | options,
    )  # fmt: skip
    nothing = batch.completion.long()
    inputs = {"prompt_ids": nothing, "prompt_mask": nothing, "completion_ids": nothing, "completion_mask": nothing,
              "tool_mask": batch.mask.long() + (~batch.completion).long(), "advantages": batch.advantage,
              "old_per_token_logps": batch.old, "num_items_in_batch": batch.mask.sum(),
              "old_logps": (batch.old * batch.mask).sum(1)}  # fmt: skip
    loss: Tensor = trainer._compute_loss(made, None, inputs)
    return loss


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("terms", "options"),
    [
        ("surrogate([.2, .28], aggregate='sequence-mean')", {"loss_type": "grpo"}),
        ("surrogate([.2, .28])", {"loss_type": "bnpo"}),
        ("surrogate([.2, .28])", {"loss_type": "dapo"}),
        ("surrogate([.2, .28], aggregate='constant', constant=40)", {"loss_type": "dr_grpo"}),
        ("gspo([.2, .28])", {"loss_type": "grpo", "importance_sampling_level": "sequence"}),
        ("luspo([.2, .28])", {"loss_type": "luspo", "importance_sampling_level": "sequence"}),
        ("cispo([None, .5])", {"loss_type": "cispo", "epsilon_high": 1.5}),
        ("sapo(.9, 1.3)", {"loss_type": "sapo"}),
        ("vespo()", {"loss_type": "vespo"}),
    ],
)
def test_trl(terms: str, options: dict[str, Any], seed: int) -> None:
    trainer = pytest.importorskip("trl.trainer.grpo_trainer").GRPOTrainer
    check(terms, seed, lambda batch: trl_loss(trainer, batch, **options))


@pytest.mark.parametrize("seed", range(2))
def test_gmpo_of_trl(seed: int) -> None:
    trainer = pytest.importorskip("trl.experimental.gmpo.gmpo_trainer").GMPOTrainer
    check("gmpo([.2, .28])", seed, lambda batch: trl_loss(trainer, batch))


# -- verl's own -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("terms", "loss", "how"),
    [
        ("surrogate([.2, .28])", "vanilla", "token-mean"),
        ("surrogate([.2, .28], aggregate='sequence-mean')", "vanilla", "seq-mean-token-mean"),
        ("surrogate([.2, .28], aggregate='sequence-sum')", "vanilla", "seq-mean-token-sum"),
        ("gspo([.2, .28])", "gspo", "seq-mean-token-mean"),
        ("gmpo([.2, .28])", "geo_mean", "seq-mean-token-mean"),
        ("cispo([.2, .28])", "cispo", "token-mean"),
    ],
)
def test_verl(terms: str, loss: str, how: str, seed: int) -> None:
    core = pytest.importorskip("verl.trainer.ppo.core_algos")
    actor = pytest.importorskip("verl.workers.config").ActorConfig
    config = actor(
        strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, clip_ratio_low=0.2, clip_ratio_high=0.28,
        clip_ratio_c=1e9,
    )  # fmt: skip

    def theirs(batch: Padded) -> Tensor:
        credit = batch.advantage[:, None].expand_as(batch.new)
        found: Tensor = dict(core.POLICY_LOSS_REGISTRY)[loss](
            batch.old, batch.new, credit, batch.mask.long(), how, config
        )[0]  # fmt: skip
        return found

    check(terms, seed, theirs)
