"""Pairs and labels from files: TRL's preferences, our long tables of pairs and verdicts, labelled tables.

    prompt, chosen, rejected            text or messages, as TRL has them (no `prompt`: the whole talk on each side)
    chosen_COLUMN, rejected_COLUMN      the same with features
    chosen, rejected (row numbers)      our pairs, with `rows`, the table that was compared; margins if they are named
    item, value                         our verdicts, with `rows`, the judged table, which has `item`; or a file of
                                        `palaestra judge`, which has the texts
    prompt, response or completion, …   rows with the columns of labels that are named

Verdicts are labels: the mean of each item and criterion, or, in a file of `palaestra judge`, the weighted score of each
item. Its comparisons (verdicts with an order) are pairs of `response` and `reference`, from the mean of both orders.

Beside them, if they are there: `reference`, `criterion`, `condition` (numbers), `weights` (a direction), `margin`,
`weight`, `group`. Ties are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, MissingColumnError, nearest
from palaestra.evaluation.analyses import table
from palaestra.judges.pairs import PAIRINGS
from palaestra.learning.reward_models.data import Labels, Preferences, matrix

RENAMED = {"completion": "response"}
TIED, ONE_SIDED = "tied", "without a chosen or a rejected side"
UNLABELLED, FAILED = "without a label", "of verdicts that failed"
"""Why rows of a file are left out."""


def read(path: str | Path, **options: Any) -> Preferences | Labels:
    """Preferences or labels read from a file; options as of `read_counted`."""
    return read_counted(path, **options)[0]


def read_counted(
    path: str | Path,
    *,
    rows: str | Path | None = None,
    features: str | None = None,
    target: Sequence[str] = (),
    margin: str | None = None,
    weight: str | None = None,
    key: str | None = None,
    pairing: str | None = None,
) -> tuple[Preferences | Labels, dict[str, int]]:
    """Read preferences or labels from a .parquet, .jsonl, .json or .csv file; return them and counts of rows left out.

    Args:
        path: the file.
        rows: the table that pairs or verdicts are about.
        features: the column that models on features read.
        target: columns of labels.
        margin: column of the pairs' margins; default: `margin` where there is one.
        weight: column of weights; default: `weight` where there is one.
        key: column of what pairs or labels belong together; default: `group`, else the prompt.
        pairing: text of a pairing (`palaestra names pairing`), which makes the pairs from the rows of the file.

    Returns:
        The data, and how many rows of the file are not in them, by reason.

    Raises:
        InputError: it is none of these. MissingColumnError: a column that is named is not there.
    """
    frame, about = table(Path(path)), None if rows is None else table(Path(rows))
    if pairing is not None:
        if about is not None:
            raise InputError(f"{path}: --rows {rows}: the pairing makes pairs of the file's own rows; leave it out")
        frame, about = PAIRINGS.build(pairing)(Turns(frame)), frame
        frame = frame if "group" in about.columns else frame.drop("group")  # 0 in all, which is no key
    for name in [*target, *(each for each in (margin, weight, key) if each)]:
        if name not in frame.columns:
            raise MissingColumnError(f"{path}: no column {name!r}{nearest(name, frame.columns)}")
    left_out: dict[str, int] = {}

    def keep(rows: pl.DataFrame, reason: str) -> pl.DataFrame:
        if len(rows) < len(frame):
            left_out[reason] = len(frame) - len(rows)
        return rows

    if "tie" in frame.columns:
        frame = keep(frame.filter(~pl.col("tie").cast(pl.Boolean).fill_null(False)), TIED)
    if target:
        frame = keep(frame.filter(pl.any_horizontal(pl.col(list(target)).is_not_null())), UNLABELLED)
        return _labels(frame, list(target), weight, key), left_out
    sides = [f"{side}_{features}" for side in ("chosen", "rejected")] if features else []
    sides = sides if set(sides) & set(frame.columns) else ["chosen", "rejected"]
    if set(sides) <= set(frame.columns):
        frame = keep(frame.drop_nulls(sides), ONE_SIDED)
    reference = None
    if {"chosen", "rejected"} <= set(frame.columns) and frame["chosen"].dtype.is_integer():
        frame, chosen, rejected = _referred(frame, about, path)
        frame = frame.drop("margin", strict=False) if margin is None else frame  # a gap, which is not always a margin
        if about is not None and "reference" in frame.columns and frame["reference"].dtype.is_integer():
            reference, frame = about[frame["reference"]], frame.drop("reference")
    elif features is not None and f"chosen_{features}" in frame.columns:
        chosen, rejected = (_side(frame, side, features) for side in ("chosen", "rejected"))
    elif {"chosen", "rejected"} <= set(frame.columns) and features is None:
        chosen, rejected = (_said(frame, side) for side in ("chosen", "rejected"))
    elif {"item", "value"} <= set(frame.columns):
        if weight is not None:
            raise InputError(f"{path}: --weight {weight}: verdicts have no weights here; each item has their mean")
        if "ok" in frame.columns:
            frame = keep(frame.filter(pl.col("ok").cast(pl.Boolean)), FAILED)
        if about is None and {"response", "score"} <= set(frame.columns):
            return _judged(frame, path, key), left_out
        return _verdicts(frame, about, path, key), left_out
    else:
        wide = f"chosen_{features} and rejected_{features}" if features else "chosen and rejected"
        raise InputError(
            f"{path}: expected columns {wide}, pairs of row numbers, verdicts (item, value), or labels "
            f"that are named (--target); found {', '.join(frame.columns)}"
        )
    margins, weights = margin or "margin", weight or "weight"
    pairs = Preferences(
        chosen,
        rejected,
        margin=_numbers(frame, margins, missing=0.0),
        weight=_weights(frame, weights),
        key=_key(frame, key, chosen),
        reference=_reference(frame, features) if reference is None else reference,
        condition=_condition(frame),
    )
    return pairs, left_out


def _side(frame: pl.DataFrame, side: str, features: str) -> pl.DataFrame:
    found = {features: frame[f"{side}_{features}"]}
    return pl.DataFrame(found | ({"prompt": frame["prompt"]} if "prompt" in frame.columns else {}))


def _said(frame: pl.DataFrame, side: str) -> pl.DataFrame:
    prompt = {"prompt": frame["prompt"]} if "prompt" in frame.columns else {}
    return pl.DataFrame(prompt | {"response": frame[side]})


def _referred(
    frame: pl.DataFrame, about: pl.DataFrame | None, path: str | Path
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Pairs by row number, both sides looked up."""
    if about is None:
        raise InputError(f"{path}: pairs are row numbers: name the table that was compared (--rows)")
    for name in ("chosen", "rejected", "reference"):
        if name in frame.columns and frame[name].dtype.is_integer():
            strange = frame[name].filter(~frame[name].is_between(0, len(about) - 1))
            if len(strange):
                raise InputError(f"{path}: a pair names row {strange[0]}, but the compared table has {len(about)}")
    if "group" not in frame.columns and "group" in about.columns:
        frame = frame.with_columns(group=about["group"][frame["chosen"]])
    return frame, about[frame["chosen"]], about[frame["rejected"]]


