"""Trials: the table of turns reduced to one row per (system, run, task, trial). Every statistic of proof starts here.

Left out: readers of other tools' logs (they only have to produce the same columns).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl

from palaestra.algebra.codes import Codes, code_column, combine
from palaestra.algebra.schema import episode_failed, unless_none
from palaestra.errors import InputError, MissingColumnError, nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from palaestra.algebra.turns import Turns

UNSCORED = ("reward", "judge")
"""Boundaries of scoring: the episode was played, but nobody knows how well."""
INFRASTRUCTURE = ("env", "policy", *UNSCORED)
"""Boundaries whose failure says nothing about the system: what it was played with, called through or scored by."""
OUTAGES = (
    r"\b(?:API(?:Connection|Timeout|Status)?Error|RateLimit\w*|InternalServerError|InternalFailure|Overloaded\w*|"
    r"Service(?:Temporarily)?Unavailable\w*|AuthenticationError|PermissionDeniedError|\w*Connect(?:ion|or)?\w*Error|"
    r"\w*ConnectTimeout\w*|\w*ReadTimeout\w*|ServerDisconnectedError|RemoteProtocolError|gaierror|\w*SSL\w*Error|"
    r"ResourceExhausted|QuotaExceeded\w*|InsufficientQuota\w*|Throttl\w*|DeadlineExceeded|BadGateway\w*|GatewayTimeout\w*|"
    r"TooManyRequests\w*|ProxyError|(?:openai|anthropic|litellm|httpx|requests|aiohttp|urllib3|botocore)\.[\w.]*Timeout)\b"
    r"|(?i:\b(?:error code|status(?: code)?|server error|client error|http(?:/\d(?:\.\d)?)?(?: error)?)\W{1,3}"
    r"(?:401|403|408|429|5\d\d)\b|\brequest timed out\b|^\W*connection error\b)"
)
"""An endpoint's failures, by names and status codes, by which logs tell them that do not say a boundary of ours."""

GROUPING = frozenset(
    ("repo", "repository", "codebase", "project", "passage", "paragraph", "context", "document", "doc", "article",
     "story", "template", "family", "cluster", "scenario", "conversation", "database", "db", "website", "patient")
)  # fmt: skip
"""Names of columns, with or without `_id`, of which several tasks of a benchmark often share a value."""

_REQUIRED = ("task", "episode", "success")
_OPTIONAL = {
    "system": pl.lit("system"),
    "run": pl.lit(None, pl.String),
    "iteration": pl.lit(0, pl.Int32),
    "group": pl.lit(0, pl.Int32),
    "agent": pl.lit("agent"),
    "reward": pl.lit(None, pl.Float64),
    "error": pl.lit(None, pl.String),
    "tokens_in": pl.lit(None, pl.Int32),
    "tokens_out": pl.lit(None, pl.Int32),
    "cost": pl.lit(None, pl.Float64),
}
_EPISODE = ["system", "run", "iteration", "group", "episode"]
KEPT = ("_trial", "_when", "_solver")
"""Of logs, kept by `episode_outcomes`: which trial of an evaluation an episode is, when written, by what solver."""
READS = (*_REQUIRED, *_OPTIONAL)
"""All columns that trials are made from, but for those of `where`, `score` and `cluster`."""


