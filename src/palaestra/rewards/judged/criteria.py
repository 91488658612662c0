"""Criteria: checklists and rubrics as a long table, judged once; another weighting is a join, not another judgement.

A row per (episode, turn, step, criterion) with its `value`, `call_ok` (the judge answered) and perhaps `evidence` (the
turns it rests on); weights are a second table. What comes out is one number per key, a column for `Turns`. Left out:
the judges themselves (`palaestra.judges`), which only fill the table; how well a utility ranks is `credit.ndcg`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Literal

import polars as pl

from palaestra.algebra.signals import Keys, Signal, SignalLike, col, highest, lowest, mean, register
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, SchemaError, nearest

KEYS = ("run", "iteration", "group", "episode", "agent", "turn", "step")
EPISODE = ("run", "iteration", "group", "episode")
Weights = Mapping[str, float] | pl.DataFrame
Reduction = Literal["any", "mean", "last"]


@dataclass(frozen=True)
class Criteria:
    """Data of judged criteria from one long table: `criterion`, `value` or null, `call_ok`; keys found by name.

    `call_ok` is added if it is missing.

    A value of a failed call is null, never 0. Columns of other names are kept.

    Raises:
        SchemaError: `criterion` or `value` is missing, there is no key, a value is no finite number, or a call failed
            and has a value all the same.

    >>> Criteria(pl.DataFrame({"episode": [0, 0], "criterion": ["polite", "right"], "value": [1.0, None]})).keys
    ('episode',)
    """

    frame: pl.DataFrame

    def __post_init__(self) -> None:
        for name in ("criterion", "value"):
            if name not in self.frame.columns:
                raise SchemaError(f"a table of criteria needs a column {name!r}{nearest(name, self.frame.columns)}")
        if not self.keys:
            raise SchemaError(f"a table of criteria needs a key: one or more of {', '.join(KEYS)}")
        kind = self.frame.schema["value"]
        if not (kind.is_numeric() or kind in (pl.Boolean, pl.Null)):
            raise SchemaError(f"criteria: column 'value' holds {kind}, not numbers")
        frame = self.frame.with_columns(pl.col("value").cast(pl.Float64), pl.col("criterion").cast(pl.String))
        wrong = frame["value"].is_finite().not_().arg_true()
        if len(wrong):
            raise SchemaError(f"criteria: the value of row {wrong[0]} is not finite; make it null if the call failed")
        if "call_ok" not in frame.columns:
            frame = frame.with_columns(call_ok=pl.col("value").is_not_null())
        bad = frame.with_row_index().filter(~pl.col("call_ok") & pl.col("value").is_not_null())["index"].to_list()
        if bad:
            raise SchemaError(f"criteria: row {bad[0]} has a value, but its call failed; make the value null")
        object.__setattr__(self, "frame", frame)

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the key columns that the table has, from the outermost."""
        return tuple(key for key in KEYS if key in self.frame.columns)

    def key(self, by: str | Sequence[str]) -> list[str]:
        """Columns that identify `by`: run, iteration and group, as far as the table has them, then `by` itself.

        Raises:
            SchemaError: the table lacks one of them.
        """
        by = (by,) if isinstance(by, str) else by
        for name in by:
            if name not in self.frame.columns:
                raise SchemaError(f"criteria have no column {name!r}{nearest(name, self.frame.columns)}")
        scope = [name for name in EPISODE[:3] if name in self.frame.columns]
        return list(dict.fromkeys([*scope, *by]))


