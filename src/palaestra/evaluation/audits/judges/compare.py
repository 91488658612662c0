"""Two judges of the same items: how far they agree, who is more lenient, and on which items they differ."""

from __future__ import annotations

import math
from typing import Literal

import polars as pl

from palaestra.evaluation.audits.finding import Finding, Verdict
from palaestra.evaluation.audits.judges.common import (
    FEW,
    average,
    filled_columns,
    given,
    need,
    over_items,
    problem_column,
    span,
)
from palaestra.evaluation.scorers.agreement import cohen_kappa, krippendorff_alpha

_KEYS = ("run", "iteration", "group", "episode", "turn", "system", "task", "item", "criterion", "order")
_TEXTS = ("prompt", "response", "reference")
_CATEGORIES = 20
_SHOWN = 50


def compare_judges(
    a: pl.DataFrame, b: pl.DataFrame, *, least: float = 0.4, good: float = 0.667, seed: int = 0
) -> Finding:
    """Audit (`Finding`) of two frames of verdicts: agreement on the items, criteria and orders that both have.

    Votes of one judge count as their mean.

    Args:
        a: Verdicts: `item`, `value`; `criterion`, `order` and the keys of an episode where both tables have them.
        b: Verdicts of the other judge, in the same form.
        least: Agreement below which it fails beyond doubt.
        good: Agreement above which it passes beyond doubt.
        seed: Of the bootstrap.

    Returns:
        numbers: `agreement` with `low`, `high` (bootstrap over problems), `equal` (share of equal verdicts), `lenience`
        (mean of a - b) with `lenience_low`, `lenience_high`, `shared` and `differ` (numbers of verdicts), `alone`
        (those that only one of the two has). Agreement is Cohen's kappa, with quadratic weights if there are more than
        two values, and Krippendorff's interval alpha for more than 20 values. rows: the 50 verdicts that differ most.
        It cannot tell if nothing was judged by both, or an item has another text in the other table.

    Raises:
        MissingColumnError, InputError: a column is missing, or holds no numbers.
    """
    need(a, "compare", "item", "value")
    need(b, "compare", "item", "value")
    keys = [name for name in _KEYS if name in a.columns and name in b.columns]
    about = [name for name in _TEXTS if name in a.columns and name in b.columns]
    other_type = [name for name in (*keys, *about) if a[name].dtype != b[name].dtype]  # e.g. of Parquet and CSV
    floats = [name for name in other_type if {a[name].dtype.is_numeric(), b[name].dtype.is_numeric()} == {True}]
    words = [name for name in other_type if name not in floats]
    a, b = (table.with_columns(pl.col(floats).cast(pl.Float64), pl.col(words).cast(pl.String)) for table in (a, b))
    sides = [_values(table, [*keys, *about], name) for table, name in ((a, "a"), (b, "b"))]
    both = sides[0].join(sides[1].drop(about), on=keys, how="inner", nulls_equal=True, maintain_order="left")
    texts = sides[0].join(sides[1], on=[*keys, *about], how="semi", nulls_equal=True)
    if not len(both) or len(texts) < len(both):
        why = f"nothing was judged by both; they are matched by {', '.join(keys)}"
        if len(both):
            why = f"{len(both) - len(texts)} of {len(both)} verdicts are on another text in the other file"
        return Finding("comparison", "cannot tell", why, fix="judge the same logs in the same order")
    alone = sum(len(side) for side in sides) - 2 * len(both)
    family = both[problem_column(both) or "item"].cast(pl.String).to_list()
    gap = both["a"] - both["b"]
    values = pl.concat([both["a"], both["b"]]).n_unique()
    if values > _CATEGORIES:
        measure, found = (
            "alpha",
            krippendorff_alpha([both["a"], both["b"]], measure="interval", units=family, seed=seed),
        )
    else:
        measure = "kappa"
        weights: Literal["quadratic"] | None = "quadratic" if values > 2 else None
        found = cohen_kappa(both["a"].to_list(), both["b"].to_list(), weights=weights, units=family, seed=seed)
    lenience = over_items(gap, pl.Series(family))
    differ = both.with_columns(gap=gap).filter(pl.col("gap").abs() > 1e-9)
    numbers = {
        "agreement": found.mean,
        "low": found.low,
        "high": found.high,
        "equal": 1 - len(differ) / len(both),
        "lenience": lenience.mean,
        "lenience_low": lenience.low,
        "lenience_high": lenience.high,
        "shared": float(len(both)),
        "differ": float(len(differ)),
        "alone": float(alone),
    }
    rows = differ.sort(pl.col("gap").abs(), descending=True, maintain_order=True).head(_SHOWN)
    shown = rows.select(*filled_columns(rows, *keys), "a", "b").to_dicts()
    low, high = (found.mean if not math.isfinite(x) else x for x in (found.low, found.high))
    said: Verdict = "pass" if low >= good else "fail" if high < least else "warn"
    said = "cannot tell" if found.clusters < FEW or not math.isfinite(found.mean) else said
    says = f"{measure} is {found.mean:.2f}{span(found.low, found.high)}"
    if not math.isfinite(found.mean):
        says = f"both always say {average(both['a']):g}"
    sentence = (
        f"{says} over {len(both)} verdicts on {found.clusters} {problem_column(both) or 'item'}s; they differ in "
        f"{len(differ)}, a - b is {lenience.mean:+.2f}{span(lenience.low, lenience.high)} on average"
    )
    sentence += f"; {alone} verdicts have no counterpart" if alone else ""
    fix = "" if said == "pass" else "read the verdicts that differ most, and sharpen the rubric where they disagree"
    return Finding("comparison", said, sentence, numbers, rows=shown, fix=fix)


def _values(table: pl.DataFrame, by: list[str], name: str) -> pl.DataFrame:
    """The mean value of every key."""
    read = table.with_columns(given(table, "compare").alias(name)).drop_nulls(name)
    return read.group_by(by, maintain_order=True).agg(pl.col(name).mean())
