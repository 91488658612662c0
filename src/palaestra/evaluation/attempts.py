"""Several attempts at a chain of sub-tasks, with feedback between them: the protocol of AgencyBench [93].

Left out: the sandbox. What works and what judges are functions of the caller's, from a toy to a machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import polars as pl

from palaestra.errors import InputError, need_columns

W = TypeVar("W")
PERFECT = 10.0


@dataclass(frozen=True)
class Attempt:
    """Data of one attempt at a sub-task: number (from 1), score, and failed items, the next attempt's feedback."""

    number: int
    score: float
    failed: tuple[str, ...] = ()


@dataclass(frozen=True)
class SubtaskResult:
    """Data of all attempts at one sub-task; `carried`: number of the attempt whose workspace the next sub-task gets."""

    attempts: tuple[Attempt, ...] = field(default_factory=tuple)
    carried: int = 1

    @property
    def best(self) -> float:
        """The best score of the attempts."""
        return max(attempt.score for attempt in self.attempts)


def ten_points(met: Sequence[float], weights: Sequence[float]) -> int:
    """Score out of ten of a weighted checklist: round(10 · Σ w·met); the weights sum to 1.

    >>> ten_points([1, 0, 1], [0.3, 0.5, 0.2])
    5
    """
    return round(10 * sum(w * m for w, m in zip(weights, met, strict=True)))


def attempt_chain(
    work: Callable[[int, W, tuple[str, ...]], W],
    judge: Callable[[int, W], tuple[float, tuple[str, ...]]],
    start: W,
    *,
    subtasks: int,
    most: int = 3,
    perfect: float = PERFECT,
    carry: Literal["best", "first"] = "best",
) -> list[SubtaskResult]:
    """Runs sub-tasks by `work`, scored by `judge`, each up to `most` times until `perfect`: list of `SubtaskResult`.

    Sub-tasks are a chain: each starts from a workspace of the one before.

    The protocol of AgencyBench (arXiv 2601.11044).

    work(subtask, workspace, feedback) returns a new workspace; judge(subtask, workspace) its score and failed items.
    Attempt 2 and later continue the previous attempt's workspace and hear what failed.

    carry: whose workspace the next sub-task starts from. "best": the best attempt's. "first": the first attempt's
    unless one is perfect, as the released runner does although the best score is what it records.
    """
    if most < 1 or carry not in ("best", "first"):
        raise InputError(f"attempt_chain: most={most} and carry={carry!r}; give at least one attempt, best or first")
    results, workspace = [], start
    for subtask in range(subtasks):
        spaces: list[W] = []
        attempts: list[Attempt] = []
        while len(attempts) < most and not (attempts and attempts[-1].score >= perfect):
            before, heard = (spaces[-1], attempts[-1].failed) if attempts else (workspace, ())
            spaces.append(work(subtask, before, heard))
            score, failed = judge(subtask, spaces[-1])
            attempts.append(Attempt(len(attempts) + 1, score, tuple(failed)))
        best = max(attempts, key=lambda attempt: (attempt.score, -attempt.number))
        carried = best.number if carry == "best" or best.score >= perfect else 1
        workspace = spaces[carried - 1]
        results.append(SubtaskResult(tuple(attempts), carried))
    return results


def resource_efficiency(turns: pl.DataFrame, *, score: str = "score.attempt") -> pl.DataFrame:
    """Table per system of a frame with attempts' scores: mean best, attempts, score per attempt and per million tokens.

    The best is that of a sub-task.

    Columns: system, best, attempts, per_attempt, per_million.

    per_million: of tokens in and out; null where they are not known.

    Raises:
        MissingColumnError: there are no scores of attempts.
    """
    need_columns("resource_efficiency", turns.columns, [score])
    kinds = [name for name in ("tokens_in", "tokens_out") if name in turns.columns]
    tokens = pl.sum_horizontal(pl.col(kinds).cast(pl.Float64)) if kinds else pl.lit(None, pl.Float64)
    best = (
        turns.with_columns(_tokens=tokens)
        .group_by("system", "group", "episode", maintain_order=True)
        .agg(best=pl.col(score).max(), attempts=pl.col(score).count(), tokens=pl.col("_tokens").sum())
    )
    total = pl.col("best").sum()
    spent = pl.col("tokens").sum()
    return best.group_by("system", maintain_order=True).agg(
        per_attempt=total / pl.col("attempts").sum(),
        per_million=pl.when(spent > 0).then(1e6 * total / spent),
        best=pl.col("best").mean(),
        attempts=pl.col("attempts").mean(),
    )


def pass_by_attempt(turns: pl.DataFrame, *, score: str = "score.attempt", perfect: float = PERFECT) -> pl.DataFrame:
    """Table per system and attempt of a turns frame: share of sub-tasks perfect by then: `system, attempt, passed, n`.

    From AgencyBench's logs.

    A sub-task that stopped early stays passed; n counts all sub-tasks, so the share never falls.

    Raises:
        MissingColumnError: there are no scores of attempts.
    """
    need_columns("pass_by_attempt", turns.columns, [score])
    key = ["system", "group", "episode"]
    first = turns.filter(pl.col(score) >= perfect).group_by(key).agg(pl.col("turn").min().alias("first"))
    episodes = turns.select(key).unique().join(first, on=key, how="left")
    numbers = turns.select("system", "turn").unique().sort("system", "turn")
    reached = (pl.col("first") <= pl.col("turn")).fill_null(False)
    return (
        numbers.join(episodes, on="system")
        .group_by("system", attempt=pl.col("turn") + 1)
        .agg(passed=reached.mean(), n=pl.len().cast(pl.Int64))
        .sort("system", "attempt")
    )
