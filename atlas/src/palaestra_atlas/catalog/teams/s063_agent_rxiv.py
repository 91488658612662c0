"""[63] AgentRxiv (arXiv 2503.18102): labs that share their papers find better results sooner, and are more alike.

Three labs write 30 papers each in `native/papers`, on the same landscapes: without an archive, with one of their own,
and with a shared one. Beside the best result the number of different papers, as effective channels. Left out: language
models; what is retrieved is the best, not the most similar.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.agents import Team, from_choices
from palaestra.envs.worlds.papers import Papers, Sharing
from palaestra.evaluation.teamwork import effective_channels
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, reproduction

LANDSCAPES, REACHED = 30, 0.66
WAYS: tuple[Sharing, ...] = ("none", "own", "shared")


def written(sharing: Sharing, seed: int) -> tuple[np.ndarray, float, float]:
    """Mean best of the labs by landscape, papers until one reached a level, effective number of different papers."""
    env = functools.partial(Papers, sharing=sharing)
    team = Team(dict.fromkeys(env().agents, from_choices({"build": 0.9, "fresh": 0.1})))
    frame = rollout(env, team, groups=LANDSCAPES, seed=seed).frame
    best = frame.group_by("group", "agent").agg(pl.col("best").max()).group_by("group").agg(pl.col("best").mean())
    until = frame.group_by("group", "agent").agg(
        pl.col("turn").filter(pl.col("best") >= REACHED).min().fill_null(30)
    )  # fmt: skip
    last = frame.filter(pl.col("turn") >= 20).partition_by("group", maintain_order=True)
    channels = [effective_channels(np.array(each["bits"].to_list())) for each in last[:10]]
    return best.sort("group")["best"].to_numpy(), float(until["turn"].mean()), float(np.mean(channels))  # type: ignore[arg-type]


@reproduction(
    63,
    claim="A shared archive gives better results than an archive of one's own, and sooner, and that better ones than "
    "none; the papers of those who share are less different.",
    baseline="an archive of one's own; none",
    criterion="mean best of a lab: shared at least .015 above own, 2 standard errors of the paired difference above 0, "
    "own above none; a result of .66 comes 2 papers sooner by sharing; fewer effective channels shared than own, over "
    "all seeds together (held on a fresh block)",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Three ways on the same landscapes."""
    found = {way: [written(way, seed) for seed in seeds] for way in WAYS}
    best = {way: np.concatenate([each[0] for each in rows]) for way, rows in found.items()}
    until = {way: float(np.mean([each[1] for each in rows])) for way, rows in found.items()}
    channels = {way: float(np.mean([each[2] for each in rows])) for way, rows in found.items()}
    gain = best["shared"] - best["own"]
    measured = {f"best_{way}": float(each.mean()) for way, each in best.items()}
    measured |= {f"papers_{way}": each for way, each in until.items()}
    measured |= {f"channels_{way}": each for way, each in channels.items()}
    holds = gain.mean() >= max(0.015, 2 * gain.std(ddof=1) / np.sqrt(len(gain)))
    holds &= best["own"].mean() > best["none"].mean() and until["shared"] <= until["own"] - 2
    return Outcome(measured, bool(holds and channels["shared"] < channels["own"]))
