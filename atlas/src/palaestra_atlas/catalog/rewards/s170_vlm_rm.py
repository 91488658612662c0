"""[170] VLM-RM (arXiv 2310.12921): projecting on the line from a baseline to the goal removes what does not matter.

States move from a baseline embedding to a goal embedding, with noise in all 32 dimensions; which reward follows the
true progress? Also the card's exact values. Left out: CLIP, and control with the reward.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.rewards.shaping.goals import projected_similarity
from palaestra_atlas.reproductions import Outcome, reproduction

WIDTH, STATES, NOISE, ALPHAS = 32, 500, 0.3, (0.0, 0.5, 1.0)
EXACT = {(1, 1, 1): (0.57735, 0.70684, 0.75), (1, 0, 1): (0.70711, 0.91069, 0.97855)}


def exact_error() -> float:
    """Largest deviation from the card's values, for goal e1 and baseline e2."""
    unit = np.eye(3)
    found = [[projected_similarity(np.array([s]), unit[0], unit[1], a)[0] for a in ALPHAS] for s in EXACT]
    return float(np.abs(np.array(found) - np.array(list(EXACT.values()))).max())


def correlations(seed: int) -> list[float]:
    """Of the reward with true progress, for each α."""
    rng = np.random.default_rng(seed)
    goal, baseline = rng.normal(size=(2, WIDTH)) / np.sqrt(WIDTH)
    progress = rng.random(STATES)
    states = baseline + progress[:, None] * (goal - baseline) + rng.normal(0, NOISE, (STATES, WIDTH))
    return [float(np.corrcoef(projected_similarity(states, goal, baseline, a), progress)[0, 1]) for a in ALPHAS]


@reproduction(
    170,
    claim="A reward projected on the line from baseline to goal follows progress more closely than plain cosine.",
    baseline="cosine similarity to the goal (α = 0)",
    criterion="exact values to 1e-5; correlation with progress higher for α = 1 than for α = 0 in every seed",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Exact values, then noisy embeddings."""
    found = np.array([correlations(seed) for seed in seeds])
    measured = {"exact_error": exact_error()}
    measured |= {f"correlation_alpha_{a:g}": float(found[:, at].mean()) for at, a in enumerate(ALPHAS)}
    return Outcome(measured, bool(measured["exact_error"] < 1e-5 and (found[:, 2] > found[:, 0]).all()))
