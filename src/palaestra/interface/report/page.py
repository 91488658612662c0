"""The report of one run: reads its directory, draws, fills the template, writes `report.html`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaml import YAMLError

from palaestra.foundation.files import write_text
from palaestra.foundation.yaml import read as read_yaml
from palaestra.interface.report import formatting
from palaestra.interface.report.episodes import sample
from palaestra.interface.report.formatting import short_verdict
from palaestra.interface.report.league import league
from palaestra.interface.report.limits import limits
from palaestra.interface.report.load import Interval, Run, load_run
from palaestra.interface.report.panels import (
    OPTIMISER_PANELS,
    POLICY_PANELS,
    ZERO_CREDIT,
    Chart,
    by_policy,
    charts,
    policies,
    progress,
)
from palaestra.interface.report.plots import intervals, legend, pairs
from palaestra.interface.report.rewards import rewards
from palaestra.interface.report.sections import (
    RunResult,
    alarms,
    contributions,
    error_kinds,
    facts,
    result,
    shared_k,
    versions,
)
from palaestra.interface.report.team import team

if TYPE_CHECKING:
    from jinja2 import Environment


def write_report(run_dir: Path) -> Path:
    """Write `run_dir/report.html`, one file that needs nothing else, and return its path.

    A run that was stopped gives a smaller report.

    Raises:
        InputError: `run_dir` is not a run directory.
        StorageError: a file in it is damaged, or the page cannot be written.
    """
    run = load_run(Path(run_dir))
    outcome = result(run)
    paid = rewards(run.seeds)
    name = str((run.summary or {}).get("recipe") or run.path.resolve().name)
    page = render(
        "run.html",
        title=name,
        told=short_verdict(outcome.verdict.removeprefix(f"{name}: ")) if outcome else "no final comparison",
        run=run,
        description=(run.summary or {}).get("description"),
        result=outcome,
        hat=shared_k(outcome.rows if outcome else []),
        look=None if outcome else _last_look(run),
        facts=facts(run),
        versions=versions(run),
        looks=_looks(run),
        progress=[*progress([("all seeds", run.seeds)]), *charts(run)],
        policies=by_policy(run.seeds, POLICY_PANELS),
        optimiser=by_policy(run.seeds, OPTIMISER_PANELS),
        policy_legend=legend(policies(run.seeds)),
        comparison=_comparison_panels(outcome) if outcome else [],
        league=league(run),
        team=team(run),
        shares=contributions(run.seeds),
        rewards=paid,
        rewards_legend=legend(paid.labels) if paid else "",
        zero_credit=by_policy(run.seeds, ZERO_CREDIT),
        episodes=sample(run),
        errors=error_kinds(run.seeds),
        alarms=alarms(run.seeds),
        limits=limits(run, outcome),
    )
    return write_page(run.path / "report.html", page)


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("palaestra.interface.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        name: getattr(formatting, name) for name in ("number", "points", "span", "seconds", "p_value", "prose")
    }
    return environment


def render(template: str, **context: Any) -> str:
    """Fill an HTML template of the package; returns the text. All values are escaped except `Markup`."""
    context = {"told": "", "today": date.today().isoformat()} | context
    return _templates().get_template(template).render(**context)


def write_page(path: Path, text: str) -> Path:
    """Write a page atomically, making its folder; returns the path.

    Raises:
        StorageError: it cannot be written.
    """
    write_text(path, text)
    return path


def _looks(run: Run) -> str:
    """How much a periodic evaluation plays, if the recipe says so: "40 tasks × 1 trials"."""
    try:
        part = read_yaml(run.recipe or "")["evaluation"]
        return f"{part['look_tasks']} tasks × {part['look_trials']} trials"
    except (YAMLError, ValueError, TypeError, KeyError):  # an older recipe, or one that somebody edited
        return ""


def _comparison_panels(outcome: RunResult) -> list[Chart]:
    """Forest plots of all systems, then before and after per seed."""
    drawn = []
    rows = outcome.rows
    title, percent, absolute = "Success", True, [(row.system, row.success) for row in rows if row.success]
    if not absolute:  # a game without success: its score; no table at all: the headline
        title, percent, absolute = "Score", False, [(row.system, row.score) for row in rows if row.score]
    if not absolute:
        named = (("before", outcome.before), ("after", outcome.after), *outcome.controls.items())
        title, percent, absolute = outcome.measure.capitalize(), outcome.percent, [(n, v) for n, v in named if v]
    if absolute:
        svg = intervals(absolute, what=f"{title.lower()} by system", percent=percent, colours={"after": 0})
        drawn.append(Chart(title, "95\u00a0% interval", svg))
    apart = [(row.system, row.difference) for row in rows if row.difference]
    if apart:
        percent, what = rows[0].percent, "difference from the team before training"
        svg = intervals(apart, what=what, percent=percent, zero=True, colours={"after": 0})
        drawn.append(Chart("Difference from before", "points" if percent else "in score", svg))
    per_seed = [(seed, b.mean, a.mean) for seed, b, a, _ in outcome.per_seed if b and a]
    if per_seed:
        svg = pairs(per_seed, what=f"{outcome.measure} before and after", percent=outcome.percent)
        drawn.append(Chart(f"{outcome.measure.capitalize()} per seed", "○ before  ● after", svg))
    for name, systems in outcome.scores.items():
        if systems:
            svg = intervals(list(systems.items()), what=f"{name} by system", colours={"after": 0})
            drawn.append(Chart(f"Score {name}", "95\u00a0% interval, by a scorer", svg))
    for name, measured in outcome.games.items():
        drawn.append(Chart(name.capitalize(), "○ before  ● after", pairs(measured, what=f"{name} before and after")))
    return drawn


def _last_look(run: Run) -> tuple[int, Interval, int] | None:
    """Held-out success when it was last measured: iteration, mean and range over seeds, number of seeds."""
    looks: dict[int, list[float]] = {}
    for seed in run.seeds:
        for row in seed.metrics:
            value = (row.get("evaluation") or {}).get("success")
            if isinstance(value, int | float):
                looks.setdefault(row["iteration"], []).append(float(value))
    if not looks:
        return None
    iteration = max(looks)
    values: Sequence[float] = looks[iteration]
    return iteration, Interval(sum(values) / len(values), min(values), max(values)), len(values)
