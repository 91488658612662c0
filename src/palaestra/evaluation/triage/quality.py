"""[109] From detections to an episode's severity, quality in [0, 100] and bucket (arXiv 2604.00356, its code).

The highest quality that can be reached is 69, so "excellent" never occurs; that is the published rule.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.evaluation.triage.talk import messages

SATISFACTION = (0.0, 0.6, 0.8, 0.95)
BUCKETS = ((75, "excellent"), (60, "good"), (40, "neutral"), (25, "poor"), (0, "severe"))
GROUPS = {
    "misalignment": "interaction.misalignment.",
    "stagnation": "interaction.stagnation.",
    "disengagement": "interaction.disengagement.",
    "satisfaction": "interaction.satisfaction.",
    "failure": "execution.failure.",
    "loop": "execution.loop.",
    "exhaustion": "environment.exhaustion.",
}


def severity_of_count(count: pl.Expr) -> pl.Expr:
    """A Polars expression: severity of a count, 0, 1 for one or two, 2 for three or four, 3 for more."""
    return pl.when(count == 0).then(0).when(count <= 2).then(1).when(count <= 4).then(2).otherwise(3)


def episodes(turns: Turns, detections: pl.DataFrame) -> pl.DataFrame:
    """Table per episode of `Turns` from table `detections`: counts by group, `user_turns`, `quality` (0-100), `bucket`.

    Q = 50 + 20·(.6, .8, .95 for 1, 2, ≥ 3 satisfied) - 10·severity(disengagement) - 15·[misaligned in more than .3 of
    the user turns] - 8·severity(stagnation)·[more than 2] - 8·failures - 5·loops - 3·exhaustions, clipped to [0, 100];
    0 after an escalation or quit, or disengagement or stagnation of severity 3; and, ours, after a crash.
    """
    codes = turns.codes("episode")
    human = messages(turns).filter(pl.col("role") == "human")["episode"].to_numpy()
    base = pl.DataFrame({"episode_code": np.arange(codes.size)}).with_columns(
        user_turns=pl.Series(np.bincount(human, minlength=codes.size))
    )
    owner = detections.with_columns(episode_code=pl.Series(codes.ids[detections["row"].to_numpy()], dtype=pl.Int64))
    left = pl.col("type").is_in(["interaction.disengagement.escalation", "interaction.disengagement.quit"])
    left |= pl.col("type").str.starts_with("execution.crash.")
    counts = [pl.col("type").str.starts_with(prefix).sum().alias(name) for name, prefix in GROUPS.items()]
    summed = owner.group_by("episode_code").agg(*counts, left.any().alias("left"))
    table = base.join(summed, on="episode_code", how="left").sort("episode_code")
    table = table.with_columns(pl.col(list(GROUPS)).fill_null(0).cast(pl.Int64), pl.col("left").fill_null(False))
    satisfied = (
        pl.col("satisfaction")
        .clip(upper_bound=3)
        .replace_strict(dict(enumerate(SATISFACTION)), return_dtype=pl.Float64)
    )
    misaligned = pl.col("misalignment") > 0.3 * pl.col("user_turns")
    lost = (
        pl.col("left")
        | (severity_of_count(pl.col("disengagement")) == 3)
        | (severity_of_count(pl.col("stagnation")) == 3)
    )
    quality = (
        50
        + 20 * satisfied
        - 10 * severity_of_count(pl.col("disengagement"))
        - 15 * misaligned.cast(pl.Int64)
        - pl.when(pl.col("stagnation") > 2).then(8 * severity_of_count(pl.col("stagnation"))).otherwise(0)
        - 8 * pl.col("failure")
        - 5 * pl.col("loop")
        - 3 * pl.col("exhaustion")
    )
    table = table.with_columns(quality=pl.when(lost).then(0.0).otherwise(quality.clip(0, 100).cast(pl.Float64)))
    bucket = pl.lit(BUCKETS[-1][1])
    for least, name in reversed(BUCKETS[:-1]):
        bucket = pl.when(pl.col("quality") >= least).then(pl.lit(name)).otherwise(bucket)
    return table.with_columns(bucket=bucket).drop("left")
