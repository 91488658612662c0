"""[69] SPO (arXiv 2505.23564): values by playing on tell which segment decided an episode; returns hardly do.

The recipe `steps` with three steps of two actions, all of which must be right, played by a policy that does not learn
(each step succeeds with probability 1/2): the stage `mc_values` restarts every episode, and `spo_chain()` is compared
with the true segment advantages. That training by it is no worse than by returns for the same played episodes is
reported. A tree of equal token budget is not claimed to reach higher returns: on tables it did not. Left out: language
models, replay of edges.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.credit import spo_chain, spo_tree, tree_values
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

LENGTH, ROLLOUTS = 3, (2, 4, 9)
STILL = {
    "env": {"options": {"steps": LENGTH, "actions": 2, "decisive": LENGTH}},
    "learn": {"lr": 0.0},
    "train": {"iterations": 1, "group_size": 150},
    "credit": "spo_chain()",
}
LEARNING = {"env": {"options": {"steps": 6, "actions": 3, "decisive": 4}}, "train": {"iterations": 20, "group_size": 8}}
ARMS = {"spo": {"stages": ["mc_values()"], "credit": "spo_chain()"}, "rloo": {"stages": [], "credit": "rloo()"}}


def worked_error() -> float:
    """The worked chain and tree."""
    keys = {"episode": [0] * 4, "turn": range(4), "agent": ["a"] * 4, "reward": [0.0, 0.0, 0.0, 1.0]}
    chain = np.asarray(spo_chain().evaluate(Turns(keys | {"value": [0.5, 0.5, 0.75, 0.25]})))
    parent = np.array([-1, 0, 0, 0, *[1] * 3, *[2] * 3, *[3] * 3])
    value = tree_values(parent, np.array([np.nan] * 4 + [1, 1, 0, 0, 0, 0, 1, 1, 1]))
    tree = Turns({"group": [0] * 12, "value": value[1:], "parent": parent[1:]})
    plain, scaled = (np.asarray(spo_tree(mode=mode).evaluate(tree)) for mode in ("rloo", "grpo"))
    gaps = [
        *(chain - [0, 0.25, -0.5, 0.75]),
        *(plain[:6] - [0.1111, -0.5556, 0.4444, 0.3333, 0.3333, -0.6667]),
        *(scaled[:3] - [0.2673, -1.3363, 1.0690]),
    ]
    return float(np.abs(gaps).max())


def agreement(turns: Turns) -> dict[str, float]:
    """Correlation with the true segment advantage: of the credit that was given, and of trajectory credit."""
    before = pl.col("right").cast(pl.Int32).shift(1, fill_value=1).cum_min().over("group", "episode")
    alive = turns.frame.select(before.alias("alive"))["alive"].to_numpy()
    value = np.where(alive == 1, 0.5 ** (LENGTH - turns["turn"].to_numpy()), 0.0)
    truth = np.asarray(spo_chain().evaluate(turns.with_column(value=value)))
    won = turns.frame.select(pl.col("reward").sum().over("group", "episode"))["reward"].to_numpy()
    given = turns["advantage"].to_numpy()
    return {
        "credit": float(np.corrcoef(given, truth)[0, 1]),
        "trajectory": float(np.corrcoef(won - won.mean(), truth)[0, 1]),
    }


@reproduction(
    69,
    claim="Segment advantages from restarted rollouts agree with the true ones, better with every rollout more.",
    baseline="trajectory credit: the outcome minus its mean on every segment",
    criterion="worked chain and tree to 4 decimals; correlation with the true advantage rises with K, and is above "
    "trajectory credit's for K = 4 and 9",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then 150 episodes per seed and K, then both arms of a training."""
    found: dict[str, list[float]] = {}

    def watch(arm: str, iteration: int, turns: Turns) -> None:
        seen = agreement(turns)
        found.setdefault(arm, []).append(seen["credit"])
        found.setdefault("trajectory", []).append(seen["trajectory"])

    still = {f"k{k}": STILL | {"stages": [f"mc_values(k={k})"]} for k in ROLLOUTS}
    train_arms("steps", still, seeds, lambda learned: {}, on_turns=watch)
    at = {name: float(np.mean(values)) for name, values in found.items()}
    arms = train_arms(
        "steps", {name: LEARNING | arm for name, arm in ARMS.items()}, seeds,
        lambda learned: {"curve": float(np.mean(learned.curve()))},
    )  # fmt: skip
    measured = {"worked_error": worked_error()} | {f"correlation_{name}": value for name, value in at.items()}
    holds = at["k2"] < at["k4"] < at["k9"] and at["k4"] > at["trajectory"] and measured["worked_error"] <= 1e-4
    return Outcome(measured | arms.measured(), holds)