def utility(
    criteria: Criteria, weights: Weights, *, by: str | Sequence[str] = "episode", method: Reduction = "mean"
) -> pl.DataFrame:
    """Table of a `Criteria`'s sums of `weights` {criterion: weight} · value per key of `by`; null where a call failed.

    Columns: the key, `utility`, `judged`. Null, too, where a criterion was judged and has no value.

    utility = Σ weight · value.

    method: what becomes of several values of a criterion in the key (its steps): `any` is the largest (a checklist's
    item counts if it was true at some step), `mean`, or `last`. judged: no call of the key failed; else utility is
    null.
    weights: by criterion, or a table with `criterion`, `weight` and any keys they depend on; they are not normalised.

    Raises:
        InputError: a weight names a criterion that was never judged, is not finite or stands there twice; or a
            criterion that was judged has none, or several within a key of `by`.

    >>> table = pl.DataFrame({"episode": [0, 0, 1, 1], "criterion": ["a", "b"] * 2, "value": [1.0, 0.5, 0.0, None]})
    >>> utility(Criteria(table), {"a": 0.4, "b": 0.6}).rows()
    [(0, 0.7, True), (1, None, False)]
    """
    key = criteria.key(by)
    reduced = {"any": pl.col("value").max(), "mean": pl.col("value").mean(), "last": pl.col("value").last()}
    if method not in reduced:
        raise InputError(f"utility: method={method!r}{nearest(str(method), reduced)}")
    long = _weighted(criteria, weights)
    ordered = long.sort([k for k in ("turn", "step") if k in long.columns], maintain_order=True)
    items = ordered.group_by([*key, "criterion"], maintain_order=True).agg(
        reduced[method], pl.col("weight").first(), pl.col("call_ok").all(), several=pl.col("weight").n_unique() > 1
    )
    several = items.filter("several")["criterion"]
    if len(several):
        raise InputError(f"weights: criterion {several[0]!r} has several in one {', '.join(key)}; sum by a finer key")
    sums = items.group_by(key, maintain_order=True).agg(
        (pl.col("weight") * pl.col("value")).sum().alias("utility"),
        pl.col("call_ok").all().alias("judged"),
        known=pl.col("value").is_not_null().all(),
    )
    return sums.with_columns(pl.when(pl.col("judged") & pl.col("known")).then("utility")).drop("known").sort(key)


def _weighted(criteria: Criteria, weights: Weights) -> pl.DataFrame:
    table = weights if isinstance(weights, pl.DataFrame) else _as_table(weights)
    for name in ("criterion", "weight"):
        if name not in table.columns:
            raise SchemaError(f"a table of weights needs a column {name!r}{nearest(name, table.columns)}")
    known, judged = set(table["criterion"]), set(criteria.frame["criterion"])
    for name in sorted(known - judged) if len(criteria.frame) else ():
        raise InputError(f"weights: criterion {name!r} was not judged{nearest(name, judged)}")
    on = [name for name in table.columns if name in (*criteria.keys, "criterion")]
    table = _typed_as(table.select(*on, pl.col("weight").cast(pl.Float64)), criteria.frame, on, "weights")
    twice = table.filter(pl.struct(on).is_duplicated())
    if len(twice):
        raise InputError(f"weights: criterion {twice['criterion'][0]!r} has several; give one for each key")
    if not table["weight"].is_finite().all():
        raise InputError("weights: one is not finite; 0 leaves a criterion out")
    long = criteria.frame.join(table, on=on, how="left")
    without = long.filter(pl.col("weight").is_null())["criterion"]
    if len(without):
        raise InputError(
            f"weights: criterion {without[0]!r} has no weight{nearest(without[0], known)}; 0 leaves it out"
        )
    return long


def _typed_as(scores: pl.DataFrame, other: pl.DataFrame, keys: Sequence[str], what: str) -> pl.DataFrame:
    """The table with its keys in the other's types."""
    try:
        return scores.with_columns(pl.col(name).cast(other.schema[name]) for name in keys)
    except pl.exceptions.InvalidOperationError as error:
        kinds = "; ".join(f"{name}: {scores.schema[name]} and {other.schema[name]}" for name in keys)
        raise SchemaError(f"{what}: keys of other types ({kinds}); cast them") from error


def _as_table(weights: Mapping[str, float]) -> pl.DataFrame:
    columns = {"criterion": list(weights), "weight": list(weights.values())}
    return pl.DataFrame(columns, {"criterion": pl.String, "weight": pl.Float64})


def onto(turns: Turns, scores: pl.DataFrame) -> Turns:
    """`Turns` with the columns of the table `scores` left-joined by their common keys; null where there is none.

    Raises:
        SchemaError: the two have no key in common or in other types, or a key of `scores` stands there twice.
    """
    on = [name for name in KEYS if name in scores.columns]
    if not on or not set(on) <= set(turns.columns):
        missing = [name for name in on if name not in turns.columns]
        raise SchemaError(f"onto: the table of turns has no column {missing or 'that is a key of the scores'}")
    if scores.select(on).is_duplicated().any():
        raise SchemaError(f"onto: scores have several rows for one ({', '.join(on)})")
    aligned = _typed_as(scores, turns.frame, on, "onto")
    added = [name for name in scores.columns if name not in on]
    found = turns.frame.select(on).join(aligned, on=on, how="left", nulls_equal=True, maintain_order="left")
    return turns.with_column(**{name: found[name] for name in added})


# -- checklists with dependencies -------------------------------------------------------------------------------------


