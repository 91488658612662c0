"""[201] RLZero (arXiv 2412.05718): an imagined sequence, projected on what was seen, gives a policy in closed form.

A grid of 7 by 7 cells: 50 random walks of 60 steps without a goal are the data; the imagined sequence is a cloud of
noisy places around one cell, most of which no walk ever saw. Left out: models that make videos of texts, embeddings of
images, and networks for F and B; the forward embedding of a new vector is the best of known ones (a reconstruction).
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.agents import TabularPolicy, Team
from palaestra.agents.forward_backward import ForwardBackward, spread
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import GoalGrid
from palaestra.play.rollout import rollout
from palaestra.runs.forward_backward_policies import imitating
from palaestra_atlas.reproductions import exact
from palaestra_atlas.verification.measures import Left, Measure

SIDE, NOISE, FRAMES = 7, 0.6, 30
ENV = functools.partial(GoalGrid, side=SIDE, horizon=60, ends=False, told=False)


@functools.cache
def walks(seed: int = 0) -> Turns:
    """Play of a uniform policy, 3000 turns."""
    return rollout(ENV, Team(walker=TabularPolicy(4, name="table")), groups=50, seed=seed)


def imagined(place: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Frames around a place."""
    return place + rng.normal(0, NOISE, (FRAMES, 2))


def made(seed: int, folder: Path) -> None:
    """Walks, the frames of a drawn place, and as many of anywhere."""
    rng = np.random.default_rng(seed)
    walks(seed).save(folder / "walks.parquet")
    place = (int(rng.integers(SIDE)), int(rng.integers(SIDE)))
    for name, frames in (("imagined", imagined(place, rng)), ("nothing", rng.uniform(0, SIDE - 1, (FRAMES, 2)))):
        pl.DataFrame({"features": frames.tolist(), "place": [f"{place[0]},{place[1]}"] * FRAMES}).write_parquet(
            folder / f"{name}.parquet"
        )


def near() -> Measure:
    """Share of the played steps that end at most one cell from the imagined place."""

    def measured(left: Left) -> list[float]:
        place = pl.read_parquet(left.directory / "imagined.parquet")["place"][0]
        return [share(Turns.load(seed / "turns"), tuple(map(int, place.split(",")))) for seed in left.seeds()]

    return measured


def share(turns: Turns, place: tuple[int, ...]) -> float:
    """Share of the turns that end at most one cell from a place."""
    reached = np.array([list(map(int, each.split(","))) for each in turns["reached"].drop_nulls()])
    return float((np.abs(reached - place).sum(1) <= 1).mean())


def followed(rank: int = 16, seed: int = 0) -> float:
    """Share of steps near the place of the policy that follows frames."""
    model, rng = ForwardBackward(walks(seed), rank=rank), np.random.default_rng(seed)
    place = (int(rng.integers(SIDE)), int(rng.integers(SIDE)))
    policy = model.policy(model.task(imagined(place, rng)))
    return share(rollout(ENV, Team(walker=policy), groups=20, seed=seed + 100), place)


@exact
def frames_stand_for_what_was_seen() -> None:
    """Each frame, also one outside of the grid, is the state with the nearest features, in units of each."""
    model = ForwardBackward(walks(), rank=8)
    frames = np.array([[2.4, 3.1], [-3.0, 9.0], [5.6, 0.2]])
    assert model.features[model.project(frames)].tolist() == [[2, 3], [0, 6], [6, 0]]


@exact
def wanted_over_visited() -> None:
    """The vector is E over the wanted states of B; at full rank it pays wanted share over visited share, no more.

    So a state that the walks seldom met is paid more than one that they often met and that is wanted as much.
    """
    model = ForwardBackward(walks(), rank=SIDE**2)
    np.testing.assert_allclose(model.backward.T * model.share @ model.backward, np.eye(SIDE**2), atol=1e-6)
    wanted = np.array([3, 3, 10])
    paid = model.backward @ model.task(model.features[wanted])
    expected = np.bincount(wanted, minlength=SIDE**2) / 3 / model.share
    np.testing.assert_allclose(paid, expected, atol=1e-5)


@exact
def the_best_choice_is_forward_times_vector() -> None:
    """F of a known vector is the discounted sum of B to come, and the choice for that vector is the best there is."""
    model = ForwardBackward(walks(), rank=SIDE**2, tasks=SIDE**2)
    goal = int(np.flatnonzero((model.features == [3, 3]).all(1))[0])
    vector = model.task(model.features[[goal]])
    worth = model.values(vector)
    left = np.abs(model.features - model.features[goal]).sum(1)
    for state in np.flatnonzero(left > 1):
        following = model.moves[state, worth[state].argmax()].argmax()
        assert left[following] == left[state] - 1, "every choice is a step of a shortest way"
    known = spread(model.features, SIDE**2).index(goal)
    bellman = model.moves @ (model.backward + model.gamma * model.forward[known][np.arange(49), worth.argmax(1)])
    np.testing.assert_allclose(model.forward[known] @ vector, bellman @ vector, rtol=1e-4, atol=1e-4)


@exact
def embeddings_are_long_enough() -> None:
    """With 16 numbers a state nearly all steps are near the place, of five places; with two, few."""
    long, short = (float(np.mean([followed(rank, seed) for seed in range(5)])) for rank in (16, 2))
    assert long > 0.9, long
    assert short < 0.5, short


@exact
def nothing_is_played_or_trained_for_a_task() -> None:
    """From two files to a policy: as good as by hand, and a sequence that shows nothing leads nowhere."""
    with tempfile.TemporaryDirectory() as folder:
        made(3, Path(folder))
        place = pl.read_parquet(Path(folder) / "imagined.parquet")["place"][0]
        cell = tuple(map(int, place.split(",")))
        found = []
        for name in ("imagined", "nothing"):
            policy = imitating(f"{folder}/walks.parquet", f"{folder}/{name}.parquet")
            assert not policy.parameters()  # type: ignore[attr-defined]
            found.append(share(rollout(ENV, Team(walker=policy), groups=20, seed=9), cell))
    assert found[0] > 0.9, found
    assert found[1] < 0.5, found
