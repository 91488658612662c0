"""[199] Perceptual rewards (arXiv 1612.06699): a few demonstrations, cut into steps, are a reward.

Five demonstrations of 60 frames and 40 features, of which six change with the step: cuts and telling features are found
again. Then the recipe `film`, a line walked in three phases before a noisy camera: the learned reward, where later
steps count more, against the sparse reward. From a secondary text. Left out: pretrained vision features, robots.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.learning.stages.shaping import step_rewards as steps_of
from palaestra.rewards import escalate, segment, step_rewards
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

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


def films(seed: int) -> list[np.ndarray]:
    """Five demonstrations, cut at the same frames."""
    rng = np.random.default_rng(seed)
    return [look(np.searchsorted(CUTS, np.arange(FRAMES), side="right"), rng) for _ in range(DEMONSTRATIONS)]


@exact
def cuts() -> None:
    """All five demonstrations are cut where the steps change."""
    for seed in range(3):
        assert [segment(film, 3, by_length=True) for film in films(seed)] == [CUTS] * DEMONSTRATIONS


@exact
def telling_features() -> None:
    """Of the four features that are kept for a step two are its own."""
    model = step_rewards(films(0), 3, most=4, by_length=True)
    assert all({2 * step, 2 * step + 1} <= set(model.kept[step].tolist()) for step in (1, 2))


@exact
def steps_are_named() -> None:
    """The stage, fitted to five films, scores frames of a sixth: steps 2 and 3 look most like themselves."""
    made = [_table(film, number) for number, film in enumerate(films(0))]
    with tempfile.TemporaryDirectory() as folder:
        Turns.concat(made).save(f"{folder}/films")
        stage = steps_of(films=f"{folder}/films", features="frame", most=4)
        scored = stage(_table(films(1)[0], 0), None)  # type: ignore[arg-type]
    step = np.searchsorted(CUTS, np.arange(FRAMES), side="right")
    likest = np.stack([scored["step_2"], scored["step_3"]]).argmax(axis=0) + 1
    assert (likest[step > 0] == step[step > 0]).mean() > 0.95
    assert scored["step_2"].to_numpy()[step == 1].mean() > 2 * scored["step_2"].to_numpy()[step == 0].mean()


@exact
def later_steps_weigh_double() -> None:
    """Scores (1, 0, 0), (0, 0, 1) and (1, 1, 1) of steps 2 to 4 make 2, 8 and 14."""
    three = Turns({"a": [1, 0, 1], "b": [0, 0, 1], "c": [0, 1, 1]})
    np.testing.assert_allclose(np.asarray(escalate("a", "b", "c").evaluate(three)), [2, 8, 14])


@exact
def no_slivers() -> None:
    """Of noise alone the published objective would cut off single frames, whose deviation is 0."""
    for seed in range(3):
        noise = np.random.default_rng(seed).normal(size=(FRAMES, FEATURES))
        assert np.diff([0, *segment(noise, 3), FRAMES]).min() >= 2


def _table(film: np.ndarray, episode: int) -> Turns:
    number = len(film)
    keys = {"group": [episode] * number, "episode": [episode] * number, "turn": range(number), "agent": ["a"] * number}
    return Turns({**keys, "frame": film.tolist()})


def success(learned: TrainingResult) -> dict[str, float]:
    """Share of the episodes that end in the third phase: the last ones, and all of training."""
    curve = learned.curve()
    return {"success": float(np.mean(curve[-10:])), "overall": float(np.mean(curve))}


@reproduction(
    199,
    claim="Steps and their telling features are found in five demonstrations, and the reward made of them teaches a "
    "task sooner than the sparse one.",
    baseline="1 for ending in the third phase",
    criterion="trained by the recipe `film`, success over all of training is higher than with the sparse "
    "reward by two standard errors (which reaches nearly as much in the end)",
    seeds=(10, 11, 12, 13, 14),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both rewards on the line; of the cuts, how many are right if segments do not count by their length."""
    arms = train_arms("film", {name: SETTINGS | arm for name, arm in ARMS.items()}, seeds, success)
    published = [segment(film, 3) == CUTS for seed in seeds for film in films(seed)]
    measured = {"exact_cuts_published": float(np.mean(published)), **arms.measured()}
    gain, error = arms.gain("learned", "sparse", "overall")
    return Outcome(measured, gain > 2 * error)
