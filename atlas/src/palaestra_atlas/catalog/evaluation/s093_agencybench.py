"""[93] AgencyBench (arXiv 2601.11044): attempts with feedback on a chain of sub-tasks, and whose workspace goes on.

A scripted agent repairs a named item with chance q and breaks a good one with .1; a worse inherited workspace lowers
its start. The released runner hands on the first workspace unless an attempt is perfect, yet it records the best score.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.attempts import (
    SubtaskResult,
    attempt_chain,
    pass_by_attempt,
    resource_efficiency,
    ten_points,
)
from palaestra.evaluation.logs import read_logs
from palaestra.evaluation.rubric import rubric
from palaestra_atlas.reproductions import Outcome, exact, reproduction

WEIGHTS = (0.3, 0.3, 0.2, 0.2)
SUBTASKS, MOST, BREAKS = 3, 3, 0.1
REPAIRS = (0.0, 0.25, 0.5, 0.75)
START, INHERITED = 0.3, 0.4
"""Chance that an item is right at the first attempt: START plus INHERITED times the share of points carried on."""

Workspace = tuple[int, tuple[bool, ...]]


Judged = tuple[float, tuple[str, ...]]
Chain = tuple[
    Callable[[int, Workspace, tuple[str, ...]], Workspace], Callable[[int, Workspace], Judged], Workspace
]  # fmt: skip
START_SPACE: Workspace = (-1, (True, True, False, False))


def chain_of(q: float, luck: np.ndarray) -> Chain:
    """An agent that repairs a named item with chance q, its judge, its start; luck: float[sub-task, attempt, item]."""
    tries = [0] * SUBTASKS

    def work(subtask: int, space: Workspace, failed: tuple[str, ...]) -> Workspace:
        draw = luck[subtask, tries[subtask]]
        tries[subtask] += 1
        if space[0] != subtask:  # a new sub-task on an inherited workspace
            chance = START + INHERITED * ten_points(space[1], WEIGHTS) / 10
            return subtask, tuple(bool(u < chance) for u in draw)
        return subtask, tuple(bool(u < q) if str(i) in failed else bool(u >= BREAKS) for i, u in enumerate(draw))

    def judge(subtask: int, space: Workspace) -> Judged:
        return ten_points(space[1], WEIGHTS), tuple(str(i) for i, met in enumerate(space[1]) if not met)

    return work, judge, START_SPACE


def played(q: float, carry: str, luck: np.ndarray, most: int = MOST) -> list[SubtaskResult]:
    """One chain of such an agent."""
    return attempt_chain(*chain_of(q, luck), subtasks=SUBTASKS, most=most, carry=carry)  # type: ignore[arg-type]


def best_score(q: float, carry: str, luck: np.ndarray) -> float:
    """Mean best score of one chain."""
    return float(np.mean([result.best for result in played(q, carry, luck)]))


def agent(seed: int) -> Chain:
    """The agent with a chance of repair of one half, by luck of the seed that lies in the working directory."""
    block = int((Path.cwd() / "seed.txt").read_text())
    return chain_of(0.5, np.random.default_rng([block, seed]).random((SUBTASKS, MOST, len(WEIGHTS))))


def block(seed: int, folder: Path) -> None:
    """Writes the seed that the agent's luck is drawn from."""
    (folder / "seed.txt").write_text(str(seed))


def tried(repairs: bool = True, most: int = 3, carry: str = "best") -> tuple[list[list[float]], list[tuple[int, ...]]]:
    """Scores by sub-task and attempt, and the workspaces that each attempt began with.

    The agent repairs one named item per attempt and breaks nothing; a new sub-task begins with as many items as the
    workspace before had, less one.
    """
    began: list[tuple[int, ...]] = []

    def work(subtask: int, space: tuple[int, ...], failed: tuple[str, ...]) -> tuple[int, ...]:
        began.append(space)
        if not failed:
            met = max(sum(space) - 1, 0)
            return tuple(int(n < met) for n in range(4))
        named = [int(name) for name in failed if name.isdigit()] if repairs else []
        return tuple(int(met or n == min(named, default=-1)) for n, met in enumerate(space))

    def judge(subtask: int, space: tuple[int, ...]) -> tuple[float, tuple[str, ...]]:
        return ten_points(space, WEIGHTS), tuple(str(n) for n, met in enumerate(space) if not met)

    chain = attempt_chain(work, judge, (1, 1, 1, 0), subtasks=2, most=most, carry=carry)  # type: ignore[arg-type]
    return [[attempt.score for attempt in result.attempts] for result in chain], began


