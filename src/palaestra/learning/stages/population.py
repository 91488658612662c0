"""A population of learners in one training: they take turns in the team's seats, and the worse copy the better."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.algebra.parse import parse
from palaestra.algebra.returns import episode_score
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.evaluation.fitness import LEVELS, best_of, exploited, normalised, participation, percentile_vector
from palaestra.learning.stages.stage import STAGES, Context, Remembering, Stage, stage
from palaestra.learning.task_scores import task_scores

if TYPE_CHECKING:
    from palaestra.play.executors import Plan

RATE = "lr"
"""Name of the hyper-parameter that is a factor of every learning rate."""


@dataclasses.dataclass
class Member:
    """Data: a member of a population: its hyper-parameters, weights and learner (None before it played)."""

    settings: dict[str, float]
    inner: Stage | None
    weights: dict[str, Any] | None = None
    learner: Any = None
    since: int = 0
    """Iterations that it has learned for in this generation."""


@stage
class population(Stage):
    """Stage: population-based training: `size` learners take turns in the team's seats, an iteration each.

    The last iteration plays the best one.
    XLand's population-based training and generations (arXiv 2107.12808). Every `every` rounds all members play the same
    fixed tasks. A member's fitness is the vector of percentiles of its scores, each score divided by the best one known
    of its task (where that is not above 0, its place between the worst known and the best). A member that a random
    other one dominates (no percentile lower, one higher) becomes a copy of it, with hyper-parameters that are
    multiplied or divided by `mutation`.

    After every `generation` rounds all begin again from the first weights, and the best member becomes their teacher:
    it plays a member's first `distil` iterations, on its own tasks, and is the learner's reference. There `distilled`
    is 1, so that `pinned(1.0, 'distilled')` makes the student like its teacher, and a credit of
    `grpo() * (col('distilled') == 0)` leaves its own reward for later. How a student is taught is reconstructed.

    Metrics: member, parent_0 … (at a comparison), copies, participation (share of tasks with a score other than 0),
    generation, the percentiles p10 … of the best, and the member's hyper-parameters. Probes are the episodes that were
    played for it.

    Args:
        size: members.
        inner: text of a stage that each member has for itself, such as `control_filter()`; None: none.
        vary: hyper-parameters with their lowest and highest value: attributes of the inner stage, and "lr", a factor
            of the learner's rates. Members begin with values drawn evenly on the logarithmic scale.
        every: rounds, of one iteration per member, between comparisons.
        tasks, trials: how many tasks are compared on, and episodes of each.
        levels: percentiles of the fitness. score: text of the signal that says how an episode went; None: its return.
        mutation: factor of a change of a hyper-parameter.
        generation: rounds of a generation; None: one for the whole run. distil: iterations, see above.

    Raises:
        InputError: a number is out of range, or the inner stage has no such attribute; when it plans: the learner
            keeps no reference that a teacher could become.
    """

    adds = {"distilled": "1 where the teacher of a later generation plays and its student imitates it, else 0"}
    needs: tuple[str, ...] = ("group", "episode")

    def __init__(
        self,
        size: int = 4,
        *,
        inner: str | None = None,
        vary: Mapping[str, Sequence[float]] | None = None,
        every: int = 5,
        tasks: int = 20,
        trials: int = 2,
        levels: Sequence[float] = LEVELS,
        score: str | None = None,
        mutation: float = 1.2,
        generation: int | None = None,
        distil: int = 5,
    ) -> None:
        counts = (size, every, tasks, trials, *(() if generation is None else (generation,)))
        if min(counts) < 1 or mutation < 1 or distil < 0:
            raise InputError(
                f"population: size={size}, every={every}, tasks={tasks}, trials={trials}, generation={generation} and "
                f"mutation={mutation} must be at least 1, distil={distil} at least 0"
            )
        self.size, self.every, self.tasks, self.trials = size, every, tasks, trials
        self.levels, self.mutation, self.generation, self.distil = tuple(levels), mutation, generation, distil
        self.score = episode_score(None if score is None else parse(score, columns=(score,)))
        self.vary = {name: (float(low), float(high)) for name, (low, high) in (vary or {}).items()}
        made = [None if inner is None else STAGES.build(inner) for _ in range(size)]
        for name, (low, high) in self.vary.items():
            if not 0 < low <= high:
                raise InputError(f"population: vary {name!r} from {low} to {high}: must rise, and be above 0")
            if name != RATE and not hasattr(made[0], name):
                raise InputError(f"population: vary {name!r} is no attribute of {inner} and not {RATE!r}")
        self.members = [Member({}, each) for each in made]
        self.needs = (*type(self).needs, *(getattr(made[0], "needs", ())), *sorted(self.score.needs()))
        self.adds = {**type(self).adds, **getattr(made[0], "adds", {})}
        self.asks = tuple(getattr(made[0], "asks", ()))
        self.at = 0
        """Number of the member in the seats."""
        self.begun = 0
        """Number of the generation, from 0."""
        self.best: np.ndarray | None = None
        """Best score known of each task."""
        self.worst: np.ndarray | None = None
        """Worst score known of each task."""
        self.first: dict[str, Any] = {}
        """Weights and learner at the start."""
        self.teacher: dict[str, Any] = {}
        """Weights of the best member of the last generation."""
        self._rates: dict[str, float] = {}

    # -- whose turn it is ---------------------------------------------------------------------------------------------

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Seat the next member; before that, compare all where it is time. Its inner stage may change the plan."""
        done = context.iteration - 1
        if not self.first:
            self._begin(context)
        else:
            self._leave(context)
        rounds, rest = divmod(done, self.size)
        last = context.iteration == context.planned
        over = self.generation is not None and rest == 0 and rounds > 0 and rounds % self.generation == 0
        if done and (last or over or (rest == 0 and rounds % self.every == 0)):
            best = self._compare(context, copying=not last)
            if over and not last:
                self._renew(context, best)
        self.at = best if done and last else done % self.size
        self._sit(context)
        member = self.members[self.at]
        context.metrics |= {"member": float(self.at), "generation": float(self.begun), **member.settings}
        if self._taught():
            context.team.load_state_dict(copy.deepcopy(self.teacher))
        if member.inner is not None:
            plan = member.inner.plan(plan, context)
        return plan

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `distilled`, after the member's inner stage; a student takes its seats again."""
        member, taught = self.members[self.at], self._taught()
        if member.inner is not None:
            turns = member.inner(turns, context)
        if taught and member.weights is not None:
            context.team.load_state_dict(copy.deepcopy(member.weights))
        member.since += 1
        return turns.with_column(distilled=np.full(len(turns), float(taught)))

    def _taught(self) -> bool:
        """Whether the teacher plays this iteration."""
        return bool(self.teacher) and self.members[self.at].since < self.distil

    def _begin(self, context: Context) -> None:
        """All members with the weights of now, and hyper-parameters of their own."""
        self.first = copy.deepcopy({"weights": context.team.state_dict(), "learner": _state(context.learner)})
        for member in self.members:
            member.weights, member.learner = self.first["weights"], self.first["learner"]
            for name, (low, high) in self.vary.items():
                member.settings[name] = float(np.exp(context.rng.uniform(np.log(low), np.log(high))))

    def _leave(self, context: Context) -> None:
        member = self.members[self.at]
        member.weights = copy.deepcopy(context.team.state_dict())
        member.learner = copy.deepcopy(_state(context.learner))

    def _sit(self, context: Context) -> None:
        member, learner = self.members[self.at], context.learner
        assert member.weights is not None
        context.team.load_state_dict(copy.deepcopy(member.weights))
        if learner is not None:
            learner.restore(copy.deepcopy(member.learner))
        if RATE in member.settings:
            rates: Any = getattr(learner, "lr", None)
            if not isinstance(rates, dict):
                raise InputError(f"population: the learner has no learning rates, which vary={RATE!r} changes")
            self._rates = self._rates or dict(rates)
            rates.update({name: rate * member.settings[RATE] for name, rate in self._rates.items()})
        for name, value in member.settings.items():
            if name != RATE:
                setattr(member.inner, name, value)

    # -- who is better ------------------------------------------------------------------------------------------------

    def _compare(self, context: Context, *, copying: bool) -> int:
        """Percentiles of all members; the dominated ones become copies. The number of the best."""
        tasks = np.random.default_rng([context.seed, 8]).integers(2**62, size=self.tasks).tolist()
        found = []
        for member in self.members:
            assert member.weights is not None
            context.team.load_state_dict(copy.deepcopy(member.weights))
            found.append(task_scores(context, context.team, tasks, self.trials, self.score).mean(1))
        scores = np.array(found)
        top, low = scores.max(0), scores.min(0)
        self.best = top if self.best is None else np.maximum(self.best, top)
        self.worst = low if self.worst is None else np.minimum(self.worst, low)
        fitness = percentile_vector(normalised(scores, self.best, self.worst), self.levels)
        best = best_of(fitness)
        context.metrics |= {f"p{level * 100:.0f}": float(value) for level, value in zip(self.levels, fitness[best])}
        context.metrics["participation"] = float(participation(scores[best]))
        parents = exploited(fitness, context.rng) if copying else np.arange(self.size)
        context.metrics |= {f"parent_{at}": float(parent) for at, parent in enumerate(parents)}
        context.metrics["copies"] = float((parents != np.arange(self.size)).sum())
        before = [dataclasses.replace(member, settings=dict(member.settings)) for member in self.members]
        for member, at, parent in zip(self.members, range(self.size), parents, strict=True):
            if parent != at:
                member.weights, member.learner = before[parent].weights, before[parent].learner
                member.settings = self._mutated(before[parent].settings, context.rng)
                member.inner = copy.deepcopy(before[parent].inner)
        return best

    def _mutated(self, settings: Mapping[str, float], rng: np.random.Generator) -> dict[str, float]:
        """Each hyper-parameter times or divided by `mutation`, within its bounds."""
        factors = self.mutation ** rng.choice([-1.0, 1.0], size=len(settings))
        return {
            name: float(np.clip(value * factor, *self.vary[name]))
            for (name, value), factor in zip(settings.items(), factors, strict=True)
        }

    def _renew(self, context: Context, best: int) -> None:
        """A generation: students from the first weights, whose reference is the best member."""
        teacher = self.members[best]
        assert teacher.weights is not None
        self.teacher = copy.deepcopy(teacher.weights)
        learner: Any = context.learner
        references = getattr(learner, "references", {})
        if not references:
            raise InputError("population: generations need a term with a reference, such as pinned(1.0, 'distilled')")
        learner.restore(copy.deepcopy(self.first["learner"]))
        for name, reference in references.items():
            reference.load_state_dict(copy.deepcopy(self.teacher[name]))
        fresh = copy.deepcopy(_state(learner))
        for member in self.members:
            member.weights, member.learner, member.since = self.first["weights"], fresh, 0
            member.inner = copy.deepcopy(teacher.inner)
        self.begun += 1

    # -- what is kept -------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Members, whose turn it was, and what was reached."""
        kept = [
            {
                "settings": dict(each.settings),
                "weights": each.weights,
                "learner": each.learner,
                "since": each.since,
                "inner": each.inner.state_dict() if isinstance(each.inner, Remembering) else None,
            }
            for each in self.members
        ]
        best, worst = (None if each is None else each.copy() for each in (self.best, self.worst))
        own = {"at": self.at, "begun": self.begun, "best": best, "worst": worst, "rates": dict(self._rates)}
        return own | {"first": self.first, "teacher": self.teacher, "members": kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.at, self.begun, self.first = int(state["at"]), int(state["begun"]), dict(state["first"])
        self.teacher = dict(state["teacher"])
        self.best = None if state["best"] is None else np.asarray(state["best"], float)
        self.worst = None if state.get("worst") is None else np.asarray(state["worst"], float)
        self._rates = {name: float(rate) for name, rate in state["rates"].items()}
        for member, kept in zip(self.members, state["members"], strict=True):
            member.settings = {name: float(value) for name, value in kept["settings"].items()}
            member.weights, member.learner, member.since = kept["weights"], kept["learner"], int(kept["since"])
            if isinstance(member.inner, Remembering) and kept["inner"] is not None:
                member.inner.load_state_dict(kept["inner"])


def _state(learner: Any) -> Any:
    return None if learner is None else learner.state()
