"""Trials that stand in several logs: a retried evaluation copies what it had, and plays the rest again.

A reader says of a trial which one it is (`_trial`) and when its log was written (`_when`). The latest log counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from palaestra.evaluation.logs.rows import COPIES, Problem


def once(frames: list[pl.DataFrame], path: str) -> tuple[list[pl.DataFrame], list[Problem]]:
    """(frames, list of `Problem`): frames of several logs without trials that a later one repeats; a problem if any."""
    where = [n for n, frame in enumerate(frames) if "_trial" in frame.columns]
    if len(where) < 2:
        return frames, []
    lacking = {name: pl.lit(None, pl.String) for name in COPIES}
    parts = []
    for n in where:
        add = {name: value for name, value in lacking.items() if name not in frames[n].columns}
        part = frames[n].with_columns(**add).select(*COPIES, file=pl.lit(n)).unique()
        parts.append(part.drop_nulls("_trial"))
    latest = pl.concat(parts).sort("_when", "file", nulls_last=False).group_by("_trial").agg(pl.col("file").last())
    kept, left = list(frames), 0
    for n in where:
        mine = latest.filter(pl.col("file") == n)["_trial"].implode()
        stays = pl.col("_trial").is_null() | pl.col("_trial").is_in(mine)
        gone = frames[n].filter(~stays).select("_trial").n_unique()
        left += gone
        kept[n] = frames[n].filter(stays) if gone else frames[n]
    if not left:
        return frames, []
    why = f"{left} trials stand in a later log of the same evaluation as well (a retry or a copy); each counts once"
    return [frame for frame in kept if len(frame)], [Problem(path, "", why)]


def shared(frames: Sequence[pl.DataFrame], others: Sequence[pl.DataFrame]) -> int:
    """Number of trials, distinct values of column `_trial`, that are in both of two lists of DataFrames."""
    first, second = (
        {trial for frame in side if "_trial" in frame.columns for trial in frame["_trial"].drop_nulls().unique()}
        for side in (frames, others)
    )
    return len(first & second)
