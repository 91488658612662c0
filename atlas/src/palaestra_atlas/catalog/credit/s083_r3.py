"""[83] R³ (arXiv 2601.19620): a group that failed as a whole is shown a success from the past, and the other way round.

Four tasks, 64 answers each, one of them right, a table of logits. Both arms are the recipe `answers`; one has the stage
`replay()` and the credit `r3()`, by their defaults. Left out: reflection, which needs a language model, and how the
ranking by entropy orders failures, whose numbers are worked out by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import r3
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

ARMS: dict[str, Any] = {"r3": {"stages": ["replay()"], "credit": "r3()"}, "grpo": {"credit": "grpo()"}}
WORLD: dict[str, Any] = {"env": {"options": {"tasks": 4, "answers": 64}}, "train": {"iterations": 60, "groups": 4}}


def ranked_error() -> float:
    """Four failures with the card's entropies: ranks by dominance 1, 0, 1, 1/3, ties averaged, standardised."""
    entropies = [
        [0.1, 0.2, 0.1, 3, 0.1, 0.2, 0.1, 0.2, 0.1, 0.2], [0.8, 0.9] * 5,
        [0.2, 0.3, 0.2, 2, 0.2, 0.3, 0.2, 0.3, 0.2, 0.3], [0.5] * 3 + [1.5] + [0.5] * 6,
    ]  # fmt: skip
    keys = {"group": [0] * 4, "episode": range(4), "turn": [0] * 4, "agent": ["a"] * 4, "reward": [0.0] * 4}
    marks = {"replayed": [False] * 4, "truncated": [False] * 4}
    found = np.asarray(r3().evaluate(Turns(keys | marks | {"entropies": entropies})))
    rank = np.array([5 / 6, 0, 5 / 6, 1 / 3])
    return float(np.abs(found - (rank - rank.mean()) / (rank.std(ddof=1) + 1e-6)).max())


@reproduction(
    83,
    claim="Replaying past episodes of the opposite outcome into groups without variance gives them a gradient and "
    "speeds learning; groups that failed as a whole are told apart by their entropies.",
    baseline="GRPO without replay, same episodes and learning rate",
    criterion="ranked credit of four failures to 1e-9; mean success over training higher in at least four fifths of "
    "the seeds, on average by 0.05",
    seeds=tuple(range(2000, 2020)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked ranks, then both arms."""
    arms = train_arms(
        "answers", {name: WORLD | arm for name, arm in ARMS.items()}, seeds,
        lambda learned: {"curve": float(np.mean(learned.curve()))},
    )  # fmt: skip
    gain, error = arms.gain("r3", "grpo", "curve")
    better = float(np.mean(arms.values["r3"]["curve"] > arms.values["grpo"]["curve"]))
    measured = {"ranked_error": ranked_error()} | arms.measured()
    measured |= {"gain": gain, "standard_error": error, "seeds_better": better}
    return Outcome(measured, measured["ranked_error"] <= 1e-9 and better >= 0.8 and gain >= 0.05)
