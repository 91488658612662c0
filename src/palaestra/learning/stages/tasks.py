"""Which tasks are played next: from easy to hard in stages, and those that failed once more.

`StagedCurriculum` and `FailureReplay` only choose among tasks and know nothing of envs; the stages `curriculum` and
`failure_replay` use them on the reset seeds of a run's groups. Left out: replaying episodes instead of tasks
(`credit.remember` and `credit.inject`).
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from palaestra.algebra.returns import episode_score
from palaestra.algebra.signals import SignalLike, highest
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.foundation.registry import load_object
from palaestra.learning.stages.stage import Context, Stage, stage
from palaestra.play.streams import Streams

if TYPE_CHECKING:
    from palaestra.play.executors import Plan

Task = TypeVar("Task", bound=Hashable)


class StagedCurriculum(Generic[Task]):
    """Curriculum of tasks by difficulty: stage k holds those of difficulty at most edges[k], the last stage all.

    at_step: iterations at which the next stage begins. at_success: instead, when the mean success in the newest part of
    the stage, which the caller reports to `report`, is at least this. [204] CRAFT-GUI; a reconstruction.

    Raises:
        InputError: edges do not rise, or not exactly one of at_step and at_success is given and fits.

    >>> stages = StagedCurriculum({"a": 1, "b": 2, "c": 9}, edges=(1, 5), at_step=(10, 20))
    >>> [stages.tasks(iteration) for iteration in (0, 10, 20)]
    [['a'], ['a', 'b'], ['a', 'b', 'c']]
    """

    def __init__(
        self,
        difficulty: Mapping[Task, float],
        *,
        edges: Sequence[float],
        at_step: Sequence[int] | None = None,
        at_success: float | None = None,
    ) -> None:
        if list(edges) != sorted(set(edges)) or (at_step is None) == (at_success is None):
            raise InputError(f"StagedCurriculum: {edges=} must rise; give at_step or at_success, not both")
        if at_step is not None and (len(at_step) != len(edges) or list(at_step) != sorted(at_step)):
            raise InputError(
                f"StagedCurriculum: {at_step=} needs a rising iteration for each of the {len(edges)} edges"
            )
        self.difficulty, self.edges = dict(difficulty), tuple(edges)
        self.at_step, self.at_success, self.stage = at_step, at_success, 0

    def tasks(self, iteration: int = 0) -> list[Task]:
        """The tasks of the stage that is reached at this iteration."""
        if self.at_step is not None:
            self.stage = int(np.searchsorted(self.at_step, iteration, side="right"))
        limit = self.edges[self.stage] if self.stage < len(self.edges) else float("inf")
        return [task for task, difficulty in self.difficulty.items() if difficulty <= limit]

    def newest(self) -> list[Task]:
        """The tasks that came with the present stage."""
        low = self.edges[self.stage - 1] if self.stage else float("-inf")
        return [task for task in self.tasks() if self.difficulty[task] > low] if self.at_step is None else []

    def report(self, success: float) -> None:
        """Report the mean success on `newest()`; the next stage begins if it reaches `at_success`."""
        if self.at_success is not None and success >= self.at_success:
            self.stage = min(self.stage + 1, len(self.edges))


class FailureReplay(Generic[Task]):
    """Store of failed tasks: on every `every`-th iteration `choose` puts them in place of `fraction` of the fresh ones.

    A task fails if all of its group do. There may be fewer of them than `fraction`.

    The newest `capacity` are kept; a task that is solved leaves. [191] DeepTravel; a reconstruction.

    >>> replay = FailureReplay(capacity=2, every=5, fraction=0.5)
    >>> replay.add({"a": 0.0, "b": 0.25, "c": 0.0})
    >>> replay.choose(["x", "y"], iteration=5, rng=np.random.default_rng(0))[1:]
    ['y']
    """

    def __init__(self, *, capacity: int = 256, every: int = 5, fraction: float = 0.5) -> None:
        if capacity < 1 or every < 1 or not 0 < fraction <= 1:
            raise InputError(f"FailureReplay: {capacity=} and {every=} must be at least 1, {fraction=} in (0, 1]")
        self.capacity, self.every, self.fraction = capacity, every, fraction
        self.failed: OrderedDict[Task, None] = OrderedDict()

    def add(self, best: Mapping[Task, float] | Turns, *, score: SignalLike | None = None, solved: float = 0.0) -> None:
        """Update the failed tasks by the best score of each task's group, from a mapping or a table.

        A task with a best score above `solved` is solved.
        """
        for task, value in (_best(best, score) if isinstance(best, Turns) else best).items():
            self.failed.pop(task, None)
            if value <= solved:
                self.failed[task] = None
        while len(self.failed) > self.capacity:
            self.failed.popitem(last=False)

    def choose(self, fresh: Sequence[Task], *, iteration: int, rng: np.random.Generator) -> list[Task]:
        """Tasks to play: `fresh`, on every `every`-th iteration with its first ones replaced by failed tasks."""
        if iteration % self.every or not self.failed or not iteration:
            return list(fresh)
        number = min(round(self.fraction * len(fresh)), len(self.failed))
        failed = list(self.failed)
        drawn = [failed[index] for index in rng.choice(len(failed), number, replace=False)]
        return drawn + list(fresh[number:])


def _best(turns: Turns, score: SignalLike | None, over: str = "task") -> dict:
    top = np.asarray(highest(episode_score(score), over=over).evaluate(turns), float)
    return {task: value for task, value in zip(turns[over].to_list(), top.tolist(), strict=True) if value == value}


def _seeds(plan: Plan) -> list[int]:
    """The reset seed of each group that will be played."""
    streams = Streams(plan.seed, plan.iteration, plan.stream)
    given = ((group, plan.seed_of(group)) for group in plan.numbers)
    return [streams.env_seed(group) if seed is None else seed for group, seed in given]


@stage
class failure_replay(Stage):
    """Stage: on every `every`-th iteration failed tasks are up to `fraction` of the groups (DeepTravel [191]).

    A task is a reset seed; it failed if no episode of its group scored more than `solved`, and leaves when one does.
    The newest `capacity` are kept. score: of an episode; default: its reward, summed. See `FailureReplay`.

    Raises:
        InputError: a number is out of range.
    """

    needs = ("group", "episode", "reward")
    notes = ("_played",)

    def __init__(
        self,
        *,
        every: int = 5,
        fraction: float = 0.5,
        capacity: int = 256,
        solved: float = 0.0,
        score: SignalLike | None = None,
    ) -> None:
        self.memory: FailureReplay[int] = FailureReplay(capacity=capacity, every=every, fraction=fraction)
        self.solved, self.score = solved, score
        self._played: dict[int, int] = {}

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with failed tasks in the first groups, on every `every`-th iteration."""
        chosen = self.memory.choose(_seeds(plan), iteration=plan.iteration, rng=context.rng)
        self._played = dict(zip(plan.numbers, chosen, strict=True))
        return dataclasses.replace(plan, env_seeds=chosen)

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table unchanged; stores which of the planned tasks failed; one without a score stays as it was."""
        best = _best(turns, self.score, over="group")
        planned = {self._played[group]: value for group, value in best.items() if group in self._played}
        self.memory.add(planned, solved=self.solved)
        return turns

    def state_dict(self) -> dict[str, Any]:
        """State: the failed tasks, oldest first."""
        return {"failed": list(self.memory.failed)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.memory.failed = OrderedDict.fromkeys(state["failed"])


def words(start: Observation) -> float:
    """Number of words in the text of a first observation (`Observation`), a float: the default difficulty of a task."""
    return float(len(start.text.split()))


@stage
class curriculum(Stage):
    """Stage: CRAFT-GUI's curriculum [204]: tasks of difficulty up to one of `edges`, the next `at_step` or on success.

    Of `draws` tasks for each group of an iteration those are played, in the order drawn, whose difficulty the present
    stage allows; if there are too few, the easiest of the others.

    Args:
        edges: the difficulty that each stage but the last allows. at_step: iterations at which the next one begins.
        at_success: instead, the mean success on the tasks that came with a stage which ends it. See `StagedCurriculum`.
        difficulty: of a task by its first observation: phrases with a number, of which the largest that stands in its
            text counts (none: 0); or a function, or `module:name` of one; default: how many `words` it has.

    Raises:
        InputError: edges do not rise, at_step and at_success do not fit, or `draws` is less than 1.
    """

    needs = ("group", "episode", "success")
    notes = ("_newest", "_stage")

    def __init__(
        self,
        *,
        edges: Sequence[float],
        at_step: Sequence[int] | None = None,
        at_success: float | None = None,
        difficulty: Mapping[str, float] | Callable[[Observation], float] | str = words,
        draws: int = 4,
    ) -> None:
        if draws < 1:
            raise InputError(f"curriculum: {draws=} must be at least 1")
        self.memory: StagedCurriculum[int] = StagedCurriculum({}, edges=edges, at_step=at_step, at_success=at_success)
        if isinstance(difficulty, Mapping):
            self.difficulty: Callable[[Observation], float] = _by_phrase(difficulty)
        else:
            named = isinstance(difficulty, str)
            self.difficulty = load_object(difficulty, "curriculum: difficulty") if named else difficulty  # type: ignore[assignment, arg-type]
        self.draws = draws
        self._newest: list[int] = []  # groups of the planned iteration
        self._stage = 0  # in which it was planned

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with reset seeds of tasks that the current stage of difficulty allows."""
        first, number = plan.numbers.start, len(plan.numbers)
        drawn = dataclasses.replace(
            plan, groups=range(first, first + self.draws * number), group_size=1, env_seeds=None
        )
        starts = context.executor.starts(context.env, drawn)
        hard = {
            seed: float("inf") if start is None else float(self.difficulty(start))
            for seed, start in zip(_seeds(drawn), starts, strict=True)
        }
        self.memory.difficulty = hard
        allowed = self.memory.tasks(plan.iteration)
        inside = set(allowed)
        others = sorted((seed for seed in hard if seed not in inside), key=hard.__getitem__)
        chosen = (allowed + others)[:number]
        newest = set(self.memory.newest())
        self._newest = [group for group, seed in zip(plan.numbers, chosen, strict=True) if seed in newest]
        self._stage = self.memory.stage
        return dataclasses.replace(plan, env_seeds=chosen)

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table unchanged; reports the mean success on the newest tasks, once for each stage of difficulty."""
        good = turns.frame.filter(turns["group"].is_in(self._newest) & turns["success"].is_not_null())
        if len(good) and self._stage == self.memory.stage:
            self.memory.report(float(good.unique(["group", "episode", "agent"])["success"].mean()))  # type: ignore[arg-type]
        return turns

    def state_dict(self) -> dict[str, Any]:
        """State: the number of the stage of difficulty."""
        return {"stage": self.memory.stage}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.memory.stage = int(state["stage"])


@stage
class shock(Stage):
    """Stage: from iteration `at_step` on sets the second bit of every reset seed, by which such worlds change.

    For worlds that read it, such as `native/routing`, and for the question how soon a learner notices.

    Raises:
        InputError: at_step is less than 1.
    """

    def __init__(self, at_step: int) -> None:
        if at_step < 1:
            raise InputError(f"shock: {at_step=} must be at least 1")
        self.at_step = at_step

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with the same tasks, and the bit of their seeds by the iteration."""
        bit = 2 if plan.iteration >= self.at_step else 0
        return dataclasses.replace(plan, env_seeds=[seed & ~2 | bit for seed in _seeds(plan)])

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table unchanged."""
        return turns


def _by_phrase(numbers: Mapping[str, float]) -> Callable[[Observation], float]:
    return lambda start: max((float(n) for phrase, n in numbers.items() if phrase in start.text), default=0.0)
