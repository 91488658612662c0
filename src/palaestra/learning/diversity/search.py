"""`DiversitySearch`: novelty search and reward emitters in turn, by ask and tell (SERENE [196], STAX [198]).

Exploring keeps the most novel genomes of a population; those that are rewarded become candidates for emitters, which
climb the reward locally. Behaviour spaces may be learned on the way. After arXiv 2203.01027 and 2111.01919, and the
papers' description of their code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.errors import InputError, nearest
from palaestra.learning.diversity.archives import Evaluated, novelty
from palaestra.learning.diversity.descriptors import Descriptor
from palaestra.learning.diversity.emitters import CHILDREN, EMITTERS, TRIAL, Emitter, chosen, local_sigma, mutated
from palaestra.learning.diversity.schedules import Chunk, Mode, Schedule, alternate

CRITERIA = ("novelty", "surprise")


class DiversitySearch:
    """Quality-diversity search by `ask` and `tell`, from genomes `start`; `descriptor` says what is near in behaviour.

    Args:
        start: genomes of the first generation, float[n, size]; n bounds the size of all later ones.
        descriptor: makes places in the behaviour space of what is seen. One that learns is fitted after chunks that
            explored, at first after 1, then after 2 more, 3 more …, on the population, its latest children and the
            rewarded archive.
        sigma: standard deviation of mutations where it explores.
        offspring: children of each member of the population, which has n / offspring members.
        added: children, drawn at random, that join the novelty archive after each generation.
        neighbours: k of `novelty`.
        chunk: evaluations until the schedule is asked again.
        schedule: explore or exploit.
        planned: evaluations that there will be, for schedules that ask.
        emitter: "elitist", mutations of the best six, or "cma", CMA-ES.
        reach: an emitter's first step is the distance from its seed to the nearest genome over this.
        trials: share of the emitters of a generation that are candidates, if there are enough of both.
        window: generations over which an emitter must improve; default 120 + 20·size / 6, as in CMA-ES.
        limit: generations after which an emitter ends in any case.
        criteria: by which the population survives; one is drawn for each generation.
        seed: of all that is drawn.

    Attributes:
        rewarded: the rewarded archive: seeds of candidates, and what was better than its emitter's best.
        novel: the novelty archive.
        log: a line per generation: mode, criterion, evaluations, and whether the descriptor was fitted after it.

    Raises:
        InputError: a number is out of range.
    """

    def __init__(
        self,
        start: np.ndarray,
        *,
        descriptor: Descriptor,
        sigma: float = 0.05,
        offspring: int = 2,
        added: int = 5,
        neighbours: int = 15,
        chunk: int = 1000,
        schedule: Schedule | None = None,
        planned: int = 0,
        emitter: str = "elitist",
        reach: float = 3.0,
        trials: float = 1 / 3,
        window: int | None = None,
        limit: int = 1000,
        criteria: Sequence[str] = ("novelty",),
        seed: int = 0,
    ) -> None:
        size = len(start)
        if (
            size < max(CHILDREN, 2 * offspring)
            or min(offspring, neighbours, chunk, limit) < 1
            or not min(sigma, reach) > 0
        ):
            raise InputError(
                f"DiversitySearch: generations of {size}, at least {CHILDREN}; {offspring=}, {neighbours=}, {chunk=} "
                f"and {limit=} at least 1, {sigma=} and {reach=} above 0"
            )
        if not criteria or set(criteria) - set(CRITERIA):
            raise InputError(f"DiversitySearch: criteria={list(criteria)} are some of {', '.join(CRITERIA)}")
        if emitter not in EMITTERS:
            raise InputError(f"DiversitySearch: {emitter=}{nearest(emitter, EMITTERS)}")
        self.descriptor, self.sigma, self.offspring, self.added = descriptor, sigma, offspring, added
        self.neighbours, self.chunk, self.planned, self.trials = neighbours, chunk, planned, trials
        self.emitter, self.reach = EMITTERS[emitter], reach
        self.schedule, self.criteria = schedule or alternate(), tuple(criteria)
        self.size, self.members, self.limit, self.seed = size, size // offspring, limit, seed
        self.window = 120 + 20 * start.shape[1] // 6 if window is None else window
        self.mode: Mode = "explore"
        self.evaluations = self.spent = self.gained = self.generation = 0
        self.fits, self.explored = 0, 0
        self.chunks: list[Chunk] = []
        self.emitters: list[Emitter] = []
        self.running: list[Emitter] = []
        self.log: list[dict[str, Any]] = []
        self.pending = np.asarray(start, float)
        self.asked: list[tuple[Emitter, int]] = []
        """Emitters whose generations are pending, and of how many genomes; none: the pending ones explore."""
        self.population: Evaluated | None = None
        self.latest: Evaluated | None = None
        self.novel: Evaluated | None = None
        self.rewarded: Evaluated | None = None

    def ask(self) -> np.ndarray:
        """Genomes to evaluate, float64[at most n, size]; the same until `tell` is called."""
        return self.pending

    def tell(self, reward: np.ndarray, seen: np.ndarray) -> None:
        """Take the rewards, float[n], and behaviours, float[n, width], of the asked genomes, and prepare the next."""
        seen = np.asarray(seen, float)
        found = Evaluated(self.pending, np.asarray(reward, float), seen, self.descriptor.encode(seen))
        rng = np.random.default_rng((self.seed, self.generation))
        criterion = str(rng.choice(self.criteria))
        mode: Mode = "exploit" if self.asked else "explore"
        if self.asked:
            self._exploited(found, rng)
        else:
            self._explored(found, criterion, rng)
        self.generation += 1
        self.evaluations += len(found)
        self.spent += len(found)
        waiting = len(self._waiting())
        line = {"mode": mode, "criterion": criterion, "evaluations": len(found), "fitted": False}
        self.log.append(line | {"candidates": waiting, "emitters": len(self.emitters) - waiting})
        if self.spent >= self.chunk:
            self._turn(mode, rng)
        self._prepare(rng)

    # -- exploring ----------------------------------------------------------------------------------------------------

    def _explored(self, children: Evaluated, criterion: str, rng: np.random.Generator) -> None:
        both = children if self.population is None else Evaluated.concat([self.population, children])
        score = self.descriptor.surprise(both.seen) if criterion == "surprise" else self._novelty(both, [both])
        self._seed_emitters(children, both.genomes)
        self.population = both[np.sort(np.argsort(-score, kind="stable")[: self.members])]
        self.latest = children
        self._add_novel(children, rng)
        self.gained += int((children.reward > 0).sum())

    def _novelty(self, of: Evaluated, with_: Sequence[Evaluated] = (), *, inside: bool = True) -> np.ndarray:
        """Among the given ones and both archives."""
        among = [*with_, *(each for each in (self.novel, self.rewarded) if each is not None)]
        return novelty(of, among, k=self.neighbours, inside=inside)

    def _add_novel(self, found: Evaluated, rng: np.random.Generator) -> None:
        drawn = found[rng.permutation(len(found))[: self.added]]
        self.novel = drawn if self.novel is None else Evaluated.concat([self.novel, drawn])

    def _seed_emitters(self, children: Evaluated, genomes: np.ndarray) -> None:
        """Every rewarded child is a candidate."""
        for at in np.flatnonzero(children.reward > 0):
            one = children[at : at + 1]
            new = float(self._novelty(one, [children])[0])
            sigma = local_sigma(one.genomes[0], genomes, self.reach)
            self.emitters.append(self.emitter(one, sigma, float(one.reward[0]), new))

    # -- exploiting ---------------------------------------------------------------------------------------------------

    def _waiting(self) -> list[Emitter]:
        return [each for each in self.emitters if not each.active]

    def _exploited(self, found: Evaluated, rng: np.random.Generator) -> None:
        start = 0
        for emitter, count in self.asked:
            children, start = found[start : start + count], start + count
            if not emitter.means:
                self._add_rewarded(emitter.parents)
            new = self._novelty(children, [emitter.parents], inside=False)
            better = emitter.tell(children, new)
            self._add_rewarded(better)
            self.gained += len(better)
            if not emitter.active and len(emitter.means) >= TRIAL:
                emitter.active = emitter.improvement() > 0
                if not emitter.active:
                    self._end(emitter, rng)
            elif emitter.active and (len(emitter.means) >= self.limit or emitter.stagnates(self.window)):
                self._end(emitter, rng)

    def _add_rewarded(self, found: Evaluated) -> None:
        if len(found):
            self.rewarded = found if self.rewarded is None else Evaluated.concat([self.rewarded, found])

    def _end(self, emitter: Emitter, rng: np.random.Generator) -> None:
        """Some of the novel ones that it met join the novelty archive."""
        if emitter.found:
            self._add_novel(Evaluated.concat(emitter.found), rng)
        self.emitters = [each for each in self.emitters if each is not emitter]
        self.running = [each for each in self.running if each is not emitter]

    def _seed_novelty(self, emitters: Sequence[Emitter]) -> np.ndarray:
        """Novelty of emitters among the rewarded archive."""
        tops = [each.parents[:1] for each in emitters]
        if not tops or self.rewarded is None:
            return np.full(len(tops), np.inf)
        return novelty(Evaluated.concat(tops), [self.rewarded], k=self.neighbours)

    # -- the next generation ------------------------------------------------------------------------------------------

    def _turn(self, mode: Mode, rng: np.random.Generator) -> None:
        """A chunk is over."""
        self.chunks.append(Chunk(mode, self.gained / self.spent))
        self.spent = self.gained = 0
        self.running = []
        if mode == "explore" and self.descriptor.learns:
            self.explored += 1
            if self.explored > self.fits:
                self._fit()
        self.mode = self.schedule(self.chunks, self.evaluations / max(self.planned, 1), rng)

    def _fit(self) -> None:
        """Fit the descriptor and encode all that is kept anew."""
        self.explored, self.fits = 0, self.fits + 1
        known = [each for each in (self.population, self.latest, self.rewarded) if each is not None]
        self.descriptor.fit(np.concatenate([each.seen for each in known]), seed=self.fits)
        for name in ("population", "latest", "novel", "rewarded"):
            if (kept := getattr(self, name)) is not None:
                setattr(self, name, self._again(kept))
        for emitter in self.emitters:
            emitter.parents = self._again(emitter.parents)
            emitter.found = [self._again(each) for each in emitter.found]
        self.log[-1]["fitted"] = True

    def _again(self, kept: Evaluated) -> Evaluated:
        return Evaluated(kept.genomes, kept.reward, kept.seen, self.descriptor.encode(kept.seen))

    def _prepare(self, rng: np.random.Generator) -> None:
        seed = int(rng.integers(2**31))
        if self.mode == "exploit" and (goes := self._goes_on(rng)):
            parts = [emitter.ask(seed + at) for at, emitter in enumerate(goes)]
            self.asked = [(emitter, len(part)) for emitter, part in zip(goes, parts, strict=True)]
            self.pending = np.concatenate(parts)
            return
        assert self.population is not None
        self.asked = []
        self.pending = mutated(np.repeat(self.population.genomes, self.offspring, axis=0), self.sigma, seed)

    def _goes_on(self, rng: np.random.Generator) -> list[Emitter]:
        """Candidates, most novel first, once begun until they are judged; and active emitters, until the chunk ends."""
        most = self.size // CHILDREN
        begun = sorted(self._waiting(), key=lambda each: not each.means)
        new = [each for each in begun if not each.means]
        order = np.argsort(-self._seed_novelty(new), kind="stable")
        candidates = [each for each in begun if each.means] + [new[at] for at in order]
        rest = [each for each in self.emitters if each.active and all(each is not one for one in self.running)]
        reserved = max(most - len(self.running) - len(rest), max(round(self.trials * most), 1))
        trials = candidates[: min(reserved, most)]
        room = most - len(trials) - len(self.running)
        self.running += [rest[at] for at in chosen(rest, self._seed_novelty(rest), max(room, 0), rng)]
        return [*trials, *self.running[: most - len(trials)]]
