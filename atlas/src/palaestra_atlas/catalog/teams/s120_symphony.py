"""[120] Symphony-Coord (arXiv 2602.00966): a contextual bandit in the router's seat finds its way after a shock.

The recipe `routing`: requests of two kinds, five workers of different skill and price; halfway the best worker of one
kind loses its skill, and nobody says so. LinUCB with a model for each arm beside UCB1, which sees no kind, and beside
LinUCB that never forgets, which decides nothing. The paper shares one model over six features of load and latency; here
the kind is the context. Left out: load, latency, voting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

SHOCK, END = 50, 110


def seat(**options: Any) -> dict[str, Any]:
    """The recipe with another bandit."""
    return {
        "policies": {"route": {"options": options}},
        "stages": [f"shock(at_step={SHOCK})"],
        "train": {"iterations": END, "groups": 24},
    }


ARMS = {"linucb": seat(discount=0.99), "keeps_all": seat(discount=1.0), "ucb1": seat(index="ucb1", discount=0.99)}


def success(learned: TrainingResult) -> dict[str, float]:
    """Share of requests that were answered rightly: before the shock, and in the last thirty iterations."""
    curve = np.array(learned.curve())
    return {"before": float(curve[SHOCK - 20 : SHOCK - 1].mean()), "after": float(curve[-30:].mean())}


@reproduction(
    120,
    claim="A contextual bandit beats one that sees no context, before a shock and after; forgetting is no sure help.",
    baseline="UCB1 without context; the same bandit without forgetting, shown",
    criterion="answered rightly: above UCB1 by 0.05 or more before and after the shock, in the mean over seeds (held "
    "on both fresh blocks; forgetting gained 0.05 on the reported seeds and lost 0.03 and 0.05 on the fresh ones)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Three seats."""
    arms = train_arms("routing", ARMS, seeds, success)
    ahead = [arms.gain("linucb", "ucb1", name)[0] for name in ("before", "after")]
    recovers = arms.gain("linucb", "keeps_all", "after")[0]
    return Outcome(arms.measured() | {"recovers": recovers}, min(ahead) >= 0.05)
