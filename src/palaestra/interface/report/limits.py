"""Limits of a run's evidence: sentences for the box at the end of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from palaestra.interface.report.formatting import number, points
from palaestra.interface.report.load import Interval, Run
from palaestra.interface.report.sections import ComparisonRow, RunResult, error_kinds


def limits(run: Run, result: RunResult | None) -> list[str]:
    """List of sentences on the limits of a loaded `Run`'s evidence and `result`: seeds, comparison, files, tasks."""
    said = [_about_seeds(run)]
    if result is None:
        said.append(
            "There is no final comparison: the run was stopped before it, or is still going. The curves show what "
            "happened in training; they do not show that the team got better."
        )
    else:
        said += _about_comparison(run, result)
    said += _about_files(run)
    said.append(
        "The held-out tasks come from the same source as the training tasks. Nothing here says how the team does on "
        "tasks of another kind or size, or with another model."
    )
    return said


def comparison_limits(variants: Sequence[tuple[str, Run]]) -> list[str]:
    """List of sentences on the limits of a comparison of variants, given as (name, loaded `Run`) pairs."""
    seeds = {name: len(run.seeds) for name, run in variants}
    fewest = min(seeds.values())
    said = [
        f"{'Every variant has' if len(set(seeds.values())) == 1 else 'The variant with the fewest has'} {fewest} "
        f"seed{'' if fewest == 1 else 's'}. A variant that fails rarely, or wins by luck, may look like any other."
    ]
    unfinished = [name for name, run in variants if run.summary is None]
    if unfinished:
        said.append(f"Not finished, and in the curves only: {', '.join(unfinished)}.")
    spent = [float(run.summary["cpu_seconds"]) for _, run in variants if run.summary and run.summary.get("cpu_seconds")]
    if spent and max(spent) > 1.1 * min(spent):
        said.append(
            f"The variants did not cost the same: the dearest took {max(spent) / min(spent):.1f} times the CPU time "
            "of the cheapest. The curves are by iteration, not by cost."
        )
    said.append("The order holds for this recipe, its tasks and its budget; a longer run may reverse it.")
    return said


def _about_seeds(run: Run) -> str:
    n = len(run.seeds)
    if n <= 1:
        return "There is one seed: the intervals cover tasks and trials, not how another training run might end."
    missed = 1 - 0.05 ** (1 / n)  # the rule of three, exact: n of n well, and still
    return (
        f"There are {n} seeds. Even if all of them went well, up to {100 * missed:.0f}\u00a0% of further training runs "
        "could fail without contradicting what is seen here (95\u00a0% bound)."
    )


def _about_comparison(run: Run, result: RunResult) -> list[str]:
    said = [sentence for row in result.rows if row.system == "after" for sentence in _about_table(row, result.rows)]
    doubtful = [s for s, _, _, d in result.per_seed if d and d.low is not None and d.low <= 0 <= (d.high or 0)]
    if doubtful and len(result.per_seed) > 1:
        said.append(f"Taken alone, {_seeds(doubtful)} cannot tell before from after: the interval contains 0.")
    missing = [s.name for s in run.seeds if s.evaluation is None]
    if missing and len(missing) < len(run.seeds):
        said.append(f"The final comparison of {_seeds(missing)} is not on file.")
    return said


def _about_table(after: ComparisonRow, rows: Sequence[ComparisonRow]) -> list[str]:
    said = []
    if isinstance(after.detectable, int | float) and after.detectable > (after.possible or math.inf):
        said.append(
            f"With {number(after.n_tasks)} tasks × {after.per_task} trials, no difference that the scale allows "
            "would be found reliably. No difference found is not proof of none."
        )
    elif isinstance(after.detectable, int | float):
        smallest = points(abs(after.detectable), percent=after.percent).lstrip("+")
        said.append(
            f"With {number(after.n_tasks)} tasks × {after.per_task} trials, a true difference below about "
            f"{smallest}{' points' if after.percent else ''} would probably have gone unnoticed. No difference found "
            "is not proof of none."
        )
    controls = [row for row in rows if row.system not in ("before", "after")]
    near = [f"“{row.system}”" for row in controls if _high(_measured(row)) >= _low(_measured(after))]
    if near:
        what = "success" if after.percent else "score"
        said.append(
            f"The {what} of {' and '.join(near)} reaches the interval of the trained team: this run does not show that "
            "training is worth more than that."
        )
    return said


def _about_files(run: Run) -> list[str]:
    said = []
    ends = {seed.name: seed.metrics[-1]["iteration"] for seed in run.seeds if seed.metrics}
    short = [name for name, end in ends.items() if end < max(ends.values())]
    if short:
        said.append(f"Training of {_seeds(short)} ended early; later points of the curves are means over fewer seeds.")
    torn = [seed.name for seed in run.seeds if seed.torn]
    if torn:
        said.append(
            f"The last line of the metrics of {_seeds(torn)} was cut off while it was written, and is left out."
        )
    failed = sum(kind.evaluation for kind in error_kinds(run.seeds))
    if failed:
        said.append(f"{failed} of the episodes of the final comparison ended in an error, see above.")
    return said


def _measured(row: ComparisonRow) -> Interval | None:
    return row.success if row.percent else row.score


def _low(value: Interval | None) -> float:
    return math.inf if value is None else value.mean if value.low is None else value.low


def _high(value: Interval | None) -> float:
    return -math.inf if value is None else value.mean if value.high is None else value.high


def _seeds(names: list[str]) -> str:
    return f"seed {names[0]}" if len(names) == 1 else "seeds " + ", ".join(names[:-1]) + f" and {names[-1]}"
