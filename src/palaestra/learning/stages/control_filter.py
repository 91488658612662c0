"""Tasks that the learner can learn from now, found by comparison with a control policy (XLand [8])."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.returns import episode_score
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.stage import Context, Stage, stage
from palaestra.learning.task_scores import Refused, judged, task_scores

if TYPE_CHECKING:
    from palaestra.agents import Team
    from palaestra.play.executors import Plan


@stage
class control_filter(Stage):
    """Stage: plays only tasks on which the learner beats a control policy, and which neither of them solves already.

    XLand's dynamic task generation (arXiv 2107.12808): candidates are played `probes` times by the learner and by the
    control policy, and `palaestra.learning.task_scores.judged` says which are accepted. Accepted tasks stay in a pool
    and are judged again by the last `memory` episodes that the learner played of them; the pool fills all groups, its
    tasks more than once if there are few. While it is empty the iteration plays what the env draws. Only tasks that the
    first look does not refuse cost episodes of the control policy. Metrics: candidates, mastered, unlearned, trivial,
    accepted, pool, left (tasks that left the pool), and probes, the episodes that were played for it.

    Args:
        control: a policy of the recipe without a seat; None: every legal action equally often.
        draws: candidates of an iteration that begins with fewer tasks in the pool than groups.
        probes: episodes of each policy and candidate.
        memory: the learner's newest episodes of a task of the pool by which it is judged.
        solved, better, easy: thresholds of `judged`, as shares of episodes.
        enough: a score above it counts as solved. margin: by how much the learner must be better.
        score: text of the signal that says how an episode went; None: its return. floor: the lowest score.

    Raises:
        InputError: a number is out of range; when it plans: no such adviser.
    """

    needs: tuple[str, ...] = ("group", "episode", "seed")

    def __init__(
        self,
        control: str | None = None,
        *,
        draws: int = 16,
        probes: int = 8,
        memory: int = 16,
        solved: float = 0.9,
        better: float = 0.1,
        easy: float = 0.1,
        enough: float = 0.5,
        margin: float = 0.0,
        score: str | None = None,
        floor: float = 0.0,
    ) -> None:
        if min(draws, probes, memory) < 1 or not all(0 <= each <= 1 for each in (solved, better, easy)):
            raise InputError(
                f"control_filter: draws={draws}, probes={probes} and memory={memory} of at least 1, "
                f"solved={solved}, better={better} and easy={easy} in [0, 1]"
            )
        self.control, self.draws, self.probes, self.memory = control, draws, probes, memory
        self.solved, self.better, self.easy = solved, better, easy
        self.enough, self.margin, self.floor = enough, margin, floor
        self.score = episode_score(None if score is None else parse(score, columns=(score,)))
        self.needs = (*type(self).needs, *sorted(self.score.needs()))
        self.asks = () if control is None else (control,)
        self.pool: dict[int, tuple[list[float], list[float]]] = {}
        """Accepted tasks, each with the learner's newest scores and those of the control policy."""

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with tasks of the pool in all groups, after the pool was filled up."""
        groups = len(plan.numbers)
        if len(self.pool) < groups:
            self._search(context)
        context.metrics["pool"] = float(len(self.pool))
        if not self.pool:
            return plan
        order = context.rng.permutation(list(self.pool)).tolist()
        return dataclasses.replace(plan, env_seeds=[order[at % len(order)] for at in range(groups)])

    def _search(self, context: Context) -> None:
        tasks = context.rng.integers(2**62, size=self.draws)
        own = task_scores(context, context.team, tasks.tolist(), self.probes, self.score, floor=self.floor)
        first = self.judged(own, np.full((len(tasks), 1), self.floor))
        hopeful = ~(first.mastered | first.unlearned)
        team = self._controls(context)
        control = task_scores(context, team, tasks[hopeful].tolist(), self.probes, self.score, floor=self.floor)
        second = self.judged(own[hopeful], control)
        taken = second.accepted
        found = zip(tasks[hopeful][taken].tolist(), own[hopeful][taken].tolist(), control[taken].tolist(), strict=True)
        self.pool |= {task: (mine, other) for task, mine, other in found}
        context.metrics |= {
            "candidates": float(len(tasks)),
            "mastered": float(first.mastered.sum()),
            "unlearned": float(len(tasks) - first.mastered.sum() - (hopeful.sum() - second.unlearned.sum())),
            "trivial": float((second.trivial & ~second.unlearned).sum()),
            "accepted": float(taken.sum()),
        }

    def judged(self, own: np.ndarray, control: np.ndarray) -> Refused:
        """Result of `task_scores.judged` on scores of both, with the current thresholds."""
        return judged(
            own,
            control,
            enough=self.enough,
            margin=self.margin,
            solved=self.solved,
            better=self.better,
            easy=self.easy,
        )

    def _controls(self, context: Context) -> Team:
        from palaestra.agents import Team, random_legal
        from palaestra.learning.stages.demonstrate import advised

        if self.control is not None:
            return advised(context, self.control).team
        return Team(dict.fromkeys(dict(context.team.items()), random_legal()))

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table unchanged; removes tasks from the pool that are no longer accepted."""
        frame = turns.with_column(_score=self.score).frame
        each = frame.group_by("seed", "group", "episode").agg(pl.col("_score").fill_nan(None).mean()).drop_nulls()
        played = each.sort("seed", "group", "episode").group_by("seed", maintain_order=True).agg("_score")
        before = len(self.pool)
        for task, scores in played.rows():
            if task in self.pool:
                own, control = self.pool[task]
                self.pool[task] = ([*own, *scores][-self.memory :], control)
                if not self.judged(*(np.array([each]) for each in self.pool[task])).accepted[0]:
                    del self.pool[task]
        context.metrics["left"] = float(before - len(self.pool))
        return turns

    def state_dict(self) -> dict[str, Any]:
        """State: the pool, and the thresholds, which may have evolved."""
        kept = {name: getattr(self, name) for name in ("solved", "better", "easy", "enough", "margin")}
        return {
            "pool": [(task, list(own), list(other)) for task, (own, other) in self.pool.items()],
            "thresholds": kept,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.pool = {int(task): (list(own), list(other)) for task, own, other in state["pool"]}
        for name, value in state["thresholds"].items():
            setattr(self, name, float(value))
