"""[200] HERON (arXiv 2309.02632): a ranking of what matters needs no weights, and no care for units.

Worked labels of four trajectories. Then 400 random ones whose energy is given in other units, times 1, 10 and 100: the
reward learned from lexicographic preferences stays what it was, a hand-made sum falls for the unit. Left out: reward
networks, refreshing the model while the policy learns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import as_signal, standardise
from palaestra.algebra.turns import Turns
from palaestra.rewards import bradley_terry, lexicographic, lexicographic_preference, pairs, reward_of
from palaestra_atlas.reproductions import Outcome, reproduction

FACTORS, SIGNS = ("success", "energy", "smooth"), (1.0, -1.0, 1.0)
FOUR = np.array([[1, 5, 0.2], [1, 4, 0.9], [0, 1, 0.9], [0, 1.5, 0.1]])
LABELS = {(1, 0): 1, (2, 0): -1, (2, 1): -1, (3, 0): -1, (3, 1): -1, (3, 2): -1}
NUMBER, TOP, SCALES = 400, 100, (1.0, 10.0, 100.0)


def worked_errors() -> float:
    """Labels that differ from the card's, by the comparator and by the signal's order of the four."""
    margins = tuple(FOUR.std(axis=0))
    first, second = (FOUR[list(side)] for side in zip(*LABELS, strict=True))
    found = lexicographic_preference(first, second, signs=SIGNS, margins=margins)
    wrong = int((found != np.array(list(LABELS.values()))).sum())
    turns = Turns({"group": [0] * 4, "episode": range(4)} | dict(zip(FACTORS, FOUR.T, strict=True)))
    order = np.asarray(lexicographic(*FACTORS, signs=SIGNS).evaluate(turns))
    return wrong + float(np.abs(order - [1 / 3, 1, -1 / 3, -1]).max())


def learned(scale: float, rng: np.random.Generator) -> tuple[np.ndarray, float, float]:
    """Weights of the standardised factors; success of the best hundred by them, and by success - energy + smooth."""
    success = (rng.random(NUMBER) < 0.4).astype(float)
    columns = {"success": success, "energy": scale * rng.normal(3, 1, NUMBER), "smooth": rng.random(NUMBER)}
    turns = Turns({"group": [0] * NUMBER, "episode": range(NUMBER)} | columns)
    factors = [standardise(name, over=(), ddof=0, eps=0.0) for name in FACTORS]
    compared = pairs(
        turns, *factors, compare=lambda a, b: lexicographic_preference(a, b, signs=SIGNS, margins=(0.0, 1.0, 1.0))
    )
    weights = bradley_terry(compared)
    plain = as_signal("success") - as_signal("energy") + as_signal("smooth")
    orders = (np.argsort(-np.asarray(r.evaluate(turns))) for r in (reward_of(weights, *factors), plain))
    rates = [success[order[:TOP]].mean() for order in orders]
    return weights, float(rates[0]), float(rates[1])


@reproduction(
    200,
    claim="A reward learned from lexicographic preferences ranks by what was said to matter, in whatever units.",
    baseline="success - energy + smoothness",
    criterion="no wrong label; weights equal to 1e-6 and success of the best hundred 1.00 for energy times 1, 10 and "
    "100, in every run; the sum's best hundred succeed less often at every scale, and at 100 less than at 1",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Labels, then the three scales."""
    measured = {"worked_error": worked_errors()}
    found = {scale: [learned(scale, np.random.default_rng(seed)) for seed in seeds] for scale in SCALES}
    weights = np.array([[each[0] for each in runs] for runs in found.values()])
    measured["weights_shift"] = float(np.abs(weights - weights[0]).max())
    for name, weight in zip(FACTORS, weights[0].mean(axis=0), strict=True):
        measured[f"weight_{name}"] = float(weight)
    ours, theirs = (np.array([[each[k] for each in runs] for runs in found.values()]) for k in (1, 2))
    for scale, mine, sums in zip(SCALES, ours.mean(axis=1), theirs.mean(axis=1), strict=True):
        measured |= {f"success_{scale:g}": float(mine), f"success_sum_{scale:g}": float(sums)}
    holds = measured["worked_error"] <= 1e-12 and measured["weights_shift"] <= 1e-6 and ours.min() == 1.0
    return Outcome(measured, bool(holds and (theirs < ours).all() and theirs[2].mean() < theirs[0].mean()))
