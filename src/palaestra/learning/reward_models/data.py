"""Training data of reward models: `Preferences` (two answers, which is better) and `Labels`.

Rows have the columns that scorers read: `prompt` and `response` (text, or messages), or `features`, a list of numbers.
A table of turns does as well: `observation` and `action` are taken for them. `learning.reward_models.files` reads both
from files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import polars as pl

from palaestra.errors import InputError, MissingColumnError, nearest

ALSO = {"prompt": "observation", "response": "action"}
"""What a table of turns calls it."""


@dataclass(frozen=True, kw_only=True)
class _Data:
    reference: pl.DataFrame | None = None
    condition: pl.DataFrame | None = None
    weight: np.ndarray | None = None
    key: np.ndarray | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and len(value) != len(self):
                raise InputError(f"{type(self).__name__}: {field.name} has {len(value)} rows, expected {len(self)}")

    def __len__(self) -> int:
        raise NotImplementedError

    def take(self, index: np.ndarray) -> Self:
        """These rows of everything."""
        return replace(self, **{f.name: v[index] for f in fields(self) if (v := getattr(self, f.name)) is not None})

    def split(self, share: float, seed: int = 0) -> tuple[Self, Self]:
        """(to learn from, held out): about that share of the keys, so that nothing of a prompt is on both sides.

        Raises:
            InputError: one side would be empty.
        """
        key = np.arange(len(self)) if self.key is None else self.key
        names, code = np.unique(key, return_inverse=True)
        out = np.random.default_rng(seed).permutation(len(names)) < round(share * len(names))
        if not 0 < out.sum() < len(names):
            raise InputError(f"held_out={share} of {len(names)} keys (prompts, groups) leaves one side empty")
        held = out[code]
        return self.take(np.flatnonzero(~held)), self.take(np.flatnonzero(held))


@dataclass(frozen=True)
class Preferences(_Data):
    """Data: preference pairs; row i of the table `chosen` is better than row i of the table `rejected`.

    reference, condition: a row per pair, as scorers take them. margin, weight: per pair. key: what pairs have in common
    (a prompt, a group).
    """

    chosen: pl.DataFrame
    rejected: pl.DataFrame
    margin: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.chosen)

    def both(self) -> tuple[pl.DataFrame, pl.DataFrame | None, pl.DataFrame | None]:
        """Rows, reference and condition of both sides in one table each, all chosen before all rejected."""
        twice = [None if each is None else pl.concat([each, each]) for each in (self.reference, self.condition)]
        return pl.concat([self.chosen, self.rejected], how="diagonal_relaxed"), twice[0], twice[1]


@dataclass(frozen=True)
class Labels(_Data):
    """Data: labelled rows, a table and `value` float64[rows] or [rows, heads]; NaN where a label is not known.

    key: also the group inside which a ranking loss orders.
    """

    rows: pl.DataFrame
    value: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)


def column(frame: pl.DataFrame, name: str, who: str) -> pl.Series:
    """Return a table's column `name`, also under the name it has in turns; MissingColumnError if both are absent.

    Raises:
        MissingColumnError: there is none; names who reads it.
    """
    for known in (name, ALSO.get(name, name)):
        if known in frame.columns:
            return frame[known]
    raise MissingColumnError(f"{who} reads column {name!r}, which is missing{nearest(name, frame.columns)}")


def matrix(frame: pl.DataFrame, name: str, who: str) -> np.ndarray:
    """Table's column `name` of numbers or lists of one length, float64[rows, length]; NaN rows where one is missing.

    Raises:
        MissingColumnError: there is no such column.
        InputError: it holds something else, or lists of several lengths.
    """
    values = column(frame, name, who)
    if values.dtype.base_type() is pl.Array:
        values = values.arr.to_list()
    if values.dtype.is_numeric() or values.dtype == pl.Boolean:
        return values.cast(pl.Float64).to_numpy().astype(np.float64)[:, None]
    if not (isinstance(values.dtype, pl.List) and values.dtype.inner.is_numeric()):
        raise InputError(f"{who}: column {name!r} holds {values.dtype}, expected a list of numbers")
    lengths = values.list.len().drop_nulls().unique().to_list()
    if len(lengths) > 1:
        raise InputError(f"{who}: lists in column {name!r} have lengths {sorted(lengths)[:4]}, expected one length")
    width = lengths[0] if lengths else 0
    found = np.full((len(values), width), np.nan)
    known = values.is_not_null().to_numpy()
    flat = values.drop_nulls().list.explode(empty_as_null=False).cast(pl.Float64)
    found[known] = flat.fill_null(np.nan).to_numpy().reshape(-1, width)
    return found


def texts(frame: pl.DataFrame, name: str, who: str) -> list[Any]:
    """List of a table's column `name` of texts or messages [{role, content}], None where missing; other types raise.

    Raises:
        MissingColumnError: there is no such column.
        InputError: it holds something else.
    """
    values = column(frame, name, who)
    if values.dtype.base_type() not in (pl.String, pl.Categorical, pl.Enum, pl.List, pl.Null):
        raise InputError(f"{who}: column {name!r} holds {values.dtype}, expected text or messages")
    return values.to_list()


def together(rows: pl.DataFrame, **others: pl.DataFrame | None) -> None:
    """Raise InputError if a table given beside `rows` has another number of rows than it."""
    for name, other in others.items():
        if other is not None and len(other) != len(rows):
            raise InputError(f"score: {name} has {len(other)} rows for {len(rows)} that are scored")


def series(name: str, values: np.ndarray, known: np.ndarray) -> pl.Series:
    """Series, a scorer's result: `values`, one (number or list) per row where mask `known` is true; null elsewhere.

    values: float64[known rows] or [known rows, heads].
    """
    if values.ndim == 1:
        found = np.full(len(known), np.nan)
        found[known] = values
        return pl.Series(name, found).fill_nan(None)
    listed: list[Sequence[float] | None] = [None] * len(known)
    for row, each in zip(np.flatnonzero(known).tolist(), values.tolist(), strict=True):
        listed[row] = each
    return pl.Series(name, listed, pl.Array(pl.Float64, values.shape[1]))