def _verdicts(frame: pl.DataFrame, about: pl.DataFrame | None, path: str | Path, key: str | None) -> Labels:
    """Mean value of an item (and criterion) over the verdicts that are ok, as its label."""
    if about is None or "item" not in about.columns:
        raise InputError(f"{path}: verdicts are about items: name the judged table (--rows), with a column item")
    by = ["item", *(["criterion"] if "criterion" in frame.columns else [])]
    if frame.schema["item"] != about.schema["item"]:
        frame, about = (each.with_columns(pl.col("item").cast(pl.String)) for each in (frame, about))
    also = [pl.col(key).first()] if key and key not in by else []
    means = frame.group_by(by, maintain_order=True).agg(pl.col("value").cast(pl.Float64).fill_nan(None).mean(), *also)
    spare = [name for name in ("value", "criterion", *([key] if also else [])) if name in about.columns]
    found = means.join(about.drop(spare), on="item", how="inner", maintain_order="left")
    if not len(found):
        raise InputError(f"{path}: no item of the verdicts, such as {frame['item'].first()!r}, is in the judged table")
    return _labels(found, ["value"], None, key)


def _judged(frame: pl.DataFrame, path: str | Path, key: str | None) -> Preferences | Labels:
    """Verdicts with the texts they are about: the score of each item, or which side of each comparison won."""
    items = frame.unique("item", keep="first", maintain_order=True).drop("criterion", "weight", strict=False)
    items = items.filter(pl.col("score").is_not_null())
    if not len(items):
        raise InputError(f"{path}: no item has a score; judge again what has no verdict")
    if "reference" not in frame.columns:
        return _labels(items, ["score"], None, key or _together(items))
    items = items.filter(pl.col("score") != 0.5)
    won = pl.col("score") > 0.5
    items = items.with_columns(
        chosen=pl.when(won).then("response").otherwise("reference"),
        rejected=pl.when(won).then("reference").otherwise("response"),
    )
    chosen, rejected = (_said(items, side) for side in ("chosen", "rejected"))
    return Preferences(chosen, rejected, key=_key(items, key or _together(items), chosen))


