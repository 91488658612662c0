"""Learning rates: one per policy, and how they fall over the updates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal

from palaestra.errors import InputError, nearest

Schedule = Literal["constant", "linear", "cosine"]


def decay(schedule: Schedule, step: int, steps: int | None) -> float:
    """Factor of the learning rate at step `step` (from 0): 1, 1 - x, or (1 + cos πx) / 2 with x = step / steps.

    >>> [decay("linear", step, 4) for step in range(5)]
    [1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if schedule == "constant" or not steps:
        return 1.0
    done = min(step / steps, 1.0)
    return 1 - done if schedule == "linear" else (1 + math.cos(math.pi * done)) / 2


def rates(lr: float | Mapping[str, float], policies: Iterable[str]) -> dict[str, float]:
    """The learning rate of every policy.

    Raises:
        InputError: one is out of range or missing, or is that of no policy.
    """
    policies = list(policies)
    given = lr if isinstance(lr, Mapping) else dict.fromkeys(policies, lr)
    for rate in given.values():
        if not 0 <= rate < math.inf:
            raise InputError(f"PolicyGradient: lr={lr} must be at least 0 and finite")
    for unknown in given.keys() - set(policies):
        raise InputError(f"PolicyGradient: lr names {unknown!r}, no trainable policy{nearest(unknown, policies)}")
    for name in policies:
        if name not in given:
            raise InputError(f"PolicyGradient: lr has no entry for the trainable policy {name!r}")
    return {name: given[name] for name in policies}
