"""`palaestra evaluate`: success, score and paired differences of anybody's play."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palaestra.errors import InputError, nearest
from palaestra.interface.cli.app import Json, app, hint, out, prefix_errors, say, show, table_of

if TYPE_CHECKING:
    import polars as pl

    from palaestra import Turns
    from palaestra.evaluation.logs import Logs, Names, Part, Problem

_SHOWN = 20
SEEDS = ("seed", "training_seed", "train_seed")
"""Columns that often number training runs."""
MOST_RUNS = 20
"""Seeds beyond this number are hardly of training runs."""


Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH…", help="logs, tables of turns, folders of them, or a run; NAME=PATH names the system"
    ),
]
Format = Annotated[str | None, typer.Option(help="read the files as this format, whatever they look like")]
System = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="column or field that names the system; several: COLUMN,COLUMN")
]
Task = Annotated[str | None, typer.Option(metavar="COLUMN", help="column that names the task; several: COLUMN,COLUMN")]
Success = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="column that says success: pass/fail, yes/no, true/false or 1/0")
]


@app.command(short_help="Success and paired differences of any logs.")
def evaluate(
    paths: Paths,
    baseline: Annotated[str | None, typer.Option(help="system that the others are compared with")] = None,
    agent: Annotated[
        list[str] | None, typer.Option(help="whose play is judged; say it for zero-sum games [default: everybody's]")
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(
            help="compare this score (a column `score.NAME` or any other; larger is better) instead of success"
        ),
    ] = None,
    format: Format = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="what tasks have in common (a passage, a template): the units of all intervals"
        ),
    ] = None,
    errors: Annotated[
        str, typer.Option(help="errors of env, endpoint, judge or reward: exclude them, or count them as failures")
    ] = "exclude",
    system: System = None,
    task: Task = None,
    success: Success = None,
    scale: Annotated[
        str | None,
        typer.Option(
            metavar="LOW,HIGH", help="lowest and highest possible score [default: 0,1 if no score lies outside]"
        ),
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="OUT.html", help="write a page with plots")] = None,
    as_json: Json = False,
) -> None:
    """Print success, score, pass@k and paired differences of the systems in any logs: two paths, two systems."""
    if report is not None:
        from palaestra.interface.report.plots import need_matplotlib

        need_matplotlib()
    own = not (agent or score or format or system or task or success or scale)
    rows = _run_of_ours(paths, baseline, cluster, errors) if own else None
    measured: dict[str, Any] = {}
    if rows is None:
        from palaestra.evaluation.logs import Names, Part

        names = Names(system, task, success)
        with prefix_errors(paths):
            asked = Asked(tuple(agent or ()), score, cluster, errors, parse_scale(scale), success)
            logs = read(paths, format, names, Part(asked.columns, asked.of))
            rows, measured = _compare(logs, asked, baseline)
            if report is not None:
                measured["turns"] = _to_show(paths, format, names, asked, logs)
    if report is not None:
        from palaestra.interface.report.evaluation import origin_of, write_evaluation

        origin = origin_of(paths, measured.pop("unread", ()))
        page = write_evaluation(report, rows=rows, origin=origin, **measured)
        hint(f"report: {page}")
    if as_json:
        show(rows)
        return
    shown = table_of("system", "tasks × trials", "success", "score", "errors")
    for row in rows:
        size = f"{row['tasks']} × {row['per_task']}"
        errors = str(sum(row["errors"].values()))
        shown.add_row(row["system"], size, _interval(row["success"], 100, " %"), _interval(row["score"]), errors)
    out.print(shown)
    _about_scale(rows)
    for row in rows:
        if said := row["success"]["caution"]:
            hint(f"success of {row['system']}: {said}")
    for row in rows:
        say(f"{row['system']}: {row['verdict']}")
        if lost := row.get("regressed"):
            won = f"; newly solved: {len(row['gained'])}"
            say(f"{row['system']}: no longer solved: {len(lost)} ({_few(lost)}){won}")


def parse_scale(scale: str | None) -> tuple[float, float] | None:
    """Parse `--scale 0,10` into two numbers; None stays None.

    Raises:
        InputError: that is no two numbers.
    """
    if scale is None:
        return None
    try:
        low, high = map(float, scale.split(","))
    except ValueError:
        raise InputError(f"--scale {scale!r}: name the lowest and the highest score, as in --scale 0,10") from None
    return low, high


def _about_scale(rows: list[dict[str, Any]]) -> None:
    """Which intervals of scores were cut off at the ends of the scale."""
    from palaestra.evaluation.intervals import CUT

    cut = [row["system"] for row in rows if row["score"]["method"].endswith(CUT)]
    if cut:
        low, high = rows[0]["scale"]
        hint(
            f"score of {_few(cut)}: the interval is cut off at the ends of the scale, {low:g} to {high:g}; "
            "--scale LOW,HIGH names other ends"
        )


def _beyond(rows: list[dict[str, Any]], scores: pl.Series) -> None:
    """Say where intervals of scores without a known scale leave the range of all scores."""
    known = scores.fill_nan(None).drop_nulls().to_numpy()
    if rows[0]["scale"] is not None or not len(known):
        return
    low, high = known.min(), known.max()
    wide = [
        row["system"]
        for row in rows
        if row["score"]["low"] is not None and (row["score"]["low"] < low or row["score"]["high"] > high)
    ]
    if wide:
        hint(
            f"score of {_few(wide)}: the interval reaches beyond every score seen, {low:g} to {high:g}; if the scale "
            "has ends, name them with --scale LOW,HIGH"
        )


def _unscored(table: pl.DataFrame) -> None:
    """Say where success and score are means over different trials."""
    import polars as pl

    lacking = table.filter(pl.col("success").is_not_null() & pl.col("score").is_null())
    if table["score"].null_count() < len(table) and len(lacking):
        failed = lacking.filter(pl.col("error").is_not_null())
        why = f", {len(failed)} of them failed (an error)" if len(failed) else ""
        hint(
            f"{len(lacking)} of {len(table)} trials have no score{why}: they count in success and not in the mean score"
        )


def _measure(asked: Asked, table: pl.DataFrame) -> str:
    """The column to compare: success, unless it is known of some trials only, of which all have a score."""
    import polars as pl

    from palaestra.runs.summary import value_of

    value = "score" if asked.score is not None else value_of("success", table)
    without = table.filter(pl.all_horizontal(pl.col("success", "error").is_null()), pl.col("score").is_not_null())
    if value == "score" or asked.success is not None or not len(without):
        return value
    said = f"{len(without)} of {len(table)} trials have a score but no success"
    if len(table.filter(pl.col("success").is_not_null() & pl.col("error").is_null() & pl.col("score").is_null())):
        hint(f"{said}: they do not count in success; --score NAME compares a score instead")
        return value
    hint(f"{said}: scores are compared; --success COLUMN compares success, of the trials that have it")
    return "score"


def evaluation_page(paths: list[str], page: Path) -> Path:
    """Write the HTML page of the evaluation of any logs; returns its path."""
    from palaestra.evaluation.logs import Names, Part
    from palaestra.interface.report.evaluation import origin_of, write_evaluation

    asked = Asked()
    logs = read(paths, None, Names(), Part(asked.columns, asked.of))
    rows, measured = _compare(logs, asked)
    origin = origin_of(paths, measured.pop("unread"))
    turns = _to_show(paths, None, Names(), asked, logs)
    return write_evaluation(page, rows=rows, origin=origin, turns=turns, **measured)


def _run_of_ours(
    paths: list[str], baseline: str | None, cluster: str | None, errors: Any
) -> list[dict[str, Any]] | None:
    """A run or comparison knows its own measure and whose play counts."""
    path = Path(paths[0])
    if len(paths) > 1 or not any((path / name).exists() for name in ("recipe.yaml", "comparison.json")):
        return None
    from palaestra.runs.summary import evaluate as compare_systems

    return compare_systems(path, baseline, cluster=cluster, errors=errors)


@dataclass
class Asked:
    """Options of `evaluate`, and the reduction of each log file to its episodes (`of`), gathering facts on the way."""

    agents: tuple[str, ...] = ()
    score: str | None = None
    cluster: str | None = None
    errors: Any = "exclude"
    scale: tuple[float, float] | None = None
    success: str | None = None
    seats: set[str] = field(default_factory=set)
    turns: int = 0
    grouped: dict[str, list[pl.DataFrame]] = field(default_factory=dict)
    seeded: dict[str, list[pl.DataFrame]] = field(default_factory=dict)

    @property
    def columns(self) -> set[str]:
        """All columns that are read of each file."""
        from palaestra.evaluation.trials import GROUPING, READS

        grouping = {f"{name}{end}" for name in GROUPING for end in ("", "_id")}
        return {*READS, *grouping, *SEEDS, "score", *self.scores, *([self.cluster] if self.cluster else [])}

    @property
    def scores(self) -> list[str]:
        """Columns that may hold the score."""
        return [self.score, f"score.{self.score}"] if self.score else []

    def of(self, frame: pl.DataFrame, file: Path | None = None) -> pl.DataFrame:
        """Table of the episodes of one log file; counts and groups are noted on the way."""
        import polars as pl

        from palaestra.evaluation.trials import episode_outcomes, grouping

        self.turns += len(frame)
        for name, pairs in grouping(frame).items():
            self.grouped.setdefault(name, []).append(pairs)
        if "run" not in frame.columns or frame["run"].null_count() == len(frame):
            for name in SEEDS if "task" in frame.columns else ():
                if name in frame.columns and not frame.schema[name].is_nested():
                    pairs = frame.select(pl.col("task").cast(pl.String), seed=pl.col(name).cast(pl.String))
                    self.seeded.setdefault(name, []).append(pairs.drop_nulls().unique())
        self.seats |= {*frame["agent"].cast(pl.String).drop_nulls().unique()}
        score = next((name for name in self.scores if name in frame.columns), self.score)
        lacking = {name: pl.lit(None) for name in ("task", score, self.cluster) if name and name not in frame.columns}
        frame = frame.with_columns(**lacking)
        where = pl.col("agent").cast(pl.String).is_in(self.agents) if self.agents else None
        return episode_outcomes(frame, where=where, score=score, cluster=self.cluster, errors=self.errors)

    def not_clustered(self) -> dict[str, int]:
        """Dict of columns that group the tasks but are not the cluster, with their number of groups."""
        import polars as pl

        from palaestra.evaluation.trials import groups_of_tasks

        if self.cluster:
            return {}
        found = {name: groups_of_tasks(pl.concat(pairs).unique()) for name, pairs in self.grouped.items()}
        return {name: count for name, count in found.items() if count}


def _about_seeds(asked: Asked) -> None:
    """Say which column looks like one of training runs, which the intervals do not know."""
    import polars as pl

    for name, parts in asked.seeded.items():
        pairs = pl.concat(parts).unique()
        tasks = pairs.group_by("seed").len()["len"]
        if 2 <= len(tasks) <= MOST_RUNS and int(tasks.to_numpy().min()) > 1 and len(pairs) > pairs["task"].n_unique():
            hint(
                f"column {name!r} has {len(tasks)} values, which the intervals do not know: if these are training "
                "runs, rename it to run, and runs are units as well"
            )


def _to_show(paths: list[str], format: str | None, names: Names, asked: Asked, logs: Logs) -> Turns | None:
    """Turns shown on a page: all if they are few, else each episode's confidence if there is any."""
    from palaestra.evaluation.logs import Part, read_logs
    from palaestra.interface.report.evaluation import MOST_ROWS, confidences

    if asked.turns <= MOST_ROWS:
        return read_logs(*paths, format=format, **names._asdict()).turns
    if "confidence" not in logs.columns:
        return None
    kept = {"run", "iteration", "episode", "task", "success", "confidence", *([asked.cluster] if asked.cluster else [])}
    return read_logs(*paths, format=format, **names._asdict(), part=Part(kept, confidences)).turns


