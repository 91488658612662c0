"""Chooses the fastest way through a language model."""

from __future__ import annotations

import torch
from torch import nn

from palaestra.agents.backends.forward import Forward
from palaestra.agents.backends.llama import Llama
from palaestra.agents.backends.modules import Generic
from palaestra.foundation.malloc import give_back


def forward_of(model: nn.Module, compute: torch.dtype | None = None, *, checkpoints: bool = False) -> Forward:
    """`Forward` of a torch model: `Llama` if that fits it, else `Generic`; `checkpoints` recomputes activations.

    Who asks for that has little memory: on a CPU, this process then gives what it frees back at once (`malloc`).
    """
    if checkpoints and next(model.parameters()).device.type == "cpu":
        give_back()
    if compute is None and Llama.fits(model):
        return Llama(model, checkpoints=checkpoints)
    return Generic(model, compute, checkpoints=checkpoints)
