"""The table of proof: every system beside the baseline, with intervals, errors and one sentence of verdict.

Left out: rankings (there is one baseline) and plots (the report draws).
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from palaestra.errors import InputError, nearest
from palaestra.evaluation.difference import OTHER_RUNS, Difference, paired_difference
from palaestra.evaluation.intervals import (
    CUT,
    RESAMPLES,
    Estimate,
    Scale,
    binary,
    cells,
    mean_interval,
    success_interval,
    unit_scale,
    units,
)
from palaestra.evaluation.reducers import k_estimate
from palaestra.evaluation.trials import count_infrastructure_failures, error_kind, infrastructure
from palaestra.foundation.scalars import float_or_zero

ALPHA = 0.05
MOST_LOST = 0.2
"""Share of a system's trials that errors of the infrastructure may take before nothing is said of it any more: below
5 % little is biased, beyond 20 % anything may be (the rule of five and twenty in medicine, Schulz & Grimes 2002)."""


@dataclass(frozen=True)
class SystemResult:
    """Data of one system's results: success, score, cost, and the difference to the baseline, for `comparison_table`.

    trials: per task and run (the most common number). fewest, most: their range over tasks and runs. unscored: trials
    without `value`. errors: episodes per kind of error.
    lost: of the baseline and this system, those that lost trials to errors of the infrastructure: how many, of how
    many, and of which kinds; they are in no number.
    pass_at_k, pass_hat_k: for k = 1, `trials`, and what all systems have. difference: to the baseline in `value`, its p
    corrected by Holm over the systems, the interval one that holds together with those of all other systems
    (Bonferroni), and what would be found or would be needed at the same level; None for the baseline itself.
    scale: lowest and highest possible score; None: not known. tokens, cost: means per trial where they are known.
    """

    system: str
    value: str
    tasks: int
    trials: int
    runs: int
    episodes: int
    unscored: int
    errors: dict[str, int]
    lost: dict[str, tuple[int, int, dict[str, int]]]
    success: Estimate
    score: Estimate
    pass_at_k: dict[int, Estimate]
    pass_hat_k: dict[int, Estimate]
    difference: Difference | None
    turns: float | None
    tokens: float | None
    cost: float | None
    scale: Scale | None = None
    fewest: int = 0
    most: int = 0

    @property
    def per_task(self) -> str:
        """Number of trials of a task in a run, as text: `2`, or `2 to 6` where tasks differ."""
        return f"{self.fewest} to {self.most}" if self.most > self.fewest else f"{self.trials}"

    def to_dict(self) -> dict[str, Any]:
        """The result as plain nested values for JSON."""
        row: dict[str, Any] = {**self.__dict__, "per_task": self.per_task}
        for name in ("success", "score", "difference"):
            row[name] = None if row[name] is None else row[name].to_dict()
        for name in ("pass_at_k", "pass_hat_k"):
            row[name] = {str(k): estimate.to_dict() for k, estimate in row[name].items()}
        return row

    def _repr_html_(self) -> str:
        return Comparison([self])._repr_html_()


class Comparison(list[SystemResult]):
    """A list of `SystemResult`, the rows of a comparison, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("system", "tasks × trials", "success", "score", "verdict"))
        rows = (
            (
                row.system,
                f"{row.tasks} × {row.per_task}",
                _shown(row.success, 100, " %"),
                _shown(row.score),
                verdict(row),
            )
            for row in self
        )
        cells = ("".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) for row in rows)
        body = "".join(f"<tr>{each}</tr>" for each in cells)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _shown(estimate: Estimate, scale: float = 1.0, unit: str = "") -> str:
    if estimate.mean is None or math.isnan(estimate.mean):
        return "–"
    return f"{scale * estimate.mean:.3g}{unit} [{scale * estimate.low:.3g}, {scale * estimate.high:.3g}]"


