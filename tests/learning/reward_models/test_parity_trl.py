"""TRL's reward loss beside ours, value and gradient to 1e-6: Bradley-Terry, margin, centring.

`RewardTrainer.compute_loss` is called as it is, on a stand-in whose model gives these scores. The kinds of DPO that
both have are in `tests/learning/terms/test_parity_trl.py`. Skipped where TRL is not installed; `make parity` brings it.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from palaestra.learning.reward_models.losses import bradley_terry_loss

pytest.importorskip("trl")


class _Accelerator:
    def gather_for_metrics(self, value: Any) -> Any:
        return value

    gather = gather_for_metrics


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("centre", [None, 0.01, 0.5])
@pytest.mark.parametrize("with_margin", [False, True])
def test_reward_loss(seed: int, centre: float | None, with_margin: bool) -> None:
    from trl.trainer.reward_trainer import RewardTrainer

    rng = np.random.default_rng(seed)
    scores = torch.tensor(rng.normal(scale=3, size=(16, 1)), requires_grad=True)
    margin = torch.tensor(rng.uniform(0, 2, 8)) if with_margin else None
    made = SimpleNamespace(
        model=SimpleNamespace(training=True), args=SimpleNamespace(center_rewards_coefficient=centre),
        _metrics={"train": defaultdict(list), "eval": defaultdict(list)}, _total_train_tokens=0, _tp_size=1,
        accelerator=_Accelerator(),
    )  # fmt: skip
    inputs = {"input_ids": torch.zeros(16, 2), "attention_mask": torch.ones(16, 2)}
    if margin is not None:
        inputs["margin"] = margin
    theirs = RewardTrainer.compute_loss(made, lambda **_: SimpleNamespace(logits=scores), inputs)
    chosen, rejected = scores[:, 0].chunk(2)
    ours = bradley_terry_loss(chosen, rejected, margin=margin, centre=centre or 0.0)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    slopes = [torch.autograd.grad(each, scores, retain_graph=True)[0] for each in (ours, theirs)]
    assert slopes[0].abs().sum() > 0
    torch.testing.assert_close(*slopes, rtol=1e-6, atol=1e-6)
