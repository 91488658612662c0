"""Learning rates: one per policy, and how they rise and fall over the updates."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, Literal

from palaestra.errors import InputError, nearest

Schedule = Literal["constant", "linear", "cosine"]
FRESH = 1e-3
"""Learning rate of policies whose parameters were drawn at random."""
PRETRAINED = 1e-5
"""Learning rate of pretrained language models."""
LARGE = 1e-4
"""A learning rate that is usual for adapters, and forgets much in full fine-tuning of a pretrained model."""


def decay(schedule: Schedule, step: int, steps: int | None, warmup: int = 0) -> float:
    """Factor of the learning rate at a step: warm-up, then a constant, linear or cosine schedule.

    Args:
        schedule: 1, 1 - x, or (1 + cos πx) / 2, where x = (step - warmup) / (steps - warmup).
        step: Number of the step, from 0.
        steps: Number of steps after which the factor is 0.
        warmup: Steps before, in which the factor is (step + 1) / (warmup + 1).

    Example:
        >>> [decay("linear", step, 4) for step in range(5)]
        [1.0, 0.75, 0.5, 0.25, 0.0]
        >>> [decay("constant", step, None, warmup=3) for step in range(5)]
        [0.25, 0.5, 0.75, 1.0, 1.0]
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if schedule == "constant" or not steps:
        return 1.0
    done = min((step - warmup) / max(1, steps - warmup), 1.0)
    return 1 - done if schedule == "linear" else (1 + math.cos(math.pi * done)) / 2


def default_rate(policy: Any, fresh: float = FRESH) -> float:
    """Default learning rate of a policy: 1e-5 for a pretrained one, `fresh` for others."""
    return PRETRAINED if getattr(policy, "pretrained", None) else fresh


def rates(lr: float | Mapping[str, float] | None, policies: Mapping[str, Any]) -> dict[str, float]:
    """Dict with the learning rate of each of `policies` {name: policy} from `lr`; warns of one too large for its model.

    Args:
        lr: One rate, or one per policy name; None: 1e-5 for pretrained models, 1e-3 for others.
        policies: By name.

    Raises:
        InputError: one is out of range or missing, or is that of no policy.
    """
    if lr is None:
        return {name: default_rate(policy) for name, policy in policies.items()}
    given = lr if isinstance(lr, Mapping) else dict.fromkeys(policies, lr)
    for rate in given.values():
        if not 0 <= rate < math.inf:
            raise InputError(f"PolicyGradient: lr={lr} must be at least 0 and finite")
    for unknown in given.keys() - set(policies):
        raise InputError(f"PolicyGradient: lr names {unknown!r}, no trainable policy{nearest(unknown, policies)}")
    for name in policies:
        if name not in given:
            raise InputError(f"PolicyGradient: lr has no entry for the trainable policy {name!r}")
        warn_of(given[name], name, policies[name])
    return {name: given[name] for name in policies}


def warn_of(rate: float, name: str, policy: Any) -> None:
    """Warn if `rate` is large for full fine-tuning of a pretrained policy; others, also adapters, never warn."""
    if getattr(policy, "pretrained", None) == "whole" and rate >= LARGE:
        warnings.warn(
            f"policy {name!r}: lr={rate:g} is large for full fine-tuning of a pretrained model, which forgets much at"
            f" {LARGE:g} and above: try {PRETRAINED:g}, or train adapters (lora: {{r: 16}})",
            stacklevel=4,
        )
