"""[21] Lucy-SKG (arXiv 2305.15801): components multiplied, not added, so that none can be farmed alone.

The recipe `trade`: 25 arms trade one skill for the other along a curve on which the sum is highest at both ends.
Worked numbers of the combination, the distance and the mixing in teams. Left out: Rocket League, the auxiliary heads
(they are in `learning.auxiliary`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.credit import team
from palaestra.rewards import closeness, krc, team_mix
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

ENOUGH = 0.4
ARMS = {
    "sum": {"reward": "0.5 * col('first') + 0.5 * col('second')"},
    "krc": {"reward": "krc('first', 'second')"},
}


def worked_error() -> float:
    """KRC, distances and the mixture of two teams of two."""
    pairs = Turns({"a": [0.9, -0.9, 0.9], "b": [0.1, -0.1, -0.1]})
    three = Turns({"a": [0.8], "b": [0.8], "c": [0.0]})
    far = Turns({"distance": [2300.0]})
    players = {"episode": [0] * 4, "turn": [0] * 4, "agent": ["blue_0", "blue_1", "orange_0", "orange_1"]}
    four = Turns(players | {"reward": [1.0, 0.0, 0.0, 0.5]})
    cases: list[tuple[Signal, Turns, list[float]]] = [
        (krc("a", "b"), pairs, [0.3, -0.3, -0.3]),
        (krc("a", "b", "c"), three, [0.0]),
        (closeness("distance", scale=2300), far, [0.6065]),
        (closeness("distance", scale=2300, dispersion=0.5, density=0.5), far, [0.1353]),
        (team_mix(tau=0.3, teams=team()), four, [0.6, -0.1, -0.425, -0.075]),
    ]
    return float(max(np.abs(np.asarray(signal.evaluate(turns)) - goal).max() for signal, turns, goal in cases))


def share_of_both(learned: TrainingResult) -> dict[str, float]:
    """Share of held-out outcomes with enough of both skills."""
    turns = learned.play(groups=200)
    both = ((turns["first"] > ENOUGH) & (turns["second"] > ENOUGH)).to_numpy()
    return {"share": float(both.mean())}


@reproduction(
    21,
    claim="A weighted sum is farmed by one component alone; the geometric mean with a sign asks for all of them.",
    baseline="the weighted sum of the same components",
    criterion="worked numbers equal to 4 decimals; share of outcomes with both skills above .4 below .01 in every run "
    "of the sum, above .3 in every run of KRC",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then both rewards on the bandit."""
    error, arms = worked_error(), train_arms("trade", ARMS, seeds, share_of_both)
    share = {name: arms.values[name]["share"] for name in ARMS}
    measured = {"worked_error": error, **arms.measured(), "lowest_krc": float(share["krc"].min())}
    holds = error <= 1e-4 and share["sum"].max() < 0.01 and share["krc"].min() > 0.3
    return Outcome(measured, bool(holds))
