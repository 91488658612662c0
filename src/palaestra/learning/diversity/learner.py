"""The learner `diversity`: a team whose seats are candidates of a search for many behaviours, some of which pay.

An update is a generation: the genomes that were played are told what came of them, and the next ones take their seats.
What it found is `Diversity.archives`, and after a run `palaestra analyze 'archives()' runs/NAME/seed-0`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import polars as pl

from palaestra.agents.population import PopulationPolicy
from palaestra.errors import InputError, LearnerError, nearest
from palaestra.learning.diversity import states
from palaestra.learning.diversity.archives import Evaluated, ribs_archives
from palaestra.learning.diversity.behaviour import behaviour
from palaestra.learning.diversity.descriptors import Autoencoder, Descriptor, Given, Signature
from palaestra.learning.diversity.schedules import schedule as schedule_of
from palaestra.learning.diversity.search import DiversitySearch
from palaestra.learning.protocol import LEARNERS, LearnedPolicy, Metrics

if TYPE_CHECKING:
    from palaestra.agents import Team
    from palaestra.algebra.turns import Turns

Space = Literal["given", "signature", "autoencoder", "untrained"]


@LEARNERS.register("diversity")
class Diversity:
    """Learner that alternates novelty search by `behaviour` and reward emitters over genomes of a `population` policy.

    A genome's reward is the mean credit of its seat's rows, so `credit: agent_return()` makes it the return. Fitness
    of every genome is what one iteration played, so `train.groups` × `train.group_size` is how often each is evaluated.

    Args:
        team: all seats are of one policy of kind `population`.
        behaviour: columns, numbers or lists of numbers, that say what a seat did: of its last row that has them, or for
            "signature" of all its rows.
        space: the behaviour space: "given", those columns; "signature", of order 2 of their path; "autoencoder", the
            code of what they hold, fitted on the way; "untrained", the same, never fitted.
        elites: seats that the best rewarded genomes of the archive keep, apart from each other; the rest is searched.
        autoencoder: options of `Autoencoder`: code, hidden, epochs, batch, rate, held_out.
        modes: "alternate()", "fixed(0.7)", "by_time(1, 0)" or "bandit(0.9)"; "fixed(1)" is novelty search alone.
        generations: after so many the search is over, and elites take all seats; None: it goes on. `by_time` needs it.
        search: further options of `DiversitySearch`: sigma, offspring, added, neighbours, chunk, trials, window, limit,
            criteria, seed.

    Raises:
        InputError: the team is another, or an option is out of range.
        MissingExtraError: pyribs is not installed.
    """

    def __init__(
        self,
        team: Team,
        *,
        behaviour: Sequence[str],
        space: Space = "given",
        elites: int = 4,
        autoencoder: Mapping[str, Any] | None = None,
        modes: str = "alternate()",
        generations: int | None = None,
        search: Mapping[str, Any] | None = None,
    ) -> None:
        ribs_archives()
        populations = [each for each in team.policies.values() if isinstance(each, PopulationPolicy)]
        if len(populations) != 1 or len(team.policies) != 1:
            raise InputError("learn.kind diversity: the team is one policy of kind population in all seats")
        if space not in get_args(Space):
            raise InputError(f"learn.kind diversity: space={space!r}{nearest(str(space), get_args(Space))}")
        if not behaviour or elites < 0:
            raise InputError(f"learn.kind diversity: behaviour names no column, or {elites=} is negative")
        (self.policy,) = populations
        self.behaviour, self.space, self.elites = tuple(behaviour), space, elites
        self.autoencoder = dict(autoencoder or {})
        size = len(self.policy.keys) - elites
        self.generations = generations
        self.options = dict(search or {}) | {"planned": size * (generations or 0)}
        self.modes = schedule_of(modes)
        self.search: DiversitySearch | None = None
        self._updates = self._width = 0
        self._told: list[pl.DataFrame] = []

    @property
    def policies(self) -> Mapping[str, LearnedPolicy]:
        """The population policy, by name."""
        return {self.policy.name: self.policy}

    @property
    def updates(self) -> int:
        """Number of generations so far."""
        return self._updates

    @property
    def archives(self) -> pl.DataFrame:
        """Table with a row per archived genome: see `states.archives`."""
        return states.archives(states.of_search(self.search))

    def needs(self) -> set[str]:
        """Columns that it reads: those of behaviour, and `agent`."""
        return {"agent", *self.behaviour}

    def forward_backward(self, turns: Turns, *, advantage: str = "advantage") -> dict[str, Metrics]:
        """Store a table's credit and behaviour for the next step.

        Raises:
            LearnerError: credit is not finite.
        """
        names = ["group", "episode", "turn", "agent", *self.behaviour]
        rows = turns.frame.select(*names, credit=pl.col(advantage).cast(pl.Float64))
        if not rows["credit"].drop_nulls().is_finite().all():
            raise LearnerError(f"learn.kind diversity: column {advantage!r} is not finite")
        self._told.append(rows)
        return {self.policy.name: {"loss": None, "kl": None, "entropy": None, "zero_credit": None, "rows": len(rows)}}

    def optim_step(self) -> None:
        """Evaluate the stored generation in the search, and seat the next one."""
        self._step()

    def update(
        self, turns: Turns, *, advantage: str = "advantage", rng: np.random.Generator | None = None
    ) -> dict[str, Metrics]:
        """`forward_backward` and `optim_step` in one. Metrics of the population: see `_step`."""
        metrics = self.forward_backward(turns, advantage=advantage)
        metrics[self.policy.name] |= self._step()
        return metrics

    def _step(self) -> Metrics:
        """Tell and ask; evaluations so far, `explored` (1 or 0), best reward, and sizes of archives and emitters."""
        credit, found = behaviour(pl.concat(self._told), self.policy.keys, self.behaviour, self.space == "signature")
        self._told, seen = [], found.reshape(len(found), -1)
        if self.search is None:
            self.search = self._begin(found.shape[-1])
        if self.generations is None or self._updates < self.generations:
            asked = len(self.search.ask())
            self.search.tell(credit[:asked], seen[:asked])
        self._updates += 1
        self._seat(self.search, over=self.generations is not None and self._updates >= self.generations)
        last, rewarded = self.search.log[-1], self.search.rewarded
        return {
            "evaluations": self.search.evaluations,
            "explored": int(last["mode"] == "explore"),
            "best": float(credit.max()),
            "rewarded": 0 if rewarded is None else len(rewarded),
            "emitters": last["emitters"],
            "candidates": last["candidates"],
            "fits": self.search.fits,
        }

    def _begin(self, width: int) -> DiversitySearch:
        """With the genomes that were played first; width: numbers that are seen at once."""
        self._width = width
        return DiversitySearch(
            self.policy.genomes[: len(self.policy.keys) - self.elites].copy(),
            descriptor=self._descriptor(width),
            schedule=self.modes,
            **self.options,
        )

    def _descriptor(self, width: int) -> Descriptor:
        if self.space == "given":
            return Given()
        if self.space == "signature":
            return Signature(width)
        found = Autoencoder(width, seed=int(self.options.get("seed", 0)), **self.autoencoder)
        found.learns = self.space == "autoencoder"
        return found

    def _seat(self, search: DiversitySearch, over: bool) -> None:
        """Candidates in the first seats, elites in all others; with no elites yet those that sit there stay."""
        genomes, pending = self.policy.genomes.copy(), search.ask()
        free = 0 if over else len(pending)
        genomes[:free] = pending[:free]
        if search.rewarded is not None:
            genomes[free:] = elites(search.rewarded, len(genomes) - free)
        self.policy.genomes = genomes

    def state(self) -> dict[str, Any]:
        """State of the search, archives included."""
        return {"updates": self._updates, "width": self._width, "search": states.of_search(self.search)}

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        self._updates, self._told, self.search = state["updates"], [], None
        if (found := state["search"]) is not None:
            self.search = self._begin(state["width"])
            states.restore(self.search, found)


def elites(archive: Evaluated, count: int) -> np.ndarray:
    """Genomes to keep of an `Evaluated` archive, float64[count, size]: the best, then diverse ones of the better half.

    Each next one is the farthest from those before.

    Args:
        archive: at least one.
        count: how many rows; an archive with fewer is repeated.

    Returns:
        float64[count, size].
    """
    order = np.argsort(-archive.reward, kind="stable")
    half = archive[order[: (len(order) + 1) // 2]]
    taken, away = [0], np.linalg.norm(half.place - half.place[0], axis=1)
    while len(taken) < min(count, len(half)):
        taken.append(int(away.argmax()))
        away = np.minimum(away, np.linalg.norm(half.place - half.place[taken[-1]], axis=1))
    return np.asarray(half.genomes[np.array(taken)[np.arange(count) % len(taken)]])
