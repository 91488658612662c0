"""[63] AgentRxiv (arXiv 2503.18102): labs that share their papers find better results sooner, and are more alike.

Three labs write 30 papers each in `native/papers`, on the same landscapes: without an archive, with one of their own,
and with a shared one. Beside the best result the number of different papers, as effective channels. Left out: language
models; in this experiment the best are retrieved, in the line of the row the most similar.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import Team, from_choices
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Action
from palaestra.envs.worlds.papers import Papers, Sharing
from palaestra.evaluation.teamwork import effective_channels
from palaestra.foundation.archive import Entry
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

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


def lab() -> Callable[[Request], Action]:
    """Builds on a report that exists nine times of ten."""
    return lambda request: "build" if request.rng.random() < 0.9 else "fresh"


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of three labs that find reports by similarity, `labs.yaml`."""
    made = {
        "name": "labs",
        "env": {"make": "native/papers", "options": {"found": "similar", "hits": "summaries"}},
        "policies": {"lab": {"kind": "script", "options": {"script": f"{__name__}:lab"}}},
        "team": {"*": "lab"},
        "credit": "return_to_go()",
        "learn": {"kind": "play"},
        "train": {"iterations": 1, "groups": 100, "group_size": 1},
        "evaluation": {"tasks": 2, "trials": 1, "look_tasks": 2, "look_trials": 1},
    }
    (folder / "labs.yaml").write_text(json.dumps(made))


def best_of_labs() -> Measure:
    """Best result of a lab after all its papers, mean over labs and landscapes, per seed."""

    def measured(left: Left) -> list[float]:
        tables = [Turns.load(seed / "turns").frame for seed in left.seeds()]
        return [float(each.group_by("group", "agent").agg(pl.col("best").max())["best"].mean()) for each in tables]  # type: ignore[arg-type]

    return measured


def begun(**options: Any) -> Papers:
    """Two labs in which one, and then also the other, writes three papers."""
    env = Papers(**{"labs": 2, "papers": 6, "top": 5} | options)
    env.reset(0)
    return env


@exact
def seen_by_all() -> None:
    """A report of another lab is seen, also one that was written since the last search."""
    env = begun(sharing="shared")
    for written in (2, 4):
        env.step({"lab-1": 1, "lab-2": 1})
        assert sorted(entry.owner for entry in env.visible("lab-1")) == sorted(["lab-1", "lab-2"] * (written // 2))
    env = begun(sharing="own")
    env.step({"lab-1": 1, "lab-2": 1})
    assert [entry.owner for entry in env.visible("lab-1")] == ["lab-1"]


@exact
def built_on() -> None:
    """Who builds changes a bit or two of a report that it sees."""
    env = begun(bits=40, links=3)
    env.step({"lab-1": 1, "lab-2": 1})
    before = [np.array(entry.content) for entry in env.visible("lab-1")]
    env.step({"lab-1": 0, "lab-2": 0})
    for entry in env.state.archive.entries[2:]:
        assert 1 <= min(int((np.array(entry.content) != each).sum()) for each in before) <= 2


@exact
def most_similar() -> None:
    """Hits are those whose bits are most like the lab's best report, not those with the best results."""
    env = begun(found="similar", top=3, bits=12)
    own = np.array([1] * 12)
    for at, (score, changed, owner) in enumerate(
        [(0.5, 0, "lab-1"), (0.9, 6, "lab-2"), (0.1, 1, "lab-2"), (0.2, 2, "lab-2"), (0.8, 12, "lab-2")]
    ):
        bits = np.where(np.arange(12) < changed, 0, own)
        env.state.archive.add(Entry(f"{at}", bits.tolist(), score, owner, 1.0), (2 * bits - 1).tolist())
    assert [entry.key for entry in env.visible("lab-1")] == ["0", "2", "3"]


@exact
def short_hits() -> None:
    """Of a hit a lab reads its id and its result: two words for each of five, and not twelve bits."""
    env = begun(hits="summaries")
    plain = len(env.look()["lab-1"].text.split())
    for _ in range(3):
        env.step({"lab-1": 1, "lab-2": 1})
    heard = env.look()["lab-1"].text.split(" | ")[1:]
    assert len(heard) == 5
    assert sum(len(each.split()) for each in heard) == 10
    assert plain == 4


@exact
def five_hits() -> None:
    """Of eight reports a search finds five."""
    env = Papers(labs=2, papers=6)
    env.reset(0)
    for _ in range(4):
        env.step({"lab-1": 1, "lab-2": 1})
    assert len(env.state.archive.entries) == 8
    assert len(env.visible("lab-1")) == 5


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