def trials(
    turns: Turns | pl.DataFrame,
    *,
    where: pl.Expr | None = None,
    agents: Literal["all", "any"] = "all",
    score: str | None = None,
    errors: Literal["exclude", "count"] = "exclude",
    cluster: str | None = None,
) -> pl.DataFrame:
    """Table of trials of a table of turns, a row per (system, run, task, trial); success null if infrastructure failed.

    Columns: system, run, task, trial, success, score, error, turns, tokens_in, tokens_out, cost.

    With `cluster`, if one is named, and then every statistic of the trials takes clusters of tasks as its units.

    Args:
        turns: turns of one or several systems; a column `system` tells them apart (absent: one system, "system").
        where: which rows are judged, e.g. `pl.col("agent") == "player_0"` or `pl.col("policy") == "learner"`. In a
            zero-sum game this must be said, because the mean over both seats is always the same.
        agents: a trial succeeds if "all" (default) or "any" of the judged agents did.
        score: a column whose mean over the judged rows is the score. None: the mean over judged agents of the sum of
            their rewards; an agent without any scored row leaves that mean, and no score at all is null, never 0.
        errors: what an error of the infrastructure (see `infrastructure`) is. "exclude" (default): no failure of the
            system; its success is null. "count": a failure, because the system did not deliver; only where scoring
            failed (`reward:`, `judge:`) success is null. Any other error is a failure in both. The score of an errored
            episode is always null: a partial return is not comparable. Whatever is chosen, `error` keeps the text, so
            that errors can be counted.
        cluster: a column that says which tasks belong together (a passage, a template, a repository): what is learned
            from one of them is partly known from another. A task without one is a cluster of its own.

    `trial` numbers the episodes of one (system, run, task) in the order (iteration, group, episode). An episode that
    failed before its task was known takes the task of its group. `turns` counts judged rows. Tokens are null if no row
    has them; cost is null if any row with tokens has no cost: a part that is unknown is not free.

    Raises:
        MissingColumnError: a column that cannot be done without is absent.
        InputError: a task lies in two clusters.

    >>> frame = pl.DataFrame({"task": ["a", "a", "b"], "episode": [0, 0, 1], "success": [True, True, None],
    ...                       "reward": [0.5, 0.5, None], "error": [None, None, "env: OSError: no disk"]})
    >>> trials(frame).select("task", "trial", "success", "score", "turns").rows()
    [('a', 0, True, 1.0, 2), ('b', 0, None, None, 1)]
    """
    frame = turns if isinstance(turns, pl.DataFrame) else turns.frame
    check_columns(frame.columns, score, cluster)
    return trials_of_outcomes(
        episode_outcomes(frame, where=where, agents=agents, score=score, errors=errors, cluster=cluster), cluster
    )


def check_columns(columns: Sequence[str], score: str | None = None, cluster: str | None = None) -> None:
    """Raise MissingColumnError unless a list of column names is that of a table that `trials` can read.

    Raises:
        MissingColumnError: names what is absent.
    """
    for column in (*_REQUIRED, *([score] if score else []), *([cluster] if cluster else [])):
        if column not in columns:
            way = "; --task COLUMN names the task (in Python task=)" if column == "task" else ""
            raise MissingColumnError(f"trials: the table has no column {column!r}{nearest(column, columns)}{way}")


