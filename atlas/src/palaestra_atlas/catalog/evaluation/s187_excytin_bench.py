"""[187] ExCyTIn-Bench (arXiv 2507.14201): credit for the way to an answer pays where the answer is far.

An evidence tree, the lock that ends with the first wrong number: at each level one of four leads is right. The recipe
`world` with groups of 16, paid for the answer alone or with path credit; how many iterations until four of five
episodes succeed. Three levels deep the answer alone is enough and path credit gains nothing, nor does it on a small
connected graph, where a random walk already finds the answer (the card's run).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.rewards.paths import path_credit
from palaestra_atlas.reproductions import Outcome, reached, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

ITERATIONS, GOAL = {3: 60, 4: 90, 5: 150}, 0.8
"""By depth; who does not get there counts with all of them."""
CREDIT = {"path": 0.4, "answer": 0.0}
WORKED = {(1, 1, 1, 0): 0.624, (0, 0, 1, 0): 0.4, (1, 1, 0, 0): 0.224, (1, 0, 1, 0): 0.464, (0, 0, 0, 1): 1.0}


def setting(depth: int, gamma: float) -> dict[str, Any]:
    """What an arm changes in the recipe `world`."""
    options = {"steps": depth, "ends": True, "gamma": gamma}
    train = {"iterations": ITERATIONS[depth], "groups": 1, "group_size": 16}
    return {"env": {"make": "native/lock", "options": options}, "train": train}


def needed(learned: TrainingResult) -> dict[str, float]:
    """Iterations to the goal."""
    return {"iterations": reached(learned.curve(), GOAL)}


@reproduction(
    187,
    claim="Credit for the way to the answer shortens learning where the way is long, the more so the longer it is.",
    baseline="the answer alone, right or wrong",
    criterion="worked credits; the ratio of iterations to 80 % success, answer alone over path credit, grows with the "
    "depth 3, 4, 5, is above 1 at 4 and at least 2 at 5 (means over seeds; held on the one fresh block of two seeds "
    "tried)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked credits, then both rewards at three depths."""
    error = max(abs(float(path_credit(list(steps))) - credit) for steps, credit in WORKED.items())
    measured, ratios = {"worked_error": error}, []
    for depth in ITERATIONS:
        arms = train_arms("world", {name: setting(depth, gamma) for name, gamma in CREDIT.items()}, seeds, needed)
        path, answer = (arms.mean(name, "iterations") for name in CREDIT)
        measured |= {f"iterations_path_{depth}": path, f"iterations_answer_{depth}": answer}
        ratios.append(answer / path)
    grows = bool((np.diff(ratios) > 0).all())
    return Outcome(measured, error < 1e-9 and grows and ratios[1] > 1 and ratios[2] >= 2)