def _together(items: pl.DataFrame) -> str | None:
    """Key of rows that are held out together: the prompt, since groups of several logs may share a number."""
    return "prompt" if "prompt" in items.columns and items["prompt"].null_count() == 0 else None


def _labels(frame: pl.DataFrame, target: list[str], weight: str | None, key: str | None) -> Labels:
    frame = frame.rename(
        {old: new for old, new in RENAMED.items() if old in frame.columns and new not in frame.columns}
    )
    value = np.stack([_numbers(frame, name, strict=True) for name in target], 1)  # type: ignore[misc]
    given = _weights(frame, weight or "weight")
    value = value if len(target) > 1 else value[:, 0]
    found = _key(frame, key, frame)
    return Labels(frame, value, weight=given, key=found, reference=_reference(frame, None), condition=_condition(frame))


# -- what may stand beside --------------------------------------------------------------------------------------------


def _numbers(frame: pl.DataFrame, name: str, *, missing: float = math.nan, strict: bool = False) -> np.ndarray | None:
    """A column of numbers or truth values, missing ones `missing`; nothing if there is none, or it is all null."""
    if name not in frame.columns or (not strict and frame[name].null_count() == len(frame)):
        return None
    values = frame[name]
    if not (values.dtype.is_numeric() or values.dtype in (pl.Boolean, pl.Null)):
        raise InputError(f"column {name!r} holds {values.dtype}, expected numbers")
    found = values.cast(pl.Float64).fill_null(np.nan).to_numpy()
    if np.isinf(found).any():
        raise InputError(f"column {name!r} is infinite in row {int(np.isinf(found).argmax())}; give finite numbers")
    return found if strict else np.nan_to_num(found, nan=missing)


def _weights(frame: pl.DataFrame, name: str) -> np.ndarray | None:
    """As `_numbers`, a missing one 1.

    Raises:
        InputError: one is below 0.
    """
    found = _numbers(frame, name, missing=1.0)
    if found is not None and (found < 0).any():
        row = int((found < 0).argmax())
        raise InputError(f"column {name!r} is {found[row]:g} in row {row}; weights are not below 0")
    return found


def _key(frame: pl.DataFrame, key: str | None, rows: pl.DataFrame) -> np.ndarray | None:
    """Cluster key of pairs: the column that is named, the group, or the prompt."""
    for table_, name in ((frame, key), (frame, "group"), (frame, "prompt"), (rows, "prompt"), (rows, "observation")):
        if name and name in table_.columns:
            values = table_[name]
            text = (
                values
                if values.dtype == pl.String or values.dtype.is_integer()
                else values.map_elements(
                    lambda each: repr(each.to_list() if isinstance(each, pl.Series) else each), pl.String
                )
            )
            return text.cast(pl.String).fill_null("").to_numpy()
    return None


def _reference(frame: pl.DataFrame, features: str | None) -> pl.DataFrame | None:
    if features is not None:
        name = f"reference_{features}"
        return pl.DataFrame({features: frame[name]}) if name in frame.columns else None
    return pl.DataFrame({"response": frame["reference"]}) if "reference" in frame.columns else None


def _condition(frame: pl.DataFrame) -> pl.DataFrame | None:
    """`criterion` (text), `condition` (numbers, as `features`) and `weights` (a direction), if any is there."""
    found: dict[str, pl.Series] = {}
    if "criterion" in frame.columns and frame["criterion"].null_count() < len(frame):
        found["criterion"] = frame["criterion"].cast(pl.String)
    if "condition" in frame.columns:
        matrix(frame, "condition", "condition")
        found["features"] = frame["condition"]
    if "weights" in frame.columns:
        found["weights"] = frame["weights"]
    return pl.DataFrame(found) if found else None
