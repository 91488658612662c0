"""Suites: many benchmarks, each with its own metric, to one number per tag and one over tags, with what it cost.

AstaBench [90] (agent-eval, its scorer and leaderboard read): a tag is the weighted mean of its tasks, the whole is the
mean over *tags*, not over tasks. Prices are pinned, with their date, so that costs stay comparable. The frontier is
`dominance.frontier`. Left out: fetching prices or results from anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars as pl
import yaml

from palaestra.errors import InputError, MissingColumnError, nearest, need_columns
from palaestra.evaluation.intervals import cells, clustered_variance, families, matrix
from palaestra.foundation.yaml import read as read_yaml

OPENNESS = ("open source & open weights", "open source & closed weights", "closed with API", "closed UI only")
TOOLING = ("standard", "custom interface", "fully custom")


@dataclass(frozen=True)
class SuiteTask:
    """Data of a benchmark of a suite: its name, tags, score column, and weight in those tags."""

    name: str
    tags: tuple[str, ...] = ()
    metric: str = "score"
    weight: float = 1.0


@dataclass(frozen=True)
class Suite:
    """Data of a suite of benchmarks, with tags and weights.

    >>> suite = Suite.of({"tasks": [{"name": "a", "tags": ["lit"]}, {"name": "b", "tags": ["lit"], "weight": 0.5}]})
    >>> suite.tasks[1].weight
    0.5
    """

    tasks: tuple[SuiteTask, ...]

    @staticmethod
    def of(config: Mapping[str, Any] | str | Path) -> Suite:
        """A suite from a mapping or a YAML file: `tasks:` with name, tags, metric and weight.

        Raises:
            InputError: it cannot be read, or a task has a wrong field.
        """
        if not isinstance(config, Mapping):
            config = _load(Path(config))
        known = tuple(SuiteTask.__dataclass_fields__)
        tasks = []
        for entry in config.get("tasks") or []:
            for name in entry:
                if name not in known:
                    raise InputError(f"suite: task {entry.get('name')!r}: no field {name!r}{nearest(name, known)}")
            if "name" not in entry:
                raise InputError(f"suite: a task without a name: {entry!r}")
            tags = entry.get("tags") or ()
            tasks.append(SuiteTask(**{**entry, "tags": (tags,) if isinstance(tags, str) else tuple(tags)}))
        if len({task.name for task in tasks}) < max(len(tasks), 1):
            raise InputError("suite: no tasks, or two of one name")
        return Suite(tuple(tasks))


def suite_score(trials: pl.DataFrame, suite: Suite, *, missing: Literal["zero", "preserve"] = "zero") -> pl.DataFrame:
    """Table of systems' scores on a `Suite` from trials: per benchmark, tag and overall; one not run counts as 0.

    Columns: system, level, name, score, stderr, cost, n; level is "task", "tag" or "overall".

    A trial belongs to the benchmark whose name its task is or begins with ("sums/17" to "sums"). task: macro mean over
    its problems, with a standard error clustered by problem (by `cluster`, if
    trials have it); cost: mean per problem, null if one is unknown. tag:
    weighted mean of its tasks. overall: mean over tags, or over tasks if there are no tags.

    missing: a benchmark that a system was not run on, or that has no score, counts as 0 ("zero", as the leaderboard has
    it) or leaves the mean ("preserve"). A cost is null as soon as one part is unknown.

    Raises:
        MissingColumnError: trials lack a metric's column.
    """
    if missing not in ("zero", "preserve"):
        raise InputError(f"suite_score: missing={missing!r}{nearest(missing, ('zero', 'preserve'))}")
    for task in suite.tasks:
        need_columns("suite_score", trials.columns, [task.metric])
    rows: list[dict[str, Any]] = []
    for system in trials["system"].unique().sort():
        own = trials.filter(pl.col("system") == system)
        parts = {task.name: _task(own, task) for task in suite.tasks}
        rows += [{"system": system, "level": "task", "name": name, **part} for name, part in parts.items()]
        tags = list(dict.fromkeys(tag for task in suite.tasks for tag in task.tags))
        by_tag = {}
        for tag in tags:
            members = [task for task in suite.tasks if tag in task.tags]
            by_tag[tag] = _mean([parts[t.name] for t in members], [t.weight for t in members], missing)
            rows.append({"system": system, "level": "tag", "name": tag, **by_tag[tag]})
        everything = list(by_tag.values()) or list(parts.values())
        whole = _mean(everything, [1.0] * len(everything), missing)
        rows.append({"system": system, "level": "overall", "name": "overall", **whole})
    names, numbers = ("system", "level", "name"), ("score", "stderr", "cost")
    schema = {**dict.fromkeys(names, pl.String), **dict.fromkeys(numbers, pl.Float64), "n": pl.Int64}
    return pl.DataFrame(rows, schema=schema).with_columns(pl.col("score", "stderr").fill_nan(None))


def _task(trials: pl.DataFrame, task: SuiteTask) -> dict[str, Any]:
    own = trials.filter((pl.col("task") == task.name) | pl.col("task").str.starts_with(f"{task.name}/"))
    found = cells(own, task.metric)
    if found.is_empty():
        return {"score": None, "stderr": None, "cost": None, "n": 0}
    values = matrix(found, "mean")
    known = "cost" in own.columns and not own["cost"].cast(pl.Float64).fill_nan(None).null_count()
    cost = cells(own, "cost")["mean"].mean() if known else None
    error = clustered_variance(values, families(found))[0] ** 0.5
    return {"score": found["mean"].mean(), "stderr": error, "cost": cost, "n": int(found["n"].sum())}


def _mean(parts: list[dict[str, Any]], weights: list[float], missing: str) -> dict[str, Any]:
    scored = [
        (0.0 if p["score"] is None else p["score"], w)
        for p, w in zip(parts, weights, strict=True)
        if missing == "zero" or p["score"] is not None
    ]
    total = sum(w for _, w in scored)
    known = all(p["cost"] is not None for p in parts)
    return {
        "score": sum(s * w for s, w in scored) / total if total > 0 else None,
        "stderr": None,
        "cost": sum(p["cost"] for p in parts) / len(parts) if parts and known else None,
        "n": sum(p["n"] for p in parts),
    }


# -- pinned prices ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Price:
    """Data: price of a model's tokens in dollars per million; a cache price that is None is unknown."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


