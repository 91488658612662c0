"""How often a scorer prefers what is right: the protocols of benchmarks, on one long table.

A row is a candidate: `group` (the problem), `score`, `correct`. Every number is a mean over groups with its interval.
Protocols differ in what a tie is worth, and that decides results: one judge's ratings are right in 2 % of the problems
of RewardMATH or in 73.5 %, as ties count against it or for it. So every function names its rule. A group that lacks a
score, a right or a wrong candidate leaves, and `caution` counts those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from palaestra.errors import InputError, nearest, need_columns
from palaestra.evaluation.intervals import Estimate, mean_of_cells, share_of_cells
from palaestra.evaluation.logs.columns import flag

Credit = Literal["fraction", "strict", "any"]
Missing = Literal["leave", "last"]
Ties = Literal["against", "half", "for"]
Keys = str | Sequence[str]


def known(what: str, name: str, value: object, choices: Sequence[str]) -> None:
    """Raises InputError if the value of an option is none of the choices, else does nothing."""
    if value not in choices:
        raise InputError(f"{what}: {name}={value!r}{nearest(str(value), choices)}")


def scored_groups(
    rows: pl.DataFrame, score: str, correct: str, by: Keys, *, missing: Missing = "leave", what: str = "scores"
) -> pl.DataFrame:
    """Table per group: lowest `right`, highest `wrong` score; counts `top` (ties for best), `best` (its right), `k`.

    top: how many have the highest score; best: how many of these are right. `right` is null in a group that leaves.
    missing: "last" ranks an unknown score below all, and nothing known is a tie of all, as RewardBench 2 counts the
    ratings of a judge.

    Raises:
        MissingColumnError: names the column. InputError: scores are no numbers, or `correct` no truths.
    """
    keys = [by] if isinstance(by, str) else list(by)
    need_columns(what, rows.columns, (score, correct, *keys))
    if not (rows[score].dtype.is_numeric() or rows[score].dtype in (pl.Boolean, pl.Null)):
        raise InputError(
            f"{what}: column {score!r} holds {rows[score].dtype}, expected numbers; reduce step scores first"
        )
    known(what, "missing", missing, get_args(Missing))
    rows = rows.with_columns(flag(rows, correct, what))
    s, right = pl.col(score).cast(pl.Float64).fill_nan(None), pl.col(correct)
    if missing == "last":
        s = s.fill_null(float("-inf"))
    # unfinished groups leave as a whole: half of a problem is another problem
    whole = s.is_not_null().all() & right.any(ignore_nulls=True) & (~right).any() & right.is_not_null().all()
    return rows.group_by(keys, maintain_order=True).agg(
        right=pl.when(whole).then(s.filter(right).min()),
        wrong=pl.when(whole).then(s.filter(~right).max()),
        top=(s == s.max()).sum(),
        best=((s == s.max()) & right).sum(),
        k=pl.len(),
    )


def estimate(values: pl.Series, level: float = 0.95, what: str = "group", why: str = "lack a score") -> Estimate:
    """`Estimate` of the mean of a Series in [0, 1], a value per group; nulls are left out and named in `caution`."""
    cells = values.cast(pl.Float64).to_numpy().astype(float)[None]
    n = int(np.isfinite(cells).sum())
    share = bool(n) and set(cells[np.isfinite(cells)]) <= {0.0, 1.0}
    made = share_of_cells if share or not n else mean_of_cells
    found = made(cells, n=n, level=level)
    method, caution = found.method.replace("task", what), found.caution.replace("task", what)
    found = replace(found, low=max(0.0, found.low), high=min(1.0, found.high), method=method, caution=caution)
    if n < len(values):
        left = f"{len(values) - n} of {len(values)} {what}s {why} and are left out"
        found = replace(found, caution="; ".join(filter(None, (left, found.caution))))
    return found


def best_of_k_accuracy(
    rows: pl.DataFrame,
    *,
    score: str = "score",
    correct: str = "correct",
    by: Keys = "group",
    credit: Credit = "fraction",
    missing: Missing = "leave",
    level: float = 0.95,
) -> Estimate:
    """`Estimate` of best-of-k accuracy of rows group, score, correct: mean over groups of the credit of the top-scored.

    arXiv 2506.01937.

    credit: "fraction": the share of right ones among those with the highest score, as RewardBench 2; "strict": 1 if all
    of these are right; "any": 1 if one is. missing: see `scored_groups`; "last" is the rule of the published code for
    ratings, there a group without any rating earns 1/k.

    >>> rows = pl.DataFrame({"group": [0, 0, 0, 0], "score": [9, 9, 3, 1], "correct": [True, False, False, False]})
    >>> best_of_k_accuracy(rows).mean, best_of_k_accuracy(rows, credit="any").mean
    (0.5, 1.0)
    """
    known("best_of_k_accuracy", "credit", credit, get_args(Credit))
    groups = scored_groups(rows, score, correct, by, missing=missing, what="best_of_k_accuracy")
    rule = {
        "fraction": pl.col("best") / pl.col("top"),
        "strict": pl.col("best") == pl.col("top"),
        "any": pl.col("best") > 0,
    }[credit]
    return estimate(_kept(groups, rule), level)


def strict_accuracy(
    rows: pl.DataFrame,
    *,
    score: str = "score",
    correct: str = "correct",
    by: Keys = "group",
    ties: Ties = "against",
    level: float = 0.95,
) -> Estimate:
    """`Estimate` of the share of groups of rows group, score, correct in which all right ones outscore all wrong ones.

    Source: arXiv 2410.01729.

    ties: "against": beats is >, as published; "for": >=, its "accuracy with ties"; "half": a tie is worth one half.
    """
    known("strict_accuracy", "ties", ties, get_args(Ties))
    groups = scored_groups(rows, score, correct, by, what="strict_accuracy")
    return estimate(_kept(groups, _beats(pl.col("right"), pl.col("wrong"), ties)), level)


def reciprocal_rank(
    rows: pl.DataFrame,
    *,
    score: str = "score",
    correct: str = "correct",
    by: Keys = "group",
    ties: Ties = "against",
    level: float = 0.95,
) -> Estimate:
    """`Estimate`, of rows group, score, correct: mean over groups of 1 / rank of the best right one among the wrong.

    Source: arXiv 2410.01729.

    rank = 1 + #{wrong > right} + #{wrong = right} times 1 ("against", as published), 1/2 ("half") or 0 ("for").
    The code ranks the best right one where there are several; the benchmark has one.
    """
    known("reciprocal_rank", "ties", ties, get_args(Ties))
    keys = [by] if isinstance(by, str) else list(by)
    groups = scored_groups(rows, score, correct, by, what="reciprocal_rank")
    rows = rows.with_columns(flag(rows, correct, "reciprocal_rank"))
    s, right = pl.col(score).cast(pl.Float64).fill_nan(None), pl.col(correct)
    best = s.filter(right).max()
    above, equal = (s.filter(~right) > best).sum(), (s.filter(~right) == best).sum()
    weight = {"against": 1.0, "half": 0.5, "for": 0.0}[ties]
    ranks = rows.group_by(keys, maintain_order=True).agg(value=1 / (1 + above + weight * equal))
    return estimate(_kept(groups, ranks["value"]), level)


def pair_accuracy(
    rows: pl.DataFrame,
    *,
    score: str = "score",
    correct: str = "correct",
    by: Keys = "group",
    ties: Ties = "half",
    level: float = 0.95,
) -> Estimate:
    """`Estimate`, of rows group, score, correct: mean over groups of the share of (right, wrong) pairs in order (AUC).

    ties: what a pair of equal scores is worth. Far above `strict_accuracy` where one wrong candidate is over-rated.
    """
    known("pair_accuracy", "ties", ties, get_args(Ties))
    keys = [by] if isinstance(by, str) else list(by)
    groups = scored_groups(rows, score, correct, by, what="pair_accuracy")
    rows = rows.with_columns(flag(rows, correct, "pair_accuracy"))
    s, right = pl.col(score).cast(pl.Float64).fill_nan(None), pl.col(correct)
    table = rows.with_row_index("_row").select("_row", *keys, _s=s, _right=right)
    lower, upper = (pl.col("_s").rank(how).over([*keys]) for how in ("min", "max"))
    own_lower, own_upper = (pl.col("_s").rank(how).over([*keys, "_right"]) for how in ("min", "max"))
    below, upto = lower - own_lower, upper - own_upper  # wrong ones below a right one; and those equal to it, too
    won = {"against": below, "for": upto, "half": (below + upto) / 2}[ties]
    pairs = (
        table.with_columns(_won=won)
        .group_by(keys, maintain_order=True)
        .agg(
            value=pl.col("_won").filter(pl.col("_right")).sum() / (pl.col("_right").sum() * (~pl.col("_right")).sum()),
        )
    )
    return estimate(_kept(groups, pairs["value"]), level)


def protocols(
    rows: pl.DataFrame, *, by: Keys = "group", level: float = 0.95, score: str = "score", correct: str = "correct"
) -> pl.DataFrame:
    """Table of all protocols of a scorer's rows group, score, correct: `protocol, ties, mean, low, high, n`."""
    options: dict[str, Any] = {"by": by, "level": level, "score": score, "correct": correct}
    made: list[tuple[str, str, Estimate]] = [
        ("best_of_k", "fraction", best_of_k_accuracy(rows, **options)),
        ("strict", "against", strict_accuracy(rows, **options)),
        ("strict", "for", strict_accuracy(rows, ties="for", **options)),
        ("reciprocal_rank", "against", reciprocal_rank(rows, **options)),
        ("pairs", "half", pair_accuracy(rows, **options)),
    ]
    return pl.DataFrame([{"protocol": p, "ties": t, **_numbers(found)} for p, t, found in made])


