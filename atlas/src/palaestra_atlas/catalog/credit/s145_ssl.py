"""[145] SSL (arXiv 2601.22491): tiers of nearness to the target give a signal long before the first hit.

A pointer has to be turned to a mark and let go there, which hardly ever happens by chance. The same policy gets either
the hit alone or the hit with tiers. Left out: screens, mazes and the models that act there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.rewards import sweet_spot
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

SETTING = {
    "env": {"make": "native/dial", "options": {"target": 10, "horizon": 30}},
    "learn": {"lr": 0.1, "terms": ["surrogate()", "entropy(0.03)"]},
    "train": {"iterations": 150, "groups": 1, "group_size": 24},
}


def order_gap() -> float:
    """Least reward of a solved minus greatest of an unsolved episode, over all distances; with the default tiers."""
    distance = np.tile(np.linspace(0, 3, 301), 2)
    turns = Turns({"distance": distance, "success": np.repeat([True, False], 301)})
    reward = np.asarray(sweet_spot("distance").evaluate(turns))
    return float(reward[:301].min() - reward[301:].max())


@reproduction(
    145,
    claim="Tiers of nearness below the reward of success keep its order and let a policy learn that hardly ever "
    "succeeds.",
    baseline="the binary reward, same policy, seeds and learning rate",
    criterion="every solved episode earns more than any unsolved one; share of hits at the end >= 0.9 with tiers, <= "
    "0.3 without, means over the seeds; should hold in 9 of 10 blocks of three fresh seeds",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The order of rewards; then trained as by `palaestra train world env.make=native/dial reward=…`."""
    arms = train_arms(
        "world",
        {"tiers": SETTING | {"reward": 'sweet_spot("distance") * col("ended")'}, "binary": SETTING},
        seeds,
        lambda learned: {"hits": np.mean(learned.curve()[-10:])},
    )
    gap = order_gap()
    holds = gap > 0 and arms.mean("tiers", "hits") >= 0.9 and arms.mean("binary", "hits") <= 0.3
    return Outcome({"order_gap": gap} | arms.measured(), holds)
