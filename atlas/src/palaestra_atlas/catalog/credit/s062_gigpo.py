"""[62] GiGPO (arXiv 2505.10978): credit from the episode and from what happened after the same state.

The recipe `corridor` with 9 cells: start in the middle, fetch the key at the left end, then open the door at the right
end; the only reward comes with the door. Both arms are the recipe with another `credit`. Left out: language models,
similar (rather than equal) anchor states.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import gigpo
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

ARMS = {"gigpo": {"credit": "gigpo()"}, "grpo": {"credit": "grpo()"}}
SETTINGS: dict[str, object] = {"env": {"options": {"cells": 9}}, "train": {"iterations": 40}}


def worked() -> tuple[Turns, np.ndarray]:
    """Four episodes through four states worked out by hand: the table, and episode level + step level."""
    turns = Turns(
        {
            "group": [0] * 12,
            "episode": np.repeat([0, 1, 2, 3], 3),
            "turn": [0, 1, 2] * 4,
            "agent": ["walker"] * 12,
            "state": np.array([0, 1, 2, 0, 1, 1, 0, 3, 2, 0, 3, 3], np.uint64),
            "reward": [0.0, 0.0, 10.0, 0.0, 0.0, 0.0] * 2,
        }
    )
    episode = np.repeat([0.8660, -0.8660], 3)
    step = np.array([0.8660, 1.1547, 0.0, -0.8660, -0.5774, -0.5774])
    return turns, np.tile(episode + step, 2)


@reproduction(
    62,
    claim="Comparing what followed the same state adds signal to a sparse outcome: learning is faster.",
    baseline="GRPO: the episode level alone, same episodes per iteration and learning rate",
    criterion="worked advantages equal to 4 decimals; mean success over training higher than GRPO's by > 2 standard "
    "errors of the difference, paired by seed",
    seeds=tuple(range(2000, 2040)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then both arms on the key-door corridor."""
    turns, expected = worked()
    error = float(np.abs(np.asarray(gigpo().evaluate(turns)) - expected).max())
    arms = train_arms(
        "corridor", {name: SETTINGS | arm for name, arm in ARMS.items()}, seeds,
        lambda learned: {"curve": float(np.mean(learned.curve()))},
    )  # fmt: skip
    gain, standard_error = arms.gain("gigpo", "grpo", "curve")
    measured = {"worked_error": error} | arms.measured() | {"gain": gain, "standard_error": standard_error}
    return Outcome(measured, error <= 1e-4 and gain > 2 * standard_error)
