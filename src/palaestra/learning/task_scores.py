"""Scores of a team on given tasks, played beside training, and which tasks are worth training on.

Tasks are reset seeds. What is played here is learned from by nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from palaestra.algebra.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaestra.agents import Team
    from palaestra.algebra.turns import Turns
    from palaestra.learning.stages.stage import Context


class Refused(NamedTuple):
    """Result of `judged`: masks bool[tasks] of the tasks that each reason refuses; `accepted`: none refuses them.

    mastered: the learner solves it nearly always. unlearned: the learner is hardly ever better than the control
    policy. trivial: the control policy solves it.
    """

    mastered: np.ndarray
    unlearned: np.ndarray
    trivial: np.ndarray

    @property
    def accepted(self) -> np.ndarray:
        """Mask of the tasks that no reason refuses."""
        return np.asarray(~(self.mastered | self.unlearned | self.trivial))


def judged(
    own: Any,
    control: Any,
    *,
    enough: float = 0.5,
    margin: float = 0.0,
    solved: float = 0.9,
    better: float = 0.1,
    easy: float = 0.1,
) -> Refused:
    """`Refused` masks of XLand's filter of tasks, from scores `own` and `control`, float64[tasks, episodes] each.

    Accepted: P[r > m_s] < solved, P[r > r_c + m] > better, P[r_c > m_s] < easy.

    Source: arXiv 2107.12808.

    r is the learner's score, r_c that of a control policy. P[r > r_c + m] is the share among all pairs of an episode
    of the one and an episode of the other. The symbols of the thresholds are reconstructed.

    Args:
        own: scores of the learner, float64[tasks, episodes].
        control: scores of the control policy, float64[tasks, episodes].
        enough: m_s, a score above it counts as solved.
        margin: m.
        solved: threshold of the first condition.
        better: threshold of the second.
        easy: threshold of the third.

    >>> own = [[1, 1, 1, 1], [1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]]
    >>> control = [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 1, 0]]
    >>> judged(own, control).accepted.tolist()
    [False, True, False, False]
    """
    mine, other = np.asarray(own, float), np.asarray(control, float)
    lead = (mine[:, :, None] > other[:, None, :] + margin).mean(axis=(1, 2))
    return Refused(
        mastered=(mine > enough).mean(1) >= solved,
        unlearned=lead <= better,
        trivial=(other > enough).mean(1) >= easy,
    )


def scores_of(turns: Turns, score: Signal, groups: int, size: int, *, floor: float = 0.0) -> np.ndarray:
    """Mean of signal `score` in each episode of `Turns`, float64[groups, size]; a failed or absent one has `floor`."""
    frame = turns.with_column(_score=score).frame
    each = frame.group_by("group", "episode").agg(pl.col("_score").fill_nan(None).mean()).drop_nulls()
    found = np.full((groups, size), floor)
    at = each.filter((pl.col("group") < groups) & (pl.col("episode") < size))
    found[at["group"].to_numpy(), at["episode"].to_numpy()] = at["_score"].to_numpy()
    return found


def task_scores(
    context: Context, team: Team, tasks: Sequence[int], size: int, score: Signal, *, floor: float = 0.0
) -> np.ndarray:
    """Play each of `tasks` (env seeds) `size` times now with a team; episodes' signal `score`, float64[tasks, size]."""
    from palaestra.play.plan import Plan

    if not len(tasks):
        return np.zeros((0, size))
    seed = int(context.rng.integers(2**31))
    plan = Plan(len(tasks), size, seed=seed, iteration=context.iteration, env_seeds=[int(task) for task in tasks])
    turns = context.executor.play(context.env, team, plan)
    context.metrics["probes"] = context.metrics.get("probes", 0.0) + plan.episodes
    return scores_of(turns, score, len(tasks), size, floor=floor)
