"""The page of any evaluation: one builder that takes what there is and shows those sections.

Rows of a comparison give the table and the forest plots; trials with costs the frontier, tasks with families the
matrix; turns with confidences the calibration, with words the episodes to read; a ranking its intervals and the wins.
"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
from markupsafe import Markup

from palaestra.algebra.turns import Turns
from palaestra.evaluation import calibration, cost_per_success, frontier, matrix_table, mean_interval, success_interval
from palaestra.evaluation.calibration import Calibration
from palaestra.evaluation.comparison import joint_interval
from palaestra.evaluation.pivot import ALL
from palaestra.evaluation.ranking import Matches, Ranking, win_table
from palaestra.evaluation.triage import by_system, detect, triage
from palaestra.evaluation.trials import infrastructure
from palaestra.interface.report.charts import Cell, Heat, Priced, calibration_plot, frontier_plot, heat_of, rank_plot
from palaestra.interface.report.formatting import number, prose, short_verdict, span
from palaestra.interface.report.load import Interval
from palaestra.interface.report.page import render, write_page
from palaestra.interface.report.panels import Chart
from palaestra.interface.report.plots import intervals
from palaestra.interface.report.sections import ComparisonRow, row_of, shared_k
from palaestra.interface.report.triage import Read, episodes_to_read

FAMILIES = 24
"""A matrix has at most so many columns."""
READ = 10
FEWEST = 10
"""Episodes that a calibration needs."""
MOST_ROWS = 50_000
"""Turns beyond which a page does not look for episodes to read; `palaestra triage` does."""


@dataclass(frozen=True)
class Sure:
    """Data of the calibration of one system's confidences, with its chart."""

    system: str
    found: Calibration
    panel: Chart


@dataclass(frozen=True)
class Origin:
    """Data on where a page's content is from: paths as given, the command, what could not be read, and the date.

    unread: a sentence each. date: ISO, today.
    """

    paths: Sequence[str] = ()
    command: str = ""
    unread: Sequence[str] = ()
    date: str = field(default_factory=lambda: date.today().isoformat())


def origin_of(paths: Sequence[str], unread: Sequence[Any] = ()) -> Origin:
    """The `Origin` of these paths, with the command that is running if it is palaestra's."""
    ours = Path(sys.argv[0]).name.startswith(("palaestra", "__main__"))
    return Origin(paths, shlex.join(["palaestra", *sys.argv[1:]]) if ours else "", [str(x) for x in unread])


@dataclass(frozen=True)
class Place:
    """Data of a row of the ranking's table: system, rank, score and matches.

    span: of the rank, empty if it is certain.
    """

    system: str
    rank: int
    span: Markup
    score: Interval | None
    n: float
    wins: float
    losses: float
    draws: float


@dataclass(frozen=True)
class SystemPrice:
    """Data of the costs of a system: per trial, per success (an interval), and how many trials have no known cost."""

    point: Priced
    per_success: Interval | None
    unknown: int


def write_evaluation(
    path: Path,
    *,
    rows: Sequence[Mapping[str, Any]] = (),
    trials: pl.DataFrame | None = None,
    turns: Turns | None = None,
    ranking: Ranking | None = None,
    matches: Matches | None = None,
    title: str = "Evaluation",
    origin: Origin | None = None,
    cluster: str | None = None,
) -> Path:
    """Write the HTML page of an evaluation or ranking to `path`; returns the path.

    rows: of `comparison_table`, as `palaestra evaluate --json` prints them, with `verdict`. trials: from
    `palaestra.evaluation.trials`. turns: the table that they are made of. ranking, matches: from
    `palaestra.evaluation.ranking`. origin: paths, command and what was not read. cluster: a column of `turns` that says
    which tasks belong together; `trials` should have been made with the same one.

    Raises:
        StorageError: the page cannot be written.
    """
    systems = [row_of(row, f"rows[{i}]") for i, row in enumerate(rows)]
    measured, priced = _prices(trials)
    headline = _headline(systems, ranking)
    page = render(
        "evaluation.html",
        title=title,
        headline=headline,
        told=short_verdict(headline),
        verdicts=[(row.system, row.verdict) for row in _compared(systems)] if len(systems) > 2 else [],
        origin=origin or Origin(),
        places=_places(ranking),
        systems=systems,
        hat=shared_k(systems),
        forests=_forests(systems),
        priced=priced,
        prices=_price_panel(priced, measured),
        measured=measured,
        sure=_sure(turns, cluster),
        matrix=_matrix(trials, [row.system for row in systems]),
        ranking=ranking,
        ranks=_ranks(ranking),
        wins=_wins(ranking, matches),
        cycle=_cycle(ranking),
        read=_read(turns),
        limits=[*_limits(systems, trials, ranking), *_cautions(rows), *_confidences(turns, cluster)[1]],
    )
    return write_page(Path(path), page)


