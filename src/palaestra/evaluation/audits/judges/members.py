"""Members of a panel: are their errors their own, how many judges are they really, and who is right how often?"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from palaestra.errors import InputError
from palaestra.evaluation.audits.finding import Finding, Verdict
from palaestra.evaluation.audits.judges.common import (
    FEW,
    bootstrap,
    given,
    keys,
    limited,
    need,
    number,
    over_items,
    percentile_interval,
    resampling_unit,
    span,
)
from palaestra.evaluation.logs.columns import flag
from palaestra.evaluation.scorers.agreement import krippendorff_alpha
from palaestra.foundation.scalars import float_or_zero

RESAMPLES = 1000


def errors_of(verdicts: pl.DataFrame, truth: str, what: str) -> pl.Series:
    """Series of errors of a frame's verdicts by column `truth`: 1 wrong, 0 right, null unknown; of 0/1 the side of .5.

    A value of .5 is half an error there.

    Of any other truth a verdict is right if it is equal to it.

    Raises:
        InputError: The truth is 0 or 1 and the values are on another scale.
    """
    said, true = given(verdicts, what), number(verdicts, truth, what)
    table = pl.DataFrame({"said": said, "true": true})
    both = table.drop_nulls()
    if set(both["true"].unique()) <= {0.0, 1.0} and not both["said"].is_between(0, 1).all():
        low, high = float_or_zero(both["said"].min()), float_or_zero(both["said"].max())
        raise InputError(
            f"{what}: values go from {low:g} to {high:g} and {truth!r} is 0 or 1; give the truth on the judge's scale"
        )
    if not set(true.drop_nulls().unique()) <= {0.0, 1.0}:
        return table.select(((pl.col("said") - pl.col("true")).abs() > 1e-9).cast(pl.Float64))["said"]
    side = pl.when(pl.col("said") == 0.5).then(0.5).otherwise((pl.col("said") > 0.5).cast(pl.Float64))
    return table.select(x=pl.when(pl.col("said").is_not_null()).then((side - pl.col("true")).abs()))["x"]


def accuracy(verdicts: pl.DataFrame, *, truth: str = "truth") -> Finding:
    """Audit (`Finding`) of frame `verdicts`: share that is right, compared with always saying the commonest truth.

    numbers: `accuracy`, `low`, `high` (over items), `base` (the share of these verdicts that have the commonest truth;
    one half for comparisons, which have an `order`), `verdicts`, `missing`. Fails where it is not above `base`, and
    passes where its interval is. It cannot tell where the interval holds `base`, of one item, or where nothing is wrong
    and all have one truth.
    """
    found = 1 - errors_of(verdicts, truth, "accuracy")
    one = over_items(found, resampling_unit(verdicts))
    if not one.n:
        return Finding("accuracy", "cannot tell", "no verdict has a truth", fix="label some items by hand")
    pairwise = "order" in verdicts.columns and bool(verdicts["order"].is_not_null().all())
    true = verdicts[truth].filter(found.is_not_null())
    base = 0.5 if pairwise else float_or_zero(true.value_counts()["count"].max()) / len(true)
    missing = float(found.is_null().sum())
    numbers = {
        "accuracy": one.mean,
        "low": one.low,
        "high": one.high,
        "base": base,
        "verdicts": float(one.n),
        "missing": missing,
    }
    low = one.mean if not math.isfinite(one.low) else one.low
    said: Verdict = "pass" if low > base else "fail" if one.mean <= base else "cannot tell"
    said = "cannot tell" if one.clusters < 2 or one.mean == base == 1 else said
    beside = "a coin" if pairwise else "the commonest truth alone"
    sentence = f"right in {one.mean:.1%}{span(one.low, one.high)} of {one.n} verdicts; {beside} is in {base:.1%}"
    fix = "" if said == "pass" else "sharpen the rubric or change the model, and label more items"
    return Finding("accuracy", said, sentence, numbers, fix=fix)


def values_by_member(verdicts: pl.DataFrame, values: pl.Series, what: str) -> tuple[np.ndarray, list[str]]:
    """(grid float64[members, items], names): series `values` of frame `verdicts` by judge and sample, NaN if missing.

    Several values of one member for one item are averaged.
    A member is a judge and a sample of it; orders of one pair and criteria are items of their own.
    """
    need(verdicts, what, "item")
    members = [n for n in ("judge", "sample") if n in verdicts.columns]
    items = keys(verdicts, without=("judge", "sample"))
    name = (
        pl.concat_str([pl.col(n).cast(pl.String).fill_null("?") for n in members], separator="#")
        if members
        else pl.lit("judge")
    )
    table = verdicts.select(member=name, item=pl.struct(items).rank("dense").cast(pl.Int64) - 1, x=values)
    table = table.group_by("member", "item", maintain_order=True).agg(pl.col("x").mean())
    names = sorted(table["member"].unique())
    grid = np.full((len(names), int(float_or_zero(table["item"].max())) + 1), np.nan)
    where = {n: i for i, n in enumerate(names)}
    grid[[where[n] for n in table["member"]], table["item"].to_numpy()] = table["x"].to_numpy().astype(float)
    return grid, names


def error_correlation(
    verdicts: pl.DataFrame,
    *,
    truth: str = "truth",
    least: float = 0.2,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Finding:
    """Audit (`Finding`) of frame `verdicts`: mean pairwise correlation of judges' errors, effective number of judges.

    The effective number is that of independent judges.

    n_eff = n / (1 + (n - 1)·ρ), the number of independent judges whose mean varies as much; a panel of ten who share
    80 % of their errors is 1.2 judges. numbers: `correlation`, `low`, `high` (bootstrap over items), `effective`,
    `effective_low`, `effective_high`, `members`, `items`. Fails where the interval lies above .5, passes below `least`.

    Raises:
        MissingColumnError: no `truth`: errors are against it, and agreement alone does not tell them from being right.
    """
    grid, names = values_by_member(verdicts, errors_of(verdicts, truth, "error_correlation"), "error_correlation")
    if len(names) < 2:
        return Finding(
            "errors",
            "cannot tell",
            "one member alone has nobody to share errors with",
            fix="ask several judges, or one several times",
        )
    rho = _mean_correlation(grid, np.ones((1, grid.shape[1])))[0]
    if not math.isfinite(rho):
        return Finding("errors", "cannot tell", f"{len(names)} members make no errors that could be correlated")
    low, high = percentile_interval(_mean_correlation(grid, bootstrap(grid.shape[1], resamples, seed)), level)
    n = len(names)
    sizes = [float(n / max(1 + (n - 1) * r, 1 / n)) for r in (rho, high, low)]
    numbers = {"correlation": float(rho), "low": low, "high": high, "members": float(n), "items": float(grid.shape[1])}
    numbers |= {"effective": sizes[0], "effective_low": sizes[1], "effective_high": sizes[2]}
    said: Verdict = "pass" if high <= least else "fail" if low > 0.5 else "warn" if rho > least else "cannot tell"
    said = "cannot tell" if grid.shape[1] < FEW else said
    sentence = (
        f"errors of {n} members correlate at {rho:.2f}{span(low, high)}: they are worth {sizes[0]:.1f} independent ones"
    )
    fix = (
        ""
        if said == "pass"
        else "take judges of other families, prompts or views; more votes of the same one buy nothing"
    )
    return Finding("errors", said, sentence, numbers, fix=fix)


def _mean_correlation(grid: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """float64[draws]: mean over pairs of rows of float64[members, items] of their weighted correlation."""
    found = []
    for i in range(len(grid)):
        for j in range(i):
            both = np.isfinite(grid[i]) & np.isfinite(grid[j])
            x, y, w = grid[i, both], grid[j, both], weight[:, both]
            with np.errstate(invalid="ignore", divide="ignore"):
                n = w.sum(1)
                mx, my = w @ x / n, w @ y / n
                vx, vy = w @ x**2 / n - mx**2, w @ y**2 / n - my**2
                r = (w @ (x * y) / n - mx * my) / np.sqrt(vx * vy)
            found.append(np.where((vx > 1e-12) & (vy > 1e-12), r, np.nan))
    table = np.array(found)
    seen = np.isfinite(table)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(seen, table, 0.0).sum(0) / seen.sum(0))


def agreement(verdicts: pl.DataFrame, *, least: float = 0.4, good: float = 0.667, seed: int = 0) -> Finding:
    """Audit (`Finding`) of frame `verdicts`: Krippendorff's alpha of a panel, nominal up to two values, else interval.

    numbers: `alpha`, `low`, `high`, `members`, `items`. .667 is Krippendorff's least for tentative conclusions. It says
    that they agree, not that they are right.
    """
    values = given(verdicts, "agreement")
    grid, names = values_by_member(verdicts, values, "agreement")
    if len(names) < 2:
        return Finding(
            "agreement",
            "cannot tell",
            "one member alone agrees with itself",
            fix="ask several judges, or one several times",
        )
    known = values.drop_nulls()
    few = known.n_unique() <= 2
    try:
        found = krippendorff_alpha(grid, measure="nominal" if few else "interval", seed=seed)
    except InputError:
        return Finding("agreement", "cannot tell", "no item has verdicts of two members")
    numbers = {
        "alpha": found.mean,
        "low": found.low,
        "high": found.high,
        "members": float(len(names)),
        "items": float(found.clusters),
    }
    if not math.isfinite(found.mean):
        return Finding("agreement", "cannot tell", "all members always say the same one thing", numbers)
    low, high = (found.mean if not math.isfinite(x) else x for x in (found.low, found.high))
    said: Verdict = "pass" if low >= good else "fail" if high < least else "warn"
    said = "cannot tell" if found.clusters < FEW else said
    interval = span(found.low, found.high)
    sentence = f"Krippendorff's alpha of {len(names)} members is {found.mean:.2f}{interval} over {found.clusters} items"
    fix = "" if said == "pass" else "say in the rubric what each value means, with an example, or ask fewer values"
    return Finding("agreement", said, sentence, numbers, fix=fix)


def parse_failures(verdicts: pl.DataFrame, *, good: float = 0.02, bad: float = 0.1) -> Finding:
    """Audit (`Finding`) of frame `verdicts`: share that could not be parsed, and whether a number stands in its place.

    numbers: `rate`, `low`, `high` (over items), `verdicts`, `invented` (values that stand where `ok` is false).
    """
    need(verdicts, "parse_failures", "item", "value")
    value = number(verdicts, "value", "parse_failures")
    ok = flag(verdicts, "ok", "parse_failures").fill_null(False) if "ok" in verdicts.columns else value.is_not_null()
    found = over_items((~ok | value.is_null()).cast(pl.Float64), resampling_unit(verdicts), share=True)
    invented = int((~ok & value.is_not_null()).sum())
    numbers = {
        "rate": found.mean,
        "low": found.low,
        "high": found.high,
        "verdicts": float(found.n),
        "invented": float(invented),
    }
    sentence = f"{found.mean:.1%}{span(found.low, found.high, 3)} of {found.n} verdicts could not be read"
    if invented:
        sentence += f"; {invented} of them carry a number all the same"
        return Finding(
            "parsing",
            "fail",
            sentence,
            numbers,
            fix="a verdict that cannot be read is null and ok = false, never a default",
        )
    said = limited(found, good=good, bad=bad)
    return Finding(
        "parsing",
        said,
        sentence,
        numbers,
        fix="" if said == "pass" else "ask for a schema, allow more tokens, try again; leave the rest null",
    )
