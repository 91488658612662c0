"""What a run cannot say: sentences that follow from its numbers, for the box at the end of the page."""

from __future__ import annotations

from palaestra.report.formatting import number, points
from palaestra.report.load import Run
from palaestra.report.sections import Result, error_kinds


def limits(run: Run, result: Result | None) -> list[str]:
    """The reservations that apply to this run, the weightiest first."""
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


def _about_seeds(run: Run) -> str:
    n = len(run.seeds)
    if n <= 1:
        return "There is one seed: the intervals cover tasks and trials, not how differently another training run might end."
    missed = 1 - 0.05 ** (1 / n)  # the rule of three, exact: n of n well, and still
    return (
        f"There are {n} seeds. Even if all of them went well, up to {100 * missed:.0f}% of further training runs could "
        "fail without contradicting what is seen here (95% bound)."
    )


def _about_comparison(run: Run, result: Result) -> list[str]:
    said = []
    unit = " points" if result.percent else ""
    after = next((row for row in result.rows if row.system == "after"), None)
    if after and isinstance(after.detectable, int | float):
        smallest = points(abs(after.detectable), percent=result.percent).lstrip("+")
        said.append(
            f"With {number(after.n_tasks)} tasks × {number(after.trials)} trials, a true difference below about "
            f"{smallest}{unit} would probably have gone unnoticed. No difference found is not proof of none."
        )
    doubtful = [s for s, _, _, d in result.per_seed if d and d.low is not None and d.low <= 0 <= (d.high or 0)]
    if doubtful and len(result.per_seed) > 1:
        said.append(f"Taken alone, {_seeds(doubtful)} cannot tell before from after: the interval contains 0.")
    reach = after.success if after and result.measure == "success" else result.after
    for name, control in result.controls.items():
        if reach and reach.low is not None and (control.mean if control.high is None else control.high) >= reach.low:
            said.append(f"The interval of the control “{name}” reaches that of the trained team: read that row before the headline.")
    missing = [s.name for s in run.seeds if s.evaluation is None]
    if missing and len(missing) < len(run.seeds):
        said.append(f"The final comparison of {_seeds(missing)} is not on file.")
    return said


def _about_files(run: Run) -> list[str]:
    said = []
    ends = {seed.name: seed.metrics[-1]["iteration"] for seed in run.seeds if seed.metrics}
    short = [name for name, end in ends.items() if end < max(ends.values())]
    if short:
        said.append(f"Training of {_seeds(short)} ended early; later points of the curves are means over fewer seeds.")
    torn = [seed.name for seed in run.seeds if seed.torn]
    if torn:
        said.append(f"The last line of the metrics of {_seeds(torn)} was cut off while it was written, and is left out.")
    failed = sum(kind.evaluation for kind in error_kinds(run.seeds))
    if failed:
        said.append(f"{failed} of the episodes of the final comparison ended in an error (section 7).")
    return said


def _seeds(names: list[str]) -> str:
    return f"seed {names[0]}" if len(names) == 1 else "seeds " + ", ".join(names[:-1]) + f" and {names[-1]}"
