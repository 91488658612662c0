"""Every term in every flavour gives the numbers it gave when it agreed with verl and TRL.

Those libraries are not installed where most people run the tests, so their agreement (`make parity`, 1e-6 of value and
gradient) is kept as numbers: `python tests/learning/terms/test_frozen.py` writes `frozen.json` again. Do that only
after `make parity` has passed.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from palaestra.learning.terms import TERMS, MicroBatch

FROZEN = Path(__file__).with_name("frozen.json")
DPO = (
    "hinge", "ipo", "sigmoid_norm", "nca_pair", "bco_pair", "sppo_hard", "aot", "aot_unpaired", "apo_zero", "apo_down",
    "discopop",
)  # fmt: skip
TEXTS = [
    # these ask the policy itself
    *(f"{name}()" for name in TERMS if name not in ("auxiliary", "information", "kto", "task_classifier")),
    "surrogate(clip=[.1, .3], dual_clip=1.5)", "surrogate(None)", "surrogate(ratio='sequence')",
    *(f"surrogate(aggregate='{how}')" for how in ("sequence-mean", "sequence-sum")),
    "surrogate(aggregate='constant', constant=7)", "rloo(None)", "gmpo([.1, .2])", "cispo(.2)", "reinforce(1.1)",
    "sapo(.7, 2)", "dppo([.05, .1])", "dppo([.01, .02], divergence='kl')", "dro(.7)", "vespo()",
    "clip_cov([.1, .3], share=.3, low=.01)", "kl_cov(.5, share=.3)",
    *(f"kl(.3, '{name}')" for name in ("exact", "k1", "k2", "k3", "abs", "k1+", "k3+", "abs+")),
    "kl(.3, 'k3', corrected=True)", "entropy(.2)", "corridor(.1)", "corridor(.1, .5, 3, smooth=.5, decay=.3)",
    "value(.7)", "value(.7, clip=.2)", "value(.7, level='token')", "clone(.7, 'weight')",
    *(f"dpo(.4, '{loss}')" for loss in DPO), "dpo(.4, smoothing=.1)", "dpo(.4, 'exo_pair', smoothing=.1)",
    "dpo(.4, 'robust', smoothing=.1)", "dpo(.4, 'aot', smoothing=.1)", "dpo(.4, 'discopop', tau=.3)",
    *(f"dpo(.4, divergence='{name}')" for name in ("forward_kl", "js_divergence", "alpha_divergence")),
    "cpo(.4, 'hinge')", "cpo(.4, 'ipo')", "cpo(.4, 'simpo', gamma=.3)", "cpo(.4, smoothing=.1)", "cpo(.4, alpha=.3)",
    "simpo(1.5, .3)", "kto(.4, desirable=1.3, undesirable=.7, zero='apo', weight=.5)",
]  # fmt: skip


class Head(nn.Module):
    def forward(self, units: Tensor) -> Tensor:
        return units.sum(-1)


def measured(text: str) -> dict[str, list[float] | float]:
    """The loss, and the gradient of each row's log-probabilities, entropies and predicted values."""
    rng = np.random.default_rng(3)
    rows, width = 10, 5
    logits = torch.from_numpy(rng.normal(size=(rows, width, 4))).requires_grad_()
    start = torch.from_numpy(logits.detach().numpy() + 0.6 * rng.normal(size=(rows, width, 4)))
    units = torch.from_numpy(rng.normal(size=(rows, width, 2))).requires_grad_()
    mask = torch.from_numpy(np.arange(width) < rng.integers(1, width + 1, (rows, 1)))
    logp, logp_start = logits.log_softmax(-1), start.log_softmax(-1)
    piece = MicroBatch.of(
        logp[..., 0],
        old=logp.detach()[..., 0] + torch.from_numpy(0.3 * rng.normal(size=(rows, width))),
        advantage=torch.from_numpy(rng.normal(size=(rows, width))).masked_fill(~mask, 0.0),
        mask=mask, entropies=-(logp.exp() * logp).sum(-1), logits=logp, reference=logp_start[..., 0],
        reference_logits=start, units=units, module=Head(), memory={"history": [1.2, 1.4]}, planned=9,
        columns={
            "episode": [i // 4 for i in range(rows)], "pair": [i // 2 for i in range(rows)],
            "chosen": [i % 2 == 0 for i in range(rows)], "return": [None, *rng.normal(size=rows - 1).tolist()],
            "weight": [*rng.normal(size=rows - 1).tolist(), None], "value": rng.normal(size=rows).tolist(),
            "helped": [(True, None, False)[i % 3] for i in range(rows)],
        },
    )  # fmt: skip
    loss = TERMS.build(text)(piece)
    slopes = torch.autograd.grad(loss, [logits, units], allow_unused=True)
    per_row = [torch.zeros(rows, dtype=torch.double) if s is None else s[:, :, 0].sum(1) for s in slopes]
    return {"loss": float(loss.detach()), "slope": torch.cat(per_row).tolist()}


@pytest.mark.parametrize("text", TEXTS)
def test_a_term_gives_the_numbers_it_gave(text: str) -> None:
    then, now = json.loads(FROZEN.read_text(encoding="utf-8"))[text], measured(text)
    assert now["loss"] == pytest.approx(then["loss"], rel=1e-6, abs=1e-9)
    np.testing.assert_allclose(now["slope"], then["slope"], rtol=1e-5, atol=1e-8)


if __name__ == "__main__":
    lines = [f"{json.dumps(text)}: {json.dumps(measured(text))}" for text in dict.fromkeys(TEXTS)]
    FROZEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
