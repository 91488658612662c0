"""[208] MOMAland (arXiv 2407.16312): on the beach, what everybody is paid decides whether one section is given up.

The best spread crowds one section so that all others are at their best. The world `beach`, capacity only: ten people, a
row of logits each, by the recipe `world`. Paid for their own section they spread evenly; paid by the whole beach they
find better; paid by the difference that they make to it (the reward without them subtracted) best. Left out: the
mixture of types, and learning with moves instead of a choice of section.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Beach
from palaestra.envs.worlds.exact.objectives import beach_capacity, beach_optimum
from palaestra.evaluation.dominance import eum, hypervolume, simplex_weights
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

FRONT = ((1.0, 5.0), (3.0, 3.0), (5.0, 1.0), (2.0, 2.0))
LATE = 10
WORLD: dict[str, Any] = {
    "env": {"make": "native/beach"},
    "credit": 'centre("reward", over="agent")',
    "train": {"iterations": 100, "groups": 1, "group_size": 16},
}
ARMS = {
    "local": WORLD,
    "global": {**WORLD, "reward": 'col("whole")'},
    "difference": {**WORLD, "reward": 'col("difference")'},
}


@reproduction(
    208,
    claim="Paid by the difference that they make, independent agents crowd one section of the beach for everybody's "
    "good; paid for their own section, they spread evenly.",
    baseline="the uniform spread; reward of one's own section; reward of the whole beach",
    criterion="worked numbers; mean total at the end of local < global < difference, and difference > 0.85 of the "
    "optimum (so on the fresh seed that was tried)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then three kinds of reward."""
    whole: dict[str, list[float]] = {name: [] for name in ARMS}

    def watch(arm: str, iteration: int, turns: Turns) -> None:
        whole[arm].append(float(turns["whole"].mean()))  # type: ignore[arg-type]

    train_arms("world", ARMS, seeds, lambda _: {}, on_turns=watch)
    totals = {name: float(np.reshape(each, (len(seeds), -1))[:, -LATE:].mean()) for name, each in whole.items()}
    env = Beach()
    people, sections = len(env.agents), len(env.choices)
    optimum, _ = beach_optimum(people, sections, env.psi)
    measured = {"optimum": optimum, "uniform": float(sections * beach_capacity(np.array(people / sections), env.psi))}
    measured |= {f"total_{name}": total for name, total in totals.items()}
    measured["hypervolume"] = hypervolume(np.array(FRONT), np.zeros(2))
    measured["expected_utility"] = eum(np.array(FRONT), simplex_weights(2, 100_001))
    worked = abs(measured["hypervolume"] - 13) < 1e-9 and abs(measured["expected_utility"] - 4) < 1e-3
    worked &= abs(beach_optimum(100, 6, 7)[0] - 12.88) < 5e-3
    ordered = totals["local"] < totals["global"] < totals["difference"]
    return Outcome(measured, bool(worked and ordered and totals["difference"] > 0.85 * optimum))