def _compare(logs: Logs, asked: Asked, baseline: str | None = None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows, each with what of its logs was not read, and the trials that they are made of."""
    from palaestra.evaluation import changed_tasks, comparison_table, verdict
    from palaestra.evaluation.trials import check_columns, trials_of_outcomes
    from palaestra.runs.summary import baseline_of

    for each in asked.agents:
        if each not in asked.seats:
            raise InputError(f"--agent {each!r}: nobody of that name{nearest(each, asked.seats)}")
    score, cluster = asked.score, asked.cluster
    check_columns(logs.columns, next((name for name in asked.scores if name in logs.columns), score), cluster)
    table = trials_of_outcomes(logs.turns.frame, cluster)
    value = _measure(asked, table)
    if value == "score" and not asked.agents and len(asked.seats) > 1 and table["score"].abs().max() == 0:
        hint("every score is 0 on average over the agents, as in zero-sum games: say whose counts with --agent")
    systems = list(dict.fromkeys(each for source in logs.sources for each in source.systems))  # as paths are given
    baseline = baseline_of(systems, baseline)
    if table["success"].null_count() == table["score"].null_count() == len(table):
        others = [name for name in logs.columns if name.startswith("score.")]
        known = f": {', '.join(others[:6])}" if others else ""
        hint(
            "no trial says success, score or reward: nothing was measured; name a column of pass and fail with "
            f"--success, or one of numbers with --score{known}; columns: {_few(list(logs.columns))}"
        )
    _about_seeds(asked)
    together = asked.not_clustered()
    for name, count in together.items():
        hint(
            f"column {name!r} puts the {table['task'].n_unique()} tasks into {count} groups, which the intervals do "
            f"not know: tasks of one group share their luck, and --cluster {name} makes groups the units"
        )
    rows = []
    for row in comparison_table(table, baseline=baseline, value=value, scale=asked.scale):
        not_read = [vars(problem) for problem in logs.not_read(row.system)]
        changed = changed_tasks(table, baseline, row.system) if row.system != baseline else {}
        about = {"verdict": verdict(row), "not_read": not_read, "not_clustered": together}
        rows.append(row.to_dict() | about | changed)
    _beyond(rows, table["score"])
    _unscored(table)
    return rows, {"trials": table, "unread": logs.not_read(), "cluster": cluster}


def read(paths: list[str], format: str | None, names: Names, part: Part | None = None) -> Logs:
    """Read the logs at a list of `paths` as `Logs`, columns by a `Names`; prints on stderr what could not be read.

    Similar things that could not be read share a line.
    """
    from palaestra.evaluation.logs import read_logs

    logs = read_logs(*paths, format=format, **names._asdict(), part=part)
    alike: dict[tuple[str, str], list[Problem]] = {}
    for problem in logs.not_read():
        whole = not problem.where  # of whole files alike are those of a folder, else the lines of a file
        alike.setdefault((str(Path(problem.file).parent) if whole else problem.file, problem.why), []).append(problem)
    for (place, why), problems in list(alike.items())[:_SHOWN]:
        if len(problems) == 1:
            hint(f"not read: {problems[0]}")
        elif problems[0].where:
            hint(f"not read: {place}, {_few([p.where for p in problems])}: {why}")
        else:
            hint(f"not read: {place}: {_few([Path(p.file).name for p in problems])}: {why}")
    if len(alike) > _SHOWN:
        left = sum(map(len, list(alike.values())[_SHOWN:]))
        hint(f"not read: {left} more; --json lists all {len(logs.not_read())} under not_read")
    return logs


def _few(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _interval(estimate: dict[str, Any], scale: float = 1.0, unit: str = "") -> str:
    if estimate["mean"] is None:
        return "–"
    mean, low, high = (
        f"{scale * estimate[key]:.3g}" if estimate[key] is not None else "?" for key in ("mean", "low", "high")
    )
    return f"{mean}{unit} [{low}, {high}]"