def satisfaction(criteria: Criteria, depends_on: Mapping[str, Sequence[str]] | None = None) -> pl.DataFrame:
    """Table of the steps when each `Criteria` item opened (all it depends on was satisfied) and was satisfied itself.

    A row per (episode, turn, criterion).

    An item is open from the first step of its turn, or from the step at which the last of those it depends on was
    satisfied; it is done at the first step from then on by which it has been true. Null: never.

    Raises:
        InputError: the dependencies are circular or name an item that was never judged.
        SchemaError: there is no column `step`.
    """
    criteria.key("step")
    needed = {name: tuple(others) for name, others in (depends_on or {}).items()}
    judged = criteria.frame["criterion"].unique().to_list()
    for name in [*needed, *(other for others in needed.values() for other in others)]:
        if name not in judged:
            raise InputError(f"depends_on: item {name!r} was not judged{nearest(name, judged)}")
    try:
        order = list(TopologicalSorter({name: needed.get(name, ()) for name in judged}).static_order())
    except CycleError as error:
        raise InputError(f"depends_on: items depend on each other in a circle: {' -> '.join(error.args[1])}") from error
    key = criteria.key([name for name in criteria.keys if name != "step"])
    true = pl.col("step").filter(pl.col("value") > 0.5)
    start = criteria.frame.group_by(key).agg(pl.col("step").min().alias("open"))
    first = criteria.frame.group_by([*key, "criterion"]).agg(true.min().alias("first"))
    done: dict[str, pl.DataFrame] = {}
    for name in order:
        item = first.filter(pl.col("criterion") == name).join(start, on=key, nulls_equal=True)
        for other in needed.get(name, ()):
            before = done[other].select(*key, pl.col("done").alias("before"))
            later = pl.when(pl.col("before").is_not_null()).then(pl.max_horizontal("open", "before"))
            item = item.join(before, on=key, how="left", nulls_equal=True).with_columns(open=later).drop("before")
        both = pl.col("open").is_not_null() & pl.col("first").is_not_null()
        done[name] = item.with_columns(pl.when(both).then(pl.max_horizontal("open", "first")).alias("done"))
    return pl.concat(done[name].select(*key, "criterion", "open", "done") for name in order).sort([*key, "criterion"])


def step_advantage(
    criteria: Criteria,
    weights: Weights,
    *,
    depends_on: Mapping[str, Sequence[str]] | None = None,
    eta: float = 1.0,
    least: int = 5,
) -> pl.DataFrame:
    """Table of CM2's advantage per step [156] of a `Criteria`: Σ `weights` · (score - item's group mean) of open items.

    An item that is open and not yet done scores η^(done - open) at each step until it is done, 0 if it never is. The
    mean is over all such scores of the item in (group, turn); with fewer than `least` the item is left out. Episodes
    with a failed call are in no mean and get 0. Columns: the keys, `step_advantage`. That a step counts once per
    episode in the mean is our reading.
    """
    turn_key = criteria.key([name for name in criteria.keys if name != "step"])
    group = [name for name in turn_key if name in ("run", "iteration", "group", "turn")]
    episode = [name for name in EPISODE if name in criteria.keys]
    failed = criteria.frame.filter(~pl.col("call_ok")).select(episode).unique()
    times = satisfaction(criteria, depends_on)
    steps = _weighted(criteria, weights).join(times, on=[*turn_key, "criterion"], nulls_equal=True)
    good = steps.join(failed, on=episode, how="anti", nulls_equal=True)
    scored = good.filter(
        (pl.col("step") >= pl.col("open")) & (pl.col("done").is_null() | (pl.col("step") <= pl.col("done")))
    ).with_columns(score=pl.lit(float(eta)).pow(pl.col("done") - pl.col("open")).fill_null(0.0))
    item = [*group, "criterion"]
    difference = pl.col("score") - pl.col("score").mean().over(item)
    counted = scored.with_columns(part=pl.when(pl.len().over(item) >= least).then(pl.col("weight") * difference))
    sums = counted.group_by([*turn_key, "step"]).agg(pl.col("part").sum().alias("step_advantage"))
    every = criteria.frame.select(*turn_key, "step").unique()
    found = every.join(sums, on=[*turn_key, "step"], how="left", nulls_equal=True)
    return found.with_columns(pl.col("step_advantage").fill_null(0.0)).sort([*turn_key, "step"])


# -- choosing ----------------------------------------------------------------------------------------------------------


@register()
def best_of(by: SignalLike, *, over: Keys = "group") -> Signal:
    """Signal, a mask: 1 on the rows of the episode with the largest mean of `by` in its key (best-of-K), else 0.

    Of equal ones the first.
    """
    value = mean(by, over="episode")
    best = value == highest(value, over=over)
    return best & (col("episode") == lowest("episode", over=over, where=best))
