"""[105] PRefLexOR (arXiv 2410.12375): fresh pairs of a reference and the policy of now, EXO's bounded loss, refinement.

A tiny language model answers sums; each iteration the reference answer stands against what the policy said. Left out:
references written from retrieved text, ORPO's first phase, and the integrator of several answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from palaestra.algebra.turns import Turns
from palaestra.judges.refine import refine
from palaestra.learning.stages.stage import Context
from palaestra.learning.terms import MicroBatch, dpo
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

FRESH: dict[str, Any] = {
    "stages": ["references('reference')", "preferences(\"current_vs_reference('reference_row')\", unit='turn')"],
    "reward": None, "learn": {"terms": "dpo(beta=0.1, loss='exo_pair', smoothing=0.005)", "lr": 0.001},
    "train": {"iterations": 40},
}  # fmt: skip
ARMS: dict[str, Any] = {
    "fresh": FRESH,
    "once": FRESH | {"stages": [*FRESH["stages"], "palaestra_atlas.catalog.reward_models.s105_preflexor:Once()"]},
}
WORKED = {-20.0: 4.3020, 0.0: 1.9585, 20.0: 0.2707}
"""Loss by margin at β = .1 and smoothing .005."""


class Once:
    """A stage after the others: the pairs of the first iteration, of the policy as it began, in every iteration."""

    def __init__(self) -> None:
        self.first: Turns | None = None

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """What the first iteration was learned from."""
        self.first = turns if self.first is None else self.first
        return self.first


def exo(margin: float) -> float:
    """The term on one pair of that margin."""
    columns = {"pair": [0, 0], "chosen": [True, False]}
    new = torch.tensor([[margin], [0.0]], dtype=torch.float64)
    piece = MicroBatch.of(new, reference=torch.zeros(2, 1, dtype=torch.float64), columns=columns)
    return float(dpo(0.1, "exo_pair", smoothing=0.005)(piece))


def recursion(seed: int, games: int = 400) -> tuple[float, float]:
    """Mean quality of the last of four rounds and of the best by a judge; a round improves with .6, worsens with .2."""
    rng = np.random.default_rng(seed)
    last, best = [], []
    for _ in range(games):

        def answer(question: str, thinking: str | None) -> tuple[str, str]:
            quality = 0 if thinking is None else int(thinking)
            return str(quality), str(quality)

        def critic(question: str, thinking: str, said: str) -> str:
            luck = rng.random()
            return str(int(thinking) + (1 if luck < 0.6 else -1 if luck < 0.8 else 0))

        found = refine(answer, critic, "?", rounds=4, best_by=lambda question, said: float(said))
        last.append(float(found.answers[-1]))
        best.append(float(found.answer))
    return float(np.mean(last)), float(np.mean(best))


@reproduction(
    105,
    claim="Pairs of a reference against the policy's answer of now, made anew each iteration, teach the answers by a "
    "loss that wants a finite margin; a judge that keeps the best of some refinements beats taking the last.",
    baseline="the policy before; the pairs of the first iteration in all; a DPO loss, which wants margins without end; "
    "the last refinement",
    criterion="EXO at margins -20, 0, 20 to 1e-4, least at ln(199)/.1 to .05; accuracy over the last ten iterations at "
    "least .3 above the first's in every seed and .1 above that with pairs made once on average; best by judge above "
    "the last round",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked losses, training, recursion."""
    error = max(abs(exo(margin) - loss) for margin, loss in WORKED.items())
    least = float(minimize_scalar(exo, bounds=(40, 70), method="bounded").x)
    arms = train_arms(
        "cooper", ARMS, seeds,
        lambda learned: {"before": learned.curve()[0], "after": float(np.mean(learned.curve()[-10:]))},
    )  # fmt: skip
    rounds = [recursion(seed) for seed in seeds]
    last, best = (float(np.mean([each[side] for each in rounds])) for side in (0, 1))
    gains = arms.values["fresh"]["after"] - arms.values["fresh"]["before"]
    measured = {"loss_error": error, "least_at": least, "last": last, "best_by_judge": best} | arms.measured()
    anew, _ = arms.gain("fresh", "once", "after")
    taught = (gains >= 0.3).all() and anew >= 0.1
    holds = error < 1e-4 and abs(least - 52.933) < 0.05 and taught and best > last
    return Outcome(measured, bool(holds))
