"""Which tasks are played next: from easy to hard in stages, and those that failed once more.

Both only choose among tasks; they know nothing of envs. Left out: replaying episodes instead of tasks
(`credit.remember` and `credit.inject`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

from palaestra.algebra.returns import episode_score
from palaestra.algebra.signals import SignalLike, highest
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError

Task = TypeVar("Task", bound=Hashable)


class StagedCurriculum(Generic[Task]):
    """Tasks by difficulty: stage k holds those of difficulty at most edges[k], the last stage all of them.

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
        """Mean success on `newest()`; the next stage begins if it is enough."""
        if self.at_success is not None and success >= self.at_success:
            self.stage = min(self.stage + 1, len(self.edges))


class FailureReplay(Generic[Task]):
    """Tasks whose group failed as a whole: every `every`-th iteration they make up `fraction` of what is played.

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
        """The best score of each task's group: mappings as they are, tables by `task` and `episode_score(score)`.

        A task with a best score above `solved` is solved.
        """
        for task, value in (_best(best, score) if isinstance(best, Turns) else best).items():
            self.failed.pop(task, None)
            if value <= solved:
                self.failed[task] = None  # type: ignore[index]
        while len(self.failed) > self.capacity:
            self.failed.popitem(last=False)

    def choose(self, fresh: Sequence[Task], *, iteration: int, rng: np.random.Generator) -> list[Task]:
        """`fresh`, on every `every`-th iteration with its first ones replaced by failed tasks, none twice."""
        if iteration % self.every or not self.failed or not iteration:
            return list(fresh)
        number = min(round(self.fraction * len(fresh)), len(self.failed))
        failed = list(self.failed)
        drawn = [failed[index] for index in rng.choice(len(failed), number, replace=False)]
        return drawn + list(fresh[number:])


def _best(turns: Turns, score: SignalLike | None) -> dict:  # type: ignore[type-arg]
    top = np.asarray(highest(episode_score(score), over="task").evaluate(turns), float)
    return {task: value for task, value in zip(turns["task"].to_list(), top.tolist(), strict=True) if value == value}