@exact
def attempts_with_feedback() -> None:
    """Named items are repaired one by one from the workspace before; ten points end it, or the third attempt."""
    scores, began = tried()
    assert scores[0] == [6, 8, 10], scores
    assert began[1] == (1, 1, 0, 0), "the second attempt goes on from the first"
    assert len(tried(most=1)[0][0]) == 1
    perfect = attempt_chain(lambda *_: 0, lambda *_: (10, ()), 0, subtasks=1)  # type: ignore[arg-type, return-value]
    assert len(perfect[0].attempts) == 1, "who has all points is not asked again"


def repairing(seed: int) -> Chain:
    """An agent that gets nothing right at first, and repairs all that is named."""
    return chain_of(1.0, np.full((SUBTASKS, MOST, len(WEIGHTS)), 0.9))


@exact
def asked_by_name() -> None:
    """The analysis plays an agent that is given as a function: second attempts pass, where there are any."""
    name = f'attempt_chain("{__name__}:repairing", subtasks=3, episodes=2'
    found, one = analyze(f"{name})"), analyze(f"{name}, most=1)")
    assert found.select("passed", "n", "best", "attempts", "per_attempt").rows() == [(0, 6, 10, 2, 5), (1, 6, 10, 2, 5)]
    assert one.select("passed", "best", "attempts").rows() == [(0, 0, 1)]


@exact
def best_workspace_goes_on() -> None:
    """The second sub-task begins with the best attempt's workspace, by the released rule with the first one's."""
    luck = np.array([0.0, 0.5, 0.9])

    def began(carry: str) -> list[float]:
        seen: list[float] = []

        def work(subtask: int, space: float, failed: tuple[str, ...]) -> float:
            seen.append(space)
            return float(luck[len(seen) % 3])

        attempt_chain(work, lambda _, space: (10 * space, ("x",)), 0.3, subtasks=2, carry=carry)  # type: ignore[arg-type]
        return [seen[0], seen[3]]

    assert began("best") == [0.3, 0.9]
    assert began("first") == [0.3, 0.5]


@exact
def ten_points_of_a_rubric() -> None:
    """Weights .3, .5, .2 with the .5 failed give five points."""
    assert ten_points([1, 0, 1], [0.3, 0.5, 0.2]) == 5
    criteria = pl.DataFrame({"criterion": ["a", "b", "c"], "weight": [0.3, 0.5, 0.2]})
    judged = pl.DataFrame({"task": "t", "criterion": ["a", "b", "c"], "met": [1, 0, 1]})
    assert abs(rubric(judged, criteria)["score"].item() - 0.5) < 1e-9


@exact
def efficiency_of_attempts() -> None:
    """Of two agents with ten points each, who took one attempt and fewer tokens is the more efficient."""
    rows = [
        {
            "system": "quick",
            "group": 0,
            "episode": 0,
            "turn": 0,
            "score.attempt": 10.0,
            "tokens_in": 900,
            "tokens_out": 100,
        }
    ]
    rows += [
        {
            "system": "slow",
            "group": 0,
            "episode": 1,
            "turn": n,
            "score.attempt": score,
            "tokens_in": 900,
            "tokens_out": 100,
        }
        for n, score in enumerate((2.0, 6.0, 10.0))
    ]
    found = {row["system"]: row for row in resource_efficiency(pl.DataFrame(rows)).iter_rows(named=True)}
    assert found["quick"]["best"] == found["slow"]["best"] == 10
    assert (found["quick"]["per_attempt"], round(found["slow"]["per_attempt"], 6)) == (10, 3.333333)
    assert found["quick"]["per_million"] > found["slow"]["per_million"]
    assert pass_by_attempt(pl.DataFrame(rows)).filter(pl.col("system") == "slow")["passed"].to_list() == [0, 0, 1]


@exact
def results_of_the_runner() -> None:
    """A result file of the released runner is read, and its attempts are counted by name."""
    attempts = [{"attempt_index": n + 1, "score": score, "rubric": {"failed_points": ["b"]}}
                for n, score in enumerate((4, 10))]  # fmt: skip
    said = {"model": "m", "scorer": "s", "max_attempts": 3,
            "subtasks": [{"name": "one", "attempts": attempts, "best_score": 10, "best_attempt": 2}]}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "scenario1"
        place.mkdir()
        (place / "meta_eval.json").write_text(json.dumps(said))
        assert read_logs(place).turns["score.attempt"].to_list() == [4, 10]
        found = analyze("attempts", place)
    assert found["passed"].to_list() == [0, 1]


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
