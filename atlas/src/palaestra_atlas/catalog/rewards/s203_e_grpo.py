"""[203] E-GRPO (arXiv 2510.24694): a wrong answer is worth something if its search met the gold entities.

The world `hops`: five documents at each of three hops, five answers, right only if all four choices are, by the recipe
`world`. At the start success is nearly never seen, so that GRPO has no signal; the entities of the documents that were
read give one. A negative result: in `roles/search`, where an answer can be right whatever was read, E-GRPO is learned
no faster than GRPO. Left out: language models, clip-higher.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.rewards.combine.masks import e_grpo
from palaestra_atlas.reproductions import Outcome, reached, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

WORLD: dict[str, Any] = {"env": {"make": "native/hops"}, "train": {"iterations": 90, "groups": 8}}
ARMS = {"e_grpo": {**WORLD, "credit": 'e_grpo("found", "entities")'}, "grpo": {**WORLD, "credit": "grpo()"}}


def signal_without_success() -> tuple[float, float]:
    """Largest |credit| in a group of which nobody is right, and least lead of who met more of the gold entities."""
    found = ["<0:1> <1:1> <2:1>", "<0:0> <1:1> <2:1>", "<0:0> <1:0> <2:1>", "<0:1> <1:1> <2:3>"]
    keys = {"group": [0] * 4, "episode": range(4), "turn": [0] * 4, "agent": ["a"] * 4, "reward": [0.0] * 4}
    marks = {"success": [False] * 4, "truncated": [False] * 4, "entities": [["<0:0>", "<1:0>", "<2:0>"]] * 4}
    credit = np.asarray(e_grpo("found", "entities").evaluate(Turns(keys | marks | {"found": found})))
    return float(np.abs(credit).max()), float(min(credit[2] - credit[1], credit[1] - max(credit[0], credit[3])))


def learned_so_far(learned: TrainingResult) -> dict[str, float]:
    """Mean share of right answers over training, and iterations to a half."""
    return {"curve": float(np.mean(learned.curve())), "iterations": reached(learned.curve(), 0.5)}


@reproduction(
    203,
    claim="Paying wrong answers for the gold entities that they met gives a signal to groups without a right answer.",
    baseline="GRPO on correctness",
    criterion="a group without a right answer has credit, more for more entities; mean success over training higher by "
    "at least 0.05 in the mean, and in every seed (held on both fresh blocks of two seeds tried)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """A group of failures, then both arms."""
    largest, lead = signal_without_success()
    arms = train_arms("world", ARMS, seeds, learned_so_far)
    gain, error = arms.gain("e_grpo", "grpo", "curve")
    measured = {"largest_credit": largest, "least_lead": lead} | arms.measured()
    measured |= {"gain": gain, "standard_error": error}
    ahead = (arms.values["e_grpo"]["curve"] > arms.values["grpo"]["curve"]).all()
    return Outcome(measured, bool(lead > 0 and ahead and gain >= 0.05))
