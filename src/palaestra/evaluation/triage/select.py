"""Triage: which episodes to read first, within a budget, and what that gains over reading at random."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, nearest
from palaestra.evaluation.intervals import wilson
from palaestra.evaluation.triage.detection import SCHEMA
from palaestra.evaluation.triage.execution import execution
from palaestra.evaluation.triage.interaction import interaction
from palaestra.evaluation.triage.quality import episodes
from palaestra.evaluation.trials import episode_outcomes, with_own_keys

Detector = Callable[[Turns], pl.DataFrame]
DETECTORS: dict[str, Detector] = {"interaction": interaction, "execution": execution}
"""What `detect` runs; add a function from a table to detections to run your own."""

WEIGHTS = {
    "execution.crash": 12.0,
    "execution.failure": 8.0,
    "execution.loop": 5.0,
    "environment.exhaustion": 3.0,
    "interaction.misalignment": 6.0,
    "interaction.stagnation": 6.0,
    "interaction.disengagement": 10.0,
    "interaction.satisfaction": 0.0,
    "risk": 8.0,
}
"""What a detection of a kind is worth, by prefix of its type; the longest prefix counts."""


FIRST = {"regressed": 3, "failed": 2, "succeeded": 0}
"""Which outcomes are read first; an unknown one stands between failure and success."""


def detect(turns: Turns, detectors: Mapping[str, Detector] | None = None) -> pl.DataFrame:
    """Runs all detectors on `Turns`: DataFrame (row, type, confidence, evidence), sorted by row.

    Raises:
        MissingColumnError: the table has no `episode`.
    """
    turns._require("episode", "triage: ")
    parts = [
        detector(turns).select(pl.col(n).cast(t) for n, t in SCHEMA.items())
        for detector in (detectors or DETECTORS).values()
    ]
    return pl.concat(parts).sort("row", "type") if parts else pl.DataFrame(schema=SCHEMA)


def by_system(turns: Turns) -> Turns:
    """The `Turns` with `run` made unique across systems, if episodes of several systems share a number; else unchanged.

    A run of this package plays the same episodes with every system. `group` is the task's, if episodes are numbered
    within each task.
    """
    turns._require("episode", "key 'episode': ")
    frame = with_own_keys(turns.frame)
    return turns if frame is turns.frame else Turns(frame)


def score(detections: pl.DataFrame, weights: Mapping[str, float] | None = None) -> pl.Series:
    """Series of the score of each row of table `detections`: its confidence × the weight of its type.

    Raises:
        InputError: a weight is negative or not finite.
    """
    weights = WEIGHTS if weights is None else weights
    for name, weight in weights.items():
        if not 0 <= weight < float("inf"):
            raise InputError(f"triage: weight {name}={weight} must be a number of at least 0")
    value = pl.lit(0.0)
    for prefix in sorted(weights, key=len):
        value = pl.when(pl.col("type").str.starts_with(prefix)).then(float(weights[prefix])).otherwise(value)
    return detections.select(value * pl.col("confidence")).to_series()


def triage(
    turns: Turns,
    budget: int,
    *,
    detections: pl.DataFrame | None = None,
    weights: Mapping[str, float] | None = None,
    random: float = 0.0,
    seed: int = 0,
    outcomes: bool = True,
) -> pl.DataFrame:
    """Table of the `budget` episodes of `Turns` most worth reading, failures first, then by `score`; `why` says why.

    Columns: key, `score`, `why`, `quality`, `bucket`, counts, `alike`: how many episodes of the system and task are the
    same word for word, itself included. All but one of them stand at the end of their outcome.

    Known outcomes come before signs. First stand failures of tasks that the first system of the table
    solves in at least half of its trials (`regressed`), then other failures (`failed`), then episodes of unknown
    outcome, then successes; by score inside each. The score of an episode adds confidence × weight over its detections,
    at most three of one type. Ties are broken at random from `seed`, so that a quiet log is sampled fairly. random:
    share of the budget that is drawn without looking; only such a share can tell what the detectors miss. outcomes:
    False ranks by score alone.

    Raises:
        InputError: the budget is below 1, or `random` outside [0, 1].
    """
    check_budget(budget, random)
    found = detect(turns) if detections is None else detections
    return pick(rate(turns, found, weights), budget, random, seed, outcomes).drop("types")


def rate(turns: Turns, detections: pl.DataFrame, weights: Mapping[str, float] | None = None) -> pl.DataFrame:
    """Table of ratings of all episodes of `Turns` by table `detections`, a row each: columns of `triage`, `types`."""
    codes = turns.codes("episode")
    table = episodes(turns, detections)
    rated = detections.with_columns(
        episode_code=pl.Series(codes.ids[detections["row"].to_numpy()], dtype=pl.Int64),
        points=score(detections, weights),
    )
    top = rated.sort("points", descending=True).group_by("episode_code", "type", maintain_order=True).head(3)
    sums = top.group_by("episode_code").agg(pl.col("points").sum().alias("score"))
    words = rated.group_by("episode_code").agg(pl.col("type").alias("types"))
    table = table.join(sums, on="episode_code", how="left").join(words, on="episode_code", how="left")
    table = table.with_columns(
        pl.col("score").fill_null(0.0), why=pl.col("types").map_elements(_because, return_dtype=pl.String).fill_null("")
    )
    table = _keys(turns).join(table, on="episode_code", how="left", maintain_order="left")
    return table.with_columns(_words=_words(turns))


def pick(rated: pl.DataFrame, budget: int, random: float, seed: int, outcomes: bool = True) -> pl.DataFrame:
    """The `budget` rows of a `rate` table most worth reading, best first, a share `random` of them at random.

    See `triage`.
    """
    rng = np.random.default_rng(seed)
    outcome = outcome_of(rated)
    table = rated.with_columns(outcome=outcome, _first=outcome.replace_strict(FIRST, default=1) if outcomes else 0)
    alike = pl.when(pl.col("_words").is_null()).then(1).otherwise(pl.len().over("_words")).cast(pl.Int32)
    table = table.sort("episode_code").with_columns(luck=pl.Series(rng.permutation(len(rated))), alike=alike)
    blind = table.sort("luck", descending=True).head(round(random * min(budget, len(rated))))
    chosen = table.join(blind.select("episode_code"), on="episode_code", how="anti")
    chosen = chosen.sort(["_first", "score", "luck"], descending=[True, True, False])
    again = pl.col("_words").is_not_null() & ~pl.col("_words").is_first_distinct()
    chosen = chosen.sort(-pl.col("_first"), again, maintain_order=True).head(budget - len(blind))
    picked = [chosen.with_columns(drawn=pl.lit("signals")), blind.with_columns(drawn=pl.lit("random"))]
    return pl.concat(picked).drop("luck", "_first", "_words")


def because(row: Mapping[str, Any]) -> str:
    """A short text that says why `triage` chose an episode, from its row."""
    if row["drawn"] == "random":
        return "drawn without looking"
    outcome = {"regressed": "right before, wrong now", "failed": "failed"}.get(row["outcome"])
    return "; ".join(filter(None, [outcome, row["why"]])) or "nothing found"


def outcome_of(episodes: pl.DataFrame) -> pl.Series:
    """Series of outcomes of a table of episodes: `regressed` (vs the first row's system), `failed`, `succeeded`, null.

    regressed: it failed, in a task in which the system of the first row succeeds in at least half of its trials.
    """
    if "success" not in episodes.columns:
        return pl.Series("outcome", [None] * len(episodes), dtype=pl.String)
    failed = pl.col("success").not_()
    regressed = pl.lit(False)
    if {"system", "task"} <= set(episodes.columns) and len(episodes):
        first = pl.col("system") == episodes["system"][0]
        was_right = pl.when(first).then("success").mean().over("task") >= 0.5
        regressed = failed & ~first & was_right & pl.col("task").is_not_null()
    named = pl.when(regressed).then(pl.lit("regressed")).when(failed).then(pl.lit("failed"))
    return episodes.select(outcome=named.when("success").then(pl.lit("succeeded"))).to_series()


def check_budget(budget: int, random: float) -> None:
    """Raise InputError if the budget is below 1 or the random share is not in [0, 1]."""
    if budget < 1:
        raise InputError(f"triage: budget={budget}, expected at least 1")
    if not 0 <= random <= 1:
        raise InputError(f"triage: random={random}, expected a share in [0, 1]")


def _because(types: pl.Series) -> str:
    counts = types.value_counts(sort=True).rows()
    return ", ".join(
        name.split(".", 1)[-1] + (f" ×{n}" if n > 1 else "") for name, n in sorted(counts, key=lambda c: (-c[1], c[0]))
    )


def _words(turns: Turns) -> pl.Series:
    """A number per episode, in the order of the table, equal where task and words are; null without task or words."""
    names = ("system", "task", "agent", "observation", "action", "tool", "arguments", "error", "tool_error", "success")
    there = [name for name in names if name in turns.columns]
    spoken = [pl.col(name).is_not_null() for name in ("observation", "action") if name in there]
    place = pl.int_range(pl.len()).over("code")
    texts = turns.frame.select(*there).with_columns(cs.categorical().cast(pl.String))  # codes of two files differ
    rows = texts.with_columns(code=pl.Series(turns.codes("episode").ids))
    some = pl.any_horizontal(spoken) & pl.col("task").is_not_null() if spoken and "task" in there else pl.lit(False)
    rows = rows.with_columns(spoken=some, place=place)
    rows = rows.select("code", "spoken", words=pl.struct(*there, "place").hash())
    told = rows.group_by("code", maintain_order=True).agg(pl.col("words").sum(), pl.col("spoken").any())
    return told.select(pl.when("spoken").then("words")).to_series()


def _keys(turns: Turns) -> pl.DataFrame:
    """Key, task, turns and outcome of each episode, the outcome that `trials` gives it."""
    keys = turns.key_columns(["episode"])
    more = ("episode_name", "system", "task", "success", "error")
    names = [*keys, *(n for n in more if n in turns.columns and n not in keys)]
    frame = turns.frame.with_columns(episode_code=pl.Series(turns.codes("episode").ids, dtype=pl.Int64))
    first = [(pl.col(n) if n in keys else pl.col(n).drop_nulls()).first() for n in names]
    table = frame.group_by("episode_code", maintain_order=True).agg(*first, pl.len().alias("turns"))
    if "success" not in names:
        return table
    read = [n for n in ("run", "iteration", "group", "task", "success", "error") if n in turns.columns]
    absent = {"group": 0, "task": None}
    told = frame.select(*read, *(pl.lit(absent[n]).alias(n) for n in absent if n not in read), episode="episode_code")
    told = episode_outcomes(told)
    told = told.select("success", *(n for n in ("task", "error") if n in names), episode_code="episode")
    return table.drop(told.columns[:-1]).join(told, on="episode_code", maintain_order="left").select(table.columns)


def sampling_gain(informative: Mapping[str, Sequence[bool]], baseline: str = "random") -> pl.DataFrame:
    """Table per way of choosing episodes from its bools (informative?): share, Wilson's interval, ratio to `baseline`.

    informative: labels of the chosen episodes by name of the way.

    Raises:
        InputError: the baseline is not among them, or a way chose nothing.
    """
    if baseline not in informative:
        raise InputError(f"sampling_gain: no {baseline!r}{nearest(baseline, informative)}")
    rows = []
    for name, labels in informative.items():
        if not len(labels):
            raise InputError(f"sampling_gain: {name!r} chose no episode")
        hits = int(np.sum(labels))
        rows.append((name, len(labels), hits / len(labels), *map(float, wilson(hits, len(labels)))))
    table = pl.DataFrame(rows, schema=["way", "n", "informative", "low", "high"], orient="row")
    base = float(table.filter(pl.col("way") == baseline)["informative"][0])
    return table.with_columns(gain=pl.col("informative") / base if base else pl.lit(None, pl.Float64))
