"""[10] Cooper (arXiv 2508.05613): a reward model is hacked by the policy that it pays, unless it is refitted beside it.

A language model of 20 thousand parameters answers nine sums; the recipe `cooper` as it ships. The model of the start is
fitted to worked solutions against bare wrong answers and so overpays whoever recites all digits. Left out: a verifier
that is a language model, and negatives written by one; copies are corrupted, and the env finds that they are wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.runs.inline import TrainingResult
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

START = 'online_linear("palaestra.judges.answer_features:overlap", weights=[2.0, 0.67, 1.38], bias=-2.55)'
ARMS: dict[str, Any] = {
    "cooper": {},
    "frozen": {"stages": [f"alternate(every=0, reference='reference', model={START!r})"]},
    "rule": {"reward": 'col("rule")'},
}


def last(learned: TrainingResult) -> dict[str, float]:
    """Means over the last ten iterations."""
    return {"paid": float(np.mean(learned.curve("reward")[-10:])), "true": float(np.mean(learned.curve()[-10:]))}


@reproduction(
    10,
    claim="Trained against a frozen reward model, a policy earns nearly all that it pays and is right nearly never; if "
    "the model is refitted each iteration on verified answers against corrupted ones, both rise together.",
    baseline="the same reward model, frozen; and the rule alone as reward",
    criterion="of every seed, mean of the last ten iterations: frozen is paid > .8 at a true accuracy < .1; co-trained "
    "is right > .75, and not .1 less often than with the rule on average",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Three arms."""
    arms = train_arms("cooper", ARMS, seeds, last)
    paid, true = ({arm: found[name] for arm, found in arms.values.items()} for name in ("paid", "true"))
    hacked = (paid["frozen"] > 0.8).all() and (true["frozen"] < 0.1).all()
    cured = (true["cooper"] > 0.75).all() and true["cooper"].mean() > true["rule"].mean() - 0.1
    return Outcome(arms.measured(), bool(hacked and cured))
