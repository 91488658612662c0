"""Metrics of an iteration, and the selection of episodes that may train."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.schema import episode_failed
from palaestra.algebra.signals import col
from palaestra.algebra.turns import Turns
from palaestra.evaluation.audits import component_columns
from palaestra.evaluation.audits.finding import per_turn
from palaestra.foundation.scalars import float_or_zero

GOOD = pl.col("error").is_null()


def split(turns: Turns, group_size: int | Sequence[int], *, drop_incomplete: bool) -> tuple[Turns, Turns]:
    """Pair of `Turns`: usable rows, and the rest: failed episodes, with `drop_incomplete` also groups that lack some.

    A group is complete if `group_size` of its episodes did not fail, retries included; see `rollout` for sequences.
    """
    usable = GOOD
    if drop_incomplete:
        usable = usable & pl.col("group").is_in(_complete(turns, group_size).implode())
    return turns.filter(usable), turns.filter(~usable)


def measure(
    turns: Turns,
    group_size: int | Sequence[int],
    learned: Mapping[str, Mapping[str, Any]],
    learners: Collection[str],
) -> dict[str, Any]:
    """Dict (nested), an iteration's metrics of `Turns`: reward, success, errors, components; by policy those `learned`.

    reward, success: mean over good episodes of the mean over those of its agents that learn, of return and success, so
    that an episode counts once however many take part; if nobody learns, over all agents. errors: failed episodes by
    boundary. components: total absolute value per episode of each component r_<name> of the reward.
    policies: what the learner said, with the share of illegal and of distinct actions; in conversations also
    broken_prefixes, the share of later turns whose prompt the chat template would not have written (column `prefix`);
    and where column `finish` says why answers ended, cut_off, the share that reached the token limit.
    """
    frame = turns.frame
    mine = pl.col("policy").cast(pl.String).is_in(list(learners)) if learners else pl.lit(True)
    scored = pl.col("reward").count() > 0
    played = (
        frame.filter(GOOD & mine)
        .group_by("group", "episode", "agent", maintain_order=True)
        .agg(pl.when(scored).then(pl.col("reward").sum()).alias("reward"), pl.col("success").first())
        .group_by("group", "episode", maintain_order=True)
        .agg(pl.col("reward").mean(), pl.col("success").cast(pl.Float64).mean())
    )
    episodes = frame.group_by("group", "episode", maintain_order=True).agg(
        pl.col("error").filter(episode_failed()).first()
    )
    failures = episodes["error"].drop_nulls().str.split(":").list.first().value_counts(sort=True)
    groups = episodes["group"].n_unique()
    return {
        "episodes": episodes.height,
        "turns": frame["agent"].count(),
        **{name: frame[name].sum() for name in ("tokens_in", "tokens_out") if name in frame.columns},
        "groups": groups,
        "incomplete_groups": groups - len(_complete(turns, group_size)),
        "errors": dict(failures.iter_rows()),
        "reward": played["reward"].mean(),
        "success": played["success"].mean(),
        "components": {
            name.removeprefix("r_"): float(np.nansum(np.abs(per_turn(turns, col(name))))) / max(1, episodes.height)
            for name in component_columns(turns)
        },
        "policies": {name: {**metrics, **_behaviour(frame, name)} for name, metrics in learned.items()},
    }


def staleness(frame: pl.DataFrame, policy: str, updates: int) -> dict[str, float]:
    """Updates between the weights that sampled a policy's tokens and those that learn from them, as metrics, a dict.

    staleness: mean over tokens; staleness_max: the largest; mixed: share of answers in which the weights changed.
    Nothing for a policy whose answers have one version each (column `token_versions`).

    >>> table = {"policy": ["a"] * 2, "token_versions": [[1, 1, 2], [2]]}
    >>> staleness(pl.DataFrame(table), "a", updates=2)
    {'staleness': 0.5, 'staleness_max': 1.0, 'mixed': 0.5}
    """
    if "token_versions" not in frame.columns:
        return {}
    told = frame.filter(pl.col("policy").cast(pl.String) == policy)["token_versions"].drop_nulls()
    tokens = told.filter(told.list.len() > 0)
    if not len(tokens):
        return {}
    behind = updates - tokens.explode().to_numpy().astype(float)
    mixed = (tokens.list.n_unique() > 1).mean()
    return {"staleness": float(behind.mean()), "staleness_max": float(behind.max()), "mixed": float(mixed or 0.0)}  # type: ignore[arg-type]


def _complete(turns: Turns, group_size: int | Sequence[int]) -> pl.Series:
    """Groups that are complete; of those that a stage added behind the planned ones, any with a good episode."""
    counts = turns.frame.filter(GOOD).group_by("group").agg(pl.col("episode").n_unique())
    if isinstance(group_size, int):
        return counts.filter(pl.col("episode") >= group_size)["group"]
    sizes: np.ndarray = np.append(np.asarray(group_size), 1)
    needed = sizes[np.minimum(counts["group"].to_numpy(), len(sizes) - 1)]
    return counts.filter(pl.Series(counts["episode"].to_numpy() >= needed))["group"]


def _behaviour(frame: pl.DataFrame, policy: str) -> dict[str, float | None]:
    acts = frame.filter(pl.col("policy").cast(pl.String) == policy)
    valid = acts["valid"].cast(pl.Float64).mean()
    later = acts["prefix"].drop_nulls() if "prefix" in acts.columns else acts["action"].clear()
    later = later.filter(later != "first")
    talk = {"broken_prefixes": float_or_zero((later != "extends").mean())} if len(later) else {}
    ended = acts["finish"].drop_nulls() if "finish" in acts.columns else acts["action"].clear()
    talk |= {"cut_off": float_or_zero((ended == "length").mean())} if len(ended) else {}
    return {
        "illegal": 1 - valid if isinstance(valid, float) else None,
        "distinct_actions": acts["action"].n_unique() / acts.height if acts.height else None,
        **talk,
    }
