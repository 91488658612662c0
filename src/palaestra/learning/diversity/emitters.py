"""Emitters: small populations that climb the reward around one genome, from candidate to stagnation (SERENE [196])."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from palaestra.errors import missing_extra
from palaestra.learning.diversity.archives import Evaluated

PARENTS, CHILDREN = 6, 12
"""Of an emitter's generation."""
TRIAL = 6
"""Generations after which a candidate is judged: the first one around its seed, and five more."""


def mutated(parents: np.ndarray, sigma: float, seed: int) -> np.ndarray:
    """Array of mutated copies of parent genomes: normal noise of sd `sigma` on every number, drawn by pyribs."""
    try:
        from ribs.emitters.operators import GaussianOperator
    except ModuleNotFoundError as error:
        raise missing_extra("ribs", "diversity") from error
    found: np.ndarray = GaussianOperator(sigma, seed=seed).ask(parents)
    return found


def local_sigma(genome: np.ndarray, others: np.ndarray, reach: float = 3.0) -> float:
    """Mutation step (float) of array `genome`: distance to the nearest other row of `others` over `reach`, or inf.

    Args:
        genome: float[size].
        others: float[n, size], in which the genome itself, at distance 0, does not count.
        reach: what the distance is divided by.

    >>> local_sigma(np.zeros(2), np.array([[0.0, 0.0], [0.0, 3.0], [5.0, 0.0]]))
    1.0
    """
    away = np.linalg.norm(others - genome, axis=1)
    return float(away[away > 0].min(initial=np.inf)) / reach


def pareto_front(values: np.ndarray) -> np.ndarray:
    """Mask of the Pareto-optimal rows, bool[n]; larger is better in every column.

    >>> pareto_front(np.array([[1.0, 3.0], [2.0, 2.0], [1.0, 2.0]])).tolist()
    [True, True, False]
    """
    reaches = (values[:, None] >= values[None]).all(2)
    beats = reaches & (values[:, None] > values[None]).any(2)
    return np.asarray(~beats.any(0))


