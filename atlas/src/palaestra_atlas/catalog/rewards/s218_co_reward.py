"""[218] Co-Reward: the majority of one view labels the other.

The world `answers` with two wordings of eight tasks; a network shares what it learns between them. It begins with
habits: each wording suggests a wrong answer of its own more often than the right one is given. Self-vote locks the
suggestion in, the other wording corrects it. Left out: language models, and how a question is rephrased.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.rewards.judged.votes import co_reward
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

SIZE = {"tasks": 8, "answers": 5, "wordings": 2}
WORLD: dict[str, Any] = {
    "name": "wordings",
    "env": {"make": "native/answers", "options": {**SIZE, "features": True}},
    "policies": {"network": {"kind": "mlp", "options": {"hidden": []}}},
    "team": {"answerer": "network"},
    "warm_start": {"script": "palaestra.envs.worlds.answers:suggestible", "options": SIZE, "groups": 2000, "lr": 0.05},
    "learn": {"lr": 0.05},
    "train": {"iterations": 60, "groups": 16},
}
SELF = 'standardise(vote("answer", over=("task", "wording")), over=("task", "wording"), unit="episode")'
ARMS: dict[str, dict[str, Any]] = {
    "co": {"credit": 'co_reward("answer", pair="task", view="wording")'},
    "self": {"credit": SELF},
}


def labels_error() -> float:
    """One view says 1, 1, 2, the other 2, 2, 1: each is paid for what the other's majority says."""
    keys = {"group": [0] * 6, "view": [0] * 3 + [1] * 3, "episode": range(6), "turn": [0] * 6, "agent": ["a"] * 6}
    credit = np.asarray(co_reward("answer").evaluate(Turns(keys | {"answer": [1, 1, 2, 2, 2, 1]})))
    expected = np.array([-1, -1, 2] * 2) / np.sqrt(3)
    return float(np.abs(credit - expected).max())


def accuracy(learned: TrainingResult) -> dict[str, float]:
    """In the first three iterations and in the last ten."""
    curve = learned.curve()
    return {"start": float(np.mean(curve[:3])), "end": float(np.mean(curve[-10:]))}


@reproduction(
    218,
    claim="Labels from the other wording of a question let answers improve further than labels from the own wording.",
    baseline="majority vote within each view",
    criterion="worked labels to 1e-5; accuracy in the end higher than with self-vote in every seed, by at least 0.1 in "
    "the mean (held on the one fresh block of two seeds tried)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked labels, then both kinds of label."""
    arms = train_arms({**WORLD, "credit": SELF}, ARMS, seeds, accuracy)
    gain, error = arms.gain("co", "self", "end")
    measured = {"labels_error": labels_error()} | arms.measured() | {"gain": gain, "standard_error": error}
    ahead = (arms.values["co"]["end"] > arms.values["self"]["end"]).all()
    return Outcome(measured, bool(measured["labels_error"] < 1e-5 and ahead and gain >= 0.1))
