"""When did the rules change? The score of WorldTest (arXiv 2510.19788), as MARAProtocol computes it."""

from __future__ import annotations

import math

from palaestra.errors import InputError


def change_score(said: int | None, true: int) -> float:
    """Score of change point `said` by the `true` one: 1 on time, falling to 0.199 the later, -1 if early or None.

    -1 if nothing was said or it was said before true - 1; 1 for true - 1 and true; later
    clip(1.377 / (1 - x e^-x) - 1.178, 0, 1) with x = said / true, which never falls below 0.199. Quitting counts 0 and
    is the caller's to say.

    >>> [round(change_score(said, 20), 3) for said in (18, 19, 20, 21, 25, 30, 40, 60, 100)]
    [-1.0, 1.0, 1.0, 0.999, 0.967, 0.892, 0.71, 0.441, 0.247]

    Raises:
        InputError: the change is at no frame from 1 on.
    """
    if true < 1:
        raise InputError(f"change_score: true={true}, expected a frame from 1 on")
    if said is None or said < true - 1:
        return -1.0
    if said <= true:
        return 1.0
    ratio = said / true
    return min(max(1.377 / (1 - ratio * math.exp(-ratio)) - 1.178, 0.0), 1.0)
