"""Emitters: small populations that climb the reward around one genome, from candidate to stagnation (SERENE [196])."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.errors import missing_extra
from palaestra.learning.diversity.archives import Evaluated

PARENTS, CHILDREN = 6, 12
"""Of an emitter's generation."""
TRIAL = 6
"""Generations after which a candidate is judged: the first one around its seed, and five more."""


def mutated(parents: np.ndarray, sigma: float, seed: int) -> np.ndarray:
    """Parents with normal noise of standard deviation `sigma` on every number, by pyribs."""
    try:
        from ribs.emitters.operators import GaussianOperator
    except ModuleNotFoundError as error:
        raise missing_extra("ribs", "diversity") from error
    found: np.ndarray = GaussianOperator(sigma, seed=seed).ask(parents)
    return found


def local_sigma(genome: np.ndarray, others: np.ndarray, reach: float = 3.0) -> float:
    """Mutation step of a genome: distance to the nearest other over `reach`; inf where there is no other.

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
    """One local search (emitter) around a rewarded genome.

    Attributes:
        parents: its population; at first only its seed.
        sigma: standard deviation of its mutations.
        best: largest reward so far, its seed's at first.
        novelty: of its seed, when it was made.
        means: mean reward of its population after each generation.
        found: what it met that was more novel than its seed.
        active: whether it was tried and improved.
    """

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
            "parents": self.parents.arrays(),
            "sigma": self.sigma,
            "best": self.best,
            "novelty": self.novelty,
            "means": list(self.means),
            "found": [each.arrays() for each in self.found],
            "active": self.active,
        }

    @classmethod
    def of(cls, state: dict[str, Any]) -> Emitter:
        """Emitter restored from its `state_dict`."""
        found = [Evaluated(**each) for each in state["found"]]
        return cls(**state | {"parents": Evaluated(**state["parents"]), "means": list(state["means"]), "found": found})


def chosen(emitters: Sequence[Emitter], novelty: np.ndarray, most: int, rng: np.random.Generator) -> list[int]:
    """Positions of the emitters that go on, at most `most`: at random from the Pareto front, then from the next one.

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
