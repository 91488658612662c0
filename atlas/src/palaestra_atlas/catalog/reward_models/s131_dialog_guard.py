"""[131] DialogGuard (arXiv 2512.02282): one judge, a corrected one, a debate's jury, a vote of ten, on levels 0 to 2.

A stub with the confusion of a judge that is right in seven of ten, 20,000 items: four protocols, and the vote again
with four of five draws shared. Then a run of the recipe `talk` whose judge errs on two turns of ten, paid by one
answer or by a vote of nine. Left out: real judges and advocates, whose errors nobody knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from palaestra.judges import Correct, Debate, Panel, StubJudge, Vote
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

CONFUSION = [[0.75, 0.2, 0.05], [0.2, 0.6, 0.2], [0.05, 0.2, 0.75]]
CARD = {
    "single": (0.699, 0.875, 0.253), "dual": (0.699, 0.912, 0.290), "jury": (0.892, 0.971, 0.104),
    "vote": (0.946, 0.974, 0.025),
}  # fmt: skip
NEAR = 0.012
QUESTION = "judged(question='Did the clerk do what it was time for?', policy='judge')"
_SAME = {
    "policies": {"judge": {"kind": "script", "options": {"script": "palaestra.judges.scripted:said", "errs": 0.2}}},
    "reward": 'col("score.fits")', "credit": "cm2('reward')", "train": {"iterations": 40},
}  # fmt: skip
ARMS = {
    name: {**_SAME, "stages": [f'score("fits", "{panel}", level="turn")']}
    for name, panel in (("single", QUESTION), ("vote", f"vote({QUESTION}, n=9)"))
}


def protocols(seed: int, *, correlation: float = 0.0) -> dict[str, Panel]:
    """The four, on judges that share no draw but what is said."""
    first, second = (
        StubJudge(CONFUSION, seed=seed, name=name, error_correlation=correlation) for name in ("first", "second")
    )
    return {"single": Vote(first, 1), "dual": Correct(first, second), "jury": Debate(first), "vote": Vote(first)}


def rates(panel: Panel, rows: pl.DataFrame) -> tuple[float, float, float]:
    """Accuracy, recall of risk, false alarms."""
    said, true = panel.score(rows).to_numpy(), rows["truth"].to_numpy()
    return float((said == true).mean()), float((said > 0)[true > 0].mean()), float((said > 0)[true == 0].mean())


def reward(learned: TrainingResult) -> dict[str, float]:
    """Success over the last ten iterations."""
    return {"success": float(np.mean(learned.curve()[-10:]))}


@reproduction(
    131,
    claim="A vote of judgements whose errors are independent is right far more often; one whose errors are shared is "
    "not; a second judge buys recall with false alarms.",
    baseline="one answer of the same judge, also as the reward of a run",
    criterion="accuracy, recall and false alarms of all four protocols within .012 of the card's in every seed; with "
    "80 % shared draws the vote of 10 is within .012 of one answer; a policy paid by a vote of nine succeeds more "
    "often than one paid by one answer in every seed (held on the one fresh block tried; with a judge that "
    "errs on three of ten it did not in every seed)",
    seeds=(20, 21, 22),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Rates on the stub, then both arms of the recipe."""
    measured: dict[str, float] = {}
    holds = True
    for seed in seeds:
        rows = pl.DataFrame({"truth": np.random.default_rng(seed).integers(3, size=20_000)})
        for name, panel in protocols(seed).items():
            found = rates(panel, rows)
            holds &= bool(np.allclose(found, CARD[name], atol=NEAR))
            for what, value in zip(("accuracy", "recall", "alarms"), found, strict=True):
                measured[f"{name}_{what}"] = measured.get(f"{name}_{what}", 0.0) + value / len(seeds)
        shared = rates(protocols(seed, correlation=0.8)["vote"], rows)[0]
        measured["vote_shared"] = measured.get("vote_shared", 0.0) + shared / len(seeds)
        holds &= abs(shared - CARD["single"][0]) <= NEAR
    arms = train_arms("talk", ARMS, seeds, reward)
    holds &= bool((arms.values["vote"]["success"] > arms.values["single"]["success"]).all())
    return Outcome(measured | arms.measured(), holds)
