"""Top-p: the smallest set of most probable tokens that holds a share p of the probability, and nothing else.

What is sampled from is the distribution over that set, renormalised, so log-probabilities and entropies are its own.
"""

from __future__ import annotations

import torch
from torch import Tensor

OUTSIDE = -1e30
"""Logit of what is left out; finite, so that p · log p is 0 there and no gradient is NaN."""


def nucleus(logits: Tensor, top_p: float, also: Tensor | None = None) -> Tensor:
    """Logits with tokens outside the top-p set replaced by `OUTSIDE`, as transformers' `TopPLogitsWarper` does.

    Args:
        logits: After the temperature, float[..., vocabulary].
        top_p: In (0, 1]; 1 leaves them as they are.
        also: Ids that stay whether they are in the set or not, int64[..., n]. An answer that was sampled under earlier
            weights may have a token that has left the set since; its probability is then that of the set with it.

    >>> nucleus(torch.tensor([0.5, 0.3, 0.2]).log(), 0.7).exp()
    tensor([0.5000, 0.3000, 0.0000])
    """
    if top_p >= 1:
        return logits
    ascending, order = logits.detach().sort(dim=-1)
    out = ascending.softmax(-1).cumsum(-1) <= 1 - top_p
    out[..., -1] = False
    out = torch.zeros_like(out).scatter(-1, order, out)
    if also is not None:
        out = out.scatter(-1, also, False)
    return logits.masked_fill(out, OUTSIDE)
