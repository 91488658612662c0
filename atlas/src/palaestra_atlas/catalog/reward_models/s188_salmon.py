"""[188] SALMON (arXiv 2310.05910): a reward that follows principles, because it saw them negated.

Worked scores of three principles. Then a noisy judge is asked about four principles in both orders, pairs under random
principles are made of that, and a bilinear reward reads answer and principles; a principle and its negation are two
sentences, so two inputs. Asked for one of them alone. Left out: the policy's training, exemplars, red-team principles.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.judges.aggregate import swap_consistent
from palaestra.judges.matched import principle_pairs, principle_scores
from palaestra.learning.reward_models import LinearReward, Preferences
from palaestra_atlas.catalog.reward_models.made import rows
from palaestra_atlas.reproductions import Outcome, reproduction

PRINCIPLES = 4


def worked_error() -> float:
    """Scores of the card, and that a negated principle turns the pair."""
    lead = swap_consistent(np.array([3.0, -0.6, 1.2]), np.array([1.0, -0.2, -0.4]))
    scores = lead / np.array([4.0, 1.0, 2.25])
    wrong = float(np.abs(scores - [0.5, -0.4, 0.0]).max())
    for negate, first in ((0.0, 0), (1.0, 1)):
        made = principle_pairs(np.array([0]), np.array([1]), scores[None], stop=1e-9, flip=0.0, negate=negate)
        wrong += float((made["chosen"] != first).sum())
    return wrong


def sentences(condition: np.ndarray) -> np.ndarray:
    """Which principles, and which negations of them, stand in the prompt: [rows, 2 · principles]."""
    return np.concatenate([condition > 0, condition < 0], 1).astype(float)


def right(seed: int, *, negate: float) -> float:
    """Accuracy when one principle, or its negation, is asked for on unseen pairs."""
    rng = np.random.default_rng([188, seed])
    x = rng.normal(size=(3000, PRINCIPLES))
    first, second = np.arange(1500), np.arange(1500, 3000)
    lead = x[first] - x[second]
    asked = [lead + 0.5 * rng.normal(size=lead.shape) for _ in range(2)]
    made = principle_pairs(first, second, principle_scores(swap_consistent(*asked)), negate=negate, seed=seed)
    chosen, rejected = (rows(x[made[name].to_numpy()]) for name in ("chosen", "rejected"))
    model = LinearReward(standardise=False)
    model.fit(Preferences(chosen, rejected, condition=rows(sentences(np.array(made["condition"].to_list())))))
    a, b = rng.normal(size=(2, 2000, PRINCIPLES))
    one = np.eye(PRINCIPLES)[rng.integers(PRINCIPLES, size=2000)] * rng.choice([-1.0, 1.0], 2000)[:, None]
    ahead = ((a - b) * one).sum(1) > 0
    pairs = Preferences(rows(np.where(ahead[:, None], a, b)), rows(np.where(ahead[:, None], b, a)),
                        condition=rows(sentences(one)))  # fmt: skip
    return float(model.agrees(pairs).mean())


@reproduction(
    188,
    claim="A reward that was shown principles and their negations follows whichever is asked for, without new labels.",
    baseline="the same without negated principles",
    criterion="worked scores exact; with negations right in at least 95 % of pairs and at least .1 more often than "
    "without, in every run",
    seeds=(0, 1, 2),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The worked numbers, then both rewards."""
    found = np.array([[right(seed, negate=share) for share in (0.5, 0.0)] for seed in seeds])
    gap = (found[:, 0] - found[:, 1]).min()
    measured = {"worked_error": worked_error(), "right": float(found[:, 0].mean()),
                "right_without": float(found[:, 1].mean()), "least_gap": float(gap)}  # fmt: skip
    return Outcome(measured, bool(measured["worked_error"] < 1e-12 and found[:, 0].min() >= 0.95 and gap >= 0.1))