@dataclass(frozen=True)
class Prices:
    """Data: token prices by model, and the date of the price list."""

    date: str
    models: Mapping[str, Price] = field(default_factory=dict)

    @staticmethod
    def of(config: Mapping[str, Any] | str | Path) -> Prices:
        """Prices from a mapping or a JSON or YAML file: `date` and `models: {name: {input, output, …}}`.

        A model may also have `cache_read` and `cache_write`.

        Raises:
            InputError: it cannot be read, has no date, or a price has a wrong field.
        """
        if not isinstance(config, Mapping):
            config = _load(Path(config))
        if not config.get("date"):
            raise InputError("prices: say the `date` they are from")
        try:
            return Prices(str(config["date"]), {name: Price(**price) for name, price in config["models"].items()})
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"prices: {error}; give input, output and perhaps cache_read, cache_write") from error


def price(turns: pl.DataFrame, prices: Prices) -> pl.DataFrame:
    """The table with `cost` filled in where it is null, from tokens and the `Prices` of `policy` (the model).

    (tokens_in - cached - written)·input + cached·cache_read + written·cache_write + tokens_out·output, per million.
    Null if the model has no price, tokens are not known, cached tokens have no price of their own, or there are more of
    them than of tokens_in, which has them all.

    >>> prices = Prices("2026-01-01", {"m": Price(3, 15, cache_read=0.3)})
    >>> turns = pl.DataFrame({"policy": ["m", "x"], "tokens_in": 1000, "tokens_cached": [800, 0], "tokens_out": 100})
    >>> price(turns, prices)["cost"].to_list()
    [0.00234, None]
    """
    for name in ("policy", "tokens_in", "tokens_out"):
        if name not in turns.columns:
            raise MissingColumnError(f"price: the table has no column {name!r}{nearest(name, turns.columns)}")

    def column(name: str) -> pl.Expr:
        return (pl.col(name) if name in turns.columns else pl.lit(None, pl.Int32)).fill_null(0).cast(pl.Int64)

    def of(kind: str) -> pl.Expr:
        table = {model: getattr(p, kind) for model, p in prices.models.items() if getattr(p, kind) is not None}
        model = pl.col("policy").cast(pl.String)
        return model.replace_strict(table, default=None, return_dtype=pl.Float64) if table else pl.lit(None, pl.Float64)

    read, written = column("tokens_cached"), column("tokens_cache_write")
    fresh = pl.col("tokens_in") - read - written
    parts = [pl.when(fresh >= 0).then(fresh * of("input")), pl.col("tokens_out") * of("output")]
    for tokens, kind in ((read, "cache_read"), (written, "cache_write")):
        parts.append(pl.when(tokens == 0).then(0.0).otherwise(tokens * of(kind)))
    before = pl.col("cost") if "cost" in turns.columns else pl.lit(None, pl.Float64)
    return turns.with_columns(cost=pl.coalesce(before, pl.sum_horizontal(parts, ignore_nulls=False) / 1e6))


def _load(path: Path) -> Mapping[str, Any]:
    try:
        said = path.read_text(encoding="utf-8")
        loaded = json.loads(said) if path.suffix == ".json" else read_yaml(said)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if not isinstance(loaded, Mapping):
        raise InputError(f"{path}: expected a mapping, found {type(loaded).__name__}")
    return loaded
