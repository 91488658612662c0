"""Power of a rubric study whose judge errs: simulated studies with planted errors, scored by a rule of `rubric`."""

from __future__ import annotations

import numpy as np
import polars as pl
import scipy

from palaestra.errors import InputError, need_columns
from palaestra.evaluation.rubric import Method, rubric

BATCH = 50
"""Studies that are held in memory at a time."""


def judge_power(
    systems: pl.DataFrame,
    criteria: pl.DataFrame,
    *,
    error: float = 0.0,
    method: Method = "net",
    spread: float = 1.0,
    studies: int = 500,
    alpha: float = 0.05,
    seed: int = 0,
) -> pl.DataFrame:
    """Table by simulation, a row per system of `systems`: share of studies with `criteria` that find the first better.

    The judge errs; that share is the power.

    A system meets a criterion with a chance whose log odds add the difficulty of the task and of the criterion, both
    normal and shared by all systems. The judge flips each verdict with probability `error`, so a difference of rates
    shrinks to (1 - 2 error) times its size; what a rule with a clip makes of it is simulated. Each study scores all
    tasks and compares systems by a two-sided t test on the paired differences of the tasks.

    Args:
        systems: `system`, `rate` (mean chance to meet a bonus criterion) and perhaps `penalty` (mean chance to trigger
            a penalty, default 0). The first row is the system that the others are compared with.
        criteria: a row per (`task`, `criterion`), with `kind` and `weight` as for `rubric`.
        error: Probability that the judge flips a verdict, in [0, 0.5].
        method: Scoring rule of a task.
        spread: Standard deviation of the log odds over tasks, and again over the criteria of a task.
        studies: Number of simulated studies.
        alpha: Level of the test.
        seed: Of the simulation.

    Returns:
        A row for each system: `system`; `true` and `score`, mean score by verdicts without and with errors; `true_lead`
        and `lead`, how far the first system is ahead by each; `found`, the share of studies that find this lead,
        null for the first system.

    Raises:
        InputError: error is not in [0, 0.5], a rate is not in (0, 1), a penalty is not in [0, 1), a criterion occurs
            twice in a task, or there are fewer than two systems, tasks or studies.
        MissingColumnError: a column is missing.

    Source: AgentIF-OneDay [133], arXiv 2601.20613: a judge that agrees with people on 80 % of 767 criteria.

    Example:
        >>> systems = pl.DataFrame({"system": ["one", "two"], "rate": [0.8, 0.6]})
        >>> criteria = pl.DataFrame({"task": range(30)}).join(pl.DataFrame({"criterion": ["a", "b", "c"]}), how="cross")
        >>> found = judge_power(systems, criteria, error=0.2, studies=50)
        >>> bool(0.5 < found["lead"][1] / found["true_lead"][1] < 0.7)
        True
    """
    need_columns("judge_power: systems", systems.columns, ["system", "rate"])
    need_columns("judge_power: criteria", criteria.columns, ["task", "criterion"])
    if "penalty" not in systems.columns:
        systems = systems.with_columns(penalty=pl.lit(0.0))
    if not 0 <= error <= 0.5 or studies < 2 or spread < 0 or not 0 < alpha < 1:
        raise InputError(
            f"judge_power: error={error} in [0, 0.5], studies={studies} at least 2, spread={spread} not negative, "
            f"alpha={alpha} in (0, 1)"
        )
    tasks = criteria["task"].n_unique()
    rates, penalties = (systems[name].cast(pl.Float64).to_numpy() for name in ("rate", "penalty"))
    if len(systems) < 2 or systems["system"].n_unique() < len(systems) or tasks < 2:
        raise InputError(f"judge_power: {len(systems)} systems and {tasks} tasks; two of different names are the least")
    if criteria.select("task", "criterion").is_duplicated().any():
        raise InputError("judge_power: a criterion of a task occurs twice in the criteria")
    if not ((rates > 0) & (rates < 1)).all() or not ((penalties >= 0) & (penalties < 1)).all():
        raise InputError("judge_power: a rate must lie in (0, 1) and a penalty in [0, 1)")
    kind = criteria["kind"] if "kind" in criteria.columns else pl.Series(["bonus"] * len(criteria))
    odds = np.where(
        (kind == "penalty").to_numpy(), _log_odds(penalties, spread)[:, None], _log_odds(rates, spread)[:, None]
    )
    task = criteria["task"].rank("dense").to_numpy().astype(np.int64) - 1
    rng = np.random.default_rng(seed)
    scores = [
        _studies(systems["system"], criteria, odds, task, min(BATCH, studies - done), error, method, spread, rng)
        for done in range(0, studies, BATCH)
    ]
    true, seen = (np.concatenate([each[side] for each in scores]) for side in (0, 1))
    lead = seen[:, :1] - seen
    known = np.isfinite(lead).sum(2)
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.nanmean(lead, 2) / (np.nanstd(lead, 2, ddof=1) / np.sqrt(known))
    found = (t > scipy.stats.t.ppf(1 - alpha / 2, known - 1)).mean(0)
    means = [np.nanmean(each, (0, 2)) for each in (true, seen)]
    return systems.select("system").with_columns(
        true=pl.Series(means[0]),
        score=pl.Series(means[1]),
        true_lead=pl.Series(means[0][0] - means[0]),
        lead=pl.Series(means[1][0] - means[1]),
        found=pl.Series([None, *found[1:].tolist()], dtype=pl.Float64),
    )


def _log_odds(rates: np.ndarray, spread: float) -> np.ndarray:
    """Log odds at which the mean chance over normal difficulties is the rate; -inf for 0."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    grid = np.linspace(-12, 12, 4801)
    means = scipy.special.expit(grid[:, None] + np.sqrt(2) * spread * nodes) @ weights / weights.sum()
    return np.where(rates > 0, np.interp(rates, means, grid), -np.inf)


def _studies(
    names: pl.Series,
    criteria: pl.DataFrame,
    odds: np.ndarray,
    task: np.ndarray,
    count: int,
    error: float,
    method: Method,
    spread: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of each study, system and task by verdicts without and with errors, each float64[studies, systems, tasks].

    odds: float64[systems, criteria]. task: number of each criterion's task, int64[criteria].
    """
    tasks, points = task.max() + 1, len(task)
    hard = spread * (rng.standard_normal((count, tasks))[:, task] + rng.standard_normal((count, points)))
    met = rng.random((count, len(names), points)) < scipy.special.expit(odds + hard[:, None])
    seen = met ^ (rng.random(met.shape) < error)
    study, system, point = (axis.reshape(-1) for axis in np.indices(met.shape, dtype=np.int32))
    keys = pl.DataFrame({"trial": study, "system": system}).with_columns(criteria[["task", "criterion"]][point])
    shape = (count, len(names), tasks)
    both = []
    for verdicts in (met, seen):
        found = rubric(
            keys.with_columns(met=pl.Series(verdicts.reshape(-1))), criteria, method, by=("trial", "system", "task")
        )
        both.append(found["score"].cast(pl.Float64).to_numpy().reshape(shape))
    return both[0], both[1]
