"""[80] Global and episodic bonuses (arXiv 2306.03236): their product does well where either alone may not.

Exact: corridors that are always the same or alternate, which an episodic count cannot tell apart. Learned: a four-step
code that is drawn afresh for each episode and shown step by step, no reward but the bonus, how often the end is
reached. Where all episodes share one map, the case of the global count, there is only the exact contrast. Left out:
networks, MiniHack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.rewards.novelty import (
    RunningScale,
    VisitCounts,
    count_bonus,
    elliptical,
    episodic_global_bonus,
    novelty_difference,
    scaled,
)
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

ARMS = {
    "none": "0.0 * col('depth')",
    "global": "count_bonus('depth', scope='all', method='inv_sqrt', before='count_before')",
    "episodic": "count_bonus('depth')",
    "product": "episodic_global_bonus('depth')",
}
SETTINGS = {"stages": ["counts('depth')"], "train": {"iterations": 60}}
WORKED = (10.0, 0.90909, 0.47619, 10.0, 0.69795)


def corridors(*, alternate: bool) -> dict[str, float]:
    """Total bonus of eight walks through corridors of four cells: always the first, or the four in turn."""
    episode, cell = np.repeat(np.arange(8), 4), np.tile(np.arange(4), 8)
    state = cell + 4 * (episode % 4 if alternate else episode * 0)
    turns = Turns({"group": episode * 0, "episode": episode, "turn": cell, "agent": ["a"] * 32, "state": state})
    signals = {"episodic": count_bonus("state"), "global": count_bonus("state", scope="all", method="inv_sqrt")}
    signals["product"] = episodic_global_bonus("state", before=0.0)
    return {name: float(np.asarray(signal.evaluate(turns)).sum()) for name, signal in signals.items()}


def elliptical_error() -> float:
    """Deviation from the card's bonuses, ridge 0.1."""
    features = [[1.0, 0.0]] * 3 + [[0.0, 1.0], [0.6, 0.8]]
    turns = Turns({"episode": [0] * 5, "agent": ["a"] * 5, "turn": range(5), "features": features})
    return float(np.abs(np.asarray(elliptical("features").evaluate(turns), float) - WORKED).max())


def visits() -> list[float]:
    """What the first three visits of a place pay if each comes in an iteration of its own."""
    counts = VisitCounts("state")
    visit = Turns({"episode": [0], "turn": [0], "state": [7]})
    return [float(np.asarray(episodic_global_bonus("state").evaluate(counts.add(visit)))[0]) for _ in range(3)]


@exact
def first_in_the_episode() -> None:
    """A place that is met again in the episode pays nothing, one that is new there what it pays in all of training."""
    turns = Turns({"episode": [0] * 3, "turn": range(3), "agent": ["a"] * 3, "state": [1, 1, 2]})
    paid = np.asarray(episodic_global_bonus("state", before=3.0).evaluate(turns))
    np.testing.assert_allclose(paid, [0.5, 0.0, 0.5])


@exact
def contrast() -> None:
    """Always the same corridor, or four in turn: the episodic count cannot tell, the global one and the product can."""
    same, alternate = corridors(alternate=False), corridors(alternate=True)
    assert same["episodic"] == alternate["episodic"] == 32
    for bonus in ("global", "product"):
        assert abs(same[bonus] - 17.49) < 0.01, same
        assert abs(alternate[bonus] - 27.31) < 0.01, alternate


@exact
def over_training() -> None:
    """Visits in iterations of their own pay one over the root of their number."""
    np.testing.assert_allclose(visits(), [1.0, 2**-0.5, 3**-0.5])


@exact
def another_global_key() -> None:
    """A place that is new in the episode pays by how often its kind was met: once and twice in this table."""
    keys = {"episode": [0, 0], "turn": [0, 1], "agent": ["a"] * 2, "state": [1, 2], "kind": [5, 5]}
    paid = np.asarray(episodic_global_bonus("state", before=0.0, global_key="kind").evaluate(Turns(keys)))
    np.testing.assert_allclose(paid, [1.0, 2**-0.5])


@exact
def in_feature_space() -> None:
    """The card's elliptical bonuses, anew in each episode, whose first may be left out as in the released code."""
    assert elliptical_error() < 5e-6
    keys = {"episode": [0, 0, 1, 1], "turn": [0, 1, 0, 1], "agent": ["a"] * 4}
    turns = Turns(keys | {"features": [[1.0, 0.0]] * 4})
    for skip_first, first in ((False, 10.0), (True, 0.0)):
        found = np.asarray(elliptical("features", skip_first=skip_first).evaluate(turns))
        np.testing.assert_allclose(found, [first, 1 / 1.1] * 2)


@exact
def in_units_of_the_deviation() -> None:
    """A bonus is divided by the deviation of all bonuses so far, which goes on over tables, and weighted."""
    scale = RunningScale()
    deviations = [scale.add(np.array(batch)) for batch in ([1.0, 3.0], [5.0])]
    np.testing.assert_allclose(deviations, [1.0, float(np.std([1.0, 3.0, 5.0]))])
    turns = Turns({"bonus": [2.0, 4.0], "scale": [0.5, 0.5]})
    np.testing.assert_allclose(np.asarray(scaled("bonus", "scale").evaluate(turns)), [4.0, 8.0])
    np.testing.assert_allclose(np.asarray(scaled("bonus", "scale", coefficient=0.1).evaluate(turns)), [0.4, 0.8])


@exact
def novel() -> None:
    """Going from the known to the new pays, going back pays nothing."""
    keys = {"episode": [0] * 4, "turn": range(4), "agent": ["a"] * 4}
    paid = np.asarray(novelty_difference("surprise").evaluate(Turns(keys | {"surprise": [0.1, 1.0, 0.1, 1.0]})))
    np.testing.assert_allclose(paid, [0.95, 0.0, 0.95, 0.0])


def reached(learned: TrainingResult) -> dict[str, float]:
    """Share of the last episodes that got to the end of their code, with no reward but the bonus."""
    return {"reached": float(np.mean(learned.curve()[-15:]))}


@reproduction(
    80,
    claim="Episodic counts cannot tell fresh places from known ones, global counts fade; their product keeps both.",
    baseline="no bonus; either count alone",
    criterion="elliptical bonuses to 1e-5; corridors: episodic 32 and 32, global 17.49 and 27.31; the third visit of a "
    "run pays 3 ** -.5; codes: the product reaches the end at least 0.9 of the time and 0.3 more often than without a "
    "bonus, in every seed",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked bonuses, corridors, codes."""
    measured = {"elliptical_error": elliptical_error()}
    for name, alternate in (("same", False), ("alternate", True)):
        measured |= {f"{bonus}_{name}": value for bonus, value in corridors(alternate=alternate).items()}
    exact = abs(measured["global_same"] - 17.49) < 0.01 and abs(measured["global_alternate"] - 27.31) < 0.01
    exact &= measured["episodic_same"] == measured["episodic_alternate"] == 32
    paid = visits()
    measured |= {"third_visit": paid[2]}
    exact &= bool(np.allclose(paid, [1, 2**-0.5, 3**-0.5]))
    arms = train_arms("codes", {name: {"reward": text, **SETTINGS} for name, text in ARMS.items()}, seeds, reached)
    measured |= arms.measured()
    product, none = arms.values["product"]["reached"], arms.values["none"]["reached"]
    learned = (product >= 0.9).all() and (product >= none + 0.3).all()
    return Outcome(measured, bool(exact and learned and measured["elliptical_error"] < 1e-5))
