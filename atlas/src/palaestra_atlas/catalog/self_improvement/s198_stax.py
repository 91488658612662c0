"""[198] STAX (arXiv 2111.01919): the behaviour space is an autoencoder of what is seen, refitted while searching.

The mechanism follows the description of the authors' code. Left out: convolutions on images; a small network on
sensors stands for them. Reconstructed: gains of the bandit, and that intervals count chunks that explored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.agents import PopulationPolicy, Team
from palaestra.agents.population import genome_size
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds.discs import paid, sensed
from palaestra.learning.diversity.descriptors import Autoencoder, Given
from palaestra.learning.diversity.learner import Diversity
from palaestra.learning.diversity.schedules import Chunk, discounted, schedule
from palaestra.learning.diversity.search import DiversitySearch
from palaestra_atlas.catalog.self_improvement.s196_serene import walk
from palaestra_atlas.reproductions import Outcome, exact, reproduction

SENSORS, FLICKER, RADIUS = 6, 36, 0.08
"""Sensors on each side, and sensors of chance, which a code of two numbers has no room for."""


def ran(
    generations: int,
    *,
    criteria: Sequence[str] = ("novelty",),
    modes: str = "fixed(1)",
    pays: float = 0.0,
    emitter: str = "elitist",
) -> DiversitySearch:
    """A small search over genomes of six numbers, its descriptor an autoencoder of them."""
    start = np.random.default_rng(0).normal(size=(24, 6))
    search = DiversitySearch(
        start, descriptor=Autoencoder(6, code=2, hidden=8, epochs=5), chunk=24, criteria=criteria,
        schedule=schedule(modes), sigma=0.3, emitter=emitter, seed=2,
    )  # fmt: skip
    for _generation in range(generations):
        genomes = search.ask()
        search.tell(np.maximum(pays - np.linalg.norm(genomes, axis=1), 0), genomes)
    return search


@exact
def fitted_code() -> None:
    """The descriptor is the code of an autoencoder that was fitted: it knows numbers on a line that it was shown."""
    line = np.random.default_rng(0).normal(size=(60, 1)) * np.ones(6)
    coder = Autoencoder(6, code=1, hidden=8, epochs=200, batch=16)
    before = float(coder.surprise(line).mean())
    assert coder.fit(line, seed=0) < before / 4
    order = np.argsort(coder.encode(line)[:, 0])
    assert abs(np.corrcoef(np.argsort(order), np.argsort(np.argsort(line[:, 0])))[0, 1]) > 0.99


@exact
def growing_intervals() -> None:
    """Fits come after chunks 1, 3, 6 and 10 that explored."""
    search = ran(12)
    assert [at for at, line in enumerate(search.log, 1) if line["fitted"]] == [1, 3, 6, 10]


@exact
def encoded_anew() -> None:
    """After a fit all that is kept has the places of the new code."""
    search = ran(10)
    for kept in (search.population, search.novel):
        assert kept is not None
        assert np.allclose(kept.place, search.descriptor.encode(kept.seen), atol=1e-12)


@exact
def criterion_is_drawn() -> None:
    """Novelty or surprise decides who survives, each about half of the time; surprise keeps what is decoded worst."""
    search = ran(40, criteria=("novelty", "surprise"))
    surprised = sum(line["criterion"] == "surprise" for line in search.log)
    assert 12 <= surprised <= 28, surprised
    only = ran(1, criteria=("surprise",))
    start = np.random.default_rng(0).normal(size=(24, 6))
    worst = start[np.argsort(-Autoencoder(6, code=2, hidden=8, epochs=5).surprise(start))[:12]]
    assert only.population is not None
    assert {*map(tuple, only.population.genomes)} == {*map(tuple, worst)}


@exact
def rewards_are_climbed() -> None:
    """Rewarded genomes are exploited by emitters of both kinds, in turn with exploring: rewards get better."""
    for emitter in ("elitist", "cma"):
        search = ran(30, modes="alternate()", pays=3.0, emitter=emitter)
        assert search.rewarded is not None
        assert search.rewarded.reward.max() > search.rewarded.reward[0] + 0.1


@exact
def views_become_places() -> None:
    """The learner fits the autoencoder to the views of a generation; what it archives has the places of its code."""
    seats = [f"w{number}" for number in range(26)]
    policy = PopulationPolicy(2, 3, keys=seats, seed=1)
    learner = Diversity(
        Team(dict.fromkeys(seats, policy)), behaviour=["view"], space="autoencoder", elites=2,
        autoencoder={"code": 2, "hidden": 8, "epochs": 5}, search={"chunk": 24, "sigma": 0.1},
    )  # fmt: skip
    for _generation in range(2):
        frame = pl.DataFrame({"agent": seats, "view": policy.genomes[:, :5].tolist(), "advantage": [0.0] * 26})
        learner.update(Turns(frame.with_columns(group=0, episode=0, turn=0, policy=pl.lit("p"))))
    search = learner.search
    assert search is not None
    assert search.fits == 1
    assert search.novel is not None
    code = search.descriptor.encode(search.novel.seen)
    assert np.allclose(learner.archives.select("place_0", "place_1").to_numpy(), code)


@exact
def schedules_differ() -> None:
    """Shares of the budget: half and half, fixed, falling with time, and what has paid lately."""
    rng = np.random.default_rng(0)
    past = [Chunk("explore", 0.0), Chunk("exploit", 0.8), Chunk("explore", 0.0)]

    def share(text: str, spent: float = 0.5) -> float:
        return float(np.mean([schedule(text)(past, spent, rng) == "explore" for _draw in range(400)]))

    assert share("alternate()") == 0
    assert abs(share("fixed(0.7)") - 0.7) < 0.07
    assert (share("by_time(1, 0)", 0.0), share("by_time(1, 0)", 1.0)) == (1, 0)
    assert share("bandit(0.9, width=0.1)") == 0
    assert schedule("bandit(0.9, width=0.1)")([Chunk("explore", 0.5), Chunk("exploit", 0.0)], 0.5, rng) == "explore"
    count, gain = discounted(past, 0.5)
    assert (count.tolist(), gain.tolist()) == ([1.25, 0.5], [0.0, 0.4])


def covered(space: str, seed: int, evaluations: int = 2400) -> tuple[int, float]:
    """Cells of a 10 × 10 grid in which a walker ended, and the best reward, of a search with this behaviour space."""
    rng, flicker = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    coder = Autoencoder(SENSORS**2 + FLICKER, code=2, hidden=16, epochs=100, batch=32, rate=0.01, seed=seed)
    coder.learns = space == "autoencoder"
    search = DiversitySearch(
        rng.uniform(-0.3, 0.3, (60, genome_size(3, 2))), descriptor=Given() if space == "given" else coder,
        sigma=0.05, reach=8, chunk=60, window=20, seed=seed,
    )  # fmt: skip
    cells: set[int] = set()
    best = 0.0
    while search.evaluations < evaluations:
        places = walk(search.ask())
        cells.update((np.minimum((places * 10).astype(int), 9) @ [10, 1]).tolist())
        reward, _ = paid(places, RADIUS)
        best = max(best, float(reward.max()))
        search.tell(reward, places if space == "given" else sensed(places, SENSORS, flicker, FLICKER))
    return len(cells), best


@reproduction(
    198,
    claim="A space learned from sensors, half of which flicker, covers most of what a hand-made space covers, and more "
    "than an untrained encoder.",
    baseline="the same search with an untrained encoder, and with the true place as descriptor",
    criterion="cells of a 10 × 10 grid: at least .8 of the hand-made space's, and 5 more than the untrained encoder's",
    seeds=range(4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Search in three behaviour spaces."""
    measured: dict[str, float] = {}
    for space in ("given", "autoencoder", "untrained"):
        found = np.array([covered(space, seed) for seed in seeds])
        measured[space], measured[f"best_{space}"] = float(found[:, 0].mean()), float(found[:, 1].mean())
    learned = measured["autoencoder"]
    return Outcome(measured, learned >= 0.8 * measured["given"] and learned >= measured["untrained"] + 5)


