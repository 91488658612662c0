"""Credit for the steps of a reference path."""

from __future__ import annotations

from typing import Any

import numpy as np


def path_credit(correct: Any, gamma: float = 0.4) -> np.ndarray:
    """Score in [0, 1] per path of step flags: 1 if the last is right, else min(1, Σ_{i>=1} γ^i · correct[-1-i]).

    Along the last axis.

    The reward of ExCyTIn [187] (arXiv 2507.14201). gamma: .4 as the released code has it; a comment there says .3.

    >>> path_credit([[1, 1, 1, 0], [0, 0, 1, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]).round(4).tolist()
    [0.624, 0.4, 0.224, 0.464, 1.0]
    """
    steps = np.asarray(correct, float)
    powers = gamma ** np.arange(steps.shape[-1] - 1, 0, -1)
    walked = np.minimum(1.0, (steps[..., :-1] * powers).sum(-1))
    return np.where(steps[..., -1] == 1, 1.0, walked)
