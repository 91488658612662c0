"""Every loss of TRL 1.16's GRPO, GMPO, RLOO, DPO, CPO, ORPO and KTO trainers beside ours: value and gradient to 1e-6.

Their `_compute_loss` is called as it is, on a stand-in for the trainer whose model gives these log-probabilities.
Skipped where TRL is not installed; `make parity` installs it.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor, nn

from palaestra.agents.policy import Scored
from palaestra.learning.terms import TERMS, MicroBatch

pytest.importorskip("trl")

EACH = pytest.mark.parametrize("seed", range(3))


class Stub:
    """Whatever is not set is a function that gives back its first argument."""

    def __init__(self, **known: Any) -> None:
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        return lambda first=None, *_, **__: first


class Training(nn.Module):
    """A model of which nothing is asked but whether it trains."""

    is_gradient_checkpointing = False


def accelerator() -> Any:
    return Stub(device="cpu", num_processes=1, sync_gradients=True)


def rows(seed: int, count: int = 16) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """New, old, an advantage per row, mask."""
    rng = np.random.default_rng(seed)
    mask = torch.tensor(np.arange(7) < rng.integers(1, 8, count)[:, None])
    old = torch.tensor(-rng.exponential(size=mask.shape) - 1.0)
    new = (old + torch.tensor(rng.normal(scale=0.4, size=mask.shape))).requires_grad_()
    return new, old, torch.tensor(rng.normal(size=count)), mask


def same(ours: Tensor, theirs: Tensor, leaf: Tensor, mask: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    slopes = [torch.autograd.grad(each, leaf, retain_graph=True)[0] * mask for each in (ours, theirs)]
    assert slopes[0].abs().sum() > 0
    torch.testing.assert_close(*slopes, rtol=1e-6, atol=1e-6)


# -- GRPO and its kin -------------------------------------------------------------------------------------------------


def grpo_loss(trainer: Any, tensors: tuple[Tensor, ...], reference: Tensor | None = None, **options: Any) -> Tensor:
    new, old, advantage, mask = tensors
    arguments = {"delta": None, "use_bias_correction_kl": False, "steps_per_generation": 1,
                 "sapo_temperature_pos": 0.9, "sapo_temperature_neg": 1.3, "vespo_k_pos": 2.0, "vespo_lambda_pos": 3.0,
                 "vespo_k_neg": 3.0, "vespo_lambda_neg": 2.0}  # fmt: skip
    known = {"beta": 0.0, "epsilon_low": 0.2, "epsilon_high": 0.28, "importance_sampling_level": "token",
             "loss_type": "grpo"}  # fmt: skip
    for name in options.keys() & arguments.keys():
        arguments[name] = options.pop(name)
    made = Stub(
        args=SimpleNamespace(**arguments), accelerator=accelerator(), model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1, use_vllm=False, off_policy_mask_threshold=None, aux_loss_enabled=False,
        top_entropy_quantile=1.0, _entropy_bonus_enabled=False, max_completion_length=11,
        _metrics={"train": defaultdict(list)}, get_gamma_weights=getattr(trainer, "get_gamma_weights", None),
        _get_per_token_logps_and_entropies=lambda *_, **__: (new, torch.zeros_like(new), None), **known | options,
    )  # fmt: skip
    inputs = {"prompt_ids": mask.long(), "prompt_mask": mask.long(), "completion_ids": mask.long(),
              "completion_mask": mask.long(), "advantages": advantage, "old_per_token_logps": old,
              "ref_per_token_logps": reference, "num_items_in_batch": mask.sum(),
              "old_logps": (old * mask).sum(1)}  # fmt: skip
    loss: Tensor = trainer._compute_loss(made, None, inputs)
    return loss


def ours(text: str, tensors: tuple[Tensor, ...], reference: Tensor | None = None) -> Tensor:
    from palaestra.learning.terms import objective

    new, old, advantage, mask = tensors
    piece = MicroBatch.of(new, old=old, advantage=advantage[:, None], mask=mask, reference=reference)
    parts = [term(piece) for term in objective(text).values()]
    return sum(parts[1:], parts[0])


CLIP = "clip=[.2, .28]"


@EACH
@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"surrogate({CLIP}, aggregate='sequence-mean')", {"loss_type": "grpo"}),
        (f"surrogate({CLIP})", {"loss_type": "bnpo"}),
        (f"surrogate({CLIP})", {"loss_type": "dapo"}),
        (f"surrogate({CLIP}, aggregate='constant', constant=11)", {"loss_type": "dr_grpo"}),
        (f"surrogate({CLIP}, dual_clip=1.5)", {"loss_type": "dapo", "delta": 1.5}),
        (f"gspo({CLIP})", {"loss_type": "grpo", "importance_sampling_level": "sequence"}),
        (f"luspo({CLIP})", {"loss_type": "luspo", "importance_sampling_level": "sequence"}),
        ("cispo(clip=[None, .5])", {"loss_type": "cispo", "epsilon_high": 1.5}),
        ("sapo(.9, 1.3)", {"loss_type": "sapo"}),
        ("vespo()", {"loss_type": "vespo"}),
    ],
)
def test_grpo(text: str, options: dict[str, Any], seed: int) -> None:
    from trl.trainer.grpo_trainer import GRPOTrainer

    tensors = rows(seed)
    same(ours(text, tensors), grpo_loss(GRPOTrainer, tensors, **options), tensors[0], tensors[3])


@EACH
@pytest.mark.parametrize(
    ("loss_type", "how"),
    [
        ("grpo", "aggregate='sequence-mean'"),
        ("dapo", "aggregate='token-mean'"),
        ("dr_grpo", "aggregate='constant', constant=11"),
    ],
)
@pytest.mark.parametrize("corrected", [False, True])
def test_grpo_with_kl(loss_type: str, how: str, corrected: bool, seed: int) -> None:
    """Their penalty joins the loss of a token, so it is averaged as the loss is; here it says how."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    tensors = rows(seed)
    reference = tensors[1] + 0.1 * rows(seed + 9)[1]
    theirs = grpo_loss(GRPOTrainer, tensors, reference, beta=0.3, loss_type=loss_type, use_bias_correction_kl=corrected)
    found = ours(f"surrogate({CLIP}, {how}), kl(.3, 'k3', {how}, corrected={corrected})", tensors, reference)
    same(found, theirs, tensors[0], tensors[3])