def _headline(systems: Sequence[ComparisonRow], ranking: Ranking | None) -> str:
    compared = _compared(systems)
    if len(compared) == 1:
        return f"{compared[0].system}: {compared[0].verdict}"
    if compared:
        words = ("better", "worse", "cannot tell")
        counts = [(sum(row.verdict.startswith(word) for row in compared), word) for word in words]
        base = next((row.system for row in systems if not row.difference), "the baseline")
        said = ", ".join(f"{n} {word}" for n, word in counts if n)
        return f"{len(compared)} systems compared with {base}: {said}"
    if ranking is not None:
        said = ranking.note.partition(" (")[0]
        return said[:1].upper() + said[1:] if said.startswith("cannot") else said
    return f"{len(systems)} system{'' if len(systems) == 1 else 's'} evaluated"


def _compared(systems: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Comparisons with a verdict; one of systems that lost all trials has one, and no difference."""
    return [row for row in systems if row.difference or row.verdict not in ("", "the baseline")]


def _forests(systems: Sequence[ComparisonRow]) -> list[Chart]:
    drawn = []
    for name, percent in (("success", True), ("score", False)):
        values = [(row.system, value) for row in systems if (value := getattr(row, name))]
        if values and not (name == "score" and _same_as_success(systems)):
            svg = intervals(values, what=f"{name} by system", percent=percent)
            drawn.append(Chart(name.capitalize(), "95\u00a0% interval", svg))
    apart = [(row.system, row.difference) for row in systems if row.difference]
    if apart:
        percent = systems[0].percent
        svg = intervals(apart, what="difference from the baseline", percent=percent, zero=True)
        base = next((row.system for row in systems if not row.difference), "the baseline")
        unit = "points" if percent else "in score"
        kind = joint_interval(max(row.comparisons for row in systems))
        drawn.append(Chart(f"Difference from {base}", f"{unit}, {prose(kind)}", svg))
    return drawn


def _same_as_success(systems: Sequence[ComparisonRow]) -> bool:
    return all(row.success and row.score and abs(row.success.mean - row.score.mean) < 1e-12 for row in systems)


def _prices(trials: pl.DataFrame | None) -> tuple[str, list[SystemPrice]]:
    """What a success or a score costs by system, the cheapest first."""
    if trials is None or trials["cost"].null_count() == len(trials):
        return "success", []
    per_trial = trials.filter(pl.col("cost").is_not_null()).group_by("system").agg(pl.col("cost").mean())
    measured = "success" if trials["success"].null_count() < len(trials) else "score"
    estimate = success_interval if measured == "success" else mean_interval
    values = {
        system: Interval.read(estimate(part, value=measured).to_dict(), "trials")
        for (system,), part in trials.group_by("system")
    }
    table = per_trial.with_columns(
        score=pl.Series([(v.mean if (v := values[s]) else None) for s in per_trial["system"]], dtype=pl.Float64)
    )
    each = {row["system"]: row for row in cost_per_success(trials).to_dicts()} if measured == "success" else {}
    found = []
    for row in frontier(table).to_dicts():
        value, paid = values[row["system"]], each.get(row["system"], {})
        if value is None:
            continue
        paid_for = {"mean": paid.get("cost_per_success"), "low": paid.get("low"), "high": paid.get("high")}
        price = Interval.read(paid_for, "cost per success")
        point = Priced(row["system"], row["cost"], value, row["frontier"], row["hull"])
        found.append(SystemPrice(point, price, int(paid.get("unknown") or 0)))
    return measured, found


def _price_panel(priced: Sequence[SystemPrice], measured: str) -> list[Chart]:
    if len(priced) < 2:
        return []
    svg = frontier_plot([price.point for price in priced], what=measured, percent=measured == "success")
    return [Chart(f"Cost and {measured}", "● best at its price, 95\u00a0% interval", svg)]


def confidences(frame: pl.DataFrame, file: Path | None = None) -> pl.DataFrame:
    """Table of turns reduced to one row per episode, with its last confidence and its success."""
    if "confidence" not in frame.columns:
        frame = frame.with_columns(confidence=pl.lit(None, pl.Float64))
    said = {
        "confidence": pl.col("confidence").cast(pl.Float64).fill_nan(None).drop_nulls().last(),
        "success": pl.col("success").cast(pl.Boolean).drop_nulls().min(),
    }
    keys = [name for name in ("system", "run", "iteration", "group", "episode") if name in frame.columns]
    first = [pl.col(name).first() for name in frame.columns if name not in (*keys, *said)]
    return frame.group_by(keys, maintain_order=True).agg(*first, **said)


def _confidences(turns: Turns | None, cluster: str | None = None) -> tuple[pl.DataFrame | None, list[str]]:
    """`system, task, confidence, success` per episode: its last confidence, in [0, 1]; and what is not used, and why.

    Where most confidences of a system are above 1 and none above 100, they are read as percent.
    """
    if turns is None or not {"confidence", "success", "episode"} <= set(turns.columns):
        return None, []
    told = by_system(turns)
    unit = cluster if cluster in told.columns else "task"
    extra = [name for name in ("system", unit) if name in told.columns]
    frame = told.frame.select(
        *extra, pl.col("confidence").cast(pl.Float64), "success", code=pl.Series(told.codes("episode").ids)
    )
    episodes = frame.group_by("code", maintain_order=True).agg(
        *(pl.col(name).first() for name in extra),
        pl.col("confidence").fill_nan(None).drop_nulls().last(),
        pl.col("success").drop_nulls().min(),  # every agent's; null, not True, where nobody said
    )
    episodes = episodes.drop_nulls(["confidence", "success"]).rename({unit: "task"} if unit in extra else {})
    if "system" not in extra:
        episodes = episodes.with_columns(system=pl.lit("system"))
    said, sure = [], pl.col("confidence")
    percent = ((sure > 1).mean() > 0.5) & sure.is_between(0, 100).all()
    episodes = episodes.with_columns(percent=percent.over("system"))
    scaled = episodes.filter("percent")["system"].unique(maintain_order=True).to_list()
    if scaled:
        of = f" of {', '.join(scaled)}" if len(scaled) < episodes["system"].n_unique() else ""
        said.append(f"Confidences{of} are read as percent: most of them are above 1, and none above 100.")
    episodes = episodes.with_columns(confidence=pl.when("percent").then(sure / 100).otherwise(sure)).drop("percent")
    wrong = episodes.filter(~pl.col("confidence").is_between(0, 1))
    if len(wrong):
        said.append(
            f"Calibration leaves out {len(wrong)} of {len(episodes)} episodes, whose confidence is not between 0 and 1 "
            f"(the first: {wrong['confidence'][0]:g})."
        )
    episodes = episodes.filter(pl.col("confidence").is_between(0, 1))
    counts = episodes.group_by("system", maintain_order=True).len()
    few = [f"{system} ({n})" for system, n in counts.rows() if n < FEWEST]
    if few:
        said.append(f"Calibration needs {FEWEST} episodes with a confidence and a verdict; too few: {', '.join(few)}.")
    return episodes, said


def _sure(turns: Turns | None, cluster: str | None = None) -> list[Sure]:
    """Calibration of each system that says how sure it is: the last confidence of an episode, and its success."""
    episodes, _ = _confidences(turns, cluster)
    found: list[Sure] = []
    if episodes is None:
        return found
    for (system,), part in episodes.group_by("system", maintain_order=True):
        if len(part) < FEWEST:
            continue
        result = calibration(
            part["confidence"], part["success"], cluster=part["task"] if "task" in part.columns else None
        )
        svg = calibration_plot(result.bins.to_dicts(), what=str(system))
        found.append(Sure(str(system), result, Chart(str(system), "95\u00a0% interval; dashed: perfect", svg)))
    return found


def _matrix(trials: pl.DataFrame | None, order: Sequence[str]) -> Heat | None:
    """Systems by families of tasks, where the names of tasks say a family (`algebra/12`, `alarm:7`, `alarm#7`)."""
    if trials is None or trials["success"].null_count() == len(trials):
        return None
    family = pl.col("task").str.extract(r"^([^/:#]+)[/:#]")
    keyed = trials.with_columns(family=family)
    if keyed["family"].null_count() or not 2 <= keyed["family"].n_unique() <= FAMILIES:
        return None
    table = matrix_table(keyed, rows="system", columns="family")
    cells = {
        (row["row"], row["column"]): Cell(
            number(row["mean"], percent=True),
            row["mean"] or 0.0,
            f"{span(Interval(row['mean'], row['low'], row['high']), percent=True)}\n{row['tasks']} tasks",
        )
        for row in table.to_dicts()
        if row["mean"] is not None
    }
    rows = [*order] or sorted(set(table["row"]) - {ALL})
    rows = rows if len(rows) == 1 else [*rows, ALL]
    columns = [*sorted(set(table["column"]) - {ALL}), ALL]
    note = "Success, its 95\u00a0% interval and the number of tasks; margins are over tasks, not over cells."
    return heat_of("Success by family of tasks", note, rows, columns, cells, margin=True)


def _cautions(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why an interval of a score is doubtful, and what the tasks share; that of a difference is in its verdict."""
    shared = (rows[0].get("not_clustered") or {}) if rows else {}
    groups = [
        f"Column {name!r} puts the tasks into {count} groups, which the intervals do not know; --cluster {name} makes "
        "groups the units."
        for name, count in shared.items()
    ]
    scored, doubted = (
        [(row.get("system"), found.get("caution")) for row in rows if (found := row.get(name) or {}).get("n") != 0]
        for name in ("score", "success")
    )
    same = {row.get("system") for row in rows if row.get("value", "success") == "success" and row.get("success")}
    groups += [f"Success of {system}: {said}." for system, said in doubted if said]
    return groups + [f"Score of {system}: {said}." for system, said in scored if said and system not in same]


def _places(ranking: Ranking | None) -> list[Place]:
    if ranking is None:
        return []
    return [
        Place(
            row["system"],
            row["rank"],
            Markup(' <span class="ends">{}</span>').format(f"{row['rank_low']} to {row['rank_high']}")
            if row["rank_low"] < row["rank_high"]
            else Markup(""),
            Interval(row["score"], _finite(row["low"]), _finite(row["high"])),
            *(float(row[name]) for name in ("n", "wins", "losses", "draws")),
        )
        for row in ranking.table.to_dicts()
    ]


def _ranks(ranking: Ranking | None) -> list[Chart]:
    if ranking is None:
        return []
    rows = ranking.table.to_dicts()
    spans = [(row["system"], row["rank"], row["rank_low"], row["rank_high"]) for row in rows]
    scored = [(row["system"], Interval(row["score"], _finite(row["low"]), _finite(row["high"]))) for row in rows]
    return [
        Chart("Rank", "95\u00a0% interval", rank_plot(spans, what=ranking.method)),
        Chart("Score", f"{ranking.method.replace('_', ' ')}, 95\u00a0% interval", intervals(scored, what="score")),
    ]


def _finite(x: float | None) -> float | None:
    return x if x is not None and math.isfinite(x) else None


def _wins(ranking: Ranking | None, matches: Matches | None) -> Heat | None:
    if ranking is None or matches is None or len(matches.names) > FAMILIES:
        return None
    order = ranking.table["system"].to_list()
    cells = {
        (row["system"], row["opponent"]): Cell(
            number(row["share"], percent=True),
            2 * row["share"] - 1,
            f"{span(Interval(row['share'], row['low'], row['high']), percent=True)}\n{row['n']:g} matches",
        )
        for row in win_table(matches).to_dicts()
    }
    note = "Share of points that the row took from the column, draws half."
    return heat_of("Who beats whom", note, order, order, cells)


def _cycle(ranking: Ranking | None) -> list[str]:
    if ranking is None or not ranking.transitivity.cycle:
        return []
    names = sorted(ranking.table["system"].to_list())
    cycle = [names[i] for i in ranking.transitivity.cycle]
    return [*cycle, cycle[0]]


def _read(turns: Turns | None) -> list[Read]:
    if turns is None or len(turns) > MOST_ROWS or not {"episode", "action"} <= set(turns.columns):
        return []
    told = by_system(turns)
    found = detect(told)
    chosen = triage(told, READ, detections=found)
    chosen = chosen.filter((pl.col("score") > 0) | pl.col("outcome").is_in(["regressed", "failed"]))
    return episodes_to_read(told, chosen, found)


def _limits(systems: Sequence[ComparisonRow], trials: pl.DataFrame | None, ranking: Ranking | None) -> list[str]:
    said = []
    if any(row.difference for row in systems):
        said.append(
            "An interval that contains 0 means that these trials cannot tell two systems apart, not that they are "
            "equal."
        )
    sizes = {row.system: row.n_tasks for row in systems if isinstance(row.n_tasks, int)}
    if sizes and min(sizes.values()) < 30:
        few = min(sizes, key=lambda name: sizes[name])
        said.append(f"{few} has {sizes[few]} task{'s' * (sizes[few] != 1)}; intervals of so few are rough.")
    if trials is not None and not _compared(systems):
        gone = trials.filter(infrastructure() & pl.col("success").is_null())
        if len(gone):
            said.append(f"{len(gone)} of {len(trials)} trials are left out, because the infrastructure failed.")
    if trials is not None and trials["run"].n_unique() == 1:
        said.append(
            "There is one run of each system: what a new run, or a new seed of training, would change is not in the "
            "intervals."
        )
    if trials is not None and 0 < trials["cost"].null_count() < len(trials):
        said.append(f"The cost of {trials['cost'].null_count()} trials is unknown; they are left out of every price.")
    if ranking is not None:
        said.append("A rank is one among these systems and these opponents; another field may give another order.")
    said.append("The intervals are about tasks like these. They do not know whether the tasks are the right ones.")
    return said