@dataclass
class Emitter:
    """Elitist local search (emitter) around a rewarded genome: the best of parents and children are the next parents.

    Attributes:
        parents: its population; at first only its seed.
        sigma: standard deviation of its mutations.
        best: largest reward so far, its seed's at first.
        novelty: of its seed, when it was made.
        means: mean reward of its population after each generation.
        found: what it met that was more novel than its seed.
        active: whether it was tried and improved.
    """

    KIND: ClassVar[str] = "elitist"

    parents: Evaluated
    sigma: float
    best: float
    novelty: float
    means: list[float] = field(default_factory=list)
    found: list[Evaluated] = field(default_factory=list)
    active: bool = False

    def ask(self, seed: int) -> np.ndarray:
        """Genomes of its next generation: six around the seed, later two children of each of its six parents."""
        count = CHILDREN if self.means else PARENTS
        parents = self.parents.genomes[np.arange(count) % len(self.parents)]
        return mutated(parents, self.sigma, seed)

    def tell(self, children: Evaluated, novelty: np.ndarray) -> Evaluated:
        """Keep the best of parents and children; returns the children with more reward than all before.

        novelty: of the children, float64[n].
        """
        better = children[children.reward > self.best]
        self.best = max(self.best, float(children.reward.max(initial=-np.inf)))
        if (more := novelty > self.novelty).any():
            self.found.append(children[more])
        both = Evaluated.concat([self.parents, children])
        self.parents = both[np.argsort(-both.reward, kind="stable")[:PARENTS]]
        self.means.append(float(self.parents.reward.mean()))
        return better

    def improvement(self) -> float:
        """Recent improvement: max(0, mean reward of the last three generations - that of the three before)."""
        last = self.means[-TRIAL:]
        half = len(last) // 2
        return max(0.0, float(np.mean(last[half:]) - np.mean(last[:half]))) if half else 0.0

    def stagnates(self, window: int) -> bool:
        """Whether, in the last `window` generations, the later half's median reward is not above the earlier half's.

        At most 20 generations at either end are compared.
        """
        if len(self.means) < window:
            return False
        ends = min(20, window // 2)
        last = self.means[-window:]
        return float(np.median(last[-ends:])) <= float(np.median(last[:ends]))

    def state_dict(self) -> dict[str, Any]:
        """Complete state of the emitter."""
        return {
            "kind": self.KIND,
            "parents": self.parents.arrays(),
            "sigma": self.sigma,
            "best": self.best,
            "novelty": self.novelty,
            "means": list(self.means),
            "found": [each.arrays() for each in self.found],
            "active": self.active,
        }

    @staticmethod
    def of(state: dict[str, Any]) -> Emitter:
        """Emitter of the right class, restored from its `state_dict`."""
        found = [Evaluated(**each) for each in state["found"]]
        kept = state | {"parents": Evaluated(**state["parents"]), "means": list(state["means"]), "found": found}
        return EMITTERS[kept.pop("kind", Emitter.KIND)](**kept)


@dataclass
class CmaEmitter(Emitter):
    """Emitter by CMA-ES of pyribs: it samples a normal distribution and adapts its mean, step and covariance by rank.

    The distribution starts at the seed with standard deviation `sigma`. `parents` are the best six genomes so far;
    `means` are mean rewards of what was sampled. It also stagnates when CMA-ES stops: its step is negligible, its
    covariance is degenerate, or a generation was rewarded alike.

    Attributes:
        start: genome of its seed, float64[size].
        seed: of what CMA-ES draws.
        ranks: positions of each generation's children, best first. The distribution follows from seed and ranks, so
            a checkpoint holds them in its place.
        stopped: whether CMA-ES stopped.

    Source: Hansen and Ostermeier 2001; as an emitter in STAX (arXiv 2111.01919), there with six samples a generation.
    """

    KIND: ClassVar[str] = "cma"

    start: np.ndarray | None = None
    seed: int = 0
    ranks: list[list[int]] = field(default_factory=list)
    stopped: bool = False
    strategy: Any = field(default=None, repr=False, compare=False)

    def ask(self, seed: int) -> np.ndarray:
        """Twelve genomes from the distribution; `seed` counts in the first generation."""
        if self.start is None:
            self.start, self.seed = self.parents.genomes[0].copy(), seed
        return np.array(self._strategy().ask())

    def tell(self, children: Evaluated, novelty: np.ndarray) -> Evaluated:
        """Adapt the distribution to the ranks of the children; returns those with more reward than all before."""
        order = np.argsort(-children.reward, kind="stable")
        if self.strategy is None:
            self._strategy().ask()
        self.strategy.tell(order, children.reward[order], CHILDREN // 2)
        self.ranks.append(order.tolist())
        self.stopped = bool(self.strategy.check_stop(children.reward[order]))
        better = super().tell(children, novelty)
        self.means[-1] = float(children.reward.mean())
        return better

    def stagnates(self, window: int) -> bool:
        """Whether CMA-ES stopped, or the reward of what it samples stagnates."""
        return self.stopped or super().stagnates(window)

    def _strategy(self) -> Any:
        """The strategy after all generations in `ranks`, which are replayed after a resume."""
        if self.strategy is None:
            from ribs.emitters.opt import CMAEvolutionStrategy

            assert self.start is not None
            self.strategy = CMAEvolutionStrategy(self.sigma, len(self.start), batch_size=CHILDREN, seed=self.seed)
            self.strategy.reset(self.start)
            for order in self.ranks:
                self.strategy.ask()
                self.strategy.tell(np.array(order), np.zeros(len(order)), CHILDREN // 2)
        return self.strategy

    def state_dict(self) -> dict[str, Any]:
        """State without the strategy itself, which is replayed."""
        own = {"start": self.start, "seed": self.seed, "ranks": [*self.ranks], "stopped": self.stopped}
        return super().state_dict() | own


EMITTERS: Mapping[str, type[Emitter]] = {each.KIND: each for each in (Emitter, CmaEmitter)}


def chosen(emitters: Sequence[Emitter], novelty: np.ndarray, most: int, rng: np.random.Generator) -> list[int]:
    """List of positions of at most `most` `Emitter`s to go on, drawn from Pareto fronts of array `novelty` and of gain.

    Args:
        emitters: those that are active.
        novelty: of their seeds among rewarded genomes, float64[n]; the other objective is their improvement.
        most: how many.
        rng: draws.
    """
    left = np.arange(len(emitters))
    values = np.stack([novelty, [each.improvement() for each in emitters]], 1) if len(left) else np.zeros((0, 2))
    found: list[int] = []
    while len(left) and len(found) < most:
        front = pareto_front(values[left])
        found += rng.permutation(left[front]).tolist()
        left = left[~front]
    return found[:most]