@EACH
def test_gmpo_and_rloo(seed: int) -> None:
    from trl.experimental.gmpo.gmpo_trainer import GMPOTrainer
    from trl.trainer.rloo_trainer import RLOOTrainer

    tensors = rows(seed)
    same(ours(f"gmpo({CLIP})", tensors), grpo_loss(GMPOTrainer, tensors), tensors[0], tensors[3])
    same(ours(f"rloo({CLIP})", tensors), grpo_loss(RLOOTrainer, tensors), tensors[0], tensors[3])


# -- pairs ------------------------------------------------------------------------------------------------------------


def paired(tensors: tuple[Tensor, ...], reference: Tensor) -> MicroBatch:
    """TRL's order: all chosen, then all rejected."""
    new, _, _, mask = tensors
    half = len(new) // 2
    columns = {"pair": [*range(half)] * 2, "chosen": [True] * half + [False] * half}
    return MicroBatch.of(new, mask=mask, reference=reference, columns=columns)


def dpo_loss(tensors: tuple[Tensor, ...], reference: Tensor, loss: str, **options: Any) -> Tensor:
    from trl.trainer.dpo_trainer import DPOTrainer

    new, _, _, mask = tensors
    shifted = torch.cat([torch.zeros(len(mask), 1), mask], 1).long()
    output = {"entropy": torch.zeros_like(new), "mean_logits": torch.zeros_like(new), "is_top1": torch.zeros_like(mask)}

    def of(logps: Tensor) -> Any:
        return lambda **_: Stub(**output, log_probs=logps * mask)

    known = {"beta": 0.3, "label_smoothing": 0.0, "f_divergence_type": "reverse_kl", "f_alpha_divergence_coef": 0.5}
    made = Stub(
        accelerator=accelerator(), model=Training(), aux_loss_enabled=False,
        ld_alpha=None, precompute_ref_logps=False, use_weighting=False, loss_types=[loss], loss_weights=[1.0],
        ref_model=of(reference), args=SimpleNamespace(gradient_checkpointing_kwargs=None, discopop_tau=0.05),
        _metrics={"train": defaultdict(list), "eval": defaultdict(list)}, _total_train_tokens=0, _tp_size=1,
        **known | options,
    )  # fmt: skip
    inputs = {"input_ids": shifted, "attention_mask": shifted, "completion_mask": shifted}
    found: Tensor = DPOTrainer._compute_loss(made, of(new), inputs, False)
    return found


