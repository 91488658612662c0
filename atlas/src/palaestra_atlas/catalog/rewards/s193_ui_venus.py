"""[193] UI-Venus (arXiv 2508.10833): a click that is near is worth something.

The world `pointing`: a screen of 20 by 20 places, 10 pixels apart; for each of four tasks one place is right. Full
reward within 10 pixels, and half of it within 40, against the full reward alone, by the recipe `world`. Clicks come
near sooner. A negative result: hits come later, because a group that is near as a whole has no variance. Also the
card's worked values. Left out: models, history alignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.rewards.match.gui import content_reward, scroll_reward, stepwise_point
from palaestra_atlas.reproductions import Outcome, reached, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

FAR, ENOUGH = 40.0, 0.9
WORLD: dict[str, Any] = {
    "env": {"make": "native/pointing"},
    "train": {"iterations": 70, "groups": 8, "group_size": 16},
}
ARMS = {"stepwise": 'stepwise_point("point", "gold_point")', "hard": 'col("reward")'}


def worked() -> float:
    """Largest deviation from the card's values."""
    points = Turns({"point": [[d, 0.0] for d in (5, 10, 39, 40)], "gold": [[0.0, 0.0]] * 4})
    scrolls = Turns({"start": [1, 1, 0, 0], "end": [1, 0, 0, 0], "way": [1, 1, 1, 0]})
    words = Turns({"text": ["buy two red apples", "no"], "gold": ["two red apples", "yes"]})
    cases = [
        (stepwise_point("point", "gold"), points, [1, 0.5, 0.5, 0]),
        (scroll_reward("start", "end", "way"), scrolls, [1.5, 1, 0.5, 0]),
        (content_reward("text", "gold"), words, [1, 0]),
    ]
    return max(float(np.abs(np.asarray(signal.evaluate(turns)) - right).max()) for signal, turns, right in cases)


@reproduction(
    193,
    claim="Half of the reward for a click that is near brings clicks near the goal sooner; hits it delays.",
    baseline="the full reward within the inner distance, else nothing",
    criterion="worked values exact; fewer iterations to 0.9 clicks within the outer distance in every seed, at most "
    "0.9 times in the mean (held on the one fresh block of two seeds tried); iterations to 0.8 hits are reported",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Iterations with both rewards."""
    near: dict[str, list[float]] = {name: [] for name in ARMS}

    def watch(arm: str, iteration: int, turns: Turns) -> None:
        ended = turns.frame.filter(pl.col("gold_point").is_not_null())
        near[arm].append(float((ended["distance"] < FAR).fill_null(False).mean()))  # type: ignore[arg-type]

    def hits(learned: TrainingResult) -> dict[str, float]:
        return {"to_hit": reached(learned.curve(), 0.8)}

    arms = train_arms(
        "world", {name: WORLD | {"reward": text} for name, text in ARMS.items()}, seeds, hits, on_turns=watch
    )
    curves = {name: np.reshape(values, (len(seeds), -1)) for name, values in near.items()}
    to_near = {name: np.array([reached(curve.tolist(), ENOUGH) for curve in each]) for name, each in curves.items()}
    measured = {"worked_error": worked()} | arms.measured()
    measured |= {f"to_near_{name}": float(each.mean()) for name, each in to_near.items()}
    sooner = (to_near["stepwise"] < to_near["hard"]).all()
    ratio = to_near["stepwise"].mean() / max(to_near["hard"].mean(), 1)
    return Outcome(
        measured | {"ratio": float(ratio)}, bool(measured["worked_error"] < 1e-9 and sooner and ratio <= 0.9)
    )
