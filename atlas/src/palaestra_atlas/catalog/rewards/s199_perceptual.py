"""[199] Perceptual rewards (arXiv 1612.06699): a few demonstrations, cut into steps, are a reward.

Five demonstrations of 60 frames and 40 features, of which six change with the step: cuts and telling features are found
again. Then the recipe `film`, a line walked in three phases before a noisy camera: the learned reward, where later
steps count more, against the sparse reward. From a secondary text. Left out: pretrained vision features, robots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.rewards import escalate, segment, step_rewards
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

DEMONSTRATIONS, FRAMES, FEATURES, CUTS, NOISE = 5, 60, 40, (20, 38), 0.3
SETTINGS = {"env": {"options": {"cells": 18, "horizon": 17}}, "train": {"iterations": 60}}
ARMS = {"learned": {}, "sparse": {"reward": "col('reward')"}}


def look(step: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Features of frames in these steps: two of each step's own are high in it, the rest is noise."""
    seen = NOISE * rng.normal(size=(*step.shape, FEATURES))
    for number in range(3):
        seen[..., 2 * number : 2 * number + 2] += (step == number)[..., None]
    return np.asarray(seen)


def found_again(rng: np.random.Generator) -> tuple[int, int, int]:
    """Of five demonstrations, how many are cut where they should be; of steps 2 and 3, how many have their features.

    Last: how many are cut right if segments do not count by their length, as published, and may be of two frames.
    """
    films = [look(np.searchsorted(CUTS, np.arange(FRAMES), side="right"), rng) for _ in range(DEMONSTRATIONS)]
    model = step_rewards(films, 3, most=4, by_length=True)
    own = sum({2 * step, 2 * step + 1} <= set(model.kept[step].tolist()) for step in (1, 2))
    published = sum(segment(film, 3) == CUTS for film in films)
    return sum(segment(film, 3, by_length=True) == CUTS for film in films), own, published


def success(learned: TrainingResult) -> dict[str, float]:
    """Share of the episodes that end in the third phase: the last ones, and all of training."""
    curve = learned.curve()
    return {"success": float(np.mean(curve[-10:])), "overall": float(np.mean(curve))}


@reproduction(
    199,
    claim="Steps and their telling features are found in five demonstrations, and the reward made of them teaches a "
    "task sooner than the sparse one.",
    baseline="1 for ending in the third phase",
    criterion="all cuts exact and both features of steps 2 and 3 found in every run; combination 2, 8, 14; "
    "trained by the recipe `film`, success over all of training is higher than with the sparse reward by two standard "
    "errors (which reaches nearly as much in the end)",
    seeds=(10, 11, 12, 13, 14),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Cuts, features, combination, then both rewards on the line."""
    three = Turns({"a": [1, 0, 1], "b": [0, 0, 1], "c": [0, 1, 1]})
    error = float(np.abs(np.asarray(escalate("a", "b", "c").evaluate(three)) - [2, 8, 14]).max())
    found = [found_again(np.random.default_rng(seed)) for seed in seeds]
    arms = train_arms("film", {name: SETTINGS | arm for name, arm in ARMS.items()}, seeds, success)
    measured = {
        "exact_cuts": float(min(each[0] for each in found)),
        "exact_cuts_published": float(np.mean([each[2] for each in found])),
        "steps_with_their_features": float(min(each[1] for each in found)),
        "combination_error": error,
        **arms.measured(),
    }
    holds = measured["exact_cuts"] == DEMONSTRATIONS and measured["steps_with_their_features"] == 2 and error == 0
    gain, error = arms.gain("learned", "sparse", "overall")
    holds &= gain > 2 * error
    return Outcome(measured, bool(holds))