@EACH
@pytest.mark.parametrize(
    ("loss", "text", "options"),
    [
        *((loss, f"dpo(.3, '{loss}')", {}) for loss in (
            "sigmoid", "hinge", "ipo", "nca_pair", "bco_pair", "sppo_hard", "aot", "aot_unpaired", "apo_zero",
            "apo_down", "discopop", "sigmoid_norm")),
        ("ipo", "ipo(.3)", {}),
        *((loss, f"dpo(.3, '{loss}', smoothing=.1)", {"label_smoothing": 0.1})
          for loss in ("exo_pair", "robust", "aot", "aot_unpaired")),
        *(("sigmoid", f"dpo(.3, divergence='{name}')", {"f_divergence_type": name})
          for name in ("forward_kl", "js_divergence")),
        ("sft", "clone(column='chosen')", {}),
    ],
)  # fmt: skip
def test_dpo(loss: str, text: str, options: dict[str, Any], seed: int) -> None:
    tensors = rows(seed)
    reference = tensors[1]
    theirs = dpo_loss(tensors, reference, loss, **options)
    same(TERMS.build(text)(paired(tensors, reference)), theirs, tensors[0], tensors[3])


@EACH
def test_dpo_with_alpha_divergence(seed: int) -> None:
    """TRL computes it in float32."""
    new, old, advantage, mask = rows(seed)
    tensors = (new.detach().float().requires_grad_(), old.float(), advantage, mask)
    theirs = dpo_loss(tensors, tensors[1], "sigmoid", f_divergence_type="alpha_divergence")
    found = TERMS.build("dpo(.3, divergence='alpha_divergence', alpha=.5)")(paired(tensors, tensors[1]))
    same(found, theirs, tensors[0], mask)


@EACH
@pytest.mark.parametrize(
    ("loss", "text", "options"),
    [
        ("sigmoid", "cpo(.3)", {}),
        ("sigmoid", "cpo(.3, smoothing=.1)", {"label_smoothing": 0.1}),
        ("hinge", "cpo(.3, 'hinge')", {}),
        ("ipo", "cpo(.3, 'ipo')", {}),
        ("simpo", "simpo(2.0, .5)", {"beta": 2.0}),
        ("simpo", "cpo(2.0, 'simpo', alpha=.3)", {"beta": 2.0, "alpha": 0.3}),
    ],
)
def test_cpo(loss: str, text: str, options: dict[str, Any], seed: int) -> None:
    from trl.experimental.cpo.cpo_trainer import CPOTrainer

    tensors = rows(seed)
    new, _, _, mask = tensors
    summed = (new * mask).sum(1) / (mask.sum(1) if loss in ("ipo", "simpo") else 1)
    known = {"beta": 0.3, "label_smoothing": 0.0, "alpha": 0.0, "simpo_gamma": 0.5, "loss_type": loss}
    made = Stub(accelerator=accelerator(), **known | options)
    theirs = CPOTrainer.cpo_loss(made, *summed.chunk(2))[0].mean()
    same(TERMS.build(text)(paired(tensors, new.detach())), theirs, new, mask)


