"""[47] RewardDance (arXiv 2509.08826): the reward is the chance to be better than a good reference.

What a scorer adds to all answers to a prompt cancels; the slope against a reference that is far behind is gone. By
recipe, with a credit that does not know groups: scores of which the prompt makes most, pointwise and against the best
of the group. Left out: images, the rationale, the size of reward models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.learning.reward_models import Against, LinearReward
from palaestra.runs.inline import TrainingResult
from palaestra_atlas.catalog.reward_models.made import rows
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

SCORE = "(col('helpful') + col('offset'))"
SETTINGS = {
    "env": {"options": {"wishes": 1, "answers": 4, "offset": 5.0}},
    "credit": "centre(agent_return(), over=())",
    "learn": {"lr": 0.05, "terms": "surrogate()"},
    "train": {"iterations": 40, "groups": 20, "group_size": 8},
}
REWARDS = {
    "pointwise": SCORE,
    "against": f"1 / (1 + exp(5 * (highest({SCORE}, over='group') - {SCORE})))",
}


def shift_and_slopes() -> tuple[float, float, list[float]]:
    """How much an offset of the prompt moves both rewards, and the slope at leads of 0, 2 and 4."""
    scorer = LinearReward(standardise=False)
    scorer.weights = np.array([1.0])
    against = Against(scorer)
    x, y = np.random.default_rng(47).normal(size=(2, 100, 1))
    moved = [against.score(rows(x + by), reference=rows(y + by)).to_numpy() for by in (0.0, 7.0)]
    points = scorer.score(rows(x + 7.0)).to_numpy() - scorer.score(rows(x)).to_numpy()
    lead, step = np.array([[0.0], [2.0], [4.0]]), 1e-4
    ends = [against.score(rows(lead + by), reference=rows(0 * lead)).to_numpy() for by in (step, -step)]
    return float(np.abs(moved[1] - moved[0]).max()), float(points.min()), ((ends[0] - ends[1]) / (2 * step)).tolist()


def helped(learned: TrainingResult) -> dict[str, float]:
    """How much the answers help."""
    return {"helpful": float(learned.play(groups=100)["helpful"].to_numpy().mean())}


@reproduction(
    47,
    claim="Against a good reference a reward does not depend on what the prompt is worth, and it teaches while both "
    "are near.",
    baseline="the same scorer pointwise",
    criterion="an offset of 7 moves the reward by less than 1e-12 (pointwise: by 7), slopes are .25, .105, .018 to "
    ".001; by recipe answers help by at least .1 more in every run",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The identities, then two rewards."""
    moved, pointwise, slopes = shift_and_slopes()
    arms = train_arms("wishes", {name: SETTINGS | {"reward": text} for name, text in REWARDS.items()}, seeds, helped)
    gain = arms.values["against"]["helpful"] - arms.values["pointwise"]["helpful"]
    measured = {"moved": moved, "moved_pointwise": pointwise, "least_gain": float(gain.min()), **arms.measured()}
    measured |= {f"slope_{lead}": slope for lead, slope in zip((0, 2, 4), slopes, strict=True)}
    exact = moved < 1e-12 and abs(pointwise - 7) < 1e-9 and np.allclose(slopes, [0.25, 0.105, 0.018], atol=1e-3)
    return Outcome(measured, bool(exact and gain.min() >= 0.1))
