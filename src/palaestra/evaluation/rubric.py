"""Rubrics: criteria joined with judgements, then one weighted sum. Five published scoring rules are one table.

criteria: a row per (task, criterion) with `weight` (default 1), `kind` ("bonus", "penalty" or "gate"; default bonus)
and, for paths, `step`. judgements: a row per (key…, criterion) with `met` in [0, 1], true or false; a null is "not
judged" and never "not met". For training, the same sums over turns are `rewards.Criteria`. Left out: the judges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import polars as pl

from palaestra.errors import InputError, MissingColumnError, nearest
from palaestra.evaluation.logs.columns import flag, truth_of

Method = Literal["mean", "net", "gated", "all", "path"]
KEY = ("system", "run", "task", "trial")
KINDS = ("bonus", "penalty", "gate")


def rubric(
    judgements: pl.DataFrame,
    criteria: pl.DataFrame,
    method: Method = "mean",
    *,
    gamma: float = 0.4,
    threshold: float = 1.0,
    by: Sequence[str] = KEY,
) -> pl.DataFrame:
    """Table of a score per trial by a rubric rule, of `judgements` and `criteria`: key, `score`, `met`, `unjudged`.

    score: null if any is unjudged.

    "mean": Σ w·met / Σ w over bonus criteria. AgencyBench [93] (arXiv 2601.11044) is `round(10 · mean)`.
    "net": clip((Σ bonus met - Σ penalties triggered) / Σ bonus, 0, 1), weights in each sum; null where no bonus exists.
        AgentIF-OneDay [133] (arXiv 2601.20613); the formula is a reconstruction from its abstract.
    "gated": the mean times every gate's value: safety · (.8 completion + .2 robustness), Claw-Eval (arXiv 2604.06132).
    "all": 1 if every bonus criterion reaches `threshold`, else 0, null where no bonus exists; PRBench's end-to-end rate
        [157] (arXiv 2603.27646).
    "path": `path_credit` of the bonus criteria in the order of `step`; ExCyTIn [187] (arXiv 2507.14201).

    by: what one trial is; those of the names that the judgements have.

    Raises:
        InputError: no such method or kind, a judgement outside [0, 1] or of a criterion that does not exist, or a
            criterion that stands twice in a task or is judged twice in a trial.
        MissingColumnError: a column is missing.

    >>> criteria = pl.DataFrame({"criterion": ["a", "b", "c", "rude"], "kind": ["bonus"] * 3 + ["penalty"]})
    >>> judgements = criteria.select("criterion", task=pl.lit("t"), met=pl.Series([1, 1, 0, 1]))
    >>> rubric(judgements, criteria, "net")["score"].item().__round__(4)
    0.3333
    """
    joined, key = _joined(judgements, criteria, method, by)
    weight, met, kind = pl.col("weight"), pl.col("met"), pl.col("kind")
    bonus = kind == "bonus"
    total, earned = weight.filter(bonus).sum(), (weight * met).filter(bonus).sum()
    mean = pl.when(total > 0).then(earned / total)
    scores: dict[str, pl.Expr] = {
        "mean": mean,
        "net": pl.when(total > 0).then(((earned - (weight * met).filter(kind == "penalty").sum()) / total).clip(0, 1)),
        "gated": mean * met.filter(kind == "gate").product(),
        "all": pl.when(bonus.any()).then((met.filter(bonus) >= threshold).all().cast(pl.Float64)),
        "path": _path(met.filter(bonus), gamma),
    }
    unjudged = met.is_null().sum()
    ordered = joined.sort("step", maintain_order=True) if method == "path" else joined
    return (
        ordered.group_by(key, maintain_order=True)
        .agg(
            score=pl.when(unjudged == 0).then(scores[method]),
            met=met.sum(),
            criteria=pl.len().cast(pl.Int64),
            unjudged=unjudged.cast(pl.Int64),
        )
        .sort(key)
    )


def _joined(
    judgements: pl.DataFrame, criteria: pl.DataFrame, method: str, by: Sequence[str]
) -> tuple[pl.DataFrame, list[str]]:
    methods = ("mean", "net", "gated", "all", "path")
    if method not in methods:
        raise InputError(f"rubric: method={method!r}{nearest(method, methods)}")
    of_criteria = ["criterion", "step"] if method == "path" else ["criterion"]
    needed = [(judgements, "judgements", ["criterion", "met"]), (criteria, "criteria", of_criteria)]
    for table, what, names in needed:
        for name in names:
            if name not in table.columns:
                raise MissingColumnError(f"rubric: the {what} have no column {name!r}{nearest(name, table.columns)}")
    key = [name for name in by if name in judgements.columns]
    if not key:
        raise MissingColumnError(f"rubric: judgements need one of {', '.join(by)} to tell trials apart")
    on = ["criterion", *(["task"] if "task" in criteria.columns and "task" in key else [])]
    defaults = {"weight": pl.lit(1.0), "kind": pl.lit("bonus"), "step": pl.lit(0)}
    criteria = criteria.with_columns(
        value.alias(name) for name, value in defaults.items() if name not in criteria.columns
    )
    blank = pl.col("kind").cast(pl.String).str.strip_chars() == ""  # a cell of a CSV in quotes
    criteria = criteria.with_columns(
        pl.col("weight").cast(pl.Float64).fill_nan(None).fill_null(1.0),
        kind=pl.when(~blank).then("kind").fill_null("bonus"),
    )
    if len(odd := criteria.filter(~pl.col("kind").is_in(KINDS))):
        kind = odd["kind"][0]
        raise InputError(f"rubric: criterion {odd['criterion'][0]!r} has kind={kind!r}{nearest(kind, KINDS)}")
    if (twice := criteria.select(on).is_duplicated()).any():
        raise InputError(f"rubric: criterion {criteria.filter(twice)['criterion'][0]!r} occurs twice in a task")
    judged = judgements.select(*key, "criterion", _met(judgements))
    wrong = judged.filter(~pl.col("met").is_between(0, 1))
    if len(wrong):
        raise InputError(
            f"rubric: criterion {wrong['criterion'][0]!r} is judged {wrong['met'][0]}, not between 0 and 1"
        )
    if (twice := judged.select(*key, "criterion").is_duplicated()).any():
        raise InputError(
            f"rubric: criterion {judged.filter(twice)['criterion'][0]!r} is judged more than once in a trial "
            f"({', '.join(key)}); give the mean of its judges, or say in by= what tells them apart"
        )
    stray = judged.join(criteria, on=on, how="anti")
    if len(stray):
        where = f" of task {stray['task'][0]!r}" if "task" in on else ""
        raise InputError(f"rubric: {stray['criterion'][0]!r} is judged, but no criterion{where}")
    everything = judged.select(key).unique(maintain_order=True)
    wanted = criteria.select(*on, "weight", "kind", "step")
    asked = everything.join(wanted, on="task") if "task" in on else everything.join(wanted, how="cross")
    return asked.join(judged, on=[*key, "criterion"], how="left", nulls_equal=True), key


def _met(judgements: pl.DataFrame) -> pl.Series:
    """Numbers, of words true or false as well."""
    said = judgements["met"]
    numbers = said.cast(pl.Float64, strict=False).fill_nan(None)
    words = judgements.select(pl.when(numbers.is_null()).then("met").alias("met"))
    return numbers.fill_null(flag(words, "met", "rubric").cast(pl.Float64))


def _path(met: pl.Expr, gamma: float) -> pl.Expr:
    back = pl.int_range(met.len()).reverse()
    walked = (gamma ** back.cast(pl.Float64) * met).filter(back > 0).sum().clip(0, 1)
    return pl.when(met.last() >= 1).then(1.0).otherwise(walked)


def agreement(a: Any, b: Any) -> tuple[float, float]:
    """(share of equal verdicts, Cohen's kappa) of two judges' binary verdicts; kappa NaN if both always say the same.

    Verdicts are true/false, yes/no or 1/0. Kappa is NaN if both give one and the same verdict everywhere.

    Agreement alone flatters where one verdict is common: judges who say yes 90 % of the time agree on 82 % by chance.

    Raises:
        InputError: a verdict is missing or none of these, or not both judge every point.

    >>> tuple(round(x, 4) for x in agreement([1, 1, 0, 0], [1, 0, 0, 0]))
    (0.75, 0.5)
    """
    left, right = _binary(a), _binary(b)
    if left.shape != right.shape or not left.size:
        raise InputError(f"agreement: {left.shape} and {right.shape} verdicts; give one of each per point")
    same = float((left == right).mean())
    chance = float(left.mean() * right.mean() + (1 - left.mean()) * (1 - right.mean()))
    return same, (same - chance) / (1 - chance) if chance < 1 else math.nan


def _binary(verdicts: Any) -> np.ndarray:
    given = verdicts if isinstance(verdicts, pl.Series) else pl.Series(np.asarray(verdicts))
    odd = [each for each in given.unique(maintain_order=True).to_list() if truth_of(each) is None]
    if odd:
        raise InputError(f"agreement: {odd[0]!r} is no verdict; they are true/false, yes/no or 1/0")
    return np.array([truth_of(each) for each in given.to_list()], bool)
