"""[194] RLVER (arXiv 2507.03112): a policy learns what a simulated user needs from the user's emotion alone.

The user of `roles/user` has one of six needs, which can be heard in what it says; the right kind of reply pleases, any
other hurts. Three turns, a table of logits, GRPO on the emotion at the end by the recipe `world`, three difficulties.
Left out: language, thinking before speaking, 500 personas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.envs.roles.user import DIFFICULTIES
from palaestra.rewards.judged.emotion import rlver_reward
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

ARMS: dict[str, dict[str, Any]] = {
    difficulty: {
        "env": {"make": "roles/user", "options": {"user": difficulty, "turns": 3}},
        "reward": 'rlver_reward("delta")',
        "train": {"iterations": 50},
    }
    for difficulty in DIFFICULTIES
}


def worked_error() -> float:
    """From 40 by +10, -3, +10 to 57, paid at the end."""
    turns = Turns({"episode": [0] * 3, "turn": range(3), "agent": ["a"] * 3, "delta": [10.0, -3.0, 10.0]})
    return float(np.abs(np.asarray(rlver_reward("delta").evaluate(turns)) - [0, 0, 0.57]).max())


@reproduction(
    194,
    claim="The emotion of a simulated user at the end of the dialogue is enough to learn what it needs; harder users "
    "teach less.",
    baseline="the same policy before training",
    criterion="worked reward exact; final emotion of the moderate above the hard above the harder user in the mean, "
    "and above its start with each in every seed (held on the fresh seed and the fresh block tried)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Three users."""
    paid: dict[str, list[float]] = {name: [] for name in ARMS}

    def watch(arm: str, iteration: int, turns: Turns) -> None:
        paid[arm].append(float(turns["reward"].sum() / turns.codes("episode").size))

    def nothing(learned: TrainingResult) -> dict[str, float]:
        return {}

    train_arms("world", ARMS, seeds, nothing, on_turns=watch)
    curves = {name: np.reshape(values, (len(seeds), -1)) for name, values in paid.items()}
    before, after = ({name: curve[:, part].mean(axis=1) for name, curve in curves.items()}
                     for part in (slice(3), slice(-5, None)))  # fmt: skip
    measured = {"worked_error": worked_error()}
    for name in ARMS:
        measured |= {f"before_{name}": float(before[name].mean()), f"after_{name}": float(after[name].mean())}
    order = [measured[f"after_{name}"] for name in ("moderate", "hard", "harder")]
    better = all((after[name] > before[name]).all() for name in ARMS)
    return Outcome(measured, bool(measured["worked_error"] < 1e-9 and order[0] > order[1] > order[2] and better))
