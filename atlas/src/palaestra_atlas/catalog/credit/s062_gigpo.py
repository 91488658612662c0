"""[62] GiGPO (arXiv 2505.10978): credit from the episode and from what happened after the same state.

The recipe `corridor`, 7 cells: start in the middle, fetch the key at the left end, then open the door at the right
end; the only reward comes with the door. Both arms are the recipe with another `credit`. Left out: language models,
free text as what is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import gigpo
from palaestra.learning.stages.replay import anchors
from palaestra.learning.stages.stage import Context
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

ARMS = {"gigpo": {"credit": "gigpo()"}, "grpo": {"credit": "grpo()"}}
SETTINGS: dict[str, object] = {"train": {"iterations": 40}}


def four_episodes() -> tuple[Turns, np.ndarray]:
    """The card's four episodes through four states: the table, and 1 on turns of those that won, -1 on the others."""
    turns = Turns(
        {
            "group": [0] * 12,
            "episode": np.repeat([0, 1, 2, 3], 3),
            "turn": [0, 1, 2] * 4,
            "agent": ["walker"] * 12,
            "state": np.array([0, 1, 2, 0, 1, 1, 0, 3, 2, 0, 3, 3], np.uint64),
            "reward": [0.0, 0.0, 10.0, 0.0, 0.0, 0.0] * 2,
        }
    )
    return turns, np.tile(np.repeat([1.0, -1.0], 3), 2)


@exact
def both_levels() -> None:
    """The card's sum of both levels, to four decimals: standardised, and centred only, where the discount shows."""
    turns, won = four_episodes()
    scaled = np.tile([0.8660, 1.1547, 0.0, -0.8660, -0.5774, -0.5774], 2)
    centred = np.tile([4.5125, 6.3333, 0.0, -4.5125, -3.1667, -3.1667], 2)
    np.testing.assert_allclose(np.asarray(gigpo().evaluate(turns)), 0.8660 * won + scaled, atol=1e-4)
    np.testing.assert_allclose(np.asarray(gigpo(scale=False).evaluate(turns)), 5.0 * won + centred, atol=1e-4)


@exact
def seen_once() -> None:
    """A state that the group saw once has no step credit, whatever followed."""
    keys = {"group": [0] * 4, "episode": [0, 1, 1, 1], "turn": [0, 0, 1, 2], "agent": ["walker"] * 4}
    turns = Turns(keys | {"state": range(4), "reward": [10.0, 0.0, 0.0, 0.0]})
    np.testing.assert_allclose(np.asarray(gigpo(scale=False).evaluate(turns)), [5.0, -5.0, -5.0, -5.0], atol=1e-9)
    np.testing.assert_allclose(np.asarray(gigpo().evaluate(turns)), np.sqrt(0.5) * np.array([1, -1, -1, -1]), atol=1e-5)


@exact
def alike_texts() -> None:
    """Texts that differ in a digit share an anchor, as the stage `anchors()` fills it; another text does not."""
    text = "You stand at a closed oak door at the northern end of a long corridor. Step {}."
    seen = [text.format(1), text.format(2), "A wall."]
    keys = {"group": [0] * 3, "episode": range(3), "turn": [0] * 3, "agent": ["walker"] * 3, "observation": seen}
    turns = Turns(keys | {"reward": [10.0, 0.0, 2.0], "state": range(3)})
    marked = anchors()(turns, context())
    assert marked["state"][0] == marked["state"][1] != marked["state"][2]
    np.testing.assert_allclose(np.asarray(gigpo(scale=False).evaluate(marked)), [11.0, -9.0, -2.0], atol=1e-9)


def context() -> Context:
    """Of a stage that needs nothing but the table."""
    nothing: Any = None
    return Context(np.random.default_rng(0), 1, nothing, nothing, nothing)


@reproduction(
    62,
    claim="Comparing what followed the same state adds signal to a sparse outcome: learning is faster.",
    baseline="GRPO: the episode level alone, same episodes per iteration and learning rate",
    criterion="mean success over training higher than GRPO's by > 2 standard errors of the difference, paired by seed",
    seeds=tuple(range(16)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both arms on the key-door corridor."""
    arms = train_arms(
        "corridor", {name: SETTINGS | arm for name, arm in ARMS.items()}, seeds,
        lambda learned: {"curve": float(np.mean(learned.curve()))},
    )  # fmt: skip
    gain, error = arms.gain("gigpo", "grpo", "curve")
    return Outcome(arms.measured() | {"gain": gain, "standard_error": error}, gain > 2 * error)