@EACH
def test_orpo(seed: int) -> None:
    from trl.experimental.orpo.orpo_trainer import ORPOTrainer

    new, old, advantage, mask = rows(seed)
    new = new.detach().float().requires_grad_()
    means = (new * mask).sum(1) / mask.sum(1)
    losses = ORPOTrainer.odds_ratio_loss(Stub(accelerator=accelerator(), beta=0.3), *means.chunk(2))[0]
    same(TERMS.build("orpo(.3)")(paired((new, old, advantage, mask), new.detach())), -losses.mean(), new, mask)


# -- verdicts ---------------------------------------------------------------------------------------------------------


class Answering:
    """A policy whose log-probability of an answer after a prompt is given."""

    name = "p"

    def __init__(self, table: Tensor) -> None:
        self.table = table

    def score(self, frame: pl.DataFrame) -> Scored:
        prompt = torch.tensor([ids[0] for ids in frame["prompt_ids"].to_list()])
        answer = torch.tensor([ids[0] for ids in frame["action_ids"].to_list()])
        logps = self.table[prompt, answer][:, None]
        return Scored(logps, logps, torch.ones_like(logps, dtype=torch.bool), logps[..., None])


@EACH
@pytest.mark.parametrize("loss", ["kto", "apo_zero_unpaired"])
def test_kto(loss: str, seed: int) -> None:
    from trl.trainer.kto_trainer import KTOTrainer

    rng, count = np.random.default_rng(seed), 8
    now = torch.tensor(-rng.exponential(size=(count, count)))
    then = torch.tensor(-rng.exponential(size=(count, count))) - 1.0
    label, every = torch.tensor(rng.integers(2, size=count)), torch.arange(count)
    new = now.diagonal().clone()[:, None].requires_grad_()
    shifted = torch.ones(count, 2).long()
    made = Stub(
        accelerator=accelerator(), model=Training(), aux_loss_enabled=False, beta=0.4, loss_type=loss,
        desirable_weight=1.3, undesirable_weight=0.7, precompute_ref_logps=False, calculate_KL=loss == "kto",
        args=SimpleNamespace(gradient_checkpointing_kwargs=None), _total_train_tokens=0, _tp_size=1,
        _compute_kl_logps=lambda model, _: model.table[every, every.roll(1)],
        ref_model=_Model(then, then.diagonal()[:, None]),
        _metrics={"train": defaultdict(list)},
    )  # fmt: skip
    inputs = {"input_ids": shifted, "attention_mask": shifted, "completion_mask": shifted, "label": label}
    theirs = KTOTrainer._compute_loss(made, _Model(now, new), inputs, False)
    theirs = theirs[0] if isinstance(theirs, tuple) else theirs
    columns = {"prompt_ids": [[i] for i in range(count)], "action_ids": [[i] for i in range(count)],
               "chosen": label.bool().tolist()}  # fmt: skip
    piece = MicroBatch.of(new, columns=columns, reference=then.diagonal()[:, None], policy=Answering(now))  # type: ignore[arg-type]
    object.__setattr__(piece.step, "reference", lambda: Answering(then))
    zero = "kl" if loss == "kto" else "apo"
    found = TERMS.build(f"kto(.4, desirable=1.3, undesirable=.7, zero='{zero}')")(piece)
    same(found, theirs, new, torch.ones_like(new))


class _Model:
    def __init__(self, table: Tensor, logps: Tensor) -> None:
        self.table, self.logps = table, logps

    def __call__(self, **_: Any) -> Any:
        nothing = torch.zeros_like(self.logps)
        return Stub(log_probs=self.logps, entropy=nothing, mean_logits=nothing)
