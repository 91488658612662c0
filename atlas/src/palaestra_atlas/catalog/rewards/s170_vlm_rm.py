"""[170] VLM-RM (arXiv 2310.12921): projecting on the line from a baseline to the goal removes what does not matter.

States move from a baseline embedding to a goal embedding, with noise in all 32 dimensions; which reward follows the
true progress? Also the card's exact values. Left out: CLIP, and control with the reward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.rewards.shaping.goals import goal_projection, projected_similarity
from palaestra_atlas.reproductions import Outcome, exact, reproduction

WIDTH, STATES, NOISE, ALPHAS = 32, 500, 0.3, (0.0, 0.5, 1.0)
EXACT = {(1, 1, 1): (0.57735, 0.70684, 0.75), (1, 0, 1): (0.70711, 0.91069, 0.97855)}


def exact_error() -> float:
    """Largest deviation from the card's values, for goal e1 and baseline e2."""
    unit = np.eye(3)
    found = [[projected_similarity(np.array([s]), unit[0], unit[1], a)[0] for a in ALPHAS] for s in EXACT]
    return float(np.abs(np.array(found) - np.array(list(EXACT.values()))).max())


@exact
def card() -> None:
    """The card's rewards at every strength, of arrays and of columns; at strength 0 the cosine."""
    assert exact_error() < 6e-6
    rows = {"seen": [[1.0, 1.0, 1.0], [1.0, 0.0, 1.0]], "goal": [[1.0, 0.0, 0.0]] * 2, "start": [[0.0, 1.0, 0.0]] * 2}
    for place, alpha in enumerate(ALPHAS):
        found = np.asarray(goal_projection("seen", "goal", "start", alpha=alpha).evaluate(Turns(rows)))
        np.testing.assert_allclose(found, [values[place] for values in EXACT.values()], atol=6e-6)


@exact
def length_does_not_count() -> None:
    """A state three times as long is the same state."""
    state, goal, start = np.array([[1.0, 1.0, 1.0]]), np.eye(3)[0], np.eye(3)[1]
    for alpha in ALPHAS:
        shorter, longer = (projected_similarity(size * state, goal, start, alpha) for size in (1.0, 3.0))
        np.testing.assert_allclose(shorter, longer)


@exact
def several_sentences() -> None:
    """Of two goal sentences the mean of their unit vectors counts."""
    state, start = np.array([[1.0, 1.0, 1.0]]) / np.sqrt(3), np.eye(3)[1]
    both = projected_similarity(state, np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 5.0]]), start, 1.0)
    half = np.array([0.5, 0.0, 0.5])
    line = (half - start) / np.linalg.norm(half - start)
    np.testing.assert_allclose(both, 1 - 0.5 * ((state[0] - half) @ line) ** 2)


@exact
def follows_progress() -> None:
    """On the way from baseline to goal the reward rises with progress; towards something else it does not."""
    found = [correlations(seed)[2] for seed in range(3)]
    assert min(found) > 0.6, found


@exact
def in_training() -> None:
    """Of sentences about a kitchen: the one that says what is wanted is rewarded most."""
    from palaestra.learning.stages.novelty import embed
    from palaestra.learning.stages.stage import Context

    texts = ["mug in the sink cold", "mug in the sink warm", "mug on the table cold"]
    stage = embed("observation", texts={"goal": "mug in the sink warm", "baseline": "mug"})
    turns = stage(Turns({"episode": [0] * 3, "turn": range(3), "observation": texts}), cast("Context", None))
    signal = goal_projection("embedding", "embedding.goal", "embedding.baseline", alpha=1.0)
    found = np.asarray(signal.evaluate(turns))
    assert found.argmax() == 1, found
    np.testing.assert_allclose(found[1], 1.0)


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
