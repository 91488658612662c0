"""`self_organized`: who hears whom follows from the answers themselves, anew in every round.

SelfOrg ([40], arXiv 2510.00685): an answer's contribution is its cosine to the mean of all; it travels to those that
are like it and contribute less. The strongest opens a round, the others follow in order and read new answers. Vectors
are counts of trigrams of characters. Left out: embeddings by a language model.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.envs.protocol import EnvFactory, Observation
from palaestra.errors import InputError
from palaestra.evaluation.teamwork.attribution import contributions
from palaestra.teams.deliberation import Deliberation
from palaestra.teams.graph import Graph
from palaestra.teams.rules import AGGREGATES, Aggregate, Draw, Message, Verdict


def trigram_vectors(texts: Sequence[str]) -> np.ndarray:
    """Character-trigram counts of texts, scaled to length 1, float64[texts, trigrams].

    >>> vectors = trigram_vectors(["aaa", "aaa", "bbb"])
    >>> (vectors @ vectors.T).round(3).tolist()
    [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    padded = [f"  {text}  " for text in texts]
    counts = [Counter(text[at : at + 3] for at in range(len(text) - 2)) for text in padded]
    place = {each: at for at, each in enumerate(sorted(set().union(*counts)))}
    found = np.zeros((len(texts), len(place)))
    for row, count in zip(found, counts, strict=True):
        row[[place[each] for each in count]] = list(count.values())
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


@AGGREGATES.register("centroid")
def centroid() -> Aggregate:
    """Makes an aggregate (messages -> the team's), no arguments: the one nearest to the contribution-weighted mean.

    The first of equals.
    """

    def aggregate(said: Sequence[Message], draw: Draw) -> Message:
        vectors = trigram_vectors([each.text for each in said])
        likeness = vectors @ (contributions(vectors) @ vectors)
        return said[int(np.argmax(likeness >= likeness.max() - 1e-9))]

    return aggregate


class SelfOrganized(Deliberation):
    """Team env (of a `TaskEnv` factory): `Deliberation`; all answer, then again reading similar, stronger answers.

    In the later rounds they answer by contribution, reading similar answers that have more of it.

    facts: its own; contribution, of the role's last answer when the round began, null in the first.

    Args:
        least: τ, how like two answers must be for one to travel to the other.

    Raises:
        InputError: least is not from 0 to 1.
    """

    facts = {**Deliberation.facts, "contribution": float}

    def __init__(self, tasks: EnvFactory, graph: Graph, *, least: float, **options: Any) -> None:
        super().__init__(tasks, graph, **options)
        if not 0 <= least <= 1:
            raise InputError(f"self_organized: least={least} must be from 0 to 1")
        self.least = least
        self._route = self._next_role
        self._order: list[str] = []
        self._before: dict[str, set[str]] = {}
        self._psi: dict[str, float] = {}

    def _next_role(self, roles: Sequence[str], said: Sequence[Message], draw: Draw) -> Sequence[str]:
        if self._round == 0:
            return roles if self._step == 0 else ()
        if self._step == 0:
            self._organise(said)
        return self._order[self._step : self._step + 1]

    def _organise(self, said: Sequence[Message]) -> None:
        """Order and predecessors by what was said last; of equal contributions none is before the other."""
        vectors = trigram_vectors([each.text for each in said])
        psi, like = contributions(vectors), vectors @ vectors.T
        self._psi = {each.role: float(value) for each, value in zip(said, psi, strict=True)}
        self._order = sorted(self._psi, key=lambda role: (-round(self._psi[role], 9), self.agents.index(role)))
        self._before = {
            each.role: {
                other.role
                for place, other in enumerate(said)
                if like[place, at] >= self.least - 1e-9 and psi[place] > psi[at] + 1e-9
            }
            for at, each in enumerate(said)
        }

    def _ask(self) -> dict[str, Observation]:
        observations = super()._ask()
        told: dict[str, Any] = self._told  # type: ignore[assignment]  # one number for each role, not one per message
        told["contribution"] = {role: self._psi[role] for role in observations if self._round}
        return observations

    def _verdicts(self, role: str, own: Message | None, coming: list[Message]) -> list[Verdict]:
        """Verdicts of the graph: messages of predecessors arrive."""
        return [(self._psi[said.role], None if said.role in self._before[role] else "not before it") for said in coming]


def self_organized(
    tasks: EnvFactory, agents: int = 5, rounds: int = 2, *, least: float = 0.5, stop: str = "agree()", **options: Any
) -> EnvFactory:
    """Env factory from another, `tasks`: all answer, then one by one, reading similar answers that contribute more.

    [40].
    """
    if agents < 2:
        raise InputError(f"self_organized: agents={agents}, expected at least 2")
    names = [f"agent-{number}" for number in range(1, agents + 1)]
    graph = Graph.of(
        names, edges="all", steps=[names] * agents, rounds=rounds, aggregate="centroid()", stop=stop, workflow="debate"
    )
    factory = functools.partial(SelfOrganized, tasks, graph, least=least, **options)
    factory()
    return factory
