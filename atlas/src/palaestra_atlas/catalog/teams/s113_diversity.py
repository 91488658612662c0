"""[113] Scaling via diversity (arXiv 2602.03794): effective channels count how many members differ.

Mixed pools of simulated agents with one mean accuracy whose errors are shared to different degrees: the effective
channels of what they answered go along with how often their vote is right. Left out: language models.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.evaluation.teamwork import (
    added_channels,
    channels,
    diverse_members,
    effective_channels,
    vote_accuracy,
)
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

MEMBERS, SIGNAL, QUESTIONS, POOLS = 8, 0.7, 1500, 12


CLUSTERS = (0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3)
"""Members of one cluster share nine tenths of their noise; all are right equally often."""
TEAM, DIMENSIONS, SHARED, WRITTEN, FRESH_TASKS = 3, 6, 0.9, 60, 4000


def alike(n: int, cosine: float) -> np.ndarray:
    """So many unit vectors with this cosine between any two."""
    return np.linalg.cholesky(np.full((n, n), cosine) + (1 - cosine + 1e-15) * np.eye(n))


def table(vectors: np.ndarray, scores: Sequence[float] | None = None) -> Turns:
    """One question, answered by agents named a, b, c, …."""
    columns = {"group": [0] * len(vectors), "episode": [0] * len(vectors), "turn": [0] * len(vectors)}
    frame = pl.DataFrame(columns | {"agent": list("abcdefgh")[: len(vectors)], "embedding": vectors.tolist()})
    return Turns(frame if scores is None else frame.with_columns(score=pl.Series(scores)))


@exact
def worked_channels() -> None:
    """The card's numbers of K*, by the function and by the question that a person asks of a table."""
    for n, cosine, expected in ((4, 0.5, 2.9257), (4, 0.9, 1.4173), (16, 0.9, 1.7595), (4, 1.0, 1.0)):
        np.testing.assert_allclose(effective_channels(alike(n, cosine)), expected, atol=1e-4)
    blocks = np.kron(np.eye(2), alike(2, 0.9))
    np.testing.assert_allclose(effective_channels(blocks), 2.4392, atol=1e-4)
    np.testing.assert_allclose(channels(table(alike(4, 0.5)))["channels"].to_numpy(), 2.9257, atol=1e-4)


@exact
def length_is_nothing() -> None:
    """Ten times as long an embedding of one member changes nothing."""
    vectors = alike(4, 0.5)
    vectors[0] *= 10
    np.testing.assert_allclose(effective_channels(vectors), 2.9257, atol=1e-4)


@exact
def right_and_wrong() -> None:
    """Two right directions and one wrong one, given twice: 2 - 1/2, of 3 in all."""
    found = channels(table(np.eye(3)[[0, 1, 2, 2]], [1.0, 1.0, 0.0, 0.0])).row(0, named=True)
    np.testing.assert_allclose([found[name] for name in ("channels_right", "channels_wrong")], [2.0, 1.0], atol=1e-9)
    np.testing.assert_allclose(found["effective"], 1.5, atol=1e-9)
    assert found["channels"] > 2.5


@exact
def what_each_adds() -> None:
    """A copy adds nothing or less, the odd one out most; it and one of the copies are the two to take."""
    turns = table(np.eye(2)[[0, 0, 0, 1]])
    added = dict(added_channels(turns).select("agent", "added").iter_rows())
    whole = 2 ** -(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25))
    without_a_copy = 2 ** -(2 / 3 * np.log2(2 / 3) + 1 / 3 * np.log2(1 / 3))
    np.testing.assert_allclose([added["d"], added["a"]], [whole - 1, whole - without_a_copy], atol=1e-9)
    taken = diverse_members(turns, 2)
    assert taken["agent"][0] == "d"
    np.testing.assert_allclose(taken["channels"].to_numpy(), [1.0, 2.0], atol=1e-9)


@exact
def correlated_votes() -> None:
    """Sixteen with correlated errors, two that differ, one alone."""
    found = [vote_accuracy(0.7, n, rho) for n, rho in ((16, 0.9), (2, 0.0), (2, 0.5), (1, 0.0))]
    np.testing.assert_allclose(found, [0.769, 0.839, 0.790, 0.758], atol=1e-3)


def answers(seed: int, questions: int) -> np.ndarray:
    """What the members answer, [questions, members, dimensions]: the truth is along the first, noise everywhere."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(questions, max(CLUSTERS) + 1, DIMENSIONS))[:, CLUSTERS]
    own = rng.normal(size=shared.shape)
    noise = np.sqrt(SHARED) * shared + np.sqrt(1 - SHARED) * own
    noise[..., 0] += SIGNAL
    return noise  # type: ignore[no-any-return]


def written(seed: int, directory: Path) -> None:
    """A table of answers of all members, whose names are in no order."""
    said = answers(seed, WRITTEN)
    names = np.random.default_rng([seed, 1]).permutation(len(CLUSTERS))
    rows = [
        {"group": group, "episode": group, "turn": 0, "agent": f"member {names[at]}", "embedding": vector.tolist()}
        for group, vectors in enumerate(said)
        for at, vector in enumerate(vectors)
    ]
    pl.DataFrame(rows).write_parquet(directory / "team.parquet")
    (directory / "seed.json").write_text(json.dumps([seed, names.tolist()]))


def team_accuracy() -> Measure:
    """How often the vote of the members that were printed is right, on tasks that nobody answered before."""

    def measured(left: Left) -> list[float]:
        seed, names = json.loads((left.directory / "seed.json").read_text())
        members = [names.index(int(row["agent"].split()[1])) for row in json.loads(left.stdout)]
        said = answers(seed + 100_000, FRESH_TASKS)[:, members, 0]
        return [float((said.mean(1) > 0).mean())]

    return measured


def pool(correlation: float, rng: np.random.Generator) -> tuple[float, float, float]:
    """Effective channels of the members' noise, accuracy of the vote, mean accuracy of a member."""
    shared, own = rng.normal(size=(QUESTIONS, 1)), rng.normal(size=(QUESTIONS, MEMBERS))
    noise = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own
    right = SIGNAL + noise > 0
    return effective_channels(noise.T), float(((SIGNAL + noise).mean(1) > 0).mean()), float(right.mean())


@reproduction(
    113,
    claim="Two members that differ match or beat sixteen that do not; at one mean accuracy the effective channels go "
    "along with the accuracy of the vote.",
    baseline="the number of members",
    criterion="worked numbers of K* exact to 1e-4; two at correlation 0 above sixteen at 0.9 by 0.05 or more (exact); "
    "correlation of K* with accuracy over mixed pools at least 0.9 in every seed",
    seeds=(0, 1, 2),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, closed form, mixed pools."""
    worked = {}
    for n, c, expected in ((4, 0.5, 2.9257), (4, 0.9, 1.4173), (16, 0.9, 1.7595)):
        gram = np.full((n, n), c) + (1 - c) * np.eye(n)
        worked[f"off_{n}_{c}"] = abs(effective_channels(np.linalg.cholesky(gram)) - expected)
    pair, many = vote_accuracy(SIGNAL, 2, 0.0), vote_accuracy(SIGNAL, 16, 0.9)
    levels = np.linspace(0.05, 0.95, POOLS)
    found = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        channels, accuracy, _ = np.array([pool(level, rng) for level in levels]).T
        found.append(float(np.corrcoef(channels, accuracy)[0, 1]))
    measured = worked | {"two_that_differ": pair, "sixteen_alike": many, "correlation": float(np.mean(found))}
    return Outcome(measured, max(worked.values()) < 1e-4 and pair >= many + 0.05 and min(found) >= 0.9)