def comparisons(
    verdicts: pl.DataFrame, *, by: Keys = "group", missing: Missing = "leave", level: float = 0.95
) -> pl.DataFrame:
    """Table of the protocols strict, rank and pairs of a pairwise judge, of verdicts group, value (1: right one won).

    `value`: 1 won, 0 lost, .5 a tie.

    strict: all comparisons won; reciprocal_rank: 1 / (1 + comparisons not won) (RewardMATH); pairs: share won. missing:
    "leave": a group with a verdict that could not be read leaves; "last": such a comparison is lost, as published.
    """
    known("comparisons", "missing", missing, get_args(Missing))
    value = pl.col("value").cast(pl.Float64).fill_nan(None)
    value = value.fill_null(0.0) if missing == "last" else value
    whole = value.is_not_null().all()
    groups = verdicts.group_by([by] if isinstance(by, str) else list(by), maintain_order=True).agg(
        strict=pl.when(whole).then((value > 0.5).all().cast(pl.Float64)),
        rank=pl.when(whole).then(1 / (1 + (value <= 0.5).sum())),
        pairs=pl.when(whole).then(value.mean()),
    )
    made = [
        (name, ties, estimate(groups[c], level))
        for name, ties, c in (
            ("strict", "against", "strict"),
            ("reciprocal_rank", "against", "rank"),
            ("pairs", "half", "pairs"),
        )
    ]
    return pl.DataFrame([{"protocol": p, "ties": t, **_numbers(found)} for p, t, found in made])


def _numbers(found: Estimate) -> dict[str, Any]:
    return {"mean": found.mean, "low": found.low, "high": found.high, "n": found.n}


def _beats(a: pl.Expr, b: pl.Expr, ties: Ties) -> pl.Expr:
    equal = {"against": 0.0, "half": 0.5, "for": 1.0}[ties]
    return pl.when(a == b).then(equal).otherwise((a > b).cast(pl.Float64))


def _kept(groups: pl.DataFrame, rule: pl.Expr | pl.Series) -> pl.Series:
    """A number per group, null where the group leaves."""
    return groups.with_columns(_value=rule).select(
        pl.when(pl.col("right").is_not_null()).then(pl.col("_value").cast(pl.Float64))
    )["_value"]
