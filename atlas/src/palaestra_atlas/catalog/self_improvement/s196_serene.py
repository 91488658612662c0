"""[196] SERENE (arXiv 2203.01027): novelty search finds rewarded areas, emitters climb them; learned descriptors.

The mechanism follows the description of the authors' code. Reconstructed: several emitters advance in one generation,
because all seats of a team are played at once, and emitters by CMA-ES sample twelve genomes, as many as the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.agents import PopulationPolicy, Team
from palaestra.agents.population import compass, genome_size, population_logits
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds.discs import CENTRES, HEADINGS, START, moved, paid
from palaestra.learning.diversity.archives import Evaluated, archive_of, novelty
from palaestra.learning.diversity.descriptors import Autoencoder, Given, Signature
from palaestra.learning.diversity.emitters import CmaEmitter, Emitter, chosen, local_sigma
from palaestra.learning.diversity.learner import Diversity
from palaestra.learning.diversity.schedules import schedule
from palaestra.learning.diversity.search import DiversitySearch
from palaestra_atlas.reproductions import Outcome, exact, reproduction

STEPS, STRIDE, RADIUS = 12, 0.12, 0.08


def walk(genomes: np.ndarray, headings: int = HEADINGS) -> np.ndarray:
    """Last places of walkers of `native/discs` with these genomes, float64[n, 2]."""
    places = np.tile(START, (len(genomes), 1))
    for step in range(STEPS):
        seen = np.hstack([places, np.full((len(places), 1), 1 - step / STEPS)])
        places = moved(places, (population_logits(genomes, seen, 2) @ compass(headings).T).argmax(1), STRIDE, headings)
    return places


def told(search: DiversitySearch, reward: Callable[[np.ndarray], np.ndarray], generations: int) -> None:
    """Generations of a search in which the genome itself is what is seen."""
    for _generation in range(generations):
        genomes = search.ask()
        search.tell(reward(genomes), genomes)


def points(*places: float, reward: Sequence[float] | None = None) -> Evaluated:
    """Genomes on a line, whose descriptors they are."""
    column = np.array(places, float)[:, None]
    return Evaluated(column, np.zeros(len(column)) if reward is None else np.array(reward), column, column)


@exact
def novelty_of_pyribs() -> None:
    """Novelty, the mean distance to 15 nearest, as pyribs has it for an archive, without oneself in a population."""
    rng = np.random.default_rng(0)
    kept, new = (Evaluated(x, x[:, 0], x, x) for x in (rng.normal(size=(40, 2)), rng.normal(size=(30, 2))))
    by_ribs = archive_of(kept, 15).add(new.genomes, new.reward, new.place)["novelty"]
    assert np.allclose(novelty(new, [kept]), by_ribs)
    away = np.sort(np.linalg.norm(new.place[:, None] - np.concatenate([new.place, kept.place])[None], axis=2), 1)
    assert np.allclose(novelty(new, [new, kept], inside=True), away[:, 1:16].mean(1))


@exact
def most_novel_survive() -> None:
    """Of population and children the members that survive are those most novel among both and both archives."""
    start = np.random.default_rng(1).normal(size=(20, 2))
    search = DiversitySearch(start, descriptor=Given(), neighbours=3, seed=4)
    told(search, lambda genomes: np.zeros(len(genomes)), 1)
    away = np.sort(np.linalg.norm(start[:, None] - start[None], axis=2), 1)[:, 1:4].mean(1)
    assert search.population is not None
    assert search.novel is not None
    assert {*map(tuple, search.population.genomes)} == {*map(tuple, start[np.argsort(-away)[:10]])}
    assert len(search.novel) == 5


@exact
def novelty_is_among_all_that_is_kept() -> None:
    """Generation after generation the most novel among population, children and both archives survive.

    Of the children any five join the archive of novelty; of waiting candidates those most novel among the rewarded ones
    are tried first.
    """
    search = DiversitySearch(
        np.random.default_rng(1).normal(size=(24, 2)), descriptor=Given(), neighbours=3, chunk=48, seed=4, window=8
    )
    places, waited = set(), 0
    for _generation in range(24):
        children, kept = search.ask(), [each for each in (search.novel, search.rewarded) if each is not None]
        before = search.population
        search.tell(np.maximum(1.5 - np.linalg.norm(children - 1, axis=1), 0), children)
        if search.log[-1]["mode"] == "explore":
            both = np.concatenate([*([] if before is None else [before.genomes]), children])
            among = np.concatenate([both, *(each.genomes for each in kept)])
            away = np.sort(np.linalg.norm(both[:, None] - among[None], axis=2), 1)[:, 1:4].mean(1)
            assert search.population is not None
            assert search.novel is not None
            assert {*map(tuple, search.population.genomes)} == {
                *map(tuple, both[np.argsort(-away, kind="stable")[:12]])
            }
            places |= {int(np.flatnonzero((children == one).all(1))[0]) for one in search.novel.genomes[-5:]}
        new = [each for each, _ in search.asked if not each.means]
        left = [each for each in search.emitters if not each.means and all(each is not one for one in new)]
        if new and left and search.rewarded is not None:
            waited += 1
            tops = [Evaluated.concat([each.parents for each in part]) for part in (new, left)]
            tried, others = (novelty(each, [search.rewarded], k=3) for each in tops)
            assert tried.min() >= others.max()
        assert not any(each.active and each.stagnates(8) for each in search.emitters), "they end"
    assert len(places) > 5, places
    assert waited > 1


@exact
def emitters_climb() -> None:
    """A rewarded genome seeds an emitter, with a third of the distance to its nearest, which climbs what pays."""
    np.testing.assert_allclose(local_sigma(np.zeros(1), np.array([[0.0], [0.6], [3.0]])), 0.2)
    start = np.random.default_rng(2).normal(size=(24, 2))
    short = DiversitySearch(start, descriptor=Given(), reach=6.0, seed=1)
    told(short, lambda genomes: np.full(len(genomes), 0.1), 1)
    nearest = [np.sort(np.linalg.norm(start - each.parents.genomes, axis=1))[1] for each in short.emitters]
    np.testing.assert_allclose([each.sigma for each in short.emitters], np.array(nearest) / 6)
    assert len(short.emitters) == 24, "whatever is paid"
    elite = Emitter(points(0.0, reward=[5.0]), 0.1, 5.0, 0.0)
    elite.tell(points(1.0, 2.0, reward=[1.0, 2.0]), np.zeros(2))
    assert elite.parents.reward.tolist() == [5, 2, 1], "parents stay among the best"
    search = DiversitySearch(start, descriptor=Given(), chunk=48, sigma=0.05, seed=1)
    told(search, lambda genomes: np.maximum(1 - np.linalg.norm(genomes - 1, axis=1), 0), 30)
    first = np.maximum(1 - np.linalg.norm(start - 1, axis=1), 0).max()
    assert {line["mode"] for line in search.log} == {"explore", "exploit"}
    assert search.rewarded is not None
    assert search.rewarded.reward.max() > max(0.95, first), search.rewarded.reward.max()


@exact
def cma_narrows() -> None:
    """An emitter by CMA-ES asks what pyribs asks, from ranks alone, and narrows where fixed mutations stay coarse."""
    from ribs.emitters.opt import CMAEvolutionStrategy

    theirs = CMAEvolutionStrategy(0.3, 3, batch_size=12, seed=5)
    theirs.reset(np.ones(3))
    best = {}
    for kind in (CmaEmitter, Emitter):
        seed = np.ones((1, 3))
        emitter = kind(Evaluated(seed, -np.ones(1), seed, seed), 0.3, -1.0, 0.0)
        for generation in range(40):
            asked = emitter.ask(5 + generation)
            if kind is CmaEmitter:
                assert np.array_equal(asked, theirs.ask())
                order = np.argsort(np.linalg.norm(asked, axis=1))
                theirs.tell(order, np.zeros(12), 6)
            emitter.tell(Evaluated(asked, -np.linalg.norm(asked, axis=1), asked, asked), np.zeros(len(asked)))
        best[kind] = -emitter.best
    assert best[CmaEmitter] < 0.001 < best[Emitter]


@exact
def only_improving_candidates_stay() -> None:
    """On a flat reward candidates are dropped after one and five generations, and none becomes an emitter."""
    start = np.random.default_rng(3).normal(size=(12, 2))
    search = DiversitySearch(start, descriptor=Given(), chunk=12, schedule=schedule("alternate"), seed=1)
    told(search, lambda genomes: np.ones(len(genomes)), 1)
    begun = search.emitters[:]
    search.chunk = 10**6
    told(search, lambda genomes: np.ones(len(genomes)), 7)
    assert search.novel is not None
    assert search.rewarded is not None
    assert len(search.novel) > 5, "what was more novel than its seed joins the archive"
    assert len(search.rewarded) == 2, "the seeds of both that were tried, and nothing that is not better"
    gone = [each for each in begun if all(each is not one for one in search.emitters)]
    assert [len(each.means) for each in gone] == [6]
    assert not any(each.active for each in search.emitters)
    assert [line["evaluations"] for line in search.log] == [12, 6, 12, 12, 12, 12, 12, 6]


@exact
def from_the_front() -> None:
    """The next emitter is drawn from the front of novelty and improvement, so the most novel one has its turn too."""

    def emitter(*means: float) -> Emitter:
        return Emitter(points(0.0), 0.1, 1.0, 0.0, list(means), active=True)

    made = [emitter(0, 0, 0, 3, 3, 3), emitter(0, 0, 0, 1, 1, 1), emitter(0, 0, 0, 2, 2, 2)]
    assert [each.improvement() for each in made] == [3, 1, 2]
    assert emitter(0, 0, 0, *[3.0] * 6).improvement() == 0, "of the last six generations"
    search = DiversitySearch(np.eye(12), descriptor=Given())
    search.emitters, search.rewarded = made[::-1], points(0.0, 1.0)
    (goes,) = search._goes_on(np.random.default_rng(0))
    assert goes is made[0], "as novel as the others, and with the largest improvement"
    draws = [chosen(made, np.array([1.0, 5.0, 0.5]), 1, np.random.default_rng(seed)) for seed in range(30)]
    assert {at for (at,) in draws} == {0, 1}
    assert sorted(chosen(made, np.array([1.0, 5.0, 0.5]), 3, np.random.default_rng(0))[:2]) == [0, 1]


@exact
def chunks_alternate() -> None:
    """Chunks of so many evaluations explore and exploit in turn; an emitter that stagnates ends."""
    start = np.random.default_rng(4).normal(size=(24, 2))
    search = DiversitySearch(start, descriptor=Given(), chunk=48, sigma=0.05, window=8, seed=1)
    told(search, lambda genomes: np.maximum(1 - np.linalg.norm(genomes, axis=1), 0), 24)
    modes = [each.mode for each in search.chunks]
    assert modes == ["explore", "exploit"] * (len(modes) // 2) + ["explore"] * (len(modes) % 2)
    flat = Emitter(points(0.0), 0.1, 1.0, 0.0, [0.0, 0.2, 0.4, 0.6, 0.8, *[1.0] * 6], active=True)
    assert flat.stagnates(6)
    assert not flat.stagnates(11)
    search = DiversitySearch(np.eye(12), descriptor=Given(), window=6)
    search.emitters, search.asked = [flat], [(flat, 1)]
    search._exploited(points(2.0, reward=[0.0]), np.random.default_rng(0))
    assert not search.emitters


@exact
def route_in_the_signature() -> None:
    """Two paths with the same ends and another route have another signature of order 2: the area between them."""
    over, under = [[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]
    one, other = Signature(2).encode(np.array([over, under]).reshape(2, -1))
    assert np.allclose(one[:3], other[:3]), "increments of x, y and time"
    area = [(each[3:].reshape(3, 3) - each[3:].reshape(3, 3).T)[0, 1] / 2 for each in (one, other)]
    assert np.allclose(area, [-0.5, 0.5])


@exact
def the_descriptor_is_learned() -> None:
    """An autoencoder finds the two numbers behind six, and its error is one of the criteria that are drawn."""
    rng = np.random.default_rng(5)
    seen = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 6))
    coder = Autoencoder(6, code=2, epochs=40)
    before = coder.surprise(seen).mean()
    coder.fit(seen, seed=1)
    assert coder.surprise(seen).mean() < before / 5
    assert coder.encode(seen).shape == (200, 2)
    search = DiversitySearch(seen[:24], descriptor=coder, chunk=24, criteria=("novelty", "surprise"), seed=1)
    drawn = set()
    for _generation in range(8):
        kept = [] if search.population is None else [search.population.genomes]
        both = np.concatenate([*kept, search.ask()])
        error = coder.surprise(both)
        told(search, lambda genomes: np.zeros(len(genomes)), 1)
        drawn.add(search.log[-1]["criterion"])
        assert search.population is not None
        if search.log[-1]["criterion"] == "surprise":
            assert {*map(tuple, search.population.genomes)} == {*map(tuple, both[np.argsort(-error)[:12]])}
        np.testing.assert_array_equal(search.population.place, coder.encode(search.population.seen))
    assert drawn == {"novelty", "surprise"}
    assert [line["fitted"] for line in search.log].count(True) > 1


@exact
def genomes_take_seats() -> None:
    """An update of the learner archives what the seats did and gives them other genomes."""
    seats = [f"w{number}" for number in range(26)]
    policy = PopulationPolicy(2, 3, keys=seats, seed=1)
    team = Team(dict.fromkeys(seats, policy))
    learner = Diversity(team, behaviour=["x"], elites=2, search={"chunk": 24, "sigma": 0.1, "neighbours": 3})
    before = policy.genomes.copy()
    place = before[:, 0].astype(float)
    table = {"group": 0, "episode": 0, "turn": 0, "policy": "p"}
    rows = {"agent": seats, "x": place, "advantage": np.maximum(1 - abs(place), 0)}
    learner.update(Turns(pl.DataFrame(rows).with_columns(**{name: pl.lit(value) for name, value in table.items()})))
    assert not np.array_equal(policy.genomes, before)
    assert len(learner.archives) > 0


def best_of(modes: str, seed: int, emitter: str = "elitist", evaluations: int = 9600) -> np.ndarray:
    """Largest reward in each disc after so many evaluations, 0 where it was not found; float64[discs]."""
    start = np.random.default_rng(seed).uniform(-1, 1, (80, genome_size(3, 2)))
    search = DiversitySearch(
        start, descriptor=Given(), sigma=0.2, reach=12, chunk=400, window=30, schedule=schedule(modes), seed=seed,
        emitter=emitter,
    )  # fmt: skip
    best = np.zeros(len(CENTRES))
    while search.evaluations < evaluations:
        places = walk(search.ask(), 360)
        reward, disc = paid(places, RADIUS)
        np.maximum.at(best, disc[disc >= 0], reward[disc >= 0])
        search.tell(reward, places)
    return best


@reproduction(
    196,
    claim="With emitters in turn, both of two small discs that pay are found and climbed higher than by novelty search "
    "alone, at equal evaluations.",
    baseline="novelty search alone, with the same mutations, population and archives",
    criterion="both discs found on every seed; mean best reward per disc higher by at least .05 (9600 evaluations), "
    "with elitist emitters and with those by CMA-ES",
    seeds=range(8),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Search with emitters of either kind and without."""
    alone = np.array([best_of("fixed(1)", seed) for seed in seeds])
    elitist, cma = (np.array([best_of("alternate()", seed, kind) for seed in seeds]) for kind in ("elitist", "cma"))
    measured = {
        "novelty": float(alone.mean()), "elitist": float(elitist.mean()), "cma": float(cma.mean()),
        "both": float((np.concatenate([elitist, cma]) > 0).all(1).mean()),
    }  # fmt: skip
    worse = min(measured["elitist"], measured["cma"])
    return Outcome(measured, measured["both"] == 1 and worse - measured["novelty"] >= 0.05)


def best_per_disc() -> Callable[..., list[float]]:
    """Measure: the mean over discs of the best reward in them of all evaluations, per seed."""

    def measured(left: object) -> list[float]:
        found = []
        for seed in left.seeds():  # type: ignore[attr-defined]
            rows = Turns.load(Path(seed) / "turns").frame.filter((pl.col("disc") >= 0) & (pl.col("reward") > 0))
            best = rows.group_by("disc").agg(pl.col("reward").max())
            found.append(float(best["reward"].sum()) / len(CENTRES))
        return found

    return measured
