"""[93] AgencyBench (arXiv 2601.11044): attempts with feedback on a chain of sub-tasks, and whose workspace goes on.

A scripted agent repairs a named item with chance q and breaks a good one with .1; a worse inherited workspace lowers
its start. The released runner hands on the first workspace unless an attempt is perfect, yet it records the best score.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from palaestra.evaluation.attempts import attempt_chain, ten_points
from palaestra_atlas.reproductions import Outcome, reproduction

WEIGHTS = (0.3, 0.3, 0.2, 0.2)
SUBTASKS, MOST, BREAKS = 3, 3, 0.1
REPAIRS = (0.0, 0.25, 0.5, 0.75)
START, INHERITED = 0.3, 0.4
"""Chance that an item is right at the first attempt: START plus INHERITED times the share of points carried on."""

Workspace = tuple[int, tuple[bool, ...]]


def best_score(q: float, carry: str, luck: np.ndarray) -> float:
    """Mean best score of one chain; luck: uniforms float[sub-task, attempt, item]."""
    tries = [0] * SUBTASKS

    def work(subtask: int, space: Workspace, failed: tuple[str, ...]) -> Workspace:
        draw = luck[subtask, tries[subtask]]
        tries[subtask] += 1
        if space[0] != subtask:  # a new sub-task on an inherited workspace
            chance = START + INHERITED * ten_points(space[1], WEIGHTS) / 10
            return subtask, tuple(bool(u < chance) for u in draw)
        return subtask, tuple(bool(u < q) if str(i) in failed else bool(u >= BREAKS) for i, u in enumerate(draw))

    def judge(subtask: int, space: Workspace) -> tuple[float, tuple[str, ...]]:
        return ten_points(space[1], WEIGHTS), tuple(str(i) for i, met in enumerate(space[1]) if not met)

    start = (-1, (True, True, False, False))
    chain = attempt_chain(work, judge, start, subtasks=SUBTASKS, most=MOST, carry=carry)  # type: ignore[arg-type]
    return float(np.mean([result.best for result in chain]))


@reproduction(
    93,
    claim="Attempts with named failures raise the best score with the chance to repair them, and handing on the best "
    "workspace is never worse on average than handing on the first.",
    baseline="carry = first, as in the released runner",
    criterion="over 2000 chains with common luck the mean best score rises with q for both rules; best >= first for "
    "every q and equal for q = 0; the difference at q = .5 is positive in a paired t interval",
    seeds=tuple(range(2000)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Every chain is played by both rules and every q with the same luck."""
    luck = [np.random.default_rng(seed).random((SUBTASKS, MOST, len(WEIGHTS))) for seed in seeds]
    scores = {
        (q, carry): np.array([best_score(q, carry, one) for one in luck])
        for q in REPAIRS
        for carry in ("first", "best")
    }
    means = {key: float(values.mean()) for key, values in scores.items()}
    measured = {f"best_score_q{q}_carry_{carry}": mean for (q, carry), mean in means.items()}
    gain = scores[0.5, "best"] - scores[0.5, "first"]
    low = float(gain.mean() - 1.96 * gain.std(ddof=1) / np.sqrt(len(gain)))
    measured |= {"gain_q0.5": float(gain.mean()), "gain_q0.5_low": low}
    rising = all(means[a, carry] < means[b, carry] for carry in ("first", "best") for a, b in pairwise(REPAIRS))
    better = all(means[q, "best"] >= means[q, "first"] for q in REPAIRS) and means[0.0, "best"] == means[0.0, "first"]
    return Outcome(measured, rising and better and low > 0)
