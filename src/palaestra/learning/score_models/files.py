"""Priors and readings as files: what `palaestra fit-prior` and `palaestra fuse` do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.errors import InputError, nearest
from palaestra.evaluation.analyses import table
from palaestra.learning.score_models.fusion import Source
from palaestra.learning.score_models.prior import Kind, Prior


def fit_prior(
    samples: Path,
    out: Path,
    kind: Kind = "network",
    *,
    hidden: Sequence[int] = (128, 128),
    seed: int = 0,
    kernel: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Fit a prior to the number columns of a table file, write it to folder `out`, and return a summary (dict).

    Options are those of `ScoreModel.fit`.

    Returns:
        Columns, rows, and of a network `steps`, `kept`, `least` (held-out loss) and `last`; with `kernel` also
        `kernel_distance`.

    Raises:
        InputError: the table has no column of numbers.
    """
    frame = table(samples).select(pl.selectors.numeric())
    if not frame.width:
        raise InputError(f"{samples}: no column holds numbers")
    rows = frame.cast(pl.Float64).to_numpy()
    prior = Prior(frame.columns, kind, hidden=hidden, seed=seed)
    fit = prior.fit(rows, **options)
    prior.save(out)
    found: dict[str, Any] = {"columns": frame.columns, "rows": len(rows), "kind": kind}
    if fit is not None:
        last = fit.losses[-1] if fit.losses else None
        found |= {"steps": fit.steps, "kept": fit.kept, "least": fit.least if fit.losses else None, "last": last}
    if kernel:
        from palaestra.learning.score_models.tangent import kernel_distance

        found["kernel_distance"] = kernel_distance((rows - prior.centre) / prior.scale, max(hidden), seed=seed)
    return found


def read_sources(readings: pl.DataFrame, columns: Sequence[str], only: Collection[str] = ()) -> dict[str, list[Source]]:
    """Make {item: list of `Source`} from a table with `reads` (names of columns of the prior), `value` and `noise`.

    reads: names of columns of the prior, parted by blanks; the source reads their mean. One name may have blanks. A
    row without a value is no reading.

    Raises:
        InputError: a reading names an unknown column or has no number for its value, noise or weight, or `only` names
            a source that reads nothing.
    """
    readings = readings.with_columns(pl.selectors.float().fill_nan(None))
    if "item" not in readings.columns:
        readings = readings.with_columns(item=pl.lit("all"))
    if unknown := set(only) - set(readings["source"].to_list() if "source" in readings.columns else []):
        raise InputError(f"no readings of source {min(unknown)!r}")
    places, found = {name: place for place, name in enumerate(columns)}, {}
    for (item,), part in readings.group_by(pl.col("item").cast(pl.String), maintain_order=True):
        sources = []
        for row in part.iter_rows(named=True):
            names = [row["reads"]] if row["reads"] in places else str(row["reads"]).split()
            if wrong := [name for name in names if name not in places]:
                raise InputError(f"reads: the prior has no column {wrong[0]!r}{nearest(wrong[0], columns)}")
            if row["value"] is None or (only and row["source"] not in only):
                continue
            operator = np.zeros((1, len(columns)))
            np.add.at(operator[0], [places[name] for name in names], 1 / max(len(names), 1))  # a name may come twice
            given = {"weight": 1.0, **{name: x for name, x in row.items() if x is not None}}
            value, noise, weight = (_number(given, name) for name in ("value", "noise", "weight"))
            sources.append(Source(operator, np.array([value]), noise, weight))
        found[str(item)] = sources
    return found


def _number(reading: Mapping[str, Any], name: str) -> float:
    try:
        return float(reading[name])
    except (KeyError, ValueError) as error:
        said = repr(reading[name]) if name in reading else "missing"
        raise InputError(f"the {name} of a reading of {reading.get('reads')!r} is {said}, expected a number") from error


def fuse_readings(
    prior: Path,
    readings: Path,
    *,
    only: Collection[str] = (),
    samples: int = 200,
    level: float = 0.9,
    seed: int = 0,
    **options: Any,
) -> pl.DataFrame:
    """Table of the posterior (mean, sd, interval) of each column of a saved prior, for each item of a readings file.

    Args:
        prior: folder that `fit_prior` wrote.
        readings: table, see `read_sources`.
        only: sources that count; none: all.
        samples: number of samples of the belief.
        level: of the interval from `low` to `high`.
        seed: of the sampling.
        options: of `posterior_samples`.

    Returns:
        item, column, mean, sd, low, high.
    """
    learned = Prior.load(prior)
    tails = [(1 - level) / 2, (1 + level) / 2]
    parts = []
    for number, (item, sources) in enumerate(
        read_sources(table(readings, "reads", "value", "noise"), learned.columns, only).items()
    ):
        found = learned.belief(sources, samples, np.random.default_rng([seed, number]), **options)
        low, high = np.quantile(found, tails, axis=0)
        told = {"mean": found.mean(0), "sd": found.std(0), "low": low, "high": high}
        parts.append(pl.DataFrame({"item": [item] * len(learned.columns), "column": learned.columns, **told}))
    return pl.concat(parts) if parts else pl.DataFrame(schema=dict.fromkeys(("item", "column"), pl.String))