def recipe(seed: int, folder: Path) -> None:
    """Writes the recipe of a search whose behaviour space is learned from sensors, `stax.yaml`."""
    coder = {"code": 2, "hidden": 16, "epochs": 100, "batch": 32, "rate": 0.01}
    search = {"sigma": 0.05, "reach": 8, "chunk": 60, "window": 20}
    made = {
        "name": "stax",
        "env": {"make": "native/discs", "options": {"walkers": 64, "sensors": SENSORS, "flicker": FLICKER}},
        "policies": {"walker": {"kind": "population", "options": {"compass": True, "spread": 0.3}}},
        "team": {"*": "walker"},
        "credit": "agent_return()",
        "learn": {
            "kind": "diversity",
            "options": {
                "behaviour": ["view"], "space": "autoencoder", "autoencoder": coder, "search": search,
                "generations": 40,
            },
        },
        "train": {"iterations": 40, "groups": 1, "group_size": 1, "evaluate_every": 40, "checkpoint_every": 40,
                  "save_turns": "all"},
        "evaluation": {"tasks": 2, "trials": 1, "look_tasks": 2, "look_trials": 1, "measure": "score"},
    }  # fmt: skip
    (folder / "stax.yaml").write_text(json.dumps(made))


def cells() -> Callable[..., list[float]]:
    """Measure: cells of a 10 × 10 grid in which a walker ended, of all evaluations, per seed."""

    def measured(left: object) -> list[float]:
        found = []
        for seed in left.seeds():  # type: ignore[attr-defined]
            rows = Turns.load(Path(seed) / "turns").frame.filter(pl.col("view").is_not_null()).select("x", "y")
            found.append(float(len(np.unique(np.minimum((rows.to_numpy() * 10).astype(int), 9), axis=0))))
        return found

    return measured