def comparison_table(
    trials: pl.DataFrame,
    *,
    baseline: str = "before",
    value: str = "success",
    scale: Scale | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Compares the systems of a table of trials: a list of `SystemResult`, the baseline first, the others by name.

    value: what is compared, "success" or "score" (games without a notion of success). Trials with a column `cluster`
    are clustered by it. scale: lowest and highest possible score, beyond which no interval reaches; None: (0, 1) if no
    score lies outside, else not known.

    Raises:
        InputError: there is no such baseline, or a score lies outside of `scale`.
    """
    systems = trials["system"].unique().sort().to_list()
    if baseline not in systems:
        raise InputError(f"no system {baseline!r} to compare with{nearest(baseline, systems)}")
    others = [system for system in systems if system != baseline]
    scale = unit_scale(trials["score"]) if scale is None else _inside(scale, trials)
    comparable = sum(_in_common(trials, baseline, system, value) for system in others)
    found = {
        system: paired_difference(
            trials,
            system,
            baseline,
            value=value,
            scale=scale if value == "score" else None,
            level=1 - ALPHA,
            comparisons=max(comparable, 1),
            resamples=resamples,
            seed=seed,
        )
        for system in others
    }
    corrected = holm([found[system].p for system in others])
    differences = {system: replace(found[system], p=p) for system, p in zip(others, corrected, strict=True)}
    own = {system: trials.filter(pl.col("system") == system) for system in [baseline, *others]}
    common = min(_per_task(each)[0] for each in own.values())
    missing = {system: _lost(each, value) for system, each in own.items()}
    share = binary(trials["score"])
    return Comparison(
        _system(each, value, differences.get(system), common, {
            name: missing[name] for name in dict.fromkeys([baseline, system]) if missing[name][0]
        }, share, scale, resamples, seed)
        for system, each in own.items()
    )  # fmt: skip


def _in_common(trials: pl.DataFrame, a: str, b: str, value: str) -> bool:
    """Whether two systems have a value in a same cell: otherwise they are no comparison."""
    pair = units(trials.filter(pl.col("system").is_in([a, b])))
    left, right = (cells(pair.filter(pl.col("system") == name), value) for name in (a, b))
    return not left.join(right, on=["run", "task"], how="semi").is_empty()


def _inside(scale: Scale, trials: pl.DataFrame) -> Scale:
    """The scale, if it is one and holds all scores."""
    low, high = scale
    if not low < high:
        raise InputError(f"scale {low:g} to {high:g}: the highest score must be above the lowest")
    beyond = trials.filter(~pl.col("score").fill_nan(None).is_between(low, high))
    if len(beyond):
        first = beyond.row(0, named=True)
        raise InputError(
            f"scale {low:g} to {high:g}: {len(beyond)} of {len(trials)} trials have a score outside, the first "
            f"{first['score']:g} of system {first['system']!r} on task {first['task']!r}; name the ends of the scale"
        )
    return float(low), float(high)


def _lost(trials: pl.DataFrame, value: str) -> tuple[int, int, dict[str, int]]:
    gone = trials.filter(infrastructure() & pl.col(value).is_null())
    kinds = gone.select(error_kind()).to_series().value_counts(sort=True)
    return count_infrastructure_failures(trials, value), len(trials), dict(kinds.iter_rows())


def _per_task(trials: pl.DataFrame) -> tuple[int, int, int]:
    """Trials of a task in a run: the most common number, the fewest and the most."""
    counts = trials.group_by("run", "task").len()["len"]
    return int(float_or_zero(counts.mode().max())), int(float_or_zero(counts.min())), int(float_or_zero(counts.max()))


def _system(
    trials: pl.DataFrame,
    value: str,
    difference: Difference | None,
    common: int,
    missing: dict[str, tuple[int, int, dict[str, int]]],
    share: bool,
    scale: Scale | None,
    resamples: int,
    seed: int,
) -> SystemResult:
    per_task, fewest, most = _per_task(trials)
    kinds = trials.filter(pl.col("error").is_not_null()).select(error_kind()).to_series().value_counts(sort=True)
    ks = sorted({1, common, per_task})

    def mean(column: pl.Expr) -> float | None:
        result = trials.select(column.mean()).item()
        return None if result is None else float(result)

    return SystemResult(
        system=trials["system"][0],
        value=value,
        tasks=trials["task"].n_unique(),
        trials=per_task,
        runs=trials["run"].n_unique(),
        episodes=len(trials),
        unscored=trials[value].null_count(),
        errors=dict(kinds.iter_rows()),
        lost=missing,
        success=success_interval(trials),
        score=mean_interval(trials, share=share, scale=scale, resamples=resamples, seed=seed),
        pass_at_k={k: k_estimate(trials, "pass_at_k", k) for k in ks},
        pass_hat_k={k: k_estimate(trials, "pass_hat_k", k) for k in ks},
        difference=difference,
        turns=mean(pl.col("turns")),
        tokens=mean(pl.col("tokens_in") + pl.col("tokens_out")),
        cost=mean(pl.col("cost")),
        scale=scale,
        fewest=fewest,
        most=most,
    )


def changed_tasks(trials: pl.DataFrame, before: str, after: str) -> dict[str, list[str]]:
    """Dict of sorted tasks in a trials frame that only system `before` (`regressed`) or only `after` (`gained`) solves.

    Solved: in at least half of a system's trials.

    Returns:
        `regressed`: tasks that `before` solves and `after` does not. `gained`: the other way round. Sorted by name.
    """
    solved = pl.col("success").mean() >= 0.5
    rates = {
        system: trials.filter(pl.col("system") == system).group_by("task").agg(solved=solved).drop_nulls()
        for system in (before, after)
    }
    both = rates[before].join(rates[after], on="task", suffix="_after")
    lost, won = pl.col("solved") & ~pl.col("solved_after"), pl.col("solved_after") & ~pl.col("solved")
    return {
        name: both.filter(way)["task"].cast(pl.String).sort().to_list()
        for name, way in (("regressed", lost), ("gained", won))
    }


def holm(pvalues: list[float]) -> list[float]:
    """Holm's step-down adjusted p-values, a list, of several comparisons, in order; NaN (no comparison) is not counted.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(pvalues, dtype=np.float64)
    known = np.isfinite(p)
    order = np.flatnonzero(known)[np.argsort(p[known])]
    p[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1.0)
    return [float(x) for x in p]


def verdict(row: SystemResult, *, alpha: float = ALPHA) -> str:
    """Sentence on a `SystemResult` against the baseline: better, worse, or cannot tell, with the reason.

    Better or worse needs the interval clear of 0 *and* p <= alpha, and
    that the infrastructure took no more than `MOST_LOST` of either side's trials.

    Success is said in points (percentage points), a score in its own unit.
    """
    d = row.difference
    if d is None:
        return "the baseline"
    gone = _losses(row)
    if not d.n and d.method == OTHER_RUNS:
        return (
            f"cannot tell: the runs of the two sides have other names, so that no run and task is on both "
            f"({d.dropped} dropped); without the column run, or with runs of the same names, tasks are compared{gone}"
        )
    if not d.n:
        return f"cannot tell: no task has a {row.value} on both sides ({d.dropped} dropped){gone}"
    points = row.value == "success"

    def say(x: float, sign: str = "+") -> str:
        return (f"{100 * x:{sign}.1f}" if points else f"{x:{sign}.3g}").replace("-", "−")

    unit = " points" if points else ""
    runs = f", {d.runs} runs" if d.runs > 1 else ""
    tasks = d.tasks if row.tasks > 1 else 1  # in common; a single task has its trials for clusters
    within = f" in {d.clusters} clusters" if row.tasks > 1 and "by cluster" in d.method else ""
    size = f"{tasks} task{'s' * (tasks > 1)}{within} × {row.per_task} trial{'s' * (row.per_task != '1')}{runs}"
    dropped = f", {d.dropped} dropped" if d.dropped else ""
    if not math.isfinite(d.low):
        return f"cannot tell: {say(d.mean)}{unit}, and {size}{dropped} give no interval{gone}"
    cut = CUT if d.method.endswith(CUT) else ""
    found = f"{say(d.mean)}{unit} ({joint_interval(d.comparisons)} {say(d.low)} to {say(d.high)}{cut}, {size}{dropped})"
    doubt = f"; {d.caution}" if d.caution else ""
    worst = max((n / of for n, of, _ in row.lost.values()), default=0.0)
    clear = d.low > 0 or d.high < 0
    if worst > MOST_LOST:
        return f"cannot tell: more than {100 * MOST_LOST:.0f} % of the trials of one side are lost: {found}{gone}"
    if clear and d.p <= alpha:
        return f"{'better' if d.mean > 0 else 'worse'} by {found}{gone}{doubt}"
    reason = f"p = {d.p:.2g} after correction" if clear else "the interval contains 0"
    answer = f"cannot tell: {reason}: {found}"
    if not math.isfinite(d.detectable):  # every task differs by the same
        return f"{answer}{gone}{doubt}"
    few = d.detectable > d.possible
    now = f"a difference of {say(d.detectable, '')}{unit} would be found 4 times out of 5"
    now = "no difference that the scale allows would be found 4 times out of 5" if few else now
    only = now if few else f"only {now}"
    said = f"{advice(d, single=row.tasks == 1)} (now {now})" if max(d.more_tasks, d.more_runs) > 0 else only
    return f"{answer}; {said}{gone}{doubt}"


def joint_interval(comparisons: int) -> str:
    """Label for reports: `95 % interval`, or `simultaneous 95 % interval of 3 comparisons` for several.

    >>> joint_interval(1), joint_interval(3)
    ('95 % interval', 'simultaneous 95 % interval of 3 comparisons')
    """
    return "95 % interval" if comparisons < 2 else f"simultaneous 95 % interval of {comparisons} comparisons"


def _losses(row: SystemResult) -> str:
    """`; left out, because the infrastructure failed: 34 of 100 trials of before (policy 34)`."""
    said = [
        f"{n} of {of} trials of {system} ({', '.join(f'{kind} {count}' for kind, count in kinds.items())})"
        for system, (n, of, kinds) in row.lost.items()
    ]
    return f"; left out, because the infrastructure failed: {' and '.join(said)}" if said else ""


def advice(difference: Difference, *, single: bool = False) -> str:
    """Text how many more tasks or runs would find a `Difference` of this size: `run 23 more tasks to find …`.

    single: there is one task only, so that its trials are what is counted.
    """
    unit = "trial" if single else "cluster of tasks" if "by cluster" in difference.method else "task"
    counts = ((difference.more_tasks, unit), (difference.more_runs, "run"))
    ways = [
        f"{n} more {what.replace(' of', 's of') if ' of' in what else what + 's'}" if n > 1 else f"1 more {what}"
        for n, what in counts
        if n > 0
    ]
    return f"run {' or '.join(ways)} to find a difference of this size"
