"""[147] CoMAM (arXiv 2603.12631): an agent takes part in the team's reward as far as its own reward agrees with it.

Three agents act in turn, each seeing what the one before did: construct, profile, retrieve. Each choice has a quality
and the team succeeds with the product of the three. The profiler's local reward pays for the opposite of quality. The
outcome alone is reported: nothing is gained here by local rewards. Left out: language models and their memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import evaluate
from palaestra.algebra.turns import Turns
from palaestra.credit import comam_reward, ndcg
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

SETTING = {
    "env": {"make": "native/memory_team"},
    "learn": {"lr": 0.2},
    "train": {"iterations": 60, "groups": 1, "group_size": 16},
}


def worked() -> dict[str, float]:
    """Four episodes of two agents worked out by hand; errors of agreement and reward, and of the two edge cases."""
    local = {"a": [0.9, 0.6, 0.1, 0.3], "b": [0.1, 0.2, 0.9, 0.8]}
    keys = {"group": [0] * 8, "episode": [0, 1, 2, 3] * 2, "turn": [0] * 8, "agent": ["a"] * 4 + ["b"] * 4}
    outcomes = {"outcome": [1, 0.5, 0, 0.25] * 2, "same": [0.7] * 8, "none": [0.0] * 8}
    turns = Turns(keys | outcomes | {"reward": local["a"] + local["b"]})
    over, unit = ("group", "agent"), ("episode", "agent")
    signals = [ndcg("reward", outcome, over=over, unit=unit) for outcome in ("outcome", "same", "none")]
    agreement, same, none, reward = map(np.asarray, evaluate(turns, *signals, comam_reward(outcome="outcome")))
    return {
        "agreement_error": float(np.abs(agreement[[0, 4]] - [1.0, 0.5820]).max()),
        "reward_error": float(np.abs(reward[:4] - [1.5321, 0.9161, 0.1, 0.4580]).max()),
        "edge_error": float(np.abs(np.concatenate([same, none]) - 1).max()),
    }


@reproduction(
    147,
    claim="Adding the team's outcome in proportion to rank agreement keeps an agent whose local reward points the "
    "wrong way from ruining the team.",
    baseline="each agent trained on its local reward alone; the outcome alone for all is reported",
    criterion="worked numbers to 4 decimals, equal outcomes weigh all agents alike; success at the end higher by >= "
    "0.2 in every seed; should hold in 9 of 10 blocks of five fresh seeds",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers; then trained as by `palaestra train world env.make=native/memory_team credit="comam()"`."""
    errors = worked()
    arms = train_arms(
        "world",
        {
            "comam": SETTING | {"credit": "comam()"},
            "local": SETTING | {"credit": 'standardise(agent_return(), over=("group", "agent"), unit="episode")'},
            "outcome": SETTING | {"credit": 'grpo("success")'},
        },
        seeds,
        lambda learned: {"success": np.mean(learned.curve()[-15:])},
    )
    gain = arms.values["comam"]["success"] - arms.values["local"]["success"]
    return Outcome(errors | arms.measured(), bool(max(errors.values()) <= 1e-4 and (gain >= 0.2).all()))
