"""Every policy loss, aggregation, KL penalty and value loss of verl 0.9.1 beside ours: value and gradient to 1e-6.

Skipped where verl is not installed; `make parity` installs it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from palaestra.learning.losses import aggregate
from palaestra.learning.terms import TERMS, MicroBatch, value

core_algos = pytest.importorskip("verl.trainer.ppo.core_algos")
config_of = pytest.importorskip("verl.workers.config")

MODES = {
    "token-mean": "aggregate='token-mean'",
    "seq-mean-token-mean": "aggregate='sequence-mean'",
    "seq-mean-token-sum": "aggregate='sequence-sum'",
    "seq-mean-token-sum-norm": "aggregate='constant', constant=9",
    "token-sum": "aggregate='token-sum'",
}


def batch(seed: int, *, spread: float = 0.5, per_row: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """New and old log-probabilities, advantages, mask; ratios far beyond the clip, a padded tail, rows of one token."""
    rng = np.random.default_rng(seed)
    mask = torch.tensor(np.arange(9) < rng.integers(1, 10, 32)[:, None])
    old = torch.tensor(-rng.exponential(size=mask.shape) - 1.0)
    new = (old + torch.tensor(rng.normal(scale=spread, size=mask.shape)).clamp(max=0.99)).requires_grad_()
    advantage = torch.tensor(rng.normal(size=(32, 1) if per_row else mask.shape)).expand(mask.shape).clone()
    return new, old, advantage, mask


def actor(**options: Any) -> Any:
    known = {"strategy": "fsdp", "rollout_n": 1, "ppo_micro_batch_size_per_gpu": 1}
    return config_of.ActorConfig(**known | {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28} | options)


def same(ours: Tensor, theirs: Tensor, *of: Tensor) -> None:
    torch.testing.assert_close(ours, theirs.to(ours.dtype), rtol=1e-6, atol=1e-6)
    for leaf in of:
        slopes = [torch.autograd.grad(each, leaf, retain_graph=True)[0] for each in (ours, theirs)]
        assert slopes[0].abs().sum() > 0
        torch.testing.assert_close(*slopes, rtol=1e-6, atol=1e-6)


def policy_loss(name: str) -> Any:
    return policy_loss_names()[name]


def policy_loss_names() -> dict[str, Any]:
    return dict(core_algos.POLICY_LOSS_REGISTRY)


CLIP = "clip=[.2, .28]"
LOSSES: dict[str, tuple[str, dict[str, Any]]] = {
    "vanilla": (f"surrogate({CLIP}, dual_clip=3.0, $)", {}),
    "gspo": (f"gspo({CLIP}, $)", {}),
    "cispo": (f"cispo({CLIP}, $)", {}),
    "gpg": ("gpg($)", {}),
    "dppo_tv": (f"dppo({CLIP}, truncate=1.5, $)", {"clip_ratio_c": 1.5}),
    "dppo_kl": ("dppo(clip=[.01, .02], divergence='kl', truncate=3.0, $)",
                {"clip_ratio_low": 0.01, "clip_ratio_high": 0.02}),
    "dro": ("dro(beta=.3, $)", {"policy_loss": {"dro_beta": 0.3}}),
    "kl_cov": ("kl_cov(.7, share=.1, $)", {"policy_loss": {"kl_cov_ratio": 0.1, "ppo_kl_coef": 0.7}}),
    # as many as can be are left out, so that neither side has to draw
    "clip_cov": (f"clip_cov({CLIP}, share=1.0, low=.3, high=2, $)",
                 {"policy_loss": {"clip_cov_ratio": 1.0, "clip_cov_lb": 0.3, "clip_cov_ub": 2.0}}),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LOSSES)
def test_policy_losses(name: str, mode: str, seed: int) -> None:
    text, options = LOSSES[name]
    if "policy_loss" in options:
        options = {"policy_loss": config_of.PolicyLossConfig(loss_mode=name, **options["policy_loss"])}
    new, old, advantage, mask = batch(seed)
    theirs, _ = policy_loss(name)(old, new, advantage, mask.long(), mode, actor(**options))
    same(
        TERMS.build(text.replace("$", MODES[mode]))(MicroBatch.of(new, old=old, advantage=advantage, mask=mask)),
        theirs,
        new,
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("sapo", "sapo(.9, 1.3)", {"tau_pos": 0.9, "tau_neg": 1.3}),
        ("geo_mean", "gmpo(clip=[.2, .28])", {}),
    ],
)
def test_policy_losses_with_an_average_of_their_own(name: str, text: str, options: dict[str, Any], seed: int) -> None:
    new, old, advantage, mask = batch(seed, per_row=name == "geo_mean")
    theirs, _ = policy_loss(name)(old, new, advantage, mask.long(), "token-mean", actor(**options))
    same(TERMS.build(text)(MicroBatch.of(new, old=old, advantage=advantage, mask=mask)), theirs, new)


@pytest.mark.parametrize("mode", MODES)
def test_bypass_mode(mode: str) -> None:
    new, old, advantage, mask = batch(0)
    for loss_type, text in (("reinforce", "reinforce(1.5, $)"), ("ppo_clip", f"surrogate({CLIP}, dual_clip=3.0, $)")):
        correction = {"loss_type": loss_type, "rollout_is": "token", "rollout_is_threshold": 1.5}
        config = actor(policy_loss=config_of.PolicyLossConfig(loss_mode="bypass_mode", rollout_correction=correction))
        theirs, _ = policy_loss("bypass_mode")(old, new, advantage, mask.long(), mode, config)
        term = TERMS.build(text.replace("$", MODES[mode]))
        same(term(MicroBatch.of(new, old=old, advantage=advantage, mask=mask)), theirs, new)


def test_none_is_left_out() -> None:
    assert policy_loss_names().keys() == {*LOSSES, "sapo", "geo_mean", "bypass_mode"}


@pytest.mark.parametrize("text", ["surrogate(clip=[.2, .28], dual_clip=3.0)", "cispo(clip=[.2, .28])", "sapo()"])
def test_stale_tokens_are_cut_alike(text: str) -> None:
    new, old, advantage, mask = batch(1)
    old[:, 0] = -100.0
    old[::2, 0] = 100.0
    name = {"surrogate": "vanilla"}.get(text.partition("(")[0], text.partition("(")[0])
    mode = "seq-mean-token-mean" if name == "sapo" else "token-mean"
    theirs, _ = policy_loss(name)(old, new, advantage, mask.long(), mode, actor(tau_neg=1.05))
    same(TERMS.build(text)(MicroBatch.of(new, old=old, advantage=advantage, mask=mask)), theirs, new)


@pytest.mark.parametrize("mode", MODES)
def test_aggregations_with_denominators_of_a_larger_batch(mode: str) -> None:
    """verl does not count rows without tokens; here they count, unless `rows` says otherwise."""
    loss, _, _, mask = batch(0)
    mask[:3] = False
    how = eval(f"dict({MODES[mode].replace('aggregate', 'how')})")
    theirs = core_algos.agg_loss(loss, mask.long(), mode, loss_scale_factor=9)
    same(aggregate(loss, mask, rows=29, **how), theirs, loss)
    theirs = core_algos.agg_loss(
        loss, mask.long(), mode, batch_num_tokens=500, global_batch_size=100, loss_scale_factor=9
    )
    same(aggregate(loss, mask, rows=100, tokens=500, **how), theirs, loss)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "abs", "k1+", "k3+", "abs+"])
@pytest.mark.parametrize("mode", MODES)
def test_kl_penalties(estimator: str, mode: str) -> None:
    new, reference, _, mask = batch(0)
    theirs = core_algos.kl_penalty(new, reference, estimator)
    term = TERMS.build(f"kl(.3, '{estimator}', {MODES[mode]})")
    same(
        term(MicroBatch.of(new, mask=mask, reference=reference)),
        0.3 * core_algos.agg_loss(theirs, mask.long(), mode),
        new,
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("clip", [0.2, 0.5])
def test_value_loss(mode: str, clip: float) -> None:
    rng = np.random.default_rng(0)
    _, _, _, mask = batch(0)
    lengths = mask.sum(1).tolist()
    before, returns = (torch.tensor(rng.normal(size=mask.shape)) for _ in range(2))
    units = (before + torch.tensor(rng.normal(scale=0.5, size=mask.shape)))[..., None].requires_grad_()
    columns = {
        name: [row[:n].tolist() for row, n in zip(values, lengths)]
        for name, values in (("value", before), ("return", returns))
    }
    term = value(0.7, level="token", clip=clip, **eval(f"dict({MODES[mode]})"))
    nothing = torch.zeros(mask.shape, dtype=torch.double)
    ours = term(MicroBatch.of(nothing, mask=mask, columns=columns, units=units, module=_Head()))
    theirs, _ = core_algos.compute_value_loss(units[..., 0], returns, before, mask.long(), clip, mode)
    same(ours, 0.7 * theirs, units)


class _Head(nn.Module):
    def forward(self, units: Tensor) -> Tensor:
        return units[..., 0]
