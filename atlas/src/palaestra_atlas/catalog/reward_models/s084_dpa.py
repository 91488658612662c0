"""[84] Directional preference alignment (arXiv 2402.18571): a person is a direction among rewards, told in the prompt.

A vector reward recovers two attributes by regression. By recipe: of sixteen answers to a wish the best by v·r is kept
and learned; the same for one direction is the baseline. Left out: the attributes and language models of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.learning.reward_models import Labels, VectorReward, unit
from palaestra.learning.reward_models.held_out_scores import explained
from palaestra.runs.inline import TrainingResult
from palaestra_atlas.catalog.reward_models.made import rows
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

SETTINGS: dict[str, Any] = {"train": {"iterations": 120, "groups": 10, "group_size": 16}}
ARMS = {"directed": SETTINGS, "one": SETTINGS | {"reward": "col('helpful')"}}


def attributes(seed: int) -> tuple[float, float]:
    """Least R² of both heads on unseen rows, and how much the length of a direction moves v·r."""
    rng = np.random.default_rng([84, seed])
    x, mix = rng.normal(size=(1500, 6)), rng.normal(size=(6, 2))
    value = x @ mix + 0.2 * rng.normal(size=(1500, 2))
    model = VectorReward(heads=2)
    model.fit(Labels(rows(x[:1000]), value[:1000]), epochs=20, batch=128, lr=0.02, seed=seed)
    held_out = Labels(rows(x[1000:]), value[1000:])
    v = np.tile([[0.9, -0.4]], (500, 1))
    short, long = (model.score(held_out.rows, condition=rows(s * v, "weights")).to_numpy() for s in (1.0, 10.0))
    along = model.score(held_out.rows).to_numpy() @ unit(v[0])
    return min(explained(model, held_out)), float(max(np.abs(short - long).max(), np.abs(short - along).max()))


def by_wish(learned: TrainingResult) -> dict[str, float]:
    """Help by direction, how far v·r is from the best, share of dominated answers."""
    frame = learned.play(groups=60, group_size=8).frame
    means = frame.group_by("v_words").agg(pl.col("helpful").mean()).sort("v_words")["helpful"].to_list()
    tangent = -pl.col("v_words") / pl.col("v_helpful")
    best = pl.min_horizontal(1.0, 0.5 / tangent.clip(lower_bound=1e-9))
    regret = pl.col("v_helpful") * (best - pl.col("helpful")) + pl.col("v_words") * (best**2 - pl.col("words"))
    found = frame.select(regret.mean().alias("regret"), pl.col("dominated").mean()).row(0, named=True)
    return {"least": means[0], "most": means[-1], **found, "steps_down": float((np.diff(means) < -0.05).sum())}


@reproduction(
    84,
    claim="Keeping the best by v·r of answers to a told direction v gives one policy that moves along the front.",
    baseline="the same for one direction",
    criterion="R² of both heads above .9 and a direction's length moves nothing (1e-6); by recipe the regret of v·r is "
    "below .03 and help rises with v from below .6 to above .9 in every run, while for one direction help is above .8 "
    "everywhere and regret at least .03 more (.042 is what always helping fully costs)",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Attributes, then policies."""
    heads = [attributes(seed) for seed in seeds]
    arms = train_arms("wishes", ARMS, seeds, by_wish)
    directed, one = arms.values["directed"], arms.values["one"]
    least, moved = min(each[0] for each in heads), max(each[1] for each in heads)
    good = directed["regret"].max() < 0.03 and directed["least"].max() < 0.6 and directed["most"].min() > 0.9
    good &= directed["steps_down"].max() == 0
    flat = one["least"].min() > 0.8 and (one["regret"] - directed["regret"]).min() > 0.03
    measured = {"least_r2": least, "moved_by_length": moved, **arms.measured()}
    return Outcome(measured, bool(good and flat and least > 0.9 and moved < 1e-6))
