"""Gradients of the largest matrices, added up where they arise.

A vocabulary of 150,000 makes embeddings and head most of a small model. Autograd makes a gradient of its own of each
use and adds it to `.grad` afterwards: with tied embeddings, and a step in pieces, three matrices at once. Inside
`adding_up` a use adds its part to `.grad` itself, so that there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_ADDING_UP: ContextVar[bool] = ContextVar("adding_up", default=False)


@contextmanager
def adding_up() -> Iterator[None]:
    """Context manager of a forward pass whose layers add to `.grad` directly; only one `backward()` is allowed."""
    token = _ADDING_UP.set(True)
    try:
        yield
    finally:
        _ADDING_UP.reset(token)


def adds_up(weight: Tensor) -> bool:
    """Whether a backward pass may add to this weight's `.grad` directly: in `adding_up`, trainable, without hooks."""
    hooks = (weight._backward_hooks, getattr(weight, "_post_accumulate_grad_hooks", None))
    return _ADDING_UP.get() and type(weight) is nn.Parameter and weight.requires_grad and not any(hooks)


def grad_of(weight: Tensor) -> Tensor:
    """The `.grad` tensor of a parameter, created as zeros if it has none."""
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    return weight.grad


def embedding(ids: Tensor, weight: Tensor) -> Tensor:
    """Embedding lookup as `F.embedding`, [..., width] of ids [...], that may add to the weight's `.grad` directly."""
    looked_up: Tensor = _Embedding.apply(ids, weight) if adds_up(weight) else F.embedding(ids, weight)
    return looked_up


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.weight = weight
        return F.embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (ids,) = ctx.saved_tensors
        rows, values, grad = ids.flatten(), g.flatten(0, -2), grad_of(ctx.weight)
        if g.device.type == "cpu":
            grad.index_add_(0, rows, values)
        else:
            grad.index_put_((rows,), values, accumulate=True)  # in one order, where index_add_ has none
        return None, None