def grouping(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Dict column -> table `task, value`, for each column of `frame` that may group tasks (`GROUPING`)."""
    if "task" not in frame.columns:
        return {}
    named = [name for name in frame.columns if name.lower().removesuffix("_id") in GROUPING]
    return {
        name: frame.select(pl.col("task").cast(pl.String), value=pl.col(name).cast(pl.String)).drop_nulls().unique()
        for name in named
        if not frame.schema[name].is_nested()
    }


def groups_of_tasks(pairs: pl.DataFrame) -> int:
    """Number of groups that a table `task, value` makes; 0 if a task has two values or it groups nothing."""
    values, tasks = pairs["value"].n_unique(), pairs["task"].n_unique()
    return values if len(pairs) == tasks and 2 <= values < tasks else 0


def with_groups(frame: pl.DataFrame) -> pl.DataFrame:
    """The table of turns with `group` by task, if it has none and its episodes are numbered within each task."""
    if "group" in frame.columns or not {"task", "episode"} <= set(frame.columns):
        return frame
    keys = [name for name in _EPISODE if name in frame.columns]
    task = pl.col("task").cast(pl.String)
    several = frame.lazy().group_by(keys).agg(task.drop_nulls().n_unique().alias("tasks")).select(pl.col("tasks").max())
    if (several.collect().item() or 0) < 2:
        return frame
    return frame.with_columns(group=task.rank("dense").fill_null(0).cast(pl.Int32))


def with_own_keys(frame: pl.DataFrame, over: Sequence[str] = ("group", "episode")) -> pl.DataFrame:
    """The table of turns with keys that are one task's and one system's: `group` by task, `run` by system, if needed.

    A run of this package plays the same episodes with every system. over: the key, within `run` and `iteration`.
    """
    frame = with_groups(frame)
    keys = [name for name in ("run", "iteration", *over) if name in frame.columns]
    if "system" not in frame.columns or "system" in keys or not keys:
        return frame
    shared = frame.lazy().group_by(keys).agg(pl.col("system").n_unique()).select((pl.col("system") > 1).any())
    return frame.with_columns(run=run_of_system(frame.columns)) if shared.collect().item() else frame


def run_of_system(columns: Collection[str]) -> pl.Expr:
    """Polars expression of a run's name unique across systems, `SYSTEM, run RUN`, from those two of `columns`."""
    names = [pl.col(name).cast(pl.String).fill_null("") for name in ("system", "run") if name in columns]
    return pl.concat_str(names, separator=", run ")


def episode_outcomes(
    frame: pl.DataFrame,
    *,
    where: pl.Expr | None = None,
    agents: Literal["all", "any"] = "all",
    score: str | None = None,
    errors: Literal["exclude", "count"] = "exclude",
    cluster: str | None = None,
) -> pl.DataFrame:
    """Table of the episodes of a table of turns with their keys and outcomes, in order, for `trials_of_outcomes`.

    Of a table in parts, none of which cuts a group, these rows together are those of the whole.
    """
    for option, value, known in (("agents", agents, ("all", "any")), ("errors", errors, ("exclude", "count"))):
        if value not in known:
            raise InputError(f"trials: {option}={value!r} is not an option{nearest(value, known)}")
    judged = pl.lit(True) if where is None else where
    frame = with_groups(frame)
    frame = frame.with_columns(value.alias(name) for name, value in _OPTIONAL.items() if name not in frame.columns)
    frame = frame.with_columns(
        pl.col("system").cast(pl.String),
        pl.col("run").cast(pl.String).fill_null("run"),
        pl.col("iteration", "group").fill_null(0),
        pl.col("agent").cast(pl.String),
        unless_none("error"),
        judged=(judged & pl.col("agent").is_not_null()).fill_null(False),
    )
    if frame["task"].null_count():
        group = ["run", "iteration", "group"]
        known_task = pl.col("task").drop_nulls()
        only = pl.when(known_task.n_unique().over(group) == 1).then(known_task.first().over(group))
        frame = frame.with_columns(task=pl.coalesce("task", only))

    codes = _codes(frame, _EPISODE)  # one integer per episode: grouping by it takes a fifth of the time
    frame = frame.with_columns(_code=pl.Series(codes.ids))
    if score is not None:
        values = frame.filter("judged").select("_code", value=pl.col(score).cast(pl.Float64).fill_nan(None), size=0.0)
    else:
        seat = combine(codes, code_column(frame["agent"].cast(pl.Categorical)))
        seats = frame.with_columns(_seat=pl.Series(seat.ids)).filter("judged").group_by("_seat")
        values = seats.agg(
            pl.col("_code").first(), value=_sum_or_null("reward"), size=pl.col("reward").cast(pl.Float64).abs().sum()
        )
    mean = pl.col("value").mean()  # what rounding leaves of rewards that cancel is 0
    noise = mean.abs() <= 1e-12 * pl.col("size").sum()
    scores = values.group_by("_code").agg(score=pl.when(noise).then(mean * 0.0).otherwise(mean))

    tokens = pl.col("tokens_in").is_not_null() | pl.col("tokens_out").is_not_null()
    counted = ("tokens_in", "tokens_out", "cost")
    frame = frame.with_columns(
        *(pl.when("judged").then(name).alias(name) for name in counted),
        success=pl.when("judged").then(pl.col("success").cast(pl.Boolean)),
        unknown_cost=pl.col("cost").is_null() & tokens & pl.col("judged"),
    )
    succeeded = pl.col("success").all() if agents == "all" else pl.col("success").any()  # missing ones do not count
    sums = (
        frame.lazy()
        .group_by("_code")
        .agg(
            success=pl.when(pl.col("success").count() > 0).then(succeeded),
            turns=pl.col("judged").sum().cast(pl.Int32),
            tokens_in=_sum_or_null("tokens_in").cast(pl.Int64),
            tokens_out=_sum_or_null("tokens_out").cast(pl.Int64),
            cost=pl.when(~pl.col("unknown_cost").any()).then(_sum_or_null("cost")),
        )
    )
    errors_of = frame.lazy().filter(episode_failed()).group_by("_code").agg(pl.col("error").first())
    opening = np.empty(codes.size, np.int64)
    opening[codes.ids[::-1]] = np.arange(len(frame))[::-1]  # the first row of each episode
    family = [] if cluster is None else [pl.col(cluster).cast(pl.String).alias("cluster")]
    kept = [name for name in frame.columns if name in KEPT]
    table = frame.select(*_EPISODE, "task", "_code", *family, *kept)[np.sort(opening)].lazy()
    table = table.join(sums, on="_code", how="left", maintain_order="left")
    table = table.join(errors_of, on="_code", how="left", maintain_order="left")
    failed = pl.col("error").is_not_null()
    blameless = failed & (infrastructure() if errors == "exclude" else error_kind().is_in(UNSCORED))
    return (
        table.join(scores.lazy(), on="_code", how="left", maintain_order="left")
        .with_columns(
            success=pl.when(blameless).then(None).when(failed).then(False).otherwise("success"),
            score=pl.when(~failed).then("score"),
        )
        .drop("_code")
        .collect()
    )


def trials_of_outcomes(rows: pl.DataFrame, cluster: str | None = None) -> pl.DataFrame:
    """Table of trials from the rows of `episode_outcomes`, of one table or of several parts put below each other."""
    table = (
        rows.lazy()
        .with_columns(pl.coalesce("task", pl.format("group {}", "group")).alias("task"))
        .sort(_EPISODE)
        .with_columns(trial=pl.int_range(pl.len(), dtype=pl.Int32).over("system", "run", "task"))
        .select(
            "system", "run", "task", "trial", "success", "score", "error", "turns",
            pl.col("tokens_in", "tokens_out").cast(pl.Int64), "cost", *(["cluster"] if cluster else []),
        )
        .sort("system", "run", "task", "trial")
        .collect()
    )  # fmt: skip
    return table if cluster is None else _whole(table, cluster)


def _whole(table: pl.DataFrame, name: str) -> pl.DataFrame:
    """Every trial of a task gets the cluster that any of them has; without any, the task is its own."""
    known = table.drop_nulls("cluster").unique(["task", "cluster"]).sort("task", "cluster")
    if (twice := known.filter(pl.len().over("task") > 1)).height:
        a, b = twice["cluster"][0], twice["cluster"][1]
        raise InputError(
            f"trials: cluster={name!r}: task {twice['task'][0]!r} lies in {a!r} and in {b!r}, but a cluster "
            "holds whole tasks"
        )
    joined = table.drop("cluster").join(known.select("task", "cluster"), on="task", how="left", maintain_order="left")
    return joined.with_columns(pl.coalesce("cluster", pl.format("task {}", "task")))


def infrastructure() -> pl.Expr:
    """A Polars expression: whether column `error` is the infrastructure's fault, by its boundary or words of outage."""
    boundary = error_kind().str.strip_suffix("-timeout")
    return (boundary.is_in(INFRASTRUCTURE) | pl.col("error").str.contains(OUTAGES)).fill_null(False)


def count_infrastructure_failures(trials: pl.DataFrame, value: str) -> int:
    """Number of rows of a table of trials without a value in column `value` because the infrastructure failed."""
    return int(trials.select((infrastructure() & pl.col(value).is_null()).sum()).item())


def error_kind() -> pl.Expr:
    """A Polars expression: the boundary that failed, the part of column `error` before the first colon."""
    return pl.col("error").str.split(":").list.first().str.strip_chars()


def _sum_or_null(column: str) -> pl.Expr:
    values = pl.col(column)
    return pl.when(values.count() > 0).then(values.sum())


def _codes(frame: pl.DataFrame, names: list[str]) -> Codes:
    """The key of several columns as dense integers."""
    parts = [frame[name] for name in names]
    return combine(*(code_column(c.cast(pl.Categorical) if c.dtype == pl.String else c) for c in parts))
